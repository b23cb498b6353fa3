//! Calls whose client has to come back with answers before they can go on (B-ASK-02).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use crate::calls::worker_inbox::{ClientAction, WorkerInbox};

/// Where the parked calls are, by a handle that only the sealed state of their client names.
#[derive(Clone, Default)]
pub(crate) struct ParkedCalls(Arc<Mutex<HashMap<Uuid, CallAddress>>>);

/// Where a call of a client without a session is.
#[derive(Clone)]
pub(crate) struct CallAddress {
    pub(crate) inbox: Arc<WorkerInbox>,
    pub(crate) number: u64,
}

impl CallAddress {
    pub(crate) fn send(&self, action: ClientAction) {
        self.inbox.send(self.number, action);
    }
}

/// A call's place among the parked ones; given back when dropped.
pub(crate) struct ParkedPermit {
    parked: ParkedCalls,
    pub(crate) handle: Uuid,
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
