//! State that a gateway takes over from the previous process, apart from sessions.

use std::io;
use std::sync::Arc;

use crate::admin::DismissedNotices;
use crate::calls::SealingKeys;
use crate::catalog::ServerPart;
use crate::config::Config;
use crate::downstream::ServerSettings;
use crate::publisher::{Pins, StartTimes, load_parts};
use crate::store::{DurableStore, StoreError};
use crate::telemetry::{LogRecords, unix_millis};

/// State of the previous process.
pub(super) struct SavedState {
    /// The lists of each server, and the time they were read.
    pub(super) parts: Vec<(Arc<ServerPart>, u64)>,
    pub(super) start_times: StartTimes,
    pub(super) sealing: Arc<SealingKeys>,
    pub(super) pins: Pins,
    pub(super) dismissed: Arc<DismissedNotices>,
}

impl SavedState {
    /// Loads the state, or starts without it if the disk cannot be read.
    ///
    /// # Errors
    ///
    /// Returns the system's error when it has no randomness for new keys.
    pub(super) async fn load_or_forget(
        store: &Arc<DurableStore>,
        config: &Config,
        servers: &[Arc<ServerSettings>],
        log: &LogRecords,
    ) -> io::Result<Self> {
        let loaded = Self::load(store, config, servers, log).await;
        let Err(error) = loaded else {
            return loaded.map_err(io::Error::other);
        };
        log::warn!(error:%; "could not read the saved state; earlier sessions and lists are lost");
        store.forget_disk();
        let loaded = Self::load(store, config, servers, log).await;
        loaded.map_err(io::Error::other)
    }

    async fn load(
        store: &Arc<DurableStore>,
        config: &Config,
        servers: &[Arc<ServerSettings>],
        log: &LogRecords,
    ) -> Result<Self, StoreError> {
        let names: Vec<&str> = config.servers.iter().map(|s| s.name.as_str()).collect();
        let configured = |name: &str| names.contains(&name);
        Ok(Self {
            parts: load_parts(&**store, servers, configured).await?,
            pins: Pins::load(store.clone(), unix_millis, log, configured).await?,
            start_times: StartTimes::load(store.clone()).await?,
            dismissed: Arc::new(DismissedNotices::load(store.clone()).await?),
            sealing: SealingKeys::load(store.clone(), unix_millis).await?,
        })
    }
}
