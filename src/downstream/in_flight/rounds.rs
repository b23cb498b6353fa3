//! Answers of sessionless servers: complete, or to be asked for again with something more.

use std::sync::Arc;

use serde_json::json;
use tokio::time::Instant;

use crate::bridge::result::{InputRequired, ResultKind, strip_for_legacy};
use crate::bridge::task::Task;
use crate::downstream::call_request::{Question, lost};
use crate::downstream::caller::Caller;
use crate::downstream::connection::handshake::error_text;
use crate::downstream::era::modern;
use crate::downstream::in_flight::failures::not_sent;
use crate::downstream::in_flight::input_round::{self, InputAnswers, InputRound, ROUNDS_MAX, Stop};
use crate::downstream::in_flight::rewrite::CallComposer;
use crate::downstream::in_flight::{Calls, InFlightCall, UnhandledEvent};
use crate::id::ServerName;
use crate::protocol::{
    Edit, Envelope, Era, ErrorKind, Failure, Method, Outcome, Request, RequestId, Response,
    Revision, code, notification,
};
use crate::telemetry::Counter;
use crate::transport::OutgoingFrame;

/// What it takes to ask once more.
pub(super) struct RoundTripState {
    caller: Arc<Caller>,
    request: Request,
    edits: Vec<Edit>,
    /// Rounds so far.
    rounds: u32,
    /// The one whose answers are waited for.
    round: Option<InputRound>,
    /// Elicitations by URL, of all rounds.
    urls: Vec<String>,
    /// Its headers were refused once.
    headers_refused: bool,
    /// The server has nothing of the call now: the client is asked, or there is a pause.
    is_between_rounds: bool,
}

impl RoundTripState {
    pub(super) fn new(caller: Arc<Caller>, request: Request, edits: Vec<Edit>) -> Self {
        Self {
            caller,
            request,
            edits,
            rounds: 0,
            round: None,
            urls: Vec::new(),
            headers_refused: false,
            is_between_rounds: false,
        }
    }

    /// What its server is given, if it was asked for something.
    pub(super) fn take_input_answers(&mut self) -> Option<InputAnswers> {
        self.is_between_rounds = false;
        self.round.take().map(InputRound::given)
    }

    pub(super) const fn is_between_rounds(&self) -> bool {
        self.is_between_rounds
    }

    /// What the caller reads when a request was not sent: if the server has run a part of the call
    /// in the rounds before, it must not be taken for one that did not run.
    pub(super) fn failed(&self, server: &ServerName, failure: Failure) -> Failure {
        match failure.kind {
            ErrorKind::ServerUnavailable if self.rounds > 0 => {
                lost(server, "it did not take what it had asked for")
            }
            _ => failure,
        }
    }

    /// A client with a handshake is asked by messages; another reads what the server answered.
    fn is_for_us(&self) -> bool {
        self.caller.revision.era() == Era::Legacy
    }
}

impl Calls {
    pub(super) fn compose(
        &self,
        again: &RoundTripState,
        number: u64,
        given: Option<&InputAnswers>,
    ) -> OutgoingFrame {
        let following = self.declaring_tasks(&again.caller, &again.request);
        let asked = CallComposer {
            request: &again.request,
            edits: &again.edits,
            caller: following.as_ref().unwrap_or(&again.caller),
        };
        let mut outgoing = asked.modern(&self.declared, number, given);
        if self.spec.connector.knows_call_of_requests() {
            outgoing.headers = Some(asked.headers(&self.spec.param_headers.load()));
        }
        outgoing
    }

    pub(super) fn on_modern_response(
        &mut self,
        number: u64,
        response: Response,
        now: Instant,
    ) -> Option<UnhandledEvent> {
        match &response.outcome {
            Outcome::Error(error) => match modern::error_code(error) {
                Some(code::HEADER_MISMATCH) => return self.on_headers_refused(number, response),
                Some(code::UNSUPPORTED_VERSION) => {
                    self.finish(number, Err(self.protocol_failure(&error_text(error))));
                    return Some(UnhandledEvent::RevisionRefused);
                }
                _ => self.finish(number, Ok(response)),
            },
            Outcome::Result(result) => match ResultKind::of(result) {
                ResultKind::InputRequired if self.is_for_us(number) => {
                    match InputRequired::parse(result) {
                        Ok(required) => self.begin_round(number, required, now),
                        Err(error) => {
                            self.finish(number, Err(self.protocol_failure(&error.to_string())));
                        }
                    }
                }
                ResultKind::Unknown => {
                    let failure = self.protocol_failure("result of an unknown type");
                    self.finish(number, Err(failure));
                }
                ResultKind::Task if !self.client_follows_task(number) => {
                    self.begin_task(number, Task::from_modern(result), now);
                }
                _ => self.finish(number, Ok(response)),
            },
        }
        None
    }

    fn is_for_us(&self, number: u64) -> bool {
        let again = self.pending.get(&number).and_then(|it| it.again.as_ref());
        again.is_some_and(|again| again.is_for_us())
    }

    /// The call that a log line belongs to, where the transport does not say: the only one that
    /// asked for any.
    pub(super) fn sole_logging_call(&self) -> Option<u64> {
        let mut logging = self.pending.iter().filter(|(_, pending)| {
            let again = pending.again.as_ref();
            again.is_some_and(|again| again.caller.level.is_some())
        });
        let (number, _) = logging.next()?;
        logging.next().is_none().then_some(*number)
    }

    /// The call that a connection serves alone: whatever comes belongs to it.
    pub(super) fn sole_leased_call(&self) -> Option<u64> {
        let mut numbers = self.pending.keys().filter(|_| self.spec.key.is_leased());
        let number = *numbers.next()?;
        numbers.next().is_none().then_some(number)
    }

