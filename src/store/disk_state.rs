//! State shared between requests to a store and the thread that maintains its disk file.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::overlay::{Change, Overlay};
use super::{Store, StoreError};

/// How long a request waits for the disk.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(2);

/// Error message of a request that the disk did not answer in time.
pub(super) const HANGS: &str = "the disk does not respond";

/// The state of the store, for operators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreSummary {
    /// Why changes are kept in memory only.
    pub failure: Option<String>,
    /// A notice for operators, such as where a damaged file is now.
    pub notice: Option<String>,
}

/// Shared between requests and the thread.
#[derive(Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Asks the thread to end.
    pub(super) closing: Notify,
    /// The thread has closed the file.
    pub(super) closed: CancellationToken,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) disk: Disk,
    pub(super) overlay: Overlay,
    /// Sequence number of the last change.
    pub(super) last: u64,
    pub(super) summary: StoreSummary,
    /// Whether a request found the file damaged.
    pub(super) is_damaged: bool,
}

#[derive(Clone, Default)]
pub(super) enum Disk {
    /// Never opened: its content is unknown.
    #[default]
    Unopened,
    Open(Arc<dyn Store>),
    /// Being reopened.
    Away,
    /// Did not respond in time; the thread is waiting for it.
    Hung,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Bounds a request to the disk by a deadline; an error or timeout marks the disk as failed.
    pub(super) async fn within_deadline<T>(
        &self,
        disk: Arc<dyn Store>,
        request: BoxFuture<'_, Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let outcome = match timeout(WAIT_MAX, request).await {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(StoreError::Unavailable(HANGS.to_owned())),
        };
        if let Err(error) = &outcome {
            self.lock().note(&disk, error);
        }
        outcome
    }

    pub(super) async fn read<T>(
        &self,
        read: impl FnOnce(&dyn Store) -> BoxFuture<'_, Result<T, StoreError>>,
    ) -> Result<Option<T>, StoreError> {
        let disk = self.lock().disk.clone();
        match disk {
            Disk::Unopened => Ok(None),
            Disk::Open(disk) => {
                let reading = read(&*disk);
                self.within_deadline(disk.clone(), reading).await.map(Some)
            }
            Disk::Away | Disk::Hung => {
                let why = self.lock().summary.failure.clone();
                Err(StoreError::Unavailable(why.unwrap_or_default()))
            }
        }
    }
}

impl State {
    /// Keeps a change in memory.
    pub(super) fn keep(
        &mut self,
        key: &str,
        number: u64,
        change: Change,
    ) -> Result<(), StoreError> {
        match self.overlay.keep(key, number, change) {
            true => Ok(()),
            false => {
                let why = self.summary.failure.clone();
                Err(StoreError::Unavailable(why.unwrap_or_default()))
            }
        }
    }

    /// Records that a request to this disk failed.
    fn note(&mut self, disk: &Arc<dyn Store>, error: &StoreError) {
        // A disk that was reopened since then is a different one.
        if !matches!(&self.disk, Disk::Open(open) if Arc::ptr_eq(open, disk)) {
            return;
        }
        match error {
            StoreError::Damaged(_) => self.is_damaged = true,
            StoreError::Unavailable(why) if why == HANGS => self.disk = Disk::Hung,
            StoreError::Unavailable(_) => {}
        }
        self.fail(error.to_string());
    }

    /// Switches to keeping changes in memory.
    pub(super) fn fail(&mut self, why: String) {
        if self.summary.failure.as_ref() != Some(&why) {
            log::warn!(reason = why.as_str(); "disk unavailable; keeping state in memory only");
        }
        self.summary.failure = Some(why);
    }

    /// Switches back to writing changes to disk.
    pub(super) fn recover(&mut self) {
        if self.summary.failure.take().is_some() {
            log::info!("disk available again; writing state to disk");
        }
    }
}
