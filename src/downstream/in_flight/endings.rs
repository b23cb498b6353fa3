//! Calls that end without the server's answer: cancelled, timed out, failed or lost.

use serde_json::json;
use tokio::time::Instant;

use crate::bridge::task;
use crate::downstream::call_request::{CancelCall, TaskMode, lost};
use crate::downstream::caller::Caller;
use crate::downstream::cause::error_kind;
use crate::downstream::in_flight::abandoned::{AbandonedRequest, AbandonedRequests};
use crate::downstream::in_flight::call::{InFlightCall, WireState};
use crate::downstream::in_flight::server_link::ServerLink;
use crate::downstream::in_flight::task_request::TaskRequest;
use crate::downstream::in_flight::{CallsInFlight, UnhandledEvent};
use crate::downstream::pool::lease::Lease;
use crate::downstream::refusal;
use crate::id::{ServerName, SessionId};
use crate::protocol::{self, Era, ErrorKind, Failure};
use crate::telemetry::{Counter, millis};
use crate::transport::{LinkError, SendError};

impl CallsInFlight {
    /// Cancels a call that its client no longer needs, and notifies the server.
    pub(super) fn cancel(&mut self, cancel: &CancelCall, now: Instant) {
        let number = cancel.number;
        if let Some(request) = self.take_queued(number) {
            return request.reply.answer(Err(cancelled()));
        }
        let Some(mut call) = self.take(number) else {
            return;
        };
        let reason = cancel.reason.as_deref().unwrap_or("client cancelled");
        self.cancel_at_server(&mut call, reason, now);
        call.reply.answer(Err(cancelled()));
    }

