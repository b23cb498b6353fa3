//! The connections that can serve one call, and leases of connections that serve one call at a
//! time.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::downstream::caller::Caller;
use crate::downstream::connection_key::{Audience, ConnectionKey};
use crate::downstream::pool::connection_choice::ServerFacts;

/// The connections that can serve one call.
pub(crate) struct Reservation {
    /// The connection in the era that the server prefers.
    pub(crate) key: ConnectionKey,
    pub(crate) lease: Option<Lease>,
    /// A connection that is better for this caller, if it is available: in the older era, or of a
    /// process that is declared only what the caller can answer.
    pub(crate) better: Option<ConnectionKey>,
}

impl Reservation {
    /// Some programs run only once: their shared process, which was declared everything, also serves
    /// callers whose own process never came up.
    pub(crate) fn or_shared(
        self,
        facts: &ServerFacts,
        caller: &Caller,
        was_up: impl FnOnce(&ConnectionKey) -> bool,
    ) -> Self {
        let can_fall_back = self.better.is_none() && facts.stands_in_for(&self.key.owner, caller);
        match can_fall_back && !was_up(&self.key) {
            true => Self {
                key: ConnectionKey::shared(),
                better: Some(self.key),
                ..self
            },
            false => self,
        }
    }
}

/// Connections of a server that are reserved for one call each. On a transport that cannot
/// attribute questions, a question belongs to the only call (B-ASK-01).
#[derive(Clone, Debug, Default)]
pub(crate) struct Leases(Arc<Mutex<HashSet<(Audience, usize)>>>);

/// The only call on a connection, which becomes free when this is dropped.
#[derive(Debug)]
pub struct Lease {
    all: Leases,
    place: (Audience, usize),
}

impl Leases {
    /// Takes the first free slot of an audience; `None` if all `places` are taken.
    pub(crate) fn take(&self, audience: &Audience, places: usize) -> Option<Lease> {
        let mut taken = self.0.lock();
        let mut free = (0..places).map(|place| (audience.clone(), place));
        let place = free.find(|place| !taken.contains(place))?;
        taken.insert(place.clone());
        drop(taken);
        let all = self.clone();
        Some(Lease { all, place })
    }
}

impl Lease {
    pub(crate) fn place(&self) -> usize {
        self.place.1
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.all.0.lock().remove(&self.place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_taken_until_its_call_is_over() {
        let (leases, audience) = (Leases::default(), Audience::default());
        let first = leases.take(&audience, 2).unwrap();
        let second = leases.take(&audience, 2).unwrap();
        assert_eq!((first.place(), second.place()), (0, 1));
        assert!(leases.take(&audience, 2).is_none());
        drop(first);
        assert_eq!(
            leases.take(&audience, 2).map(|lease| lease.place()),
            Some(0)
        );
    }
}
