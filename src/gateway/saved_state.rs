//! State that a gateway takes over from the previous process, apart from sessions.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use crate::admin::DismissedNotices;
use crate::calls::SealingKeys;
use crate::catalog::ServerPart;
use crate::cluster::Cluster;
use crate::config::Config;
use crate::downstream::ServerSettings;
use crate::publisher::{Pins, StartTimes, load_parts};
use crate::store::{DurableStore, Store, StoreError};
use crate::telemetry::{LogRecords, unix_millis};

/// State of the previous process.
pub(super) struct SavedState {
    /// The lists of each server, and the time they were read.
    pub(super) parts: Vec<(Arc<ServerPart>, u64)>,
    pub(super) start_times: StartTimes,
    pub(super) sealing: Arc<SealingKeys>,
    pub(super) pins: Pins,
    pub(super) dismissed: Arc<DismissedNotices>,
    /// Whether an earlier version ran the servers of this directory without a sandbox.
    pub(super) ran_unconfined: bool,
}

/// Key of the record that tells whether an earlier version, which had no sandbox by default, has
/// used the directory.
const RAN_UNCONFINED: &str = "ran-unconfined";

/// Whether servers ran without a sandbox before, which is recorded at the first start: a directory
/// with lists and without a record is of an earlier version.
async fn ran_unconfined(store: &dyn Store, has_lists: bool) -> Result<bool, StoreError> {
    if let Some(recorded) = store.get(RAN_UNCONFINED).await? {
        return Ok(*recorded == *b"true");
    }
    let record = if has_lists { "true" } else { "false" };
    let recorded = Bytes::from_static(record.as_bytes());
    store.put(RAN_UNCONFINED, recorded, None).await?;
    Ok(has_lists)
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
        cluster: Option<&Cluster>,
    ) -> io::Result<Self> {
        let loaded = Self::load(store, config, servers, log, cluster).await;
        let Err(error) = loaded else {
            return loaded.map_err(io::Error::other);
        };
        log::warn!(error:%; "could not read the saved state; earlier sessions and lists are lost");
        store.forget_disk();
        let loaded = Self::load(store, config, servers, log, cluster).await;
        loaded.map_err(io::Error::other)
    }

    async fn load(
        store: &Arc<DurableStore>,
        config: &Config,
        servers: &[Arc<ServerSettings>],
        log: &LogRecords,
        cluster: Option<&Cluster>,
    ) -> Result<Self, StoreError> {
        let names: Vec<&str> = config.servers.iter().map(|s| s.name.as_str()).collect();
        let configured = |name: &str| names.contains(&name);
        let parts = load_parts(&**store, servers, configured).await?;
        Ok(Self {
            ran_unconfined: ran_unconfined(&**store, !parts.is_empty()).await?,
            parts,
            pins: Pins::load(store.clone(), unix_millis, log, configured).await?,
            start_times: StartTimes::load(store.clone()).await?,
            dismissed: Arc::new(DismissedNotices::load(store.clone()).await?),
            sealing: SealingKeys::load(store.clone(), unix_millis, cluster).await?,
        })
    }
}
