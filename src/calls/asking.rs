//! Asking the client of a call without a session, and waiting until it comes back: the call is
//! parked meanwhile (B-ASK-02).

use std::time::Duration;

use uuid::Uuid;

use crate::bridge::question::{self, UrlElicitation};
use crate::bridge::result::InputRequired;
use crate::bridge::seal::Continuation;
use crate::calls::alarms::Alarm;
use crate::calls::call::{Call, ClientState};
use crate::calls::client_reply::ClientReply;
use crate::calls::input_requests::binding;
use crate::downstream::Question;
use crate::protocol::{ErrorKind, Failure, RawJson, Request};
use crate::telemetry::Counter;

/// A server that asks for several things does so in quick succession: they are handed out
/// together.
pub(crate) const GATHER_DELAY: Duration = Duration::from_millis(30);

impl Call {
    /// The server asks something. While the client gathers answers to earlier questions, the
    /// next round has to wait.
    pub(crate) fn on_question(&mut self, question: Question) {
        // Sent again, the call would ask its client again, which may be answering this already.
        self.retry = None;
        self.inputs.add(question, self.caller.profile.as_map());
        let waits = !matches!(self.client, ClientState::Away);
        if waits && !self.inputs.is_empty() && !self.alarms.is_set(Alarm::QuestionsGathered) {
            self.alarms.set(Alarm::QuestionsGathered, GATHER_DELAY);
        }
    }

    /// Parks the call and asks the client.
    pub(crate) fn ask(&mut self) {
        if let Err(needed) = self.inputs.refuse_undeclared(self.caller.profile.as_map()) {
            self.answer_failure(&missing(needed));
            return self.cancel_and_end("its client cannot be asked");
        }
        let handle = match self.park() {
            Ok(handle) => handle,
            Err(failure) => {
                self.answer_failure(&failure);
                return self.cancel_and_end("its client cannot be asked now");
            }
        };
        let continuation = Continuation::Owned {
            owner: String::new(),
            handle: handle.to_string(),
        };
        let requests = self.inputs.ask();
        self.parts.counters.add(Counter::QuestionsAsked);
        if !self.answer_with_questions(requests, continuation) {
            return self.cancel_and_end("its client cannot be asked");
        }
        self.client = ClientState::Away;
        let timeout = self.parts.settings.load().answer_timeout;
        self.alarms.set(Alarm::ClientAbsent, timeout);
    }

    /// The handle of its place among the parked calls, which it takes unless it has one.
    ///
    /// # Errors
    ///
    /// Returns what the client is to read when there is no place left.
    pub(crate) fn park(&mut self) -> Result<Uuid, Failure> {
        let max = self.parts.settings.load().parked_max;
        if self.parked_permit.is_none() {
            let (handle, parked) = ((self.parts.mint)(), &self.parts.parked);
            self.parked_permit = parked.enter(handle, (self.worker.clone(), self.number), max);
        }
        self.parked_permit.as_ref().map(|place| place.handle).ok_or_else(|| {
            let message = format!(
                "{max} calls wait for their clients, the limit (`sessions.parked_calls`); try again later"
            );
            Failure::new(ErrorKind::Overloaded, message).retry_after_ms(1000)
        })
    }

    pub(crate) fn on_client_absent(&mut self) {
        self.parts.counters.add(Counter::QuestionsUnanswered);
        self.cancel_and_end("its client did not come back");
    }

    /// The client is back; `round` says which questions it was asked last.
    pub(crate) fn continue_with_answers(&mut self, request: &Request) {
        self.alarms.clear(Alarm::ClientAbsent);
        if self.task.is_some() {
            return self.answer_with_task();
        }
        if let Some(answer) = self.finished.take() {
            return self.on_answer(*answer);
        }
        if let Err(failure) = self.inputs.answer(request) {
            self.answer_failure(&failure);
            self.client = ClientState::Away;
            let left = self.parts.settings.load().answer_timeout;
            self.alarms.set(Alarm::ClientAbsent, left);
            return;
        }
        if !self.inputs.is_empty() {
            self.ask();
        }
    }

    /// The server, which has no session either, needs something of the client: its state goes
    /// with the questions, sealed.
    pub(crate) fn forward_input_request(&mut self, result: &RawJson) {
        let asked = match InputRequired::parse(result) {
            Ok(asked) => asked,
            Err(error) => {
                let server = &self.target.server;
                let message = format!("server `{server}` asks for input in a wrong way: {error}");
                let failure = Failure::new(ErrorKind::ServerProtocol, message);
                return self.answer_failure(&failure.server(server.as_str()));
            }
        };
        self.inputs.round = self.inputs.round.saturating_add(1);
        let state = asked.state;
        self.answer_with_questions(asked.requests, Continuation::Pass { state });
    }

    /// The server wants the user to visit some URLs, and the call to be sent again then (T0).
    pub(crate) fn ask_for_url_visits(&mut self, elicitations: Vec<UrlElicitation>) {
        let url = question::RequiredCapability::Url;
        if !url.is_declared(self.caller.profile.as_map()) {
            return self.answer_failure(&missing(url));
        }
        self.inputs.round = self.inputs.round.saturating_add(1);
        let ids = elicitations.iter().filter_map(|one| one.id.clone());
        let continuation = Continuation::Reissue {
            elicitations: ids.collect(),
        };
        let keyed = elicitations.into_iter().enumerate();
        let requests = keyed.map(|(index, one)| (format!("u{index}"), one.question));
        self.answer_with_questions(requests.collect(), continuation);
    }

    /// Answers with questions; false when the client had to be told a failure instead.
    fn answer_with_questions(
        &mut self,
        requests: Vec<(String, question::Question)>,
        continuation: Continuation,
    ) -> bool {
        let ttl = self.parts.settings.load().answer_timeout.as_secs().max(1);
        let binding = binding(
            &self.method,
            self.arguments.clone(),
            &self.caller,
            &self.item,
        );
        let sealed = binding.and_then(|binding| {
            let (server, round) = (&self.target.server, self.inputs.round);
            let sealed = self
                .parts
                .sealing
                .seal(binding, server, round, continuation, ttl);
            sealed.map_err(|error| {
                let message = format!("server `{server}` cannot ask its client: {error}");
                Failure::new(ErrorKind::ServerProtocol, message).server(server.as_str())
            })
        });
        match sealed {
            Ok(state) => {
                let state = Some(state);
                let asked = InputRequired { requests, state };
                let frame = self.parts.answer_decorator.input_required(&self.id, &asked);
                self.deliver(ClientReply::Json(frame));
                true
            }
            Err(failure) => {
                self.answer_failure(&failure);
                false
            }
        }
    }
}

/// What a client reads that does not declare what a server needs (S-LIFE-16).
fn missing(needed: question::RequiredCapability) -> Failure {
    let message = format!(
        "this request needs the client capability `{}`",
        needed.as_str()
    );
    Failure::missing_capability(message, needed.capabilities())
}
