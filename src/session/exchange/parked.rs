//! Calls whose client has to come back with answers before they can go on (bridging.md §4, T2).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use actix::{Addr, Message};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::super::message::ToFront;
use super::actor::ExchangeActor;
use crate::protocol::Request;

/// Where the parked calls are, by a handle that only the sealed state of their client names.
#[derive(Clone, Default)]
pub(crate) struct Parked(Arc<Mutex<HashMap<Uuid, Addr<ExchangeActor>>>>);

/// A call's place among the parked ones; given back when dropped.
pub(crate) struct Place {
    parked: Parked,
    pub(super) handle: Uuid,
}

/// The client is back with answers.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Resume {
    /// The same request as before, with answers.
    pub(crate) request: Request,
    /// The round whose questions it answers.
    pub(crate) round: u8,
    pub(crate) number: u64,
    pub(crate) accepts_stream: bool,
    pub(crate) reply: oneshot::Sender<ToFront>,
}

impl Parked {
    /// Takes a place; `None` when `max` calls are parked already.
    pub(super) fn enter(
        &self,
        handle: Uuid,
        address: Addr<ExchangeActor>,
        max: usize,
    ) -> Option<Place> {
        let mut calls = self.calls();
        if calls.len() >= max {
            return None;
        }
        calls.insert(handle, address);
        drop(calls);
        let parked = self.clone();
        Some(Place { parked, handle })
    }

    pub(super) fn find(&self, handle: Uuid) -> Option<Addr<ExchangeActor>> {
        self.calls().get(&handle).cloned()
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<Uuid, Addr<ExchangeActor>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.parked.calls().remove(&self.handle);
    }
}
