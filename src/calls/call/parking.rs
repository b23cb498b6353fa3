//! Asks the client of a sessionless call for input, and parks the call until the client returns
//! with answers (B-ASK-02). Sessions ask their clients themselves.

use std::time::Duration;

use uuid::Uuid;

use super::reply_target::ReplyTarget;
use super::{Call, CallOwner, CallState};
use crate::bridge::question;
use crate::bridge::result::InputRequired;
use crate::bridge::seal::{Continuation, page_key};
use crate::calls::alarms::Alarm;
use crate::calls::client_reply::{ClientReply, ClientRequest};
use crate::calls::open_questions::binding;
use crate::calls::progress::Progress;
use crate::calls::sealing::NewState;
use crate::calls::sealing::state_used;
use crate::downstream::Question;
use crate::history::CallEnding;
use crate::protocol::{ErrorKind, Failure, Method, RawJson, Request};
use crate::telemetry::Counter;

/// How long to wait for further questions: a server that needs several answers sends its questions
/// in quick succession, and the client receives them together.
pub(super) const GATHER_DELAY: Duration = Duration::from_millis(30);

impl Call {
    /// Handles a question of the server. While the client collects answers to earlier questions,
    /// the question waits for the next round.
    pub(super) fn on_question(&mut self, question: Question) {
        let Some(rounds) = &mut self.rounds else {
            return;
        };
        // A retried call would ask its client again, possibly while the client is already
        // answering.
        self.retry = None;
        let questions = &mut rounds.questions;
        questions.add(question, self.caller.profile.as_map());
        let waits = !matches!(self.client, ReplyTarget::Away);
        if waits && !questions.is_empty() && !self.alarms.is_set(Alarm::QuestionsGathered) {
            self.alarms.set(Alarm::QuestionsGathered, GATHER_DELAY);
        }
    }

    /// Parks the call and asks the client.
    pub(super) fn ask(&mut self, owner: &mut impl CallOwner) {
        let Some(rounds) = &mut self.rounds else {
            return;
        };
        let capabilities = self.caller.profile.as_map();
        if let Err(needed) = rounds.questions.refuse_undeclared(capabilities) {
            let failure = self.refusal(needed);
            return self.fail(&failure, "its client cannot be asked", owner);
        }
        let handle = match self.park() {
            Ok(handle) => handle,
            Err(failure) => return self.fail(&failure, "its client cannot be asked now", owner),
        };
        let continuation = Continuation::Owned {
            owner: String::new(),
            handle: handle.to_string(),
        };
        let requests =
            (self.rounds.as_mut()).map_or_else(Vec::new, |rounds| rounds.questions.ask());
        self.context.counters.add(Counter::QuestionsAsked);
        if !self.answer_with_questions(requests, continuation, owner) {
            return self.cancel_and_end("its client cannot be asked");
        }
        self.await_client();
    }

    /// Marks the client as away, and sets the deadline for its return.
    fn await_client(&mut self) {
        self.client = ReplyTarget::Away;
        let timeout = self.context.settings.load().answer_timeout;
        self.alarms.set(Alarm::ClientAbsent, timeout);
    }

    /// Returns the call's handle among the parked calls. Takes a parking slot if the call has none.
    ///
    /// # Errors
    ///
    /// Returns the failure for the client if no slot is free.
    pub(super) fn park(&mut self) -> Result<Uuid, Failure> {
        match self.rounds.as_ref().and_then(|rounds| rounds.handle()) {
            Some(handle) => Ok(handle),
            None => self.park_as(self.context.mint.mint()),
        }
    }

    /// Takes a parking slot under this handle.
    ///
    /// # Errors
    ///
    /// Returns the failure for the client if no slot is free.
    pub(super) fn park_as(&mut self, handle: Uuid) -> Result<Uuid, Failure> {
        let (call, server) = ((handle, self.number), &self.target.server);
        match &mut self.rounds {
            Some(rounds) => rounds.park(call, &self.context, &self.caller, server),
            None => {
                let message = "a call of a session cannot be parked";
                Err(Failure::new(ErrorKind::Internal, message))
            }
        }
    }

    /// Resumes the call: the client returned with answers.
    pub(super) fn resume(
        &mut self,
        mut back: ClientRequest,
        round: u8,
        owner: &mut impl CallOwner,
    ) {
        let is_away = matches!(self.client, ReplyTarget::Away);
        let rounds = self.rounds.as_mut();
        let rounds = rounds.filter(|rounds| is_away && round == rounds.questions.round);
        let Some(rounds) = rounds else {
            // A state is accepted only once (S-MRTR-09).
            let (method, id) = (&back.request.method, &back.request.id);
            let (decorator, failure) = (self.context.decorator(&self.caller), state_used());
            let refusal = decorator.failed(method, id, &failure, self.caller.revision);
            return back.answer(refusal, CallEnding::Failed(&failure));
        };
        rounds.request_number = back.number;
        self.call_telemetry = back.take_call_telemetry(&self.target.server, &self.item);
        self.id = back.request.id.clone();
        self.progress =
            Progress::of(&back.request, self.caller.revision).of_view(&self.caller.view);
        self.client = ReplyTarget::Reply {
            reply: back.reply,
            accepts_stream: back.accepts_stream,
        };
        self.continue_with_answers(&back.request, owner);
    }

