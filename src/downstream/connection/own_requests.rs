//! The requests that a connection makes on its own behalf.

use std::time::Duration;

use tokio::time::Instant;

use crate::downstream::connection::list_fetch::ListFetch;
use crate::downstream::connection::spec::Pending;
use crate::id::QuickMap;
use crate::memory::TimerTable;
use crate::metrics::MethodLabel;
use crate::protocol::{Outcome, Response};

/// The purpose of a request of our own, which decides where its answer goes.
#[derive(Debug)]
pub(crate) enum OwnRequest {
    Initialize,
    Discover,
    /// A change stream; its deadline applies until the stream is acknowledged.
    Listen,
    Page(ListFetch),
    Ping,
    /// A list request used as a ping; its items are ignored.
    Probe,
    /// The configured probe.
    Health,
    /// Only success or failure matters; the name appears in the log.
    ConnectionCommand {
        name: &'static str,
        /// Dropped with this request, which tells the waiting stream that it is settled.
        _pending: Option<Pending>,
    },
}

struct UnderWay {
    own: OwnRequest,
    method: MethodLabel,
    sent: Instant,
}

#[derive(Default)]
pub(crate) struct OwnRequests {
    under_way: QuickMap<u64, UnderWay>,
    deadlines: TimerTable<u64>,
}

impl OwnRequests {
    /// Adds a request with its method.
    pub(crate) fn add(
        &mut self,
        number: u64,
        (own, method): (OwnRequest, MethodLabel),
        sent: Instant,
        within: Duration,
    ) {
        self.under_way
            .insert(number, UnderWay { own, method, sent });
        self.deadlines.set(number, sent + within);
    }

    /// Method of a pending request, and when it was sent.
    pub(crate) fn begun(&self, number: u64) -> Option<(MethodLabel, Instant)> {
        let request = self.under_way.get(&number)?;
        Some((request.method, request.sent))
    }

    /// Removes the deadline of a request.
    pub(crate) fn keep(&mut self, number: u64) {
        self.deadlines.remove(&number);
    }

    pub(crate) fn take(&mut self, number: u64) -> Option<OwnRequest> {
        self.deadlines.remove(&number);
        self.under_way.remove(&number).map(|request| request.own)
    }

    /// Removes the requests of the opening: their late answers are ignored.
    pub(crate) fn take_opening_requests(&mut self) -> Vec<u64> {
        let is_opening =
            |own: &OwnRequest| matches!(own, OwnRequest::Initialize | OwnRequest::Discover);
        let requests = self.under_way.iter();
        let requests = requests.filter(|(_, request)| is_opening(&request.own));
        let numbers: Vec<u64> = requests.map(|(number, _)| *number).collect();
        for number in &numbers {
            self.take(*number);
        }
        numbers
    }

    /// Next request whose deadline has passed.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<u64> {
        self.deadlines.pop_due(now).map(|(number, ())| number)
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// Number of the request that a response answers. An error without an id answers
    /// `server/discover`, which the server could not parse, if no other request is pending.
    pub(crate) fn answered_by(&self, response: &Response) -> Option<u64> {
        match (&response.id, &response.outcome) {
            (Some(id), _) => id.as_number(),
            (None, Outcome::Error(_)) => self.sole_discover(),
            (None, Outcome::Result(_)) => None,
        }
    }

    /// Number of `server/discover`, if it is the only pending request.
    fn sole_discover(&self) -> Option<u64> {
        let mut requests = self.under_way.iter();
        match (requests.next()?, requests.next()) {
            ((number, request), None) if matches!(request.own, OwnRequest::Discover) => {
                Some(*number)
            }
            _ => None,
        }
    }

    /// Whether a request is in flight whose answer would prove that the server is alive.
    pub(crate) fn has_probe(&self) -> bool {
        self.under_way
            .values()
            .any(|request| matches!(request.own, OwnRequest::Ping | OwnRequest::Probe))
    }

    pub(crate) fn has_page(&self) -> bool {
        self.under_way
            .values()
            .any(|request| matches!(request.own, OwnRequest::Page(_)))
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
