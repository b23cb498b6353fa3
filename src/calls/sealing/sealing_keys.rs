//! The sealing keys and used states, which persist across restarts.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::{ArcSwap, Guard};
use bytes::Bytes;

use super::state_keys::StateKeys;
use super::used_states::UsedStates;
use crate::bridge::seal::{SealError, Sealer, SealingKey};
use crate::calls::settings::SessionSettings;
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
}

pub(super) struct StateSealer {
    keys: StateKeys,
    pub(super) sealer: Sealer,
}

impl SealingKeys {
    /// Loads the keys and used states of the previous process, so that its states stay valid or
    /// used. Creates the keys on first use.
    ///
    /// # Errors
    ///
    /// Fails if the store is unavailable, or the system provides no random bytes.
    pub async fn load(store: Arc<dyn Store>, clock: WallClock) -> Result<Arc<Self>, StoreError> {
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
        Ok(Arc::new(Self {
            tasks: Sealer::new(&SealingKey::from_secret(secret), None),
            states: ArcSwap::from_pointee(StateSealer::new(keys)),
            is_changing: AtomicBool::new(false),
            used: UsedStates::load(store.clone()).await?,
            store,
            clock,
        }))
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

    /// Rotates the state key in the background if it is due. The previous key opens states until
    /// the next rotation, by which time all states that it sealed have expired.
    pub(super) fn change_if_due(self: &Arc<Self>, settings: &SessionSettings) {
        let every = settings.state_key_every.max(settings.answer_timeout);
        let due = self
            .states
            .load()
            .keys
            .since
            .saturating_add(every.as_secs());
        if self.now() < due || self.is_changing.swap(true, Ordering::SeqCst) {
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
        let keys = self.states.load().keys.followed_by(secret, self.now());
        self.store.put(STATE_KEYS, keys.to_bytes(), None).await?;
        self.states.store(Arc::new(StateSealer::new(keys)));
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
    fn new(keys: StateKeys) -> Self {
        let sealer = keys.sealer();
        Self { keys, sealer }
    }
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
