//! The store in an SQLite file of the data directory, which survives `kill -9`.
//!
//! One thread writes ([`writer`]): it commits all waiting changes in one transaction. Committed
//! data is in the kernel, so it survives the end of the process. A second thread ([`maintenance`])
//! syncs it to disk every second, so that a power failure loses no more than that, and removes
//! expired entries.

mod clock;
mod file;
mod import;
mod maintenance;
mod table;
mod writer;

use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rusqlite::ErrorCode;
use tokio::sync::{mpsc, oneshot};

pub use clock::StoreClock;
use maintenance::Maintenance;
use writer::{StoreOperation, StoreReply, StoreRequest};

use super::{OpenError, Store, StoreError, StoredEntry};

/// Maximum number of queued requests; further ones wait for room.
const QUEUE_MAX: usize = 8192;

/// Milliseconds since 1970. Expiry times must be meaningful to the next process.
pub type WallClock = fn() -> u64;

/// A store in an SQLite file. Requests run in the order in which they are made.
pub struct SqliteStore {
    requests: mpsc::Sender<StoreRequest>,
    _maintenance: Maintenance,
}

/// The threads of a store, which end when it is dropped.
pub struct StoreThreads([JoinHandle<()>; 2]);

impl StoreThreads {
    /// Waits until the file is closed. Blocks.
    pub fn join(self) {
        for thread in self.0 {
            // A panic was reported where it happened.
            drop(thread.join());
        }
    }
}

impl SqliteStore {
    /// Opens the file, or creates it, and removes expired entries. Blocks.
    ///
    /// # Errors
    ///
    /// Returns [`OpenError`] if the file is damaged, from a newer release, or unusable.
    pub fn open(path: &Path, now: WallClock) -> Result<Self, OpenError> {
        Self::open_with_threads(path, now.into()).map(|(store, _)| store)
    }

    /// Opens the file, and also returns a handle that waits until it is closed after the store was
    /// dropped. Blocks.
    ///
    /// # Errors
    ///
    /// Fails like [`SqliteStore::open`].
    pub fn open_with_threads(
        path: &Path,
        clock: StoreClock,
    ) -> Result<(Self, StoreThreads), OpenError> {
        let connection = file::open(path)?;
        match table::clean(&connection, clock.now()) {
            // A full disk does not prevent entries from being read.
            Err(error) if is_full(&error) => {}
            cleaned => cleaned.map_err(|error| OpenError::sqlite(path, &error))?,
        }
        let (requests, queue) = mpsc::channel(QUEUE_MAX);
        let wake = requests.downgrade();
        let (maintenance, disk) = Maintenance::start(path, clock.clone(), wake)?;
        let writer = spawn("store", path, move || {
            writer::run(connection, queue, &clock)
        })?;
        let store = Self {
            requests,
            _maintenance: maintenance,
        };
        Ok((store, StoreThreads([writer, disk])))
    }

    /// Waits until all earlier changes are committed.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be used.
    pub async fn flush(&self) -> Result<(), StoreError> {
        self.request(StoreOperation::Nothing).await.map(drop)
    }

    async fn request(&self, operation: StoreOperation) -> Result<StoreReply, StoreError> {
        let (reply, answer) = oneshot::channel();
        let request = StoreRequest { operation, reply };
        self.requests.send(request).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }
}

fn is_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
}

fn ended() -> StoreError {
    StoreError::Unavailable("its thread has ended".to_owned())
}

/// Starts a thread that ends when the store is dropped.
fn spawn(
    name: &str,
    path: &Path,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, OpenError> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    let started = thread.spawn(run);
    started.map_err(|error| OpenError::io(path, &error))
}

impl Store for SqliteStore {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>> {
        let reply = self.request(StoreOperation::Get(key.to_owned()));
        async move {
            match reply.await? {
                StoreReply::Value(value) => Ok(value),
                StoreReply::Done | StoreReply::Entries(_) => Ok(None),
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
        let operation = StoreOperation::Put {
            key: key.to_owned(),
            value,
            ttl,
        };
        async move { self.request(operation).await.map(drop) }.boxed()
    }

    fn delete(&self, key: &str) -> BoxFuture<'_, Result<(), StoreError>> {
        let operation = StoreOperation::Delete(key.to_owned());
        async move { self.request(operation).await.map(drop) }.boxed()
    }

    fn scan(&self, prefix: &str) -> BoxFuture<'_, Result<Vec<StoredEntry>, StoreError>> {
        let reply = self.request(StoreOperation::Scan(prefix.to_owned()));
        async move {
            match reply.await? {
                StoreReply::Entries(entries) => Ok(entries),
                StoreReply::Done | StoreReply::Value(_) => Ok(Vec::new()),
            }
        }
        .boxed()
    }
}
