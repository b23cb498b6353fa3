//! The keys of sealing and the states that were used, which outlive the process.

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

/// Where the key of task ids is in the store. It never changes, since clients compare ids.
const TASK_KEY: &str = "sealing/key";

/// Where the keys of states are.
const STATE_KEYS: &str = "sealing/state-keys";

/// The keys with which states and task ids are sealed, and the states that were used.
pub struct SealingKeys {
    tasks: Sealer,
    states: ArcSwap<StateSealer>,
    /// New keys of states are being written.
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
    /// Those of the process before this one, so that what it sealed stays valid and what it used
    /// stays used; the first one makes the keys.
    ///
    /// # Errors
    ///
    /// Fails when the store cannot be used, or the system has no random bytes.
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

    /// Changes the key of states in the background if it is time. The key before the newest one
    /// opens states until the next change, which no state that it sealed lives to see.
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
                Ok(()) => log::info!("the key of states was changed"),
                Err(error) => log::warn!(error:%; "the key of states could not be changed"),
            }
            keys.is_changing.store(false, Ordering::SeqCst);
        });
    }

    /// Nothing is sealed with a key that the next process would not know.
    async fn change(&self) -> Result<(), StoreError> {
        let secret = random().map_err(no_random)?;
        let keys = self.states.load().keys.followed_by(secret, self.now());
        self.store.put(STATE_KEYS, keys.to_bytes(), None).await?;
        self.states.store(Arc::new(StateSealer::new(keys)));
        Ok(())
    }

    /// In milliseconds since 1970.
    pub(super) fn millis(&self) -> u64 {
        (self.clock)()
    }

    /// In seconds since 1970.
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
