//! The store in a file of the data directory, which survives `kill -9`.
//!
//! One thread owns the connection; what was asked for while it was busy becomes one transaction,
//! so that a crowd of writers pays for one commit. A committed entry has reached the kernel: it
//! survives the end of the process. A second thread brings it to the disk once a second, so that
//! the end of the machine loses no more.

mod file;
mod worker;

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

pub use file::OpenError;
use worker::{Checkpoints, Done, Job, Operation, Worker};

use super::{Entry, Store, StoreError};

/// Operations that wait or are being carried out; whoever comes later waits for a place.
const QUEUE_MAX: usize = 8192;

/// Milliseconds since 1970. Expiry must mean the same to the next process.
pub type WallClock = fn() -> u64;

/// A store in an SQLite file. Operations are carried out in the order in which they were asked
/// for, as long as there is a place in the queue.
pub struct SqliteStore {
    jobs: mpsc::Sender<Job>,
    places: Arc<Semaphore>,
    now: WallClock,
    _checkpoints: Checkpoints,
}

impl SqliteStore {
    /// Opens the file, or makes it, and removes what has expired. Blocks.
    ///
    /// # Errors
    ///
    /// Returns [`OpenError`] when the file is damaged, of a newer release, or cannot be used.
    pub fn open(path: &Path, now: WallClock) -> Result<Self, OpenError> {
        let connection = file::open(path, now())?;
        let checkpoints = Checkpoints::start(path)?;
        let (jobs, queue) = mpsc::channel();
        let worker = Worker::new(connection, now, checkpoints.dirty.clone());
        worker::spawn("store", path, move || worker.run(&queue))?;
        Ok(Self {
            jobs,
            places: Arc::new(Semaphore::new(QUEUE_MAX)),
            now,
            _checkpoints: checkpoints,
        })
    }

    /// Waits until everything that was asked for before is done.
    ///
    /// # Errors
    ///
    /// Fails when the store is gone.
    pub async fn flush(&self) -> Result<(), StoreError> {
        self.submit(Operation::Nothing).await.map(|_| ())
    }

    fn submit(&self, operation: Operation) -> BoxFuture<'static, Result<Done, StoreError>> {
        let (reply, answer) = oneshot::channel();
        let jobs = self.jobs.clone();
        let send = move |place: OwnedSemaphorePermit| {
            let job = Job {
                operation,
                reply,
                place,
            };
            jobs.send(job).map_err(|_| gone())
        };
        match self.places.clone().try_acquire_owned() {
            Ok(place) => {
                let sent = send(place);
                async move {
                    sent?;
                    answer.await.map_err(|_| gone())?
                }
                .boxed()
            }
            Err(_) => {
                let places = self.places.clone();
                async move {
                    send(places.acquire_owned().await.map_err(|_| gone())?)?;
                    answer.await.map_err(|_| gone())?
                }
                .boxed()
            }
        }
    }

    fn expiry(&self, ttl: Option<Duration>) -> Option<i64> {
        let ttl = u64::try_from(ttl?.as_millis()).unwrap_or(u64::MAX);
        Some(file::to_column((self.now)().saturating_add(ttl)))
    }
}

fn gone() -> StoreError {
    StoreError::Unavailable("its thread has ended".to_owned())
}

impl Store for SqliteStore {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>> {
        let done = self.submit(Operation::Get(key.to_owned()));
        async move {
            match done.await? {
                Done::Value(value) => Ok(value),
                Done::Nothing | Done::Entries(_) => Ok(None),
            }
        }
        .boxed()
    }

    fn put(
        &self,
        key: &str,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let done = self.submit(Operation::Put {
            key: key.to_owned(),
            value,
            expires: self.expiry(ttl),
        });
        async move { done.await.map(|_| ()) }.boxed()
    }

    fn delete(&self, key: &str) -> BoxFuture<'_, Result<(), StoreError>> {
        let done = self.submit(Operation::Delete(key.to_owned()));
        async move { done.await.map(|_| ()) }.boxed()
    }

    fn compare_and_set(
        &self,
        key: &str,
        expected: Option<Bytes>,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let done = self.submit(Operation::CompareAndSet {
            key: key.to_owned(),
            expected,
            value,
            expires: self.expiry(ttl),
        });
        async move { done.await.map(|_| ()) }.boxed()
    }

    fn scan(&self, prefix: &str) -> BoxFuture<'_, Result<Vec<Entry>, StoreError>> {
        let done = self.submit(Operation::Scan(prefix.to_owned()));
        async move {
            match done.await? {
                Done::Entries(entries) => Ok(entries),
                Done::Nothing | Done::Value(_) => Ok(Vec::new()),
            }
        }
        .boxed()
    }
}
