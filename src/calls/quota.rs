//! Quotas that all clients share, with a fair share for each client: sessions, streams, calls and
//! bytes in flight.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::id::Holder;
use crate::protocol::{ErrorKind, Failure};

/// The places of one quota. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Quota(Arc<Mutex<TakenShares>>);

#[derive(Default)]
struct TakenShares {
    all: usize,
    by_holder: HashMap<Holder, usize>,
}

/// Places that a client holds, usually one. Dropping it releases them.
pub(crate) struct QuotaShare {
    places: Quota,
    holder: Holder,
    amount: usize,
}

/// The limits of a quota.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuotaLimit {
    /// Name of the places in refusals, such as "sessions".
    pub(crate) of: &'static str,
    /// The configuration key of `max`.
    pub(crate) key: &'static str,
    pub(crate) max: usize,
    /// A client's share, in percent of `max`. This many of the last places are reserved for clients
    /// that hold less than their share.
    pub(crate) peer_share: usize,
    /// The maximum for one client, and its configuration key.
    pub(crate) per_client: Option<(usize, &'static str)>,
}

/// Why a client was refused a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuotaExceeded {
    /// All places are taken.
    Full,
    /// The client has used its share, and the last places are reserved for other clients.
    Share,
    /// The client has reached its own limit.
    Own,
}

impl QuotaLimit {
    fn share(&self) -> usize {
        self.max.saturating_mul(self.peer_share) / 100
    }

    /// Returns the reason for a refusal, as the client reads it.
    pub(crate) fn reason(&self, why: QuotaExceeded) -> String {
        let Self { of, key, max, .. } = self;
        let (own, own_key) = self.per_client.unwrap_or_default();
        match why {
            QuotaExceeded::Full => format!("limit of {max} {of} reached (`{key}`)"),
            QuotaExceeded::Share => format!(
                "the last of {max} {of} (`{key}`) are reserved for other clients; this client holds its share of {} or more (`sessions.peer_share`)",
                self.share()
            ),
            QuotaExceeded::Own => {
                format!("this client's limit of {own} {of} is reached (`{own_key}`)")
            }
        }
    }

    /// Returns the failure that a refused client reads.
    pub(crate) fn failure(&self, why: QuotaExceeded) -> Failure {
        let message = self.reason(why) + "; try again later";
        Failure::new(ErrorKind::Overloaded, message).retry_after_ms(1000)
    }
}

impl Quota {
    /// Takes a place.
    ///
    /// # Errors
    ///
    /// Returns the reason for refusing this client.
    pub(crate) fn take(
        &self,
        holder: Holder,
        limit: &QuotaLimit,
    ) -> Result<QuotaShare, QuotaExceeded> {
        let mut place = self.none(holder);
        place.grow(1, limit)?;
        Ok(place)
    }

    /// Takes a place regardless of limits, for an entry that an earlier process already admitted.
    pub(crate) fn restore(&self, holder: Holder) -> QuotaShare {
        let mut place = self.none(holder);
        place.count(self.0.lock(), 1);
        place
    }

    /// Returns an empty holding for a client, which can grow.
    pub(crate) fn none(&self, holder: Holder) -> QuotaShare {
        QuotaShare {
            places: self.clone(),
            holder,
            amount: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().all
    }
}

impl QuotaShare {
    pub(crate) const fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Takes `amount` further places.
    ///
    /// # Errors
    ///
    /// Returns the reason for refusing this client; no place was taken.
    pub(crate) fn grow(&mut self, amount: usize, limit: &QuotaLimit) -> Result<(), QuotaExceeded> {
        let places = self.places.clone();
        let taken = places.0.lock();
        let (free, share) = (limit.max.saturating_sub(taken.all), limit.share());
        let own = taken.by_holder.get(&self.holder).copied().unwrap_or(0);
        let has_others = !self.holder.is_alone();
        let is_beyond = |(max, _)| own.saturating_add(amount) > max;
        if has_others && limit.per_client.is_some_and(is_beyond) {
            return Err(QuotaExceeded::Own);
        }
        let is_shared = (1..limit.max).contains(&share) && has_others;
        if is_shared && free <= share && own >= share {
            return Err(QuotaExceeded::Share);
        }
        if free < amount {
            return Err(QuotaExceeded::Full);
        }
        self.count(taken, amount);
        Ok(())
    }

