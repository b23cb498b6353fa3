//! Questions to a client without a session: the open questions of its call, and the answers that it
//! returns with its next request (B-ASK-02).

use std::fmt::Display;

use bytes::Bytes;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::bridge::question::{self, QuestionKind, RequiredCapability};
use crate::bridge::seal::{Continuation, StateBinding, page_key};
use crate::calls::call_context::CallContext;
use crate::calls::sealing::ReturnedState;
use crate::downstream::{Caller, Question};
use crate::id::ServerName;
use crate::protocol::{
    Edit, Envelope, ErrorKind, Failure, RawJson, Request, Response, json, parse_bounded, splice,
};

/// Questions of a server that the client has not answered yet.
#[derive(Default)]
pub(crate) struct OpenQuestions {
    /// Number of times that the client was asked.
    pub(crate) round: u8,
    asked: Vec<AskedQuestion>,
    /// Number of questions that were shown to the client as part of its task.
    shown: u32,
}

struct AskedQuestion {
    /// The key under which the client answers; `None` until the client was asked.
    key: Option<String>,
    /// The question in the client's format.
    entry: question::Question,
    question: Question,
    /// Whether `key` is a task's key, assigned by [`OpenQuestions::of_task`].
    is_shown: bool,
}

/// The answers of an earlier round that a request returns, with the state that they are bound to.
pub(crate) struct ReturnedRound {
    /// The request without the gateway's state; `None` if the request returned no state.
    pub(crate) rewritten: Option<Request>,
    /// Number of times that the client was already asked.
    pub(crate) round: u8,
    /// The handle of the parked call that the answers are for; `None` if they go to the server.
    pub(crate) parked: Option<Uuid>,
    /// The returned state to record as used; `None` if a parked call tracks its rounds itself.
    state: Option<ReturnedState>,
    /// The failure for a client that declined; its call is not sent to the server again.
    refused: Option<Failure>,
}

/// Returns the binding between a state and its request: a state is accepted only with a request
/// that has the same binding.
///
/// # Errors
///
/// Returns -32602 for ambiguous arguments.
pub(crate) fn binding(
    method: &crate::protocol::Method,
    arguments: Option<Bytes>,
    caller: &Caller,
    item: &str,
) -> Result<StateBinding, Failure> {
    let arguments = arguments.and_then(|bytes| RawJson::try_new(bytes).ok());
    let (capabilities, principal) = (caller.profile.as_map(), caller.principal.as_str());
    StateBinding::new(
        method.clone(),
        principal,
        item,
        arguments.as_ref(),
        capabilities,
    )
    .map_err(|error| Failure::new(ErrorKind::InvalidParams, error.to_string()))
}

impl ReturnedRound {
    /// Reads the state and answers that the request returns; only clients without a session return
    /// any. `item` is the public name or URI in the request.
    ///
    /// # Errors
    ///
    /// Returns -32602 for a state that the gateway did not seal, that was modified, has expired,
    /// belongs to another request, or comes from a server that was replaced.
    pub(crate) fn read(
        request: &Request,
        caller: &Caller,
        server: &ServerName,
        item: &str,
        calls: &CallContext,
    ) -> Result<Self, Failure> {
        let mut returned = Self {
            rewritten: None,
            round: 0,
            parked: None,
            state: None,
            refused: None,
        };
        let state = request.request_state();
        let Some(state) = state.filter(|_| caller.session.is_none()) else {
            return Ok(returned);
        };
        let arguments = request.member(request.params.arguments.as_ref());
        let binding = binding(&request.method, arguments, caller, item)?;
        let settings = calls.settings.load();
        let opened = calls.sealing.open(&state, &binding, server, &settings)?;
        returned.round = opened.round;
        returned.state = Some(ReturnedState::of(&opened));
        returned.rewritten = Some(match opened.continuation {
            Continuation::Owned { handle, .. } => {
                returned.parked = Some(Uuid::try_parse(&handle).map_err(|_| invalid_state())?);
                // The parked call counts its rounds itself.
                returned.state = None;
                return Ok(returned);
            }
            Continuation::Pass { state: Some(state) } => with_state(request, &state)?,
            Continuation::Pass { state: None } => without(request, &["requestState"])?,
            Continuation::Reissue { pages } => {
                returned.refused = unopened(request, pages, server)?;
                without(request, &["requestState", "inputResponses"])?
            }
        });
        Ok(returned)
    }