    pub(super) fn on_client_absent(&mut self) {
        self.context.counters.add(Counter::LateClients);
        self.cancel_and_end("its client did not come back");
    }

    /// Continues the call with the answers in `request`.
    pub(super) fn continue_with_answers(&mut self, request: &Request, owner: &mut impl CallOwner) {
        self.alarms.clear(Alarm::ClientAbsent);
        match self.replace_state(CallState::NotSent) {
            CallState::Answered(answer) => return self.on_answer(*answer, owner),
            other => self.state = other,
        }
        if matches!(self.state, CallState::Task(_)) {
            return self.answer_with_task(owner);
        }
        let Some(rounds) = &mut self.rounds else {
            return;
        };
        if let Err(failure) = rounds.questions.answer(request) {
            self.answer_failure(&failure, owner);
            return self.await_client();
        }
        if !rounds.questions.is_empty() {
            self.ask(owner);
        }
    }

    /// Forwards a modern server's request for input to the client. The server's state is sealed
    /// into the state that the client returns.
    pub(super) fn forward_input_request(&mut self, result: &RawJson, owner: &mut impl CallOwner) {
        match InputRequired::parse(result) {
            Ok(_) if self.method == Method::CompletionComplete => {
                self.answer_failure(&asks_in_completion(), owner);
            }
            Ok(asked) => match asked.declared(self.caller.profile.as_map()) {
                Ok(asked) => {
                    self.next_round();
                    let state = asked.state;
                    self.answer_with_questions(asked.requests, Continuation::Pass { state }, owner);
                }
                Err(needed) => self.answer_failure(&self.refusal(needed), owner),
            },
            Err(error) => {
                let server = &self.target.server;
                let message = format!("server `{server}` asks for input in a wrong way: {error}");
                let failure = Failure::new(ErrorKind::ServerProtocol, message);
                self.answer_failure(&failure.server(server.as_str()), owner);
            }
        }
    }

    /// Asks the user to open the server's URLs; the call is sent again afterwards.
    pub(super) fn ask_for_url_visits(
        &mut self,
        pages: Vec<question::Question>,
        owner: &mut impl CallOwner,
    ) {
        let url = question::RequiredCapability::Url;
        if !url.is_declared(self.caller.profile.as_map()) {
            return self.answer_failure(&self.refusal(url), owner);
        }
        self.next_round();
        let continuation = Continuation::Reissue { pages: pages.len() };
        let keyed = pages.into_iter().enumerate();
        let requests = keyed.map(|(index, page)| (page_key(index), page));
        self.answer_with_questions(requests.collect(), continuation, owner);
    }

    /// Ends the current round, so that its state is no longer accepted.
    pub(super) fn next_round(&mut self) {
        if let Some(rounds) = &mut self.rounds {
            rounds.next();
        }
    }

    /// Answers with the open questions. Returns false if the client received a failure instead.
    fn answer_with_questions(
        &mut self,
        requests: Vec<(String, question::Question)>,
        continuation: Continuation,
        owner: &mut impl CallOwner,
    ) -> bool {
        match self.seal(continuation) {
            Ok(state) => {
                let state = Some(state);
                let asked = InputRequired { requests, state };
                let decorator = self.context.decorator(&self.caller);
                let frame = decorator.input_required(&self.id, &asked);
                self.reply(ClientReply::Json(frame), CallEnding::InputRequired, owner);
                true
            }
            Err(failure) => {
                self.answer_failure(&failure, owner);
                false
            }
        }
    }

    /// Returns the sealed state that the client has to return with its answers.
    fn seal(&self, continuation: Continuation) -> Result<String, Failure> {
        let rounds = self.rounds.as_ref();
        let arguments = rounds.and_then(|rounds| rounds.arguments.clone());
        let round = self.round();
        let binding = binding(&self.method, arguments, &self.caller, &self.item)?;
        let server = &self.target.server;
        let new = NewState {
            binding,
            server,
            declaration: self.declaration(),
            round,
            continuation,
        };
        let settings = self.context.settings.load();
        let sealed = self.context.sealing.seal(new, &settings);
        sealed.map_err(|error| {
            let message = format!("server `{server}` cannot ask its client: {error}");
            Failure::new(ErrorKind::ServerProtocol, message).server(server.as_str())
        })
    }

    /// Returns the failure for a client that lacks a capability that its server needs (S-LIFE-16).
    pub(super) fn refusal(&self, needed: question::RequiredCapability) -> Failure {
        if self.method == Method::CompletionComplete {
            return asks_in_completion();
        }
        let message = format!(
            "this request needs the client capability `{}`",
            needed.as_str()
        );
        Failure::missing_capability(message, needed.capabilities())
    }
}

/// Returns the failure for a server that asks for input during a completion, which is not allowed
/// (S-MRTR-02).
fn asks_in_completion() -> Failure {
    let message = "the server asked for input during a completion, which is not allowed";
    Failure::new(ErrorKind::InputRefused, message)
}
