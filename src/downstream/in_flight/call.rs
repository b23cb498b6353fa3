//! One call in flight: what its caller wants, and where it stands on the wire.

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
    /// The number that its caller knows it by.
    pub(super) number: u64,
    /// The JSON-RPC id of its last request: `number`, until another request is sent for it.
    pub(super) wire_id: u64,
    /// The last request, kept in case that the server refuses it without having read it.
    pub(super) outgoing: OutgoingFrame,
    pub(super) state: WireState,
    /// The client's own request, for a sessionless server, which may want it repeated.
    pub(super) repeatable: Option<Box<RepeatableRequest>>,
    /// The task in which the server continues the call, if the gateway follows it.
    pub(super) task: Option<Box<FollowedTask>>,
    pub(super) caller: Arc<Caller>,
    pub(super) task_mode: TaskMode,
    pub(super) deadline: Deadline,
    /// When the call fails, unless something arrives for it before.
    pub(super) expires: Instant,
    pub(super) reply: Reply,
    /// It was sent again after the server forgot the session, which is done once for a call,
    /// however often it is repeated for other reasons.
    pub(super) is_resent: bool,
    pub(super) _permit: CallPermit,
    pub(super) lease: Option<Lease>,
}

/// Where a call stands on the wire.
pub(super) enum WireState {
    /// The server has its last request.
    Sent,
    /// Its request waits for a new handshake.
    AwaitsHandshake,
    /// The server refused its session: whether that exists is being verified.
    AwaitsVerdict(Box<SessionRefusal>),
    /// The server refused its headers: it waits until the tools are listed anew.
    AwaitsHeaders,
    /// Its client is asked for input that the server wants.
    AwaitsInput(Box<InputRound>),
    /// It is sent again, or its task is asked for again, at this time; with the round of input in
    /// which nobody had to be asked.
    Paused {
        until: Instant,
        round: Option<Box<InputRound>>,
    },
    /// Its task is asked for when the client asks for it.
    AwaitsClient,
}

/// A client's request, kept so that it can be written again with something more.
pub(super) struct RepeatableRequest {
    pub(super) request: Request,
    pub(super) edits: Vec<Edit>,
    pub(super) headers: PassedHeaders,
    /// Rounds of input so far.
    pub(super) rounds: u32,
    /// Elicitations by URL, of all rounds.
    pub(super) elicitation_ids: Vec<String>,
    /// Its headers were refused once.
    pub(super) headers_renewed: bool,
}

/// The task of a call, as its server described it last.
pub(super) struct FollowedTask {
    pub(super) task: Task,
    pub(super) request: TaskRequestKind,
    /// Changes that the client received as progress.
    pub(super) changes_sent: u64,
    /// The server reports progress by itself.
    pub(super) server_reports_progress: bool,
    /// Keys of the input that the client was asked for already.
    pub(super) asked: HashSet<String>,
}

/// The last request about a task.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskRequestKind {
    Status,
    /// `tasks/result` of 2025-11-25, which is answered when the task ends.
    Result,
    /// `tasks/update`, with the client's input.
    Update,
}

impl InFlightCall {
    /// When something is to be done for it.
    pub(super) fn due(&self) -> Instant {
        match self.state {
            WireState::Paused { until, .. } => until.min(self.expires),
            _ => self.expires,
        }
    }

    /// Whether the server has nothing of the call that could be cancelled there.
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

    /// Whether it asks for a task that an earlier process of the gateway bridged.
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

    /// The input for the server, if it asked for any. The call's next request carries it.
    pub(super) fn take_input_answers(&mut self) -> Option<InputAnswers> {
        match std::mem::replace(&mut self.state, WireState::Sent) {
            WireState::AwaitsInput(round) => Some(round.given()),
            WireState::Paused { round, .. } => round.map(|round| round.given()),
            _ => None,
        }
    }
}
