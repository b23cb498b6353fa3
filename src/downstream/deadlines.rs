//! When which call fails: ordered, so that one timer serves all calls of a connection.

use std::collections::BTreeSet;

use tokio::time::Instant;

use crate::id::QuickMap;

#[derive(Default)]
pub(crate) struct Deadlines {
    ordered: BTreeSet<(Instant, u64)>,
    by_call: QuickMap<u64, Instant>,
}

impl Deadlines {
    /// Sets or moves the deadline of a call.
    pub(crate) fn set(&mut self, call: u64, at: Instant) {
        self.remove(call);
        self.by_call.insert(call, at);
        self.ordered.insert((at, call));
    }

    pub(crate) fn remove(&mut self, call: u64) {
        if let Some(at) = self.by_call.remove(&call) {
            self.ordered.remove(&(at, call));
        }
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.ordered.first().map(|(at, _)| *at)
    }

    /// Takes out a call whose deadline has passed.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<u64> {
        let (_, call) = *self.ordered.first().filter(|(at, _)| *at <= now)?;
        self.remove(call);
        Some(call)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn calls_come_due_in_order_and_moved_ones_later() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut deadlines = Deadlines::default();
        deadlines.set(1, at(10));
        deadlines.set(2, at(5));
        deadlines.set(3, at(7));
        deadlines.set(2, at(20));
        deadlines.remove(3);
        assert_eq!(deadlines.next(), Some(at(10)));
        assert_eq!(deadlines.pop_due(at(9)), None);
        assert_eq!(deadlines.pop_due(at(30)), Some(1));
        assert_eq!(deadlines.pop_due(at(30)), Some(2));
        assert_eq!(deadlines.pop_due(at(30)), None);
        assert_eq!(deadlines.next(), None);
    }
}
