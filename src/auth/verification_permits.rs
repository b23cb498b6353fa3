//! Limits requests to an authorization server or webhook: in total, for each address, and to one at
//! a time for each token.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::api_key::TokenHash;
use crate::id::Peer;

/// Maximum requests in flight for new tokens, and separately for tokens that were valid before;
/// further requests wait.
const ASKED_MAX: usize = 32;

/// Maximum requests in flight for new tokens from one address.
const ASKED_PER_ADDRESS_MAX: usize = 16;

/// Permits for requests about tokens.
pub(super) struct VerificationPermits {
    tokens: KeyPermits<TokenHash>,
    addresses: KeyPermits<Peer>,
    /// Keyed by whether the token was valid before.
    all: KeyPermits<bool>,
}

/// A permit for one request about a token.
pub(super) struct VerificationPermit {
    _all: KeyPermit<bool>,
    _address: Option<KeyPermit<Peer>>,
}

impl Default for VerificationPermits {
    fn default() -> Self {
        Self {
            tokens: KeyPermits::new(1),
            addresses: KeyPermits::new(ASKED_PER_ADDRESS_MAX),
            all: KeyPermits::new(ASKED_MAX),
        }
    }
}

impl VerificationPermits {
    /// Waits while another request about the same token is in flight.
    pub(super) async fn token(&self, token: TokenHash) -> KeyPermit<TokenHash> {
        self.tokens.take(token).await
    }

    /// Waits for a permit to ask about a token that this address sent. A flood of bad tokens leaves
    /// permits for other addresses, and for tokens that were valid before.
    pub(super) async fn ask(&self, from: Option<IpAddr>, was_good: bool) -> VerificationPermit {
        let address = match was_good {
            true => None,
            false => Some(
                self.addresses
                    .take(from.map_or(Peer::Local, Peer::of))
                    .await,
            ),
        };
        VerificationPermit {
            _all: self.all.take(was_good).await,
            _address: address,
        }
    }
}

/// A limited number of permits for each key. The newest request gets the next free permit: in a
/// flood, the oldest requests have mostly timed out.
struct KeyPermits<K: Copy + Eq + Hash>(Arc<PermitTable<K>>);

struct PermitTable<K: Copy + Eq + Hash> {
    per_key: usize,
    by_key: Mutex<HashMap<K, Taken<K>>>,
}

/// Permits of one key in use. A key without permits in use has no entry.
struct Taken<K: Copy + Eq + Hash> {
    number: usize,
    waiting: Vec<oneshot::Sender<KeyPermit<K>>>,
}

/// A permit, handed to a waiting request on drop.
pub(super) struct KeyPermit<K: Copy + Eq + Hash> {
    key: K,
    /// `None` after the permit was handed to another request.
    permits: Option<Arc<PermitTable<K>>>,
}

impl<K: Copy + Eq + Hash> KeyPermits<K> {
    fn new(per_key: usize) -> Self {
        let by_key = Mutex::default();
        Self(Arc::new(PermitTable { per_key, by_key }))
    }

    async fn take(&self, key: K) -> KeyPermit<K> {
        loop {
            let handed_on = {
                let mut by_key = self.0.by_key.lock();
                let taken = by_key.entry(key).or_insert_with(|| Taken {
                    number: 0,
                    waiting: Vec::new(),
                });
                if taken.number < self.0.per_key {
                    taken.number += 1;
                    return KeyPermit::new(key, &self.0);
                }
                let (next, handed_on) = oneshot::channel();
                taken.waiting.retain(|waiting| !waiting.is_closed());
                taken.waiting.push(next);
                handed_on
            };
            if let Ok(permit) = handed_on.await {
                return permit;
            }
        }
    }
}

impl<K: Copy + Eq + Hash> PermitTable<K> {
    /// Pops the newest request that waits for this key, or frees the permit.
    fn next(&self, key: K) -> Option<oneshot::Sender<KeyPermit<K>>> {
        let mut by_key = self.by_key.lock();
        let taken = by_key.get_mut(&key)?;
        if let Some(next) = taken.waiting.pop() {
            return Some(next);
        }
        taken.number = taken.number.saturating_sub(1);
        if taken.number == 0 {
            by_key.remove(&key);
        }
        None
    }
}

impl<K: Copy + Eq + Hash> KeyPermit<K> {
    fn new(key: K, permits: &Arc<PermitTable<K>>) -> Self {
        Self {
            key,
            permits: Some(Arc::clone(permits)),
        }
    }
}

impl<K: Copy + Eq + Hash> Drop for KeyPermit<K> {
    fn drop(&mut self) {
        let Some(permits) = self.permits.take() else {
            return;
        };
        while let Some(next) = permits.next(self.key) {
            match next.send(Self::new(self.key, &permits)) {
                Ok(()) => return,
                // That request timed out: try the next one.
                Err(mut refused) => drop(refused.permits.take()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_permit_goes_to_the_newest_waiting_request() {
        let permits = KeyPermits::new(1);
        let first = permits.take("a").await;
        let mut waiting: Vec<_> = (0..4).map(|_| Box::pin(permits.take("a"))).collect();
        for one in &mut waiting {
            assert!(one.as_mut().now_or_never().is_none());
        }
        assert!(
            permits.take("b").now_or_never().is_some(),
            "another key has separate permits"
        );
        drop(waiting.pop());
        drop(first);
        let mut last = waiting.pop().unwrap();
        let second = last.as_mut().now_or_never().unwrap();
        assert!(
            waiting
                .iter_mut()
                .all(|one| one.as_mut().now_or_never().is_none())
        );
        drop(second);
        // A permit sent to a request that timed out goes to the next one.
        drop(waiting.pop());
        assert!(waiting.pop().unwrap().as_mut().now_or_never().is_some());
        drop(waiting);
        assert!(permits.0.by_key.lock().is_empty(), "no entry is left");
    }

    #[tokio::test]
    async fn one_address_leaves_places_to_others_and_to_proven_tokens() {
        let permits = VerificationPermits::default();
        let [bad, other] = [1, 2].map(|last| Some(IpAddr::from([10, 0, 0, last])));
        let mut flood = Vec::new();
        while let Some(permit) = permits.ask(bad, false).now_or_never() {
            flood.push(permit);
        }
        assert_eq!(flood.len(), ASKED_PER_ADDRESS_MAX);
        let mut others = Vec::new();
        while let Some(permit) = permits.ask(other, false).now_or_never() {
            others.push(permit);
        }
        assert_eq!(others.len(), ASKED_MAX - ASKED_PER_ADDRESS_MAX);
        assert!(
            permits.ask(None, false).now_or_never().is_none(),
            "all permits are in use"
        );
        assert!(permits.ask(bad, true).now_or_never().is_some());
        others.pop();
        assert!(permits.ask(None, false).now_or_never().is_some());
    }
}