    /// The end of a call, as its caller reads it.
    pub(super) fn finish(&mut self, number: u64, answer: Result<Response, Failure>) {
        let Some(pending) = self.take(number) else {
            return;
        };
        let Some(again) = &pending.again else {
            return pending.reply.answer(answer);
        };
        if again.caller.revision == Revision::V2025_11_25 {
            for id in &again.urls {
                let params = json!({ "elicitationId": id });
                let frame = notification(&Method::ElicitationComplete, Some(&params));
                if let Ok(Envelope::Notification(complete)) = Envelope::parse(frame) {
                    pending.reply.notify(complete);
                }
            }
        }
        let answer = match answer {
            Ok(response) if again.is_for_us() => Ok(stripped(response)),
            answer => answer,
        };
        pending.reply.answer(answer);
    }

    /// Builds refused headers anew from a fresh list and sends the call again, once (C-HTTP-09).
    fn on_headers_refused(&mut self, number: u64, response: Response) -> Option<UnhandledEvent> {
        let has_headers = self.spec.connector.knows_call_of_requests();
        let again = self.pending.get_mut(&number)?.again.as_mut()?;
        if again.headers_refused || !has_headers {
            let failure = match &response.outcome {
                Outcome::Error(error) | Outcome::Result(error) => {
                    self.protocol_failure(&error_text(error))
                }
            };
            self.finish(number, Err(failure));
            return None;
        }
        again.headers_refused = true;
        again.is_between_rounds = true;
        self.waiting_for_headers.push(number);
        Some(UnhandledEvent::HeadersRefused)
    }

    /// The tools were listed anew.
    pub(crate) fn on_headers_listed(&mut self, now: Instant) {
        for number in std::mem::take(&mut self.waiting_for_headers) {
            self.repeat(number, now);
        }
    }

    pub(super) fn begin_round(&mut self, number: u64, required: InputRequired, now: Instant) {
        let numbers = &self.spec.numbers;
        let Some(InFlightCall {
            again: Some(again),
            reply,
            deadline,
            ..
        }) = self.pending.get_mut(&number)
        else {
            return;
        };
        again.rounds += 1;
        if again.rounds > ROUNDS_MAX {
            let stop = Stop(format!("it asked for more input {ROUNDS_MAX} times"));
            return self.stop(number, &stop);
        }
        let (round, questions) = match InputRound::plan(required, &again.caller, || numbers.next())
        {
            Ok(planned) => planned,
            Err(stop) => return self.stop(number, &stop),
        };
        again.is_between_rounds = true;
        again.urls.extend(round.urls.iter().cloned());
        self.spec.counters.add(Counter::InputRounds);
        self.deadlines.set(number, deadline.latest);
        if questions.is_empty() {
            // Nothing was asked, or nothing that this client could be asked.
            self.resend_at
                .set(number, now + input_round::pause(again.rounds));
        }
        again.round = Some(round);
        for question in questions {
            self.inputs.insert(question.id.clone(), number);
            reply.ask(Question::new(question, self.asker.clone()));
        }
    }

    pub(super) fn on_input(
        &mut self,
        number: u64,
        id: &RequestId,
        answer: Result<Response, Failure>,
        roots: &[String],
        now: Instant,
    ) {
        let pending = self.pending.get_mut(&number);
        let again = pending.and_then(|pending| pending.again.as_mut());
        let Some(round) = again.and_then(|again| again.round.as_mut()) else {
            return;
        };
        match round.answered(id, answer, roots) {
            Err(stop) => self.stop(number, &stop),
            Ok(()) if round.is_complete() => self.repeat(number, now),
            Ok(()) => {}
        }
    }

    /// Sends a call again, under a new id (C-MRTR-03), with what was given.
    pub(super) fn repeat(&mut self, number: u64, now: Instant) {
        if self.is_followed(number) {
            return self.ask_again(number, now);
        }
        let Some(mut pending) = self.take(number) else {
            return;
        };
        let Some(mut again) = pending.again.take() else {
            return;
        };
        let given = again.take_input_answers();
        let repeated = self.spec.numbers.next();
        pending.outgoing = self.compose(&again, repeated, given.as_ref());
        if let Err(error) = self.link.send(pending.outgoing.clone()) {
            let server = &self.spec.server;
            let failure = again.failed(server, not_sent(server, error));
            return pending.reply.answer(Err(failure));
        }
        self.renumbered.insert(pending.call, repeated);
        self.deadlines.set(repeated, pending.deadline.from(now));
        pending.again = Some(again);
        self.pending.insert(repeated, pending);
    }

    fn stop(&mut self, number: u64, stop: &Stop) {
        let server = &self.spec.server;
        let message = format!("server `{server}` needs more to answer this call: {stop}");
        let failure = Failure::new(ErrorKind::InputRefused, message).server(server.as_str());
        self.finish(number, Err(failure));
    }

    pub(super) fn protocol_failure(&self, text: &str) -> Failure {
        let server = &self.spec.server;
        let message = format!("server `{server}`: {text}");
        Failure::new(ErrorKind::ServerProtocol, message).server(server.as_str())
    }
}

/// A result as a client with a handshake reads it.
fn stripped(response: Response) -> Response {
    let (Outcome::Result(result), Some(id)) = (&response.outcome, &response.id) else {
        return response;
    };
    let Some(result) = strip_for_legacy(result) else {
        return response;
    };
    match Envelope::parse(response.with_id_and_value(id, &result)) {
        Ok(Envelope::Response(stripped)) => stripped,
        _ => response,
    }
}