    /// Handles deadlines: resends calls whose pause is over, fails calls that timed out and cancels
    /// them at the server (S-LIFE-23), and forgets cancelled ones.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some(number) = self.calls.pop_due(now) {
            if let Some(request) = self.admission.take(number) {
                self.server.spec.of_all.counters.add(Counter::LateTurns);
                self.shed(request);
                continue;
            }
            if self.abandoned.remove(number) {
                continue;
            }
            match self.calls.get(number) {
                Some(InFlightCall {
                    state: WireState::Paused { .. },
                    expires,
                    ..
                }) if *expires > now => {
                    self.advance(number, |call, server| call.repeat(server, now));
                }
                _ => self.time_out(number, now),
            }
        }
    }

    fn time_out(&mut self, number: u64, now: Instant) {
        let Some(mut call) = self.take(number) else {
            return;
        };
        self.unhandled.push(UnhandledEvent::Suspicion);
        self.server.spec.of_all.counters.add(Counter::LateAnswers);
        self.cancel_at_server(&mut call, "timed out", now);
        let failure = self.task_timed_out(&call).unwrap_or_else(|| {
            let server = self.server.name();
            let message = format!(
                "server `{server}` did not answer in time (idle timeout {}, maximum {}); the call was cancelled",
                humantime::format_duration(call.deadline.idle),
                "`request_timeout_max`"
            );
            Failure::new(ErrorKind::Timeout, message).server(server.as_str())
        });
        call.reply.answer(Err(failure));
    }

    /// The failure for a sessionless client whose call ran too long as a task. With the extension,
    /// the client could follow the task itself (S-TASK-X-02).
    fn task_timed_out(&self, call: &InFlightCall) -> Option<Failure> {
        call.task.as_ref()?;
        let caller = &call.caller;
        if caller.revision.era() != Era::Modern || task::is_declared(caller.profile.as_map()) {
            return None;
        }
        let (server, extension) = (self.server.name(), task::EXTENSION);
        let message = format!(
            "server `{server}` ran this call as a task, which timed out and was cancelled; a client that declares the extension `{extension}` can follow the task itself"
        );
        let required = json!({ "extensions": { extension: {} } });
        // Attributed to no server, it is a protocol error rather than an error for the model.
        Some(Failure::missing_capability(message, required))
    }

    /// Fails every call at once with the reason for which the link died.
    pub(crate) fn fail_all(&mut self, why: &str) {
        self.abandoned = AbandonedRequests::default();
        self.server.questions.clear();
        // When dropped unanswered, queued calls report that they were not sent.
        drop(self.admission.take_all());
        for call in self.calls.take_all() {
            let server = self.server.name();
            let failure = match call.did_not_run() {
                true => unsent(server, why),
                false => lost(server, why),
            };
            call.reply.answer(Err(failure));
        }
    }

    /// Handles a transport failure of a call, or of a request about its task.
    pub(super) fn on_failed(&mut self, number: u64, error: &LinkError, now: Instant) {
        if let LinkError::Status { .. } = error {
            self.server.spec.note_refusal(error, now);
        }
        if self
            .calls
            .get(number)
            .is_some_and(|call| call.task.is_some())
        {
            return self.advance(number, |call, server| call.ask_later(server, now));
        }
        if let Some(call) = self.take(number) {
            let server = self.server.name();
            let failure = link_failure(&self.server, error);
            let failure = match &call.repeatable {
                Some(repeatable) => repeatable.failed(server, failure),
                None => failure,
            };
            call.reply.answer(Err(failure));
        }
    }

    /// Tells the server that a call no longer has a caller.
    fn cancel_at_server(&mut self, call: &mut InFlightCall, reason: &str, now: Instant) {
        let (wire_id, lease) = (call.wire_id, call.lease.take());
        if let Some(task) = &call.task {
            self.server.link.forget(wire_id);
            return self.cancel_task(&task.task.id, &call.caller, lease, now);
        }
        if call.is_between_rounds() {
            return;
        }
        self.abandon(wire_id, call.caller.session, lease, now);
        // The task is cancelled as soon as its id is known (S-CANC-04).
        if matches!(
            call.task_mode,
            TaskMode::FollowedByGateway | TaskMode::Bridged
        ) {
            return;
        }
        // On a transport with one stream per call, closing the stream cancels the call (C-CANC-02).
        if !(self.server.is_modern() && self.server.knows_call_of_requests()) {
            let frame = protocol::cancelled(&wire_id, Some(reason));
            self.server.link.write(frame);
        }
        self.server.link.forget(wire_id);
    }

    /// Cancels a task whose result no client is waiting for (S-CANC-04).
    fn cancel_task(&mut self, id: &str, caller: &Caller, lease: Option<Lease>, now: Instant) {
        let wire_id = self.server.next_wire_id();
        self.abandon(wire_id, caller.session, lease, now);
        if self.server.takes_cancel() {
            let cancel = TaskRequest::cancel(id).frame(self.server.is_modern(), wire_id, caller);
            // If the message cannot be sent, the task ends when its time to live expires.
            let _ = self.server.link.send(cancel);
        }
    }

    /// Remembers a request that the server may still be working on, until it is answered or
    /// `cancelled_timeout` has passed.
    fn abandon(
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
        let until = now + self.server.spec.settings().limits.cancelled_timeout;
        if self.abandoned.add(wire_id, request, until) {
            self.calls.deadlines.set(wire_id, until);
        }
    }
}

/// The failure of a call that its client cancelled.
fn cancelled() -> Failure {
    Failure::new(ErrorKind::Cancelled, "the client cancelled this call")
}

/// The failure of a call that the link did not accept.
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

/// The failure of a call that waited for a session and was never sent.
fn unsent(server: &ServerName, why: &str) -> Failure {
    let message = format!(
        "server `{server}` was lost before the call was sent to it: {why}; the call did not run"
    );
    Failure::new(ErrorKind::ServerUnavailable, message)
        .server(server.as_str())
        .retry_after_ms(100)
}

fn link_failure(link: &ServerLink, error: &LinkError) -> Failure {
    let server = link.name();
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
            link.protocol_failure(&error.to_string())
        }
    }
}
