//! States that clients have returned. Each is remembered until it expires, even across restarts, so
//! that no state is accepted twice (S-MRTR-09).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::timeout;
use uuid::Uuid;

use crate::bridge::seal::RequestState;
use crate::cluster::{Cluster, EngineError};
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

/// Why the use of a state was not recorded.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeepError {
    /// Another replica used it.
    #[error("another replica used it")]
    Used,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

pub(super) struct UsedStates {
    store: Arc<dyn Store>,
    /// The cluster in whose engine used states are marked instead of the store.
    cluster: Option<Cluster>,
    used: Mutex<BTreeSet<ReturnedState>>,
}

impl UsedStates {
    /// Loads the states that the previous process accepted.
    pub(super) async fn load(
        store: Arc<dyn Store>,
        cluster: Option<Cluster>,
    ) -> Result<Self, StoreError> {
        let entries = store.scan(USED).await?;
        let used = entries
            .iter()
            .filter_map(|entry| ReturnedState::of_key(&entry.key));
        let used = Mutex::new(used.collect());
        Ok(Self {
            store,
            cluster,
            used,
        })
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

    /// Persists a used state, in a cluster for all replicas. If that fails, the state can be used
    /// again.
    pub(super) async fn keep(&self, state: ReturnedState, now: u64) -> Result<(), KeepError> {
        let ttl = Duration::from_secs(state.forgotten_at().saturating_sub(now));
        let kept = match &self.cluster {
            Some(cluster) => mark(cluster, state, ttl).await,
            None => self.put(state, ttl).await.map_err(KeepError::from),
        };
        if kept.is_err() {
            self.used.lock().remove(&state);
        }
        kept
    }

    /// Marks the used states again, after the engine can have lost their marks.
    pub(super) async fn mark_again(&self, now: u64) {
        let Some(cluster) = &self.cluster else { return };
        let used: Vec<_> = self.used.lock().iter().copied().collect();
        for state in used.iter().filter(|state| state.forgotten_at() > now) {
            let ttl = Duration::from_secs(state.forgotten_at() - now);
            if let Err(KeepError::Engine(error)) = mark(cluster, *state, ttl).await {
                log::warn!(error:%; "could not mark again which request states were used");
                return;
            }
        }
    }

    async fn put(&self, state: ReturnedState, ttl: Duration) -> Result<(), StoreError> {
        let put = self.store.put(&state.key(), Bytes::new(), Some(ttl));
        let late = || StoreError::Unavailable("it did not answer in time".to_owned());
        timeout(KEEP_TIMEOUT, put).await.map_err(|_| late())?
    }
}

async fn mark(cluster: &Cluster, state: ReturnedState, ttl: Duration) -> Result<(), KeepError> {
    let id = Uuid::from_bytes(state.id);
    match cluster.records().use_up(id, ttl).await? {
        true => Ok(()),
        false => Err(KeepError::Used),
    }
}
