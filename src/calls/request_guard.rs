//! A request in flight of a client without a session; it is cancelled when the client stops
//! waiting.

use tokio::sync::oneshot;

use crate::calls::client_reply::ClientReply;
use crate::calls::parked_calls::CallAddress;
use crate::calls::worker_inbox::ClientAction;

/// A request in flight, with the receiver of its answer.
pub struct RunningRequest {
    pub answer: oneshot::Receiver<ClientReply>,
    pub waiting: RequestGuard,
}

/// Held while the client waits. Dropping the guard before the answer cancels the request.
pub struct RequestGuard {
    request_number: u64,
    /// `None` once the request is answered and cannot be cancelled.
    call: Option<CallAddress>,
}

impl RequestGuard {
    /// Creates a guard for a call; `request_number` identifies the client's request to the call.
    pub(crate) const fn new(call: CallAddress, request_number: u64) -> Self {
        let call = Some(call);
        Self {
            request_number,
            call,
        }
    }

    /// Asks the call to answer as a stream, if it is able to and has not started one.
    pub fn upgrade(&self) {
        if let Some(call) = &self.call {
            call.send(ClientAction::Upgrade(self.request_number));
        }
    }

    /// Returns the guard for the remainder of a streamed answer; `None` for a complete answer.
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
