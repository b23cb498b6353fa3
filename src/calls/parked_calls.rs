//! Calls that are parked until their client returns with answers (B-ASK-02).

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use uuid::Uuid;

use crate::calls::quota::{Quota, QuotaExceeded, QuotaLimit, QuotaShare};
use crate::calls::worker_inbox::{ClientAction, WorkerInbox};
use crate::id::Holder;

/// The parked calls by handle. Only the client's sealed state contains the handle.
#[derive(Clone, Default)]
pub(crate) struct ParkedCalls {
    calls: Arc<Mutex<HashMap<Uuid, CallAddress>>>,
    places: Quota,
}

/// The address of a sessionless call.
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

/// A slot among the parked calls; released on drop.
pub(crate) struct ParkedPermit {
    parked: ParkedCalls,
    pub(crate) handle: Uuid,
    number: u64,
    _place: QuotaShare,
}

impl ParkedCalls {
    /// Takes a parking slot for a call of this client.
    ///
    /// # Errors
    ///
    /// Returns the reason why no slot is available.
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
        // Another call owns the handle if both adopted the same task at the same time.
        if calls
            .get(&self.handle)
            .is_some_and(|call| call.number == self.number)
        {
            calls.remove(&self.handle);
        }
    }
}
