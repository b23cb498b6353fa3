//! A request of a client without a session, as long as the client waits for its answer.

use tokio::sync::oneshot;

use crate::calls::client_reply::ClientReply;
use crate::calls::parked_calls::CallAddress;
use crate::calls::worker_inbox::ClientAction;

/// A request that is worked on.
pub struct RunningRequest {
    pub answer: oneshot::Receiver<ClientReply>,
    pub waiting: RequestGuard,
}

/// Held as long as the client waits. Dropped before the answer, it takes the request back.
pub struct RequestGuard {
    request_number: u64,
    /// `None` once there is nothing to take back.
    call: Option<CallAddress>,
}

impl RequestGuard {
    /// `request_number` is the number of the client's request.
    pub(crate) const fn new(call: CallAddress, request_number: u64) -> Self {
        let call = Some(call);
        Self {
            request_number,
            call,
        }
    }

    /// Asks for the answer as a stream, if it can be one and is none yet.
    pub fn upgrade(&self) {
        if let Some(call) = &self.call {
            call.send(ClientAction::Upgrade(self.request_number));
        }
    }

    /// The guard for the rest of an answer that is a stream; `None` for a complete one.
    pub fn for_rest_of(mut self, answer: &ClientReply) -> Option<Self> {
        if matches!(answer, ClientReply::Stream(_)) {
            return Some(self);
        }
        self.call = None;
        None
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        if let Some(call) = &self.call {
            call.send(ClientAction::Close(self.request_number));
        }
    }
}
