//! Repeats calls to a sessionless server that requires the client's input or other headers.

use tokio::time::Instant;

use crate::bridge::result::InputRequired;
use crate::downstream::call_request::lost;
use crate::downstream::in_flight::call::{CallAnswer, InFlightCall, WireState};
use crate::downstream::in_flight::endings::not_sent;
use crate::downstream::in_flight::input_round::{self, InputRound, ROUNDS_MAX, Stop};
use crate::downstream::in_flight::rewrite::{self, RepeatableRequest};
use crate::downstream::in_flight::server_link::ServerLink;
use crate::id::ServerName;
use crate::protocol::{ErrorKind, Failure, RequestId, Response};
use crate::telemetry::Counter;

impl RepeatableRequest {
    /// The caller's failure when a repeated request was not sent. If the server ran part of the
    /// call in earlier rounds, the failure must not claim that the call did not run.
    pub(super) fn failed(&self, server: &ServerName, failure: Failure) -> Failure {
        if self.rounds > 0 && failure.kind.says_not_run() {
            return lost(server, "it did not accept the input that it had requested");
        }
        failure
    }
}

impl InFlightCall {
    /// Asks the client for the input that the server requires.
    pub(super) fn begin_round(
        &mut self,
        required: InputRequired,
        server: &mut ServerLink,
        now: Instant,
    ) -> Option<CallAnswer> {
        let repeatable = self.repeatable.as_mut()?;
        repeatable.rounds += 1;
        if repeatable.rounds > ROUNDS_MAX {
            let stop = Stop(format!("it asked for more input {ROUNDS_MAX} times"));
            return Some(Err(input_refused(server, &stop)));
        }
        let planned = InputRound::plan(required, &self.caller, || server.next_wire_id());
        let (round, questions) = match planned {
            Ok(planned) => planned,
            Err(stop) => return Some(Err(input_refused(server, &stop))),
        };
        server.spec.of_all.counters.add(Counter::InputRounds);
        repeatable
            .elicitation_ids
            .extend(round.urls.iter().cloned());
        let round = Box::new(round);
        self.state = if questions.is_empty() {
            // The server asked for nothing, or for nothing that this client can be asked.
            WireState::Paused {
                until: now + input_round::pause(repeatable.rounds),
                round: Some(round),
            }
        } else {
            WireState::AwaitsInput(round)
        };
        self.expires = self.deadline.latest;
        for question in questions {
            let pending = &mut server.questions;
            pending.ask_for_input(self.number, &mut self.reply, question);
        }
        None
    }

    /// Handles the answer to one question of a round.
    pub(super) fn on_input(
        &mut self,
        id: &RequestId,
        answer: Result<Response, Failure>,
        roots: &[String],
        server: &ServerLink,
        now: Instant,
    ) -> Option<CallAnswer> {
        let WireState::AwaitsInput(round) = &mut self.state else {
            return None;
        };
        match round.answered(id, answer, roots) {
            Err(stop) => Some(Err(input_refused(server, &stop))),
            Ok(()) if round.is_complete() => self.repeat(server, now),
            Ok(()) => None,
        }
    }

    /// Holds a call whose headers were refused until the tools are listed again. Returns whether
    /// that can help; it is done at most once per call (C-HTTP-09).
    pub(super) fn await_headers(&mut self, server: &ServerLink) -> bool {
        let Some(repeatable) = self.repeatable.as_mut() else {
            return false;
        };
        let is_useless = std::mem::replace(&mut repeatable.headers_renewed, true);
        if is_useless || !server.knows_call_of_requests() {
            return false;
        }
        self.state = WireState::AwaitsHeaders;
        true
    }

    /// Sends a call again under a new id (C-MRTR-03).
    pub(super) fn repeat(&mut self, server: &ServerLink, now: Instant) -> Option<CallAnswer> {
        if self.task.is_some() {
            return self.ask_about_task(server, now);
        }
        let answers = self.take_input_answers();
        let repeatable = self.repeatable.as_ref()?;
        let wire_id = server.next_wire_id();
        let forwarded = self.outgoing.forwarded.clone();
        let traceparent = forwarded.as_ref().and_then(|said| said.traceparent());
        let answers = answers.as_ref();
        let mut outgoing = rewrite::modern(
            server,
            &self.caller,
            repeatable,
            wire_id,
            answers,
            traceparent,
        );
        outgoing.forwarded = forwarded;
        if let Err(error) = server.link.send(outgoing.clone()) {
            let failure = not_sent(server.name(), error);
            return Some(Err(repeatable.failed(server.name(), failure)));
        }
        self.wire_id = wire_id;
        self.outgoing = outgoing;
        self.extend(server, now);
        None
    }
}

fn input_refused(server: &ServerLink, stop: &Stop) -> Failure {
    let server = server.name();
    let message = format!("server `{server}` needs more input to answer this call: {stop}");
    Failure::new(ErrorKind::InputRefused, message).server(server.as_str())
}
