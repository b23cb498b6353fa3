//! A store on a disk that can fail: meanwhile changes are kept in memory. A failure costs
//! durability, never a response, and no request waits for the disk longer than a deadline.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::disk_state::{Disk, HANGS, Shared, StoreSummary, WAIT_MAX};
use super::keeper::{self, StatePlace};
use super::overlay::Change;
use super::{OpenError, Store, StoreError, StoredEntry};

/// A store on the disk of a [`StatePlace`]. A thread opens its file, monitors it and reopens it.
pub struct DurableStore(Arc<Shared>);

impl DurableStore {
    /// Starts the thread that opens the file. The returned future resolves after the first attempt;
    /// the store can be used before.
    ///
    /// # Errors
    ///
    /// Returns the system's error if the thread cannot be created.
    pub fn start(
        place: impl StatePlace + 'static,
    ) -> io::Result<(Self, oneshot::Receiver<Result<(), OpenError>>)> {
        let shared = Arc::new(Shared::default());
        let opened = keeper::start(place, shared.clone())?;
        Ok((Self(shared), opened))
    }

    pub fn summary(&self) -> StoreSummary {
        self.0.lock().summary.clone()
    }

    /// Waits until all earlier changes are committed, if the disk accepts them.
    pub async fn flush(&self) {
        // Requests run in order, so this read completes after all earlier changes.
        let _ = self.get("").await;
    }

    /// Ends the thread, which closes the file and unlocks its directory; waits for that, but not
    /// for a disk that hangs.
    pub async fn stop(&self) {
        self.0.closing.notify_one();
        // The end of the process does the rest.
        let _ = timeout(WAIT_MAX, self.0.closed.cancelled()).await;
    }

    /// Reports that the first attempt to open the file takes too long.
    pub fn note_late(&self) {
        self.0.lock().fail(HANGS.to_owned());
    }

    /// Makes reads return only what is changed from now on, until the disk accepts changes again.
    pub fn forget_disk(&self) {
        let mut state = self.0.lock();
        state.disk = Disk::Unopened;
        if state.summary.failure.is_none() {
            state.fail("the disk cannot be read".to_owned());
        }
    }

    async fn change(
        &self,
        key: &str,
        change: Change,
        ttl: Option<Duration>,
    ) -> Result<(), StoreError> {
        let (number, disk) = {
            let mut state = self.0.lock();
            state.last += 1;
            let number = state.last;
            match &state.disk {
                Disk::Open(disk) if state.summary.failure.is_none() => (number, disk.clone()),
                _ => return state.keep(key, number, change),
            }
        };
        let written = match &change {
            Change::Put { value, .. } => disk.put(key, value.clone(), ttl),
            Change::Delete => disk.delete(key),
        };
        match self.0.within_deadline(disk.clone(), written).await {
            Ok(()) => Ok(()),
            Err(_) => self.0.lock().keep(key, number, change),
        }
    }
}

impl Store for DurableStore {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>> {
        let key = key.to_owned();
        async move {
            if let Some(kept) = self.0.lock().overlay.get(&key) {
                return Ok(kept);
            }
            let found = self.0.read(|disk| disk.get(&key)).await?;
            Ok(found.flatten())
        }
        .boxed()
    }

    fn put(
        &self,
        key: &str,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let key = key.to_owned();
        async move { self.change(&key, Change::put(value, ttl), ttl).await }.boxed()
    }

    fn delete(&self, key: &str) -> BoxFuture<'_, Result<(), StoreError>> {
        let key = key.to_owned();
        async move { self.change(&key, Change::Delete, None).await }.boxed()
    }

    fn scan(&self, prefix: &str) -> BoxFuture<'_, Result<Vec<StoredEntry>, StoreError>> {
        let prefix = prefix.to_owned();
        async move {
            let found = self.0.read(|disk| disk.scan(&prefix)).await;
            let overlay = &self.0.lock().overlay;
            match found {
                Ok(found) => Ok(overlay.apply(&prefix, found.unwrap_or_default())),
                // An entry that was put here is complete, including everything below it.
                Err(_) if overlay.has(&prefix) => Ok(overlay.apply(&prefix, Vec::new())),
                Err(error) => Err(error),
            }
        }
        .boxed()
    }
}

impl Drop for DurableStore {
    fn drop(&mut self) {
        self.0.closing.notify_one();
    }
}

impl fmt::Debug for DurableStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurableStore").finish_non_exhaustive()
    }
}
