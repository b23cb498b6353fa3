//! One call in flight: what its caller wants, and where it stands on the wire.

use std::sync::Arc;

use tokio::time::Instant;

use crate::downstream::call_request::{Deadline, Reply, TaskMode};
use crate::downstream::caller::Caller;
use crate::downstream::in_flight::followed_task::FollowedTask;
use crate::downstream::in_flight::repeat::RepeatableRequest;
use crate::downstream::resilience::admission::CallPermit;
use crate::transport::OutgoingFrame;

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
    /// It was sent again after the server forgot the session, which is done once.
    pub(super) is_resent: bool,
    pub(super) _permit: CallPermit,
}

/// Where a call stands on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WireState {
    /// The server has its last request.
    Sent,
    /// Its request waits for a new handshake.
    AwaitsHandshake,
    /// The server refused its headers: it waits until the tools are listed anew.
    AwaitsHeaders,
    /// Its client is asked for input that the server wants.
    AwaitsInput,
    /// It is sent again, or its task is asked for again, at this time.
    Paused(Instant),
    /// Its task is asked for when the client asks for it.
    AwaitsClient,
}

impl InFlightCall {
    /// When something is to be done for it.
    pub(super) fn due(&self) -> Instant {
        match self.state {
            WireState::Paused(until) => until.min(self.expires),
            _ => self.expires,
        }
    }

    /// Whether the server has nothing of the call that could be cancelled there.
    pub(super) fn is_between_rounds(&self) -> bool {
        match self.state {
            WireState::AwaitsHeaders | WireState::AwaitsInput | WireState::Paused(_) => {
                self.task.is_none()
            }
            WireState::Sent | WireState::AwaitsHandshake | WireState::AwaitsClient => false,
        }
    }
}