    fn count(&mut self, mut taken: MutexGuard<'_, TakenShares>, amount: usize) {
        self.amount += amount;
        taken.all += amount;
        // A client that competes with no other has no share, so its places are not counted.
        if !self.holder.is_alone() {
            *taken.by_holder.entry(self.holder.clone()).or_default() += amount;
        }
    }
}

impl Drop for QuotaShare {
    fn drop(&mut self) {
        if self.amount == 0 {
            return;
        }
        let mut taken = self.places.0.lock();
        taken.all -= self.amount;
        if let Some(own) = taken.by_holder.get_mut(&self.holder) {
            *own -= self.amount;
            if *own == 0 {
                taken.by_holder.remove(&self.holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Peer, Principal};

    fn limit(max: usize, peer_share: usize) -> QuotaLimit {
        QuotaLimit {
            of: "calls",
            key: "calls.max",
            max,
            peer_share,
            per_client: None,
        }
    }

    fn peer(last: u8) -> Holder {
        Holder::Peer(Peer::of([10, 0, 0, last].into()))
    }

    /// Returns the places that a client gets, and the reason why it gets no more.
    fn taken(
        places: &Quota,
        holder: Holder,
        limit: &QuotaLimit,
    ) -> (Vec<QuotaShare>, QuotaExceeded) {
        let mut held = Vec::new();
        loop {
            match places.take(holder.clone(), limit) {
                Ok(place) => held.push(place),
                Err(why) => return (held, why),
            }
        }
    }

    #[test]
    fn the_last_places_are_for_peers_that_have_less_than_their_share() {
        let table = [
            // Share in percent, places that a greedy peer gets, places left for another peer.
            (10, 90, 10),
            (30, 70, 30),
            (70, 70, 30),
            (100, 100, 0),
        ];
        for (share, greedy, other) in table {
            let (places, limit) = (Quota::default(), limit(100, share));
            let (first, why) = taken(&places, peer(1), &limit);
            assert_eq!(first.len(), greedy, "{share}");
            assert_eq!(why == QuotaExceeded::Share, share < 100, "{share}");
            let (second, _) = taken(&places, peer(2), &limit);
            assert_eq!(second.len(), other, "{share}");
            assert_eq!(places.len(), 100);
            drop((first, second));
            assert_eq!(places.len(), 0);
            assert!(places.0.lock().by_holder.is_empty());
        }
    }

    #[test]
    fn who_is_alone_or_has_few_places_gets_them_all() {
        let places = Quota::default();
        let (all, why) = taken(&places, Holder::Peer(Peer::Local), &limit(100, 10));
        assert_eq!((all.len(), why), (100, QuotaExceeded::Full));
        drop(all);
        let (all, why) = taken(&places, peer(1), &limit(9, 10));
        assert_eq!((all.len(), why), (9, QuotaExceeded::Full));
        let _restored = places.restore(peer(1));
        assert_eq!(places.len(), 10);
        assert!(places.take(peer(2), &limit(9, 10)).is_err());
    }

    #[test]
    fn one_client_gets_no_more_than_its_own_limit_wherever_it_connects_from() {
        let limit = QuotaLimit {
            per_client: Some((3, "sessions.max_per_client")),
            ..limit(100, 10)
        };
        let places = Quota::default();
        let key = |name| Holder::of(&Principal::of("key", name), Peer::Local);
        let mut held = Vec::new();
        for holder in [key("laptop"), key("phone"), peer(1)] {
            let (own, why) = taken(&places, holder, &limit);
            assert_eq!((own.len(), why), (3, QuotaExceeded::Own));
            held.extend(own);
        }
        let (own, why) = taken(&places, Holder::Peer(Peer::Local), &limit);
        assert_eq!((own.len(), why), (91, QuotaExceeded::Full));
        let refusal = limit.failure(QuotaExceeded::Own).message;
        assert!(refusal.contains("3 calls") && refusal.contains("`sessions.max_per_client`"));
    }

    #[test]
    fn places_are_taken_by_amounts_and_given_back_whole() {
        let places = Quota::default();
        let limit = limit(100, 10);
        let mut greedy = places.none(peer(1));
        assert_eq!(greedy.grow(60, &limit), Ok(()));
        assert_eq!(greedy.grow(41, &limit), Err(QuotaExceeded::Full));
        assert_eq!(greedy.grow(30, &limit), Ok(()));
        assert_eq!(greedy.grow(1, &limit), Err(QuotaExceeded::Share));
        let mut other = places.none(peer(2));
        assert_eq!(other.grow(10, &limit), Ok(()));
        drop(greedy);
        assert_eq!(places.len(), 10);
        let held = QuotaLimit {
            per_client: Some((20, "limits.bytes_per_client")),
            ..limit
        };
        assert_eq!(other.grow(11, &held), Err(QuotaExceeded::Own));
        assert_eq!(other.grow(10, &held), Ok(()));
        drop(other);
        assert_eq!(places.len(), 0);
        assert!(places.0.lock().by_holder.is_empty());
    }

    #[test]
    fn a_refusal_names_the_limit_and_what_to_do() {
        let limit = limit(100, 10);
        let full = limit.failure(QuotaExceeded::Full).message;
        assert!(
            full.contains("100 calls") && full.contains("`calls.max`"),
            "{full}"
        );
        let share = limit.failure(QuotaExceeded::Share).message;
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
