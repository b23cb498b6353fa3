//! States that clients have returned. Each is remembered until it expires, even across restarts, so
//! that no state is accepted twice (S-MRTR-09).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::bridge::seal::RequestState;
use crate::store::{Store, StoreError};

/// The prefix of used states in the store.
const USED: &str = "sealing/used/";

/// How long a state is remembered beyond its expiry, in seconds, in case the clock is set back.
const CLOCK_SKEW: u64 = 60;

/// How long the store may take to write a used state.
const KEEP_TIMEOUT: Duration = Duration::from_secs(5);

/// A returned state; ordered by expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReturnedState {
    /// Expiry, in seconds since 1970.
    expires_at: u64,
    id: [u8; 16],
}

impl ReturnedState {
    pub(crate) const fn of(state: &RequestState) -> Self {
        Self {
            expires_at: state.expires_at,
            id: state.id,
        }
    }

    fn key(&self) -> String {
        format!(
            "{USED}{:016x}-{:032x}",
            self.expires_at,
            u128::from_be_bytes(self.id)
        )
    }

    fn of_key(key: &str) -> Option<Self> {
        let (expires_at, id) = key.strip_prefix(USED)?.split_once('-')?;
        Some(Self {
            expires_at: u64::from_str_radix(expires_at, 16).ok()?,
            id: u128::from_str_radix(id, 16).ok()?.to_be_bytes(),
        })
    }

    const fn forgotten_at(&self) -> u64 {
        self.expires_at.saturating_add(CLOCK_SKEW)
    }
}

/// Why a state is not accepted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TakeError {
    Used,
    /// Too many used states are remembered.
    Full,
}

pub(super) struct UsedStates {
    store: Arc<dyn Store>,
    used: Mutex<BTreeSet<ReturnedState>>,
}

impl UsedStates {
    /// Loads the states that the previous process accepted.
    pub(super) async fn load(store: Arc<dyn Store>) -> Result<Self, StoreError> {
        let entries = store.scan(USED).await?;
        let used = entries
            .iter()
            .filter_map(|entry| ReturnedState::of_key(&entry.key));
        let used = Mutex::new(used.collect());
        Ok(Self { store, used })
    }

    /// Marks a state as used, so that it is not accepted again. `now` is in seconds since 1970.
    pub(super) fn take(&self, state: ReturnedState, max: usize, now: u64) -> Result<(), TakeError> {
        let mut used = self.used.lock();
        while used
            .first()
            .is_some_and(|first| first.forgotten_at() <= now)
        {
            used.pop_first();
        }
        if used.contains(&state) {
            return Err(TakeError::Used);
        }
        if used.len() >= max {
            return Err(TakeError::Full);
        }
        used.insert(state);
        Ok(())
    }

    /// Persists a used state. If that fails, the state can be used again.
    pub(super) async fn keep(&self, state: ReturnedState, now: u64) -> Result<(), StoreError> {
        let ttl = Duration::from_secs(state.forgotten_at().saturating_sub(now));
        let put = self.store.put(&state.key(), Bytes::new(), Some(ttl));
        let kept = timeout(KEEP_TIMEOUT, put).await;
        let kept = kept.unwrap_or_else(|_| {
            Err(StoreError::Unavailable(
                "it did not answer in time".to_owned(),
            ))
        });
        if kept.is_err() {
            self.used.lock().remove(&state);
        }
        kept
    }
}
