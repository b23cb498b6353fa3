//! The requests that a connection makes on its own behalf.

use std::time::Duration;

use tokio::time::Instant;

use crate::downstream::connection::list_fetch::ListFetch;
use crate::downstream::deadlines::Deadlines;
use crate::id::QuickMap;

/// The purpose of a request of our own, which decides where its answer goes.
#[derive(Debug)]
pub(crate) enum OwnRequest {
    Initialize,
    Discover,
    /// A stream of changes; the time runs until it is acknowledged.
    Listen,
    Page(ListFetch),
    Ping,
    /// Only success or failure matters; the text names it in the log.
    ConnectionCommand(&'static str),
}

#[derive(Default)]
pub(crate) struct OwnRequests {
    under_way: QuickMap<u64, OwnRequest>,
    deadlines: Deadlines,
}

impl OwnRequests {
    pub(crate) fn add(&mut self, number: u64, own: OwnRequest, now: Instant, within: Duration) {
        self.under_way.insert(number, own);
        self.deadlines.set(number, now + within);
    }

    /// The request may take for ever from now on.
    pub(crate) fn keep(&mut self, number: u64) {
        self.deadlines.remove(number);
    }

    pub(crate) fn take(&mut self, number: u64) -> Option<OwnRequest> {
        self.deadlines.remove(number);
        self.under_way.remove(&number)
    }

    /// Takes out a request whose answer did not come in time.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<(u64, OwnRequest)> {
        let number = self.deadlines.pop_due(now)?;
        Some((number, self.under_way.remove(&number)?))
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    pub(crate) fn has_ping(&self) -> bool {
        self.under_way
            .values()
            .any(|own| matches!(own, OwnRequest::Ping))
    }

    pub(crate) fn has_page(&self) -> bool {
        self.under_way
            .values()
            .any(|own| matches!(own, OwnRequest::Page(_)))
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
