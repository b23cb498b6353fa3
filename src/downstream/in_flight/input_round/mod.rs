//! A sessionless server needs something of a client with a handshake before it can answer: what
//! the client is asked, and what the server then receives (B-ASK-03). Pure.

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

/// Rounds of one call; a server that still asks then gets no answer.
pub(crate) const ROUNDS_MAX: u32 = 8;

/// The loop ends without an answer of the server: the sentence part says why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Stop(pub(crate) String);

/// One round: what was asked, and what was answered so far.
#[derive(Debug)]
pub(crate) struct InputRound {
    state: Option<String>,
    open: Vec<UnansweredInput>,
    answers: Vec<(String, RawJson)>,
    /// Elicitations by URL that the client was given an id for.
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
    /// `None` where nothing was asked.
    pub(crate) responses: Option<String>,
    pub(crate) state: Option<String>,
}

impl InputRound {
    /// Plans a round: the whole of it is checked before anything is asked. The requests have the
    /// ids that `next` gives.
    ///
    /// # Errors
    ///
    /// Returns [`Stop`] when the client cannot be asked something that the server needs.
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

    /// Whether everything that was asked is answered.
    pub(crate) fn is_complete(&self) -> bool {
        self.open.is_empty()
    }

    /// Takes the answer to one question; `roots` are those to fall back to.
    ///
    /// # Errors
    ///
    /// Returns [`Stop`] when the client refused what the server cannot go on without, or is
    /// gone.
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
            // Nobody waits for the answer to the call.
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

/// Delays before a request is repeated for which nothing was asked.
const PAUSE: Backoff = Backoff::doubling(Duration::from_millis(250), Duration::from_secs(64));

/// How long to wait before a request is repeated for which nothing was asked. Rounds count from 1.
pub(crate) fn pause(round: u32) -> Duration {
    PAUSE.delay(round.saturating_sub(1))
}

#[cfg(test)]
mod tests;