    /// Marks the returned state as used; `None` if the request returned none. The future completes
    /// once the store has recorded this. The call may then start, unless the client declined.
    ///
    /// # Errors
    ///
    /// Returns -32602 for a state that was already used, and `Overloaded` if too many used states
    /// are remembered.
    pub(crate) fn use_up_state(
        &mut self,
        calls: &CallContext,
    ) -> Result<Option<impl Future<Output = Result<(), Failure>> + use<>>, Failure> {
        let Some(state) = self.state.take() else {
            return Ok(None);
        };
        let max = calls.settings.load().used_states_max;
        let kept = calls.sealing.use_up(state, max)?;
        let refused = self.refused.take();
        Ok(Some(async move {
            kept.await?;
            refused.map_or(Ok(()), Err)
        }))
    }
}

/// Checks that the user opened all pages that the server asked for (S-REQ-13). Returns the failure
/// that the client reads if the user declined.
///
/// # Errors
///
/// Returns -32602 for missing or malformed answers.
fn unopened(
    request: &Request,
    pages: usize,
    server: &ServerName,
) -> Result<Option<Failure>, Failure> {
    let given = given(request).ok_or_else(no_object)?;
    let mut is_accepted = true;
    for key in (0..pages).map(page_key) {
        let answer = given.get(&key).map(RawJson::from_value);
        let answer = answer.ok_or_else(|| invalid_answer(&key, "is missing"))?;
        question::check_answer(QuestionKind::Elicitation, &answer)
            .map_err(|error| invalid_answer(&key, error))?;
        is_accepted &= question::is_accepted(&answer);
    }
    if is_accepted {
        return Ok(None);
    }
    let message = format!(
        "server `{server}` requires the user to open a page before this call, and the user declined; the call was not sent"
    );
    let refused = Failure::new(ErrorKind::InputRefused, message);
    Ok(Some(refused.server(server.as_str())))
}

fn no_object() -> Failure {
    let message = "`params.inputResponses` must be an object";
    Failure::new(ErrorKind::InvalidParams, message)
}

fn invalid_answer(key: &str, what: impl Display) -> Failure {
    let message = format!("`params.inputResponses.{key}`: {what}");
    Failure::new(ErrorKind::InvalidParams, message)
}

fn invalid_state() -> Failure {
    Failure::new(ErrorKind::InvalidParams, "invalid requestState")
}

/// Returns the request with the server's original state in place of the sealed one.
fn with_state(request: &Request, state: &str) -> Result<Request, Failure> {
    let span = request.params.request_state.clone().unwrap_or_default();
    let edit: Edit = (span, RawJson::from_value(&state).as_bytes().clone());
    parse_request(splice(request.frame.as_bytes(), &mut [edit]))
}

/// Returns the request without these members of `params`.
fn without(request: &Request, members: &[&str]) -> Result<Request, Failure> {
    let keep = |name: &str, value: &str| (!members.contains(&name)).then(|| value.to_owned());
    let frame = json::rebuild(request.frame.as_str(), |name, value| match name {
        "params" => json::rebuild(value, keep).or_else(|| Some(value.to_owned())),
        _ => Some(value.to_owned()),
    });
    parse_request(Bytes::from(frame.ok_or_else(invalid_state)?))
}

fn parse_request(frame: Bytes) -> Result<Request, Failure> {
    match Envelope::parse(frame) {
        Ok(Envelope::Request(request)) => Ok(request),
        _ => Err(invalid_state()),
    }
}

impl OpenQuestions {
    /// Creates an empty set for a client that was already asked `round` times.
    pub(crate) fn of(round: u8) -> Self {
        Self {
            round,
            ..Self::default()
        }
    }

    /// Adds a question; an invalid question is refused.
    pub(crate) fn add(&mut self, question: Question, capabilities: &Map<String, Value>) {
        let Some(entry) = question::Question::from_server(&question.request, capabilities) else {
            return refuse(question);
        };
        self.asked.push(AskedQuestion {
            key: None,
            entry,
            question,
            is_shown: false,
        });
    }

