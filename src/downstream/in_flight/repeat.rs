//! Resends calls to a sessionless server that requires the client's input or other headers.

use tokio::time::Instant;

use crate::bridge::result::InputRequired;
use crate::downstream::call_request::{Question, lost};
use crate::downstream::connection::handshake::error_text;
use crate::downstream::in_flight::call::{RepeatableRequest, WireState};
use crate::downstream::in_flight::endings::not_sent;
use crate::downstream::in_flight::input_round::{self, InputRound, ROUNDS_MAX, Stop};
use crate::downstream::in_flight::questions::OpenQuestion;
use crate::downstream::in_flight::{CallsInFlight, UnhandledEvent, rewrite};
use crate::id::ServerName;
use crate::protocol::{ErrorKind, Failure, RawJson, RequestId, Response};
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

impl CallsInFlight {
    /// Asks the client for the input that the server requires.
    pub(super) fn begin_round(&mut self, number: u64, required: InputRequired, now: Instant) {
        let Some(call) = self.calls.get_mut(&number) else {
            return;
        };
        let Some(repeatable) = &mut call.repeatable else {
            return;
        };
        repeatable.rounds += 1;
        if repeatable.rounds > ROUNDS_MAX {
            let stop = Stop(format!("it asked for more input {ROUNDS_MAX} times"));
            return self.refuse_input(number, &stop);
        }
        let numbers = &self.spec.of_all.numbers;
        let (round, questions) = match InputRound::plan(required, &call.caller, || numbers.next()) {
            Ok(planned) => planned,
            Err(stop) => return self.refuse_input(number, &stop),
        };
        self.spec.of_all.counters.add(Counter::InputRounds);
        repeatable
            .elicitation_ids
            .extend(round.urls.iter().cloned());
        let round = Box::new(round);
        call.state = if questions.is_empty() {
            // The server asked for nothing, or for nothing that this client can be asked.
            WireState::Paused {
                until: now + input_round::pause(repeatable.rounds),
                round: Some(round),
            }
        } else {
            WireState::AwaitsInput(round)
        };
        call.expires = call.deadline.latest;
        self.deadlines.set(number, call.due());
        for question in questions {
            let open = OpenQuestion::Input { call: number };
            self.questions.insert(question.id.clone(), open);
            call.reply.ask(Question::new(question, self.asker.clone()));
        }
    }

    /// Handles the answer to one question of a round.
    pub(super) fn on_input(
        &mut self,
        number: u64,
        id: &RequestId,
        answer: Result<Response, Failure>,
        roots: &[String],
        now: Instant,
    ) {
        let state = self.calls.get_mut(&number).map(|call| &mut call.state);
        let Some(WireState::AwaitsInput(round)) = state else {
            return;
        };
        match round.answered(id, answer, roots) {
            Err(stop) => self.refuse_input(number, &stop),
            Ok(()) if round.is_complete() => self.repeat(number, now),
            Ok(()) => {}
        }
    }

    /// Holds a call whose headers were refused until the tools are listed again; at most once per
    /// call (C-HTTP-09).
    pub(super) fn on_headers_refused(
        &mut self,
        number: u64,
        error: &RawJson,
    ) -> Option<UnhandledEvent> {
        let has_headers = self.spec.of_server.connector.knows_call_of_requests();
        let call = self.calls.get_mut(&number)?;
        let repeatable = call.repeatable.as_mut()?;
        if !has_headers || std::mem::replace(&mut repeatable.headers_renewed, true) {
            self.fail_call(number, &error_text(error));
            return None;
        }
        call.state = WireState::AwaitsHeaders;
        Some(UnhandledEvent::HeadersRefused)
    }

    /// Resends the calls that waited for the tools to be listed again.
    pub(crate) fn on_headers_listed(&mut self, now: Instant) {
        let waiting = self.calls.values();
        let waiting = waiting.filter(|call| matches!(call.state, WireState::AwaitsHeaders));
        let numbers: Vec<u64> = waiting.map(|call| call.number).collect();
        for number in numbers {
            self.repeat(number, now);
        }
    }

    /// Sends a call again under a new id (C-MRTR-03).
    pub(super) fn repeat(&mut self, number: u64, now: Instant) {
        if self.is_followed(number) {
            return self.ask_about_task(number, now);
        }
        let Some(call) = self.calls.get_mut(&number) else {
            return;
        };
        let answers = call.take_input_answers();
        let Some(repeatable) = &call.repeatable else {
            return;
        };
        let wire_id = self.spec.of_all.numbers.next();
        let (spec, declared) = (&self.spec, &self.declared);
        let answers = answers.as_ref();
        let forwarded = call.outgoing.forwarded.clone();
        let traceparent = forwarded.as_ref().and_then(|said| said.traceparent());
        let mut outgoing = rewrite::modern(
            spec,
            declared,
            &call.caller,
            repeatable,
            wire_id,
            answers,
            traceparent,
        );
        outgoing.forwarded = forwarded;
        if let Err(error) = self.link.send(outgoing.clone()) {
            let server = &self.spec.server;
            let failure = repeatable.failed(server, not_sent(server, error));
            if let Some(call) = self.take(number) {
                call.reply.answer(Err(failure));
            }
            return;
        }
        self.set_request(number, wire_id, outgoing);
        self.extend(number, now);
    }

    fn refuse_input(&mut self, number: u64, stop: &Stop) {
        let server = &self.spec.server;
        let message = format!("server `{server}` needs more input to answer this call: {stop}");
        let failure = Failure::new(ErrorKind::InputRefused, message).server(server.as_str());
        self.finish(number, Err(failure));
    }
}
