//! The sealing keys and used states, which persist across restarts. In a cluster the keys derive from
//! its secret, so that any replica opens what another one sealed.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::{ArcSwap, Guard};
use bytes::Bytes;

use super::state_keys::StateKeys;
use super::used_states::UsedStates;
use crate::bridge::seal::{SealError, Sealer, SealingKey};
use crate::calls::settings::SessionSettings;
use crate::cluster::Cluster;
use crate::id::random_bytes;
use crate::store::{Store, StoreError, WallClock};

/// The store key of the task id key. That key never changes, because clients compare task ids.
const TASK_KEY: &str = "sealing/key";

/// The store key of the state keys.
const STATE_KEYS: &str = "sealing/state-keys";

/// The keys that seal states and task ids, and the states that were already used.
pub struct SealingKeys {
    tasks: Sealer,
    states: ArcSwap<StateSealer>,
    /// Whether new state keys are being written.
    is_changing: AtomicBool,
    used: UsedStates,
    store: Arc<dyn Store>,
    clock: WallClock,
    cluster: Option<Cluster>,
}

pub(super) struct StateSealer {
    origin: KeyOrigin,
    pub(super) sealer: Sealer,
}

/// The origin of the keys that seal states.
enum KeyOrigin {
    /// Random keys of a single gateway, which persist.
    Stored(StateKeys),
    /// Keys that a cluster derives from its secret for one period.
    Derived { cluster: Cluster, period: u64 },
}

impl SealingKeys {
    /// Loads the keys and used states of the previous process, so that its states stay valid or
    /// used. Creates the keys on first use.
    ///
    /// # Errors
    ///
    /// Fails if the store is unavailable, or the system provides no random bytes.
    pub async fn load(
        store: Arc<dyn Store>,
        clock: WallClock,
        cluster: Option<&Cluster>,
    ) -> Result<Arc<Self>, StoreError> {
        let (tasks, states) = match cluster {
            Some(cluster) => (sealer(&cluster.task_keys()), StateSealer::of(cluster, 0)),
            None => stored(&*store, clock).await?,
        };
        let cluster = cluster.cloned();
        Ok(Arc::new(Self {
            tasks,
            states: ArcSwap::from_pointee(states),
            is_changing: AtomicBool::new(false),
            used: UsedStates::load(store.clone(), cluster.clone()).await?,
            store,
            clock,
            cluster,
        }))
    }

    pub(super) const fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_ref()
    }

    pub(super) const fn tasks(&self) -> &Sealer {
        &self.tasks
    }

    pub(super) fn states(&self) -> Guard<Arc<StateSealer>> {
        self.states.load()
    }

    pub(super) const fn used(&self) -> &UsedStates {
        &self.used
    }

    /// Rotates the state key if it is due, in the background if it has to be stored. The previous
    /// key opens states until the next rotation, by which time all states that it sealed have
    /// expired.
    pub(super) fn change_if_due(self: &Arc<Self>, settings: &SessionSettings) {
        let every = settings.state_key_every.max(settings.answer_timeout);
        let states = self.states.load();
        match &states.origin {
            KeyOrigin::Derived { cluster, period } => {
                let now = self.now() / every.as_secs().max(1);
                if *period != now {
                    self.states.store(Arc::new(StateSealer::of(cluster, now)));
                }
            }
            KeyOrigin::Stored(keys) => {
                if self.now() >= keys.since.saturating_add(every.as_secs()) {
                    self.change_in_background();
                }
            }
        }
    }

    fn change_in_background(self: &Arc<Self>) {
        if self.is_changing.swap(true, Ordering::SeqCst) {
            return;
        }
        let keys = self.clone();
        actix_rt::spawn(async move {
            match keys.change().await {
                Ok(()) => log::info!("rotated the state sealing key"),
                Err(error) => log::warn!(error:%; "could not rotate the state sealing key"),
            }
            keys.is_changing.store(false, Ordering::SeqCst);
        });
    }

    /// Persists the new keys before they are used, because the next process must be able to open
    /// every state.
    async fn change(&self) -> Result<(), StoreError> {
        let secret = random().map_err(no_random)?;
        let keys = match &self.states.load().origin {
            KeyOrigin::Stored(keys) => keys.followed_by(secret, self.now()),
            KeyOrigin::Derived { .. } => return Ok(()),
        };
        self.store.put(STATE_KEYS, keys.to_bytes(), None).await?;
        self.states.store(Arc::new(StateSealer::stored(keys)));
        Ok(())
    }

    /// Returns the time in milliseconds since 1970.
    pub(super) fn millis(&self) -> u64 {
        (self.clock)()
    }

    /// Returns the time in seconds since 1970.
    pub(super) fn now(&self) -> u64 {
        self.millis() / 1000
    }
}

impl StateSealer {
    fn stored(keys: StateKeys) -> Self {
        Self {
            sealer: keys.sealer(),
            origin: KeyOrigin::Stored(keys),
        }
    }

    fn of(cluster: &Cluster, period: u64) -> Self {
        Self {
            origin: KeyOrigin::Derived {
                cluster: cluster.clone(),
                period,
            },
            sealer: sealer(&cluster.state_keys(period)),
        }
    }
}

/// Loads the keys of task ids and of states. Creates them on first use.
async fn stored(store: &dyn Store, clock: WallClock) -> Result<(Sealer, StateSealer), StoreError> {
    let kept = store.get(TASK_KEY).await?;
    let secret = match kept.and_then(|bytes| <[u8; 32]>::try_from(bytes.as_ref()).ok()) {
        Some(secret) => secret,
        None => {
            let secret = random().map_err(no_random)?;
            let bytes = Bytes::copy_from_slice(&secret);
            store.put(TASK_KEY, bytes, None).await?;
            secret
        }
    };
    let kept = store.get(STATE_KEYS).await?;
    let keys = match kept.and_then(|bytes| StateKeys::read(&bytes)) {
        Some(keys) => keys,
        None => {
            let keys = StateKeys::first(random().map_err(no_random)?, clock() / 1000);
            store.put(STATE_KEYS, keys.to_bytes(), None).await?;
            keys
        }
    };
    Ok((sealer(&[secret]), StateSealer::stored(keys)))
}

/// The sealer that seals with the first of these keys, and opens with all.
fn sealer(keys: &[[u8; 32]]) -> Sealer {
    let keys: Vec<_> = keys.iter().copied().map(SealingKey::from_secret).collect();
    Sealer::new(&keys[0], &keys[1..])
}

fn no_random(error: SealError) -> StoreError {
    StoreError::Unavailable(error.to_string())
}

pub(super) fn random<const N: usize>() -> Result<[u8; N], SealError> {
    random_bytes().map_err(|_| SealError::Random)
}

impl fmt::Debug for SealingKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealingKeys")
    }
}