    /// Refuses questions for which the client did not declare the capability (S-MRTR-05).
    ///
    /// # Errors
    ///
    /// Returns a capability that the client would have to declare, if no question is left.
    pub(crate) fn refuse_undeclared(
        &mut self,
        capabilities: &Map<String, Value>,
    ) -> Result<(), RequiredCapability> {
        let asked = std::mem::take(&mut self.asked).into_iter();
        let (declared, others): (Vec<_>, Vec<_>) =
            asked.partition(|asked| asked.entry.required().is_declared(capabilities));
        self.asked = declared;
        let needed = others.first().map(|asked| asked.entry.required());
        for other in others {
            refuse(other.question);
        }
        match needed {
            Some(needed) if self.asked.is_empty() => Err(needed),
            _ => Ok(()),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.asked.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    /// Starts a round and returns every open question with the key under which the client answers
    /// it.
    pub(crate) fn ask(&mut self) -> Vec<(String, question::Question)> {
        self.round = self.round.saturating_add(1);
        let mut asked = Vec::with_capacity(self.asked.len());
        for (index, open) in self.asked.iter_mut().enumerate() {
            let key = open.key.get_or_insert(format!("r{}.{index}", self.round));
            asked.push((key.clone(), open.entry.clone()));
        }
        asked
    }

    /// Returns every open question of a task with its key. Keys are never reused within a task
    /// (S-TASK-X-08).
    pub(crate) fn of_task(&mut self) -> Vec<(String, question::Question)> {
        let mut open = Vec::with_capacity(self.asked.len());
        for asked in &mut self.asked {
            if !std::mem::replace(&mut asked.is_shown, true) {
                self.shown += 1;
                asked.key = Some(format!("q-{}", self.shown));
            }
            open.extend(asked.key.clone().map(|key| (key, asked.entry.clone())));
        }
        open
    }

    /// Passes the client's answers to the server. Unanswered questions stay open, and unsolicited
    /// answers are ignored (S-MRTR-12, S-MRTR-13).
    ///
    /// # Errors
    ///
    /// Returns -32602 for a malformed answer; in that case no answer was passed on.
    pub(crate) fn answer(&mut self, request: &Request) -> Result<(), Failure> {
        let given = given(request).ok_or_else(no_object)?;
        let mut answers: Vec<Option<RawJson>> = Vec::with_capacity(self.asked.len());
        for asked in &self.asked {
            let answer = asked.key.as_ref().and_then(|key| given.get(key));
            let answer = answer.map(RawJson::from_value);
            if let Some(answer) = &answer {
                question::check_answer(asked.entry.kind, answer).map_err(|error| {
                    invalid_answer(asked.key.as_deref().unwrap_or_default(), error)
                })?;
            }
            answers.push(answer);
        }
        let open = std::mem::take(&mut self.asked);
        for (asked, answer) in open.into_iter().zip(answers) {
            match answer.as_ref().and_then(response) {
                Some(response) => asked.question.answer(Ok(response)),
                None => self.asked.push(asked),
            }
        }
        Ok(())
    }
}

fn refuse(question: Question) {
    let method = &question.request.method;
    let message = format!("the client cannot be asked for `{method}`");
    question.answer(Err(Failure::new(ErrorKind::MethodNotFound, message)));
}

/// Returns the answers in a request, by key; `None` if they are not an object.
fn given(request: &Request) -> Option<Map<String, Value>> {
    match request.member(request.params.input_responses.as_ref()) {
        Some(given) => parse_bounded(RawJson::try_new(given).ok()?.as_str()),
        None => Some(Map::new()),
    }
}

/// Wraps a result in a response frame. The id is a placeholder, because the id of the server's
/// question is not known here.
fn response(result: &RawJson) -> Option<Response> {
    let frame = format!(r#"{{"jsonrpc":"2.0","id":0,"result":{}}}"#, result.as_str());
    match Envelope::parse(Bytes::from(frame)) {
        Ok(Envelope::Response(response)) => Some(response),
        _ => None,
    }
}
