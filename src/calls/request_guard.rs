//! A request of a client without a session, as long as the client waits for its answer.

use std::sync::Arc;

use actix::Recipient;
use tokio::sync::oneshot;

use crate::calls::client_reply::ClientReply;
use crate::calls::worker_inbox::{ClientRequestChange, ClientRequestEvent};

/// A request that is worked on.
pub struct RunningRequest {
    pub answer: oneshot::Receiver<ClientReply>,
    pub waiting: RequestGuard,
}

/// Held as long as the client waits. Dropped before the answer, it takes the request back.
pub struct RequestGuard {
    call: u64,
    request_number: u64,
    /// `None` once there is nothing to take back.
    worker: Option<Arc<Recipient<ClientRequestEvent>>>,
}

impl RequestGuard {
    /// `request_number` is the number of the client's request, `call` that of the call.
    pub(crate) fn new(
        call: u64,
        request_number: u64,
        worker: Arc<Recipient<ClientRequestEvent>>,
    ) -> Self {
        let worker = Some(worker);
        Self {
            call,
            request_number,
            worker,
        }
    }

    /// Asks for the answer as a stream, if it can be one and is none yet.
    pub fn upgrade(&self) {
        self.notify(ClientRequestChange::Upgrade);
    }

    /// The guard for the rest of an answer that is a stream; `None` for a complete one.
    pub fn for_rest_of(mut self, answer: &ClientReply) -> Option<Self> {
        if matches!(answer, ClientReply::Stream(_)) {
            return Some(self);
        }
        self.worker = None;
        None
    }

    fn notify(&self, change: ClientRequestChange) {
        if let Some(worker) = &self.worker {
            let Self {
                call,
                request_number,
                ..
            } = *self;
            worker.do_send(ClientRequestEvent {
                call,
                request_number,
                change,
            });
        }
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.notify(ClientRequestChange::Closed);
    }
}
