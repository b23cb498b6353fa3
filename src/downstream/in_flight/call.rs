//! State of one call in flight.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::json as value;
use tokio::time::Instant;

use crate::bridge::result::strip_for_legacy;
use crate::bridge::task::Task;
use crate::downstream::call_request::{CallRequest, Deadline, Reply, TaskMode};
use crate::downstream::caller::Caller;
use crate::downstream::in_flight::input_round::{InputAnswers, InputRound};
use crate::downstream::in_flight::rewrite::{self, RepeatableRequest};
use crate::downstream::in_flight::server_link::ServerLink;
use crate::downstream::pool::lease::Lease;
use crate::downstream::resilience::admission::CallPermit;
use crate::id::CallNumbers;
use crate::protocol::{
    Era, Failure, Method, Notification, Outcome, RawJson, Request, Response, Revision, json,
};
use crate::transport::{OutgoingFrame, SendError, SessionRefusal};

/// The answer of a call that ends.
pub(super) type CallAnswer = Result<Response, Failure>;

pub(super) struct InFlightCall {
    /// Number by which the caller knows the call.
    pub(super) number: u64,
    /// JSON-RPC id of the last request: `number`, until another request is sent for the call.
    pub(super) wire_id: u64,
    /// The last request, kept in case the server refuses it unread.
    pub(super) outgoing: OutgoingFrame,
    pub(super) state: WireState,
    /// The client's original request, kept for a sessionless server, which can ask for it again.
    pub(super) repeatable: Option<Box<RepeatableRequest>>,
    /// The task in which the server continues the call, if the gateway follows it.
    pub(super) task: Option<Box<FollowedTask>>,
    pub(super) caller: Arc<Caller>,
    pub(super) task_mode: TaskMode,
    pub(super) deadline: Deadline,
    /// When the call fails unless something arrives for it before.
    pub(super) expires: Instant,
    pub(super) reply: Reply,
    /// Whether the call was resent after the server lost the session. This is done once per call,
    /// independent of other repeats.
    pub(super) is_resent: bool,
    pub(super) _permit: CallPermit,
    pub(super) lease: Option<Lease>,
}

/// State of a call on the wire, by the event that it waits for.
pub(super) enum WireState {
    /// Waits for the server, which has the last request.
    Sent,
    /// Waits for a new handshake before the request is sent.
    AwaitsHandshake,
    /// Waits for a probe that shows whether the session exists, after the server refused it.
    AwaitsVerdict(Box<SessionRefusal>),
    /// Waits for the tools to be listed again, after the server refused the request's headers.
    AwaitsHeaders,
    /// Waits for the client's answers to the server's questions.
    AwaitsInput(Box<InputRound>),
    /// Waits until this time, when the call or the question about its task is sent again; `round`
    /// is set if the server required input but no client had to be asked.
    Paused {
        until: Instant,
        round: Option<Box<InputRound>>,
    },
    /// Waits for the client to ask about its task.
    AwaitsClient,
}

/// The task of a call, as the server last described it.
pub(super) struct FollowedTask {
    pub(super) task: Task,
    pub(super) request: TaskRequestKind,
    /// Changes sent to the client as progress.
    pub(super) changes_sent: u64,
    /// Whether the server itself reports progress.
    pub(super) server_reports_progress: bool,
    /// Keys of the inputs that the client was already asked for.
    pub(super) asked: HashSet<String>,
}

/// Kind of the last request about a task.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskRequestKind {
    Status,
    /// `tasks/result` of 2025-11-25, answered when the task ends.
    Result,
    /// `tasks/update` with the client's input.
    Update,
}

impl InFlightCall {
    /// Prepares a client's call for its server. Its wire id is its number, unless the client's own
    /// id can be used; `is_taken` tells whether an id is in use on the link.
    pub(super) fn new(
        request: CallRequest,
        permit: CallPermit,
        server: &ServerLink,
        is_taken: impl FnOnce(u64) -> bool,
        now: Instant,
    ) -> Self {
        let CallRequest {
            number,
            caller,
            request,
            edits,
            headers,
            forwarded,
            tasks,
            deadline,
            lease,
            reply,
        } = request;
        let traceparent = forwarded.as_ref().and_then(|said| said.traceparent());
        let mut wire_id = number;
        let (mut outgoing, repeatable) = if server.is_modern() {
            let repeatable = RepeatableRequest {
                request,
                edits,
                headers,
                rounds: 0,
                elicitation_ids: Vec::new(),
                headers_renewed: false,
            };
            let outgoing = rewrite::modern(server, &caller, &repeatable, number, None, traceparent);
            (outgoing, Some(Box::new(repeatable)))
        } else {
            let own = id_of_client(server, &request, tasks).filter(|id| !is_taken(*id));
            wire_id = own.unwrap_or(number);
            let outgoing = rewrite::legacy(&request, edits, &caller, wire_id, traceparent);
            (outgoing, None)
        };
        outgoing.forwarded = forwarded;
        Self {
            number,
            wire_id,
            outgoing,
            state: WireState::AwaitsHandshake,
            repeatable,
            task: None,
            caller,
            task_mode: tasks,
            deadline,
            expires: deadline.from(now),
            reply,
            is_resent: false,
            _permit: permit,
            lease,
        }
    }

