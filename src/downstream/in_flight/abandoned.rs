//! Cancelled requests that the server has not answered and may still be working on.

use tokio::time::Instant;

use crate::downstream::pool::lease::Lease;
use crate::downstream::resilience::admission::AbandonedLoad;
use crate::id::{QuickMap, SessionId};

/// Maximum requests that are remembered.
const REMEMBERED_MAX: usize = 1000;

/// A request without a caller that its server may still be working on.
pub(super) struct AbandonedRequest {
    pub(super) session: Option<SessionId>,
    pub(super) _load: AbandonedLoad,
    /// Keeps other clients off the connection, because the server's questions would reach them.
    pub(super) _lease: Option<Lease>,
}

/// Abandoned requests, each remembered until it is answered or `cancelled_timeout` has passed.
#[derive(Default)]
pub(super) struct AbandonedRequests {
    by_wire_id: QuickMap<u64, AbandonedRequest>,
    /// Until this time there can be other abandoned requests, which exceeded the limit.
    others_until: Option<Instant>,
}

impl AbandonedRequests {
    /// Remembers a request that is to be removed at `until`. Returns whether there was room.
    pub(super) fn add(&mut self, wire_id: u64, request: AbandonedRequest, until: Instant) -> bool {
        if self.by_wire_id.len() >= REMEMBERED_MAX {
            self.others_until = Some(until);
            return false;
        }
        self.by_wire_id.insert(wire_id, request);
        true
    }

    /// Removes a request that the server finished, or whose time is over. Returns whether it was
    /// remembered.
    pub(super) fn remove(&mut self, wire_id: u64) -> bool {
        self.by_wire_id.remove(&wire_id).is_some()
    }

    pub(super) fn has(&self, wire_id: u64) -> bool {
        self.by_wire_id.contains_key(&wire_id)
    }

    /// Whether all requests belong to this session.
    pub(super) fn are_of(&self, session: SessionId, now: Instant) -> bool {
        let mut requests = self.by_wire_id.values();
        !self.has_others(now) && requests.all(|request| request.session == Some(session))
    }

    pub(super) fn are_none(&self, now: Instant) -> bool {
        !self.has_others(now) && self.by_wire_id.is_empty()
    }

    fn has_others(&self, now: Instant) -> bool {
        self.others_until.is_some_and(|until| until > now)
    }
}
