//! Calls whose client has to come back with answers before they can go on (B-ASK-02).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use actix::Message;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::calls::call_worker::CallWorker;
use crate::calls::client_reply::ClientReply;
use crate::protocol::Request;

/// Where the parked calls are, by a handle that only the sealed state of their client names.
#[derive(Clone, Default)]
pub(crate) struct ParkedCalls(Arc<Mutex<HashMap<Uuid, CallAddress>>>);

/// A call's worker, and its number there.
pub(crate) type CallAddress = (Arc<CallWorker>, u64);

/// A call's place among the parked ones; given back when dropped.
pub(crate) struct ParkedPermit {
    parked: ParkedCalls,
    pub(crate) handle: Uuid,
}

/// The client of a call is back with answers.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct ResumeCall {
    pub(crate) call: u64,
    /// The same request as before, with answers.
    pub(crate) request: Request,
    /// The round whose questions it answers.
    pub(crate) round: u8,
    /// The number of this request.
    pub(crate) request_number: u64,
    pub(crate) accepts_stream: bool,
    pub(crate) reply: oneshot::Sender<ClientReply>,
}

impl ParkedCalls {
    /// Takes a place; `None` when `max` calls are parked already.
    pub(crate) fn enter(
        &self,
        handle: Uuid,
        call: CallAddress,
        max: usize,
    ) -> Option<ParkedPermit> {
        let mut calls = self.calls();
        if calls.len() >= max {
            return None;
        }
        calls.insert(handle, call);
        drop(calls);
        let parked = self.clone();
        Some(ParkedPermit { parked, handle })
    }

    pub(crate) fn find(&self, handle: Uuid) -> Option<CallAddress> {
        self.calls().get(&handle).cloned()
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<Uuid, CallAddress>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ParkedPermit {
    fn drop(&mut self) {
        self.parked.calls().remove(&self.handle);
    }
}