    /// Sends the call for the first time, unless calls wait for a new handshake.
    ///
    /// # Errors
    ///
    /// Returns [`SendError`] if the link did not accept it.
    pub(super) fn send_first(
        &mut self,
        server: &ServerLink,
        now: Instant,
    ) -> Result<(), SendError> {
        if !server.link.awaits_handshake.get() {
            server.link.send(self.outgoing.clone())?;
            self.reply.sent(now);
            self.state = WireState::Sent;
        }
        Ok(())
    }

    /// Restarts the call's deadline because something arrived for it; while its client is asked,
    /// only the maximum applies.
    pub(super) fn extend(&mut self, server: &ServerLink, now: Instant) {
        self.expires = if server.questions.concern(self.number) {
            self.deadline.latest
        } else {
            self.deadline.from(now)
        };
    }

    /// Answers the call with a sessionless server's answer or a task's result, converted for the
    /// caller.
    pub(super) fn finish(mut self, answer: CallAnswer, server: &ServerLink) {
        let Some(repeatable) = &self.repeatable else {
            return self.reply.answer(answer);
        };
        if self.caller.revision == Revision::V2025_11_25 {
            for id in &repeatable.elicitation_ids {
                let params = RawJson::from_value(&value!({ "elicitationId": id }));
                let complete = Notification::new(Method::ElicitationComplete, &params);
                self.reply.notify(complete, server.budget());
            }
        }
        let is_legacy_client = self.caller.revision.era() == Era::Legacy;
        self.reply.answer(match answer {
            Ok(response) if is_legacy_client => Ok(for_legacy_client(response)),
            answer => answer,
        });
    }

    /// When the call next needs attention.
    pub(super) fn due(&self) -> Instant {
        match self.state {
            WireState::Paused { until, .. } => until.min(self.expires),
            _ => self.expires,
        }
    }

    /// Whether there is nothing at the server that could be cancelled.
    pub(super) fn is_between_rounds(&self) -> bool {
        match self.state {
            WireState::AwaitsHeaders | WireState::AwaitsInput(_) | WireState::Paused { .. } => {
                self.task.is_none()
            }
            WireState::Sent
            | WireState::AwaitsHandshake
            | WireState::AwaitsVerdict(_)
            | WireState::AwaitsClient => false,
        }
    }

    /// Whether the call is about a task that an earlier process of the gateway bridged.
    pub(super) fn looks_for_task(&self) -> bool {
        let method = || {
            let frame = str::from_utf8(&self.outgoing.frame).ok()?;
            json::member(frame, "method").and_then(json::text)
        };
        self.task_mode == TaskMode::Bridged
            && method().is_some_and(|method| method == Method::TasksGet.as_str())
    }

    /// Whether nothing of the call was sent in a session that the server knew.
    pub(super) fn did_not_run(&self) -> bool {
        let waits = matches!(
            self.state,
            WireState::AwaitsHandshake | WireState::AwaitsVerdict(_)
        );
        waits && self.task.is_none()
    }

    /// Takes the input that the server asked for, if any, for the call's next request.
    pub(super) fn take_input_answers(&mut self) -> Option<InputAnswers> {
        match std::mem::replace(&mut self.state, WireState::Sent) {
            WireState::AwaitsInput(round) => Some(round.given()),
            WireState::Paused { round, .. } => round.map(|round| round.given()),
            _ => None,
        }
    }
}

/// The client's own id for a request, if it can be used at the server, whose tools can read it: in a
/// session of this client alone, where no other request in flight has that id. Calls with a task
/// use their number, by which tasks are found.
fn id_of_client(server: &ServerLink, request: &Request, tasks: TaskMode) -> Option<u64> {
    let is_own = server.spec.key.session().is_some() && tasks == TaskMode::NotRequested;
    let id = request.id.as_number().filter(|_| is_own)?;
    (id < CallNumbers::FIRST).then_some(id)
}

/// Converts a result of the sessionless revision for a client with a handshake.
fn for_legacy_client(response: Response) -> Response {
    let (Outcome::Result(result), Some(id)) = (&response.outcome, &response.id) else {
        return response;
    };
    match strip_for_legacy(result) {
        Some(result) => Response::new(id, &Outcome::Result(result)),
        None => response,
    }
}
