//! Calls that end without an answer of the server: cancelled, timed out, failed, lost.

use serde_json::json;
use tokio::time::Instant;

use crate::bridge::task;
use crate::downstream::call_request::{CancelCall, TaskMode, lost};
use crate::downstream::cause::error_kind;
use crate::downstream::in_flight::CallsInFlight;
use crate::downstream::in_flight::abandoned::{AbandonedRequest, AbandonedRequests};
use crate::downstream::in_flight::call::{InFlightCall, WireState};
use crate::downstream::pool::lease::Lease;
use crate::downstream::refusal;
use crate::id::{ServerName, SessionId};
use crate::protocol::{self, Era, ErrorKind, Failure};
use crate::telemetry::{Counter, millis};
use crate::transport::{LinkError, OutgoingFrame, SendError};

impl CallsInFlight {
    /// The client does not want the answer any more: the server is notified, nobody waits.
    pub(super) fn cancel(&mut self, cancel: &CancelCall, now: Instant) {
        let number = cancel.number;
        if self.cancel_queued(number) {
            return;
        }
        let Some(mut call) = self.take(number) else {
            return;
        };
        let reason = cancel.reason.as_deref().unwrap_or("client cancelled");
        self.cancel_at_server(&mut call, reason, now);
        call.reply.answer(Err(cancelled()));
    }

    /// Does what is due: sends calls again whose pause is over, fails those whose deadline has
    /// passed and cancels them at the server (S-LIFE-23), forgets cancelled ones. Returns whether
    /// that raises doubt whether the server works.
    pub(crate) fn expire(&mut self, now: Instant) -> bool {
        while let Some((number, ())) = self.deadlines.pop_due(now) {
            if self.expire_queued(number) || self.abandoned.remove(number) {
                continue;
            }
            match self.calls.get(&number) {
                Some(InFlightCall {
                    state: WireState::Paused { .. },
                    expires,
                    ..
                }) if *expires > now => self.repeat(number, now),
                _ => self.time_out(number, now),
            }
        }
        self.take_suspicion()
    }

    fn time_out(&mut self, number: u64, now: Instant) {
        let Some(mut call) = self.take(number) else {
            return;
        };
        self.is_suspicious = true;
        self.spec.of_all.counters.add(Counter::LateAnswers);
        self.cancel_at_server(&mut call, "timed out", now);
        let failure = self.task_timed_out(&call).unwrap_or_else(|| {
            let message = format!(
                "server `{}` did not answer in time (idle limit {}, in all {}); the call was taken back",
                self.spec.server,
                humantime::format_duration(call.deadline.idle),
                "`request_timeout_max`"
            );
            Failure::new(ErrorKind::Timeout, message).server(self.spec.server.as_str())
        });
        call.reply.answer(Err(failure));
    }

    /// The failure for a sessionless client whose call took too long as a task: with the extension
    /// it could follow the task itself (S-TASK-X-02).
    fn task_timed_out(&self, call: &InFlightCall) -> Option<Failure> {
        call.task.as_ref()?;
        let caller = &call.caller;
        if caller.revision.era() != Era::Modern || task::is_declared(caller.profile.as_map()) {
            return None;
        }
        let (server, extension) = (&self.spec.server, task::EXTENSION);
        let message = format!(
            "server `{server}` runs this call as a task, which took too long to be waited for and was cancelled; a client that declares the extension `{extension}` can follow it"
        );
        let required = json!({ "extensions": { extension: {} } });
        // Without a server in it, it is an error of the protocol and not one for the model.
        Some(Failure::missing_capability(message, required))
    }

    /// The link is dead: every caller learns it now, with the reason.
    pub(crate) fn fail_all(&mut self, why: &str) {
        self.deadlines.clear();
        self.abandoned = AbandonedRequests::default();
        self.renumbered.clear();
        self.questions.clear();
        // Dropped unanswered, these say that they were not sent.
        drop(self.admission.take_all());
        for (_, call) in self.calls.drain() {
            let failure = if call.did_not_run() {
                unsent(&self.spec.server, why)
            } else {
                lost(&self.spec.server, why)
            };
            call.reply.answer(Err(failure));
        }
    }

