//! Places that all clients have in common, of which each peer has a share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::id::Peer;
use crate::protocol::{ErrorKind, Failure};

/// The places of one kind. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct PeerPlaces(Arc<Mutex<TakenPlaces>>);

#[derive(Default)]
struct TakenPlaces {
    all: usize,
    by_peer: HashMap<Peer, usize>,
}

/// One place of a peer; given back when dropped.
pub(crate) struct PeerPlace {
    places: PeerPlaces,
    peer: Peer,
}

/// How many places of a kind there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaceLimit {
    /// Their purpose, in a refusal.
    pub(crate) of: &'static str,
    /// The key that says how many there are.
    pub(crate) key: &'static str,
    pub(crate) max: usize,
    /// In percent of `max`. So many places are left to peers that have less than that; nobody else
    /// gets the last ones.
    pub(crate) peer_share: usize,
}

/// Why there is no place for a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// All are taken.
    Full,
    /// The peer has its share, and the last places are for others.
    Share,
}

impl PlaceLimit {
    fn share(&self) -> usize {
        self.max.saturating_mul(self.peer_share) / 100
    }

    /// Why a client finds no place, in words for it.
    pub(crate) fn reason(&self, why: NoPlace) -> String {
        let Self { of, key, max, .. } = self;
        match why {
            NoPlace::Full => format!("there are {max} {of}, the limit (`{key}`)"),
            NoPlace::Share => format!(
                "the last of {max} {of} (`{key}`) are kept for clients of other addresses, and yours has {} or more, its share (`sessions.peer_share`)",
                self.share()
            ),
        }
    }

    /// The refusal that a client reads.
    pub(crate) fn failure(&self, why: NoPlace) -> Failure {
        let message = self.reason(why) + "; try again later";
        Failure::new(ErrorKind::Overloaded, message).retry_after_ms(1000)
    }
}

impl PeerPlaces {
    /// Takes a place.
    ///
    /// # Errors
    ///
    /// Says why there is none for this peer.
    pub(crate) fn take(&self, peer: Peer, limit: &PlaceLimit) -> Result<PeerPlace, NoPlace> {
        let taken = self.lock();
        let (free, share) = (limit.max.saturating_sub(taken.all), limit.share());
        let own = taken.by_peer.get(&peer).copied().unwrap_or(0);
        let is_shared = (1..limit.max).contains(&share) && peer != Peer::Local;
        if is_shared && free <= share && own >= share {
            return Err(NoPlace::Share);
        }
        if free == 0 {
            return Err(NoPlace::Full);
        }
        Ok(self.count(taken, peer))
    }

    /// Takes a place beyond all limits, for what was there before.
    pub(crate) fn restore(&self, peer: Peer) -> PeerPlace {
        self.count(self.lock(), peer)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().all
    }

    fn count(&self, mut taken: MutexGuard<'_, TakenPlaces>, peer: Peer) -> PeerPlace {
        taken.all += 1;
        *taken.by_peer.entry(peer).or_default() += 1;
        let places = self.clone();
        PeerPlace { places, peer }
    }

    fn lock(&self) -> MutexGuard<'_, TakenPlaces> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PeerPlace {
    pub(crate) const fn peer(&self) -> Peer {
        self.peer
    }
}

impl Drop for PeerPlace {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.all -= 1;
        if let Some(own) = taken.by_peer.get_mut(&self.peer) {
            *own -= 1;
            if *own == 0 {
                taken.by_peer.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(max: usize, peer_share: usize) -> PlaceLimit {
        PlaceLimit {
            of: "calls",
            key: "calls.max",
            max,
            peer_share,
        }
    }

    fn peer(last: u8) -> Peer {
        Peer::of([10, 0, 0, last].into())
    }

    /// How many places a peer gets, and why no more.
    fn taken(places: &PeerPlaces, peer: Peer, limit: &PlaceLimit) -> (Vec<PeerPlace>, NoPlace) {
        let mut held = Vec::new();
        loop {
            match places.take(peer, limit) {
                Ok(place) => held.push(place),
                Err(why) => return (held, why),
            }
        }
    }

    #[test]
    fn the_last_places_are_for_peers_that_have_less_than_their_share() {
        let table = [
            // Share in percent, what a greedy peer gets, what another gets then.
            (10, 90, 10),
            (30, 70, 30),
            (70, 70, 30),
            (100, 100, 0),
        ];
        for (share, greedy, other) in table {
            let (places, limit) = (PeerPlaces::default(), limit(100, share));
            let (first, why) = taken(&places, peer(1), &limit);
            assert_eq!(first.len(), greedy, "{share}");
            assert_eq!(why == NoPlace::Share, share < 100, "{share}");
            let (second, _) = taken(&places, peer(2), &limit);
            assert_eq!(second.len(), other, "{share}");
            assert_eq!(places.len(), 100);
            drop((first, second));
            assert_eq!(places.len(), 0);
            assert!(places.lock().by_peer.is_empty());
        }
    }

    #[test]
    fn who_is_alone_or_has_few_places_gets_them_all() {
        let places = PeerPlaces::default();
        let (all, why) = taken(&places, Peer::Local, &limit(100, 10));
        assert_eq!((all.len(), why), (100, NoPlace::Full));
        drop(all);
        let (all, why) = taken(&places, peer(1), &limit(9, 10));
        assert_eq!((all.len(), why), (9, NoPlace::Full));
        let _restored = places.restore(peer(1));
        assert_eq!(places.len(), 10);
        assert!(places.take(peer(2), &limit(9, 10)).is_err());
    }

    #[test]
    fn a_refusal_names_the_limit_and_what_to_do() {
        let limit = limit(100, 10);
        let full = limit.failure(NoPlace::Full).message;
        assert!(
            full.contains("100 calls") && full.contains("`calls.max`"),
            "{full}"
        );
        let share = limit.failure(NoPlace::Share).message;
        for part in [
            "`calls.max`",
            "`sessions.peer_share`",
            "10 or more",
            "the last of",
        ] {
            assert!(share.contains(part), "{share}");
        }
    }
}
