//! State of one call in flight.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::time::Instant;

use crate::bridge::headers::PassedHeaders;
use crate::bridge::task::Task;
use crate::downstream::call_request::{Deadline, Reply, TaskMode};
use crate::downstream::caller::Caller;
use crate::downstream::in_flight::input_round::{InputAnswers, InputRound};
use crate::downstream::pool::lease::Lease;
use crate::downstream::resilience::admission::CallPermit;
use crate::protocol::{Edit, Method, Request, json};
use crate::transport::{OutgoingFrame, SessionRefusal};

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

/// A client's request, kept so that it can be sent again with additions.
pub(super) struct RepeatableRequest {
    pub(super) request: Request,
    pub(super) edits: Vec<Edit>,
    pub(super) headers: PassedHeaders,
    /// Rounds of input so far.
    pub(super) rounds: u32,
    /// Ids of URL elicitations in all rounds.
    pub(super) elicitation_ids: Vec<String>,
    /// Whether the request's headers were refused once.
    pub(super) headers_renewed: bool,
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