    /// The transport failed for this call, or for the request about its task.
    pub(super) fn on_failed(&mut self, number: u64, error: &LinkError, now: Instant) {
        if let LinkError::Status { .. } = error {
            self.spec.note_refusal(error, now);
        }
        if self.is_followed(number) {
            return self.ask_later(number, now);
        }
        if let Some(call) = self.take(number) {
            let server = &self.spec.server;
            let failure = link_failure(server, error);
            let failure = match &call.repeatable {
                Some(repeatable) => repeatable.failed(server, failure),
                None => failure,
            };
            call.reply.answer(Err(failure));
        }
    }

    /// Tells the server that nobody waits for a call any more.
    fn cancel_at_server(&mut self, call: &mut InFlightCall, reason: &str, now: Instant) {
        let (wire_id, lease) = (call.wire_id, call.lease.take());
        if let Some(task) = &call.task {
            self.link.forget(wire_id);
            return self.cancel_task(&task.task.id, &call.caller, lease, now);
        }
        if call.is_between_rounds() {
            return;
        }
        self.abandon(wire_id, call.caller.session, lease, now);
        // Its task is cancelled as soon as it is known (S-CANC-04).
        if matches!(
            call.task_mode,
            TaskMode::FollowedByGateway | TaskMode::Bridged
        ) {
            return;
        }
        // On a transport with a stream for each call, the end of the stream says it (C-CANC-02).
        if !(self.is_modern && self.spec.of_server.connector.knows_call_of_requests()) {
            let frame = protocol::cancelled(&wire_id, Some(reason));
            // A dead link reports its own end.
            let _ = self.link.send(OutgoingFrame::new(None, frame));
        }
        self.link.forget(wire_id);
    }

    /// Remembers a request that the server may still be working on, until it is answered or the
    /// time for that is over.
    pub(super) fn abandon(
        &mut self,
        wire_id: u64,
        session: Option<SessionId>,
        lease: Option<Lease>,
        now: Instant,
    ) {
        let request = AbandonedRequest {
            session,
            _load: self.admission.abandon(),
            _lease: lease,
        };
        let until = now + self.spec.settings().limits.cancelled_timeout;
        if self.abandoned.add(wire_id, request, until) {
            self.deadlines.set(wire_id, until);
        }
    }
}

/// The failure of a call that its client cancelled.
pub(super) fn cancelled() -> Failure {
    Failure::new(ErrorKind::Cancelled, "the client cancelled this call")
}

/// The failure of a call that the link did not take.
pub(super) fn not_sent(server: &ServerName, error: SendError) -> Failure {
    let kind = match error {
        SendError::Full => ErrorKind::Overloaded,
        SendError::Closed => ErrorKind::ServerUnavailable,
    };
    let message = format!("server `{server}` did not take the call: {error}");
    Failure::new(kind, message)
        .server(server.as_str())
        .retry_after_ms(100)
}

/// The failure of a call that the server answered against the protocol.
pub(super) fn protocol_failure(server: &ServerName, text: &str) -> Failure {
    let message = format!("server `{server}`: {text}");
    Failure::new(ErrorKind::ServerProtocol, message).server(server.as_str())
}

/// The failure of a call that waited for a session, and was not sent in it.
fn unsent(server: &ServerName, why: &str) -> Failure {
    let message = format!(
        "server `{server}` was lost before the call was sent to it: {why}; the call did not run"
    );
    Failure::new(ErrorKind::ServerUnavailable, message)
        .server(server.as_str())
        .retry_after_ms(100)
}

fn link_failure(server: &ServerName, error: &LinkError) -> Failure {
    match error {
        LinkError::NotSent(_) => {
            let message = format!("server `{server}` cannot be reached: {error}");
            Failure::new(ErrorKind::ServerUnavailable, message)
                .cause(error.cause().and_then(error_kind))
                .server(server.as_str())
        }
        LinkError::Lost(why) => lost(server, why),
        LinkError::Status {
            status,
            retry_after,
            ..
        } => refusal::failure(server, *status, *retry_after),
        LinkError::NoRoom(_) => {
            let message = format!(
                "server `{server}` answered, but {error}; the call may have run, retry it later if \
                 that does no harm"
            );
            let failure = Failure::new(ErrorKind::NoRoom, message).server(server.as_str());
            match error.retry_after() {
                Some(wait) => failure.retry_after_ms(millis(wait)),
                None => failure,
            }
        }
        LinkError::TooLarge { .. } | LinkError::Protocol(_) => {
            protocol_failure(server, &error.to_string())
        }
    }
}
