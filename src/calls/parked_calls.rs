//! Calls whose client has to come back with answers before they can go on (B-ASK-02).

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use uuid::Uuid;

use crate::calls::quota::{Quota, QuotaExceeded, QuotaLimit, QuotaShare};
use crate::calls::worker_inbox::{ClientAction, WorkerInbox};
use crate::id::Holder;

/// Where the parked calls are, by a handle that only the sealed state of their client names.
#[derive(Clone, Default)]
pub(crate) struct ParkedCalls {
    calls: Arc<Mutex<HashMap<Uuid, CallAddress>>>,
    places: Quota,
}

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
    number: u64,
    _place: QuotaShare,
}

impl ParkedCalls {
    /// Takes a place for a call of this client.
    ///
    /// # Errors
    ///
    /// Says why there is none.
    pub(crate) fn enter(
        &self,
        handle: Uuid,
        call: CallAddress,
        holder: Holder,
        limit: &QuotaLimit,
    ) -> Result<ParkedPermit, QuotaExceeded> {
        let _place = self.places.take(holder, limit)?;
        let number = call.number;
        self.calls.lock().entry(handle).or_insert(call);
        Ok(ParkedPermit {
            parked: self.clone(),
            handle,
            number,
            _place,
        })
    }

    pub(crate) fn find(&self, handle: Uuid) -> Option<CallAddress> {
        self.calls.lock().get(&handle).cloned()
    }
}

impl Drop for ParkedPermit {
    fn drop(&mut self) {
        let mut calls = self.parked.calls.lock();
        // Another call has the handle if two adopted the same task at once.
        if calls
            .get(&self.handle)
            .is_some_and(|call| call.number == self.number)
        {
            calls.remove(&self.handle);
        }
    }
}
