//! Requests that were taken back and that their server has not answered: it may still be at them.

use tokio::time::Instant;

use crate::downstream::pool::lease::Lease;
use crate::downstream::resilience::admission::AbandonedLoad;
use crate::id::{QuickMap, SessionId};

/// Requests that are remembered.
const REMEMBERED_MAX: usize = 1000;

/// A request that nobody waits for any more, while its server may still be at it.
pub(super) struct AbandonedRequest {
    pub(super) session: Option<SessionId>,
    pub(super) _load: AbandonedLoad,
    /// Keeps the connection from serving another client, which would be asked in its place.
    pub(super) _lease: Option<Lease>,
}

/// Each is remembered until it is answered, at most for `cancelled_timeout`.
#[derive(Default)]
pub(super) struct AbandonedRequests {
    by_wire_id: QuickMap<u64, AbandonedRequest>,
    /// Until then there may be others, which were too many to remember.
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

    /// The server is done with it, or has had its time. Returns whether it was remembered.
    pub(super) fn remove(&mut self, wire_id: u64) -> bool {
        self.by_wire_id.remove(&wire_id).is_some()
    }

    pub(super) fn has(&self, wire_id: u64) -> bool {
        self.by_wire_id.contains_key(&wire_id)
    }

    /// Whether all are of this session.
    pub(super) fn are_of(&self, session: SessionId, now: Instant) -> bool {
        let has_others = self.others_until.is_some_and(|until| until > now);
        let mut requests = self.by_wire_id.values();
        !has_others && requests.all(|request| request.session == Some(session))
    }
}
