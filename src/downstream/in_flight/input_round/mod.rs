//! One round of input for a sessionless server: the questions for a client with a handshake, and
//! the answers that the server then receives (B-ASK-03). Pure.

use std::time::Duration;

use serde_json::json;

use crate::bridge::question::{self, QuestionFallback, QuestionKind, UnsupportedQuestion};
use crate::bridge::result::InputRequired;
use crate::downstream::caller::Caller;
use crate::downstream::connection::handshake::error_text;
use crate::downstream::server_request::configured_roots;
use crate::protocol::{
    ErrorKind, Failure, Outcome, RawJson, Request, RequestId, Response, Revision,
};
use crate::supervision::Backoff;

/// Maximum rounds per call; a server that asks again fails the call.
pub(crate) const ROUNDS_MAX: u32 = 8;

/// Why the rounds end without the server's answer, as part of a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Stop(pub(crate) String);

/// One round: the questions, and the answers received so far.
#[derive(Debug)]
pub(crate) struct InputRound {
    state: Option<String>,
    open: Vec<UnansweredInput>,
    answers: Vec<(String, RawJson)>,
    /// URL elicitations that were given an id for the client.
    pub(crate) urls: Vec<String>,
}

#[derive(Debug)]
struct UnansweredInput {
    id: RequestId,
    key: String,
    kind: QuestionKind,
}

/// The answers and state that a repeated request carries (C-MRTR-01, C-MRTR-02).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InputAnswers {
    /// `None` if nothing was asked.
    pub(crate) responses: Option<String>,
    pub(crate) state: Option<String>,
}

impl InputRound {
    /// Plans a round and checks all of it before any question is sent. `next` provides the request
    /// ids.
    ///
    /// # Errors
    ///
    /// Returns [`Stop`] if the client cannot be asked for an input that the server needs.
    pub(crate) fn plan(
        required: InputRequired,
        caller: &Caller,
        mut next: impl FnMut() -> u64,
    ) -> Result<(Self, Vec<Request>), Stop> {
        let mut round = Self {
            state: required.state,
            open: Vec::new(),
            answers: Vec::new(),
            urls: Vec::new(),
        };
        let mut requests = Vec::new();
        for (key, question) in required.requests {
            let number = next();
            let url = format!("mcpvisor-{number}");
            let kind = question.kind;
            match question.for_client(caller.revision, caller.profile.as_map(), &url) {
                Ok(asked) => {
                    let id = RequestId::from(number);
                    if question.required() == question::RequiredCapability::Url
                        && caller.revision == Revision::V2025_11_25
                    {
                        round.urls.push(url);
                    }
                    requests.push(asked.request(&id));
                    round.open.push(UnansweredInput { id, key, kind });
                }
                Err(error @ UnsupportedQuestion::Undeclared(_)) => {
                    return Err(Stop(error.to_string()));
                }
                Err(error @ UnsupportedQuestion::Revision { .. }) => {
                    match question::fallback_for(kind) {
                        QuestionFallback::Answer(answer) => round.answers.push((key, answer)),
                        QuestionFallback::Stop => return Err(Stop(error.to_string())),
                    }
                }
            }
        }
        Ok((round, requests))
    }

    /// Whether every question has been answered.
    pub(crate) fn is_complete(&self) -> bool {
        self.open.is_empty()
    }

    /// Records the answer to one question; `roots` are the fallback for a missing answer.
    ///
    /// # Errors
    ///
    /// Returns [`Stop`] if the client refused an input that the server requires, or is gone.
    pub(crate) fn answered(
        &mut self,
        id: &RequestId,
        answer: Result<Response, Failure>,
        roots: &[String],
    ) -> Result<(), Stop> {
        let Some(place) = self.open.iter().position(|open| open.id == *id) else {
            return Ok(());
        };
        let UnansweredInput { key, kind, .. } = self.open.remove(place);
        let result = match answer {
            Ok(response) => match response.outcome {
                Outcome::Result(result) => {
                    let checked = question::check_answer(kind, &result);
                    checked.map(|()| result).map_err(|error| error.to_string())
                }
                Outcome::Error(error) => Err(error_text(&error)),
            },
            // Roots are known without the client.
            Err(_) if kind == QuestionKind::Roots => Ok(configured_roots(roots)),
            // The call's session is gone, so the answer has no receiver.
            Err(failure) if failure.kind == ErrorKind::SessionNotFound => {
                return Err(Stop(failure.message));
            }
            Err(failure) => Err(failure.message),
        };
        let answer = match (result, question::fallback_for(kind)) {
            (Ok(result), _) => result,
            (Err(_), QuestionFallback::Answer(instead)) => instead,
            (Err(why), QuestionFallback::Stop) => {
                let method = kind.method();
                return Err(Stop(format!("client did not answer `{method}`: {why}")));
            }
        };
        self.answers.push((key, answer));
        Ok(())
    }

    pub(crate) fn given(self) -> InputAnswers {
        let entry =
            |(key, answer): &(String, RawJson)| format!("{}:{}", json!(key), answer.as_str());
        let entries: Vec<_> = self.answers.iter().map(entry).collect();
        InputAnswers {
            responses: (!entries.is_empty()).then(|| format!("{{{}}}", entries.join(","))),
            state: self.state,
        }
    }
}

/// Delays before a request without questions is repeated.
const PAUSE: Backoff = Backoff::doubling(Duration::from_millis(250), Duration::from_secs(64));

/// Delay before a request without questions is repeated. Rounds count from 1.
pub(crate) fn pause(round: u32) -> Duration {
    PAUSE.delay(round.saturating_sub(1))
}

#[cfg(test)]
mod tests;
