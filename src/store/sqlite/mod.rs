//! The store in a file of the data directory, which survives `kill -9`.
//!
//! One thread writes ([`writer`]): it commits all changes that wait in one transaction. The kernel
//! has what is committed, so that it survives the end of the process. A second thread
//! ([`maintenance`]) brings it to the disk each second, so that the end of the machine loses no
//! more than that, and removes what has expired.

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

/// Requests that may wait for the thread; whoever comes later waits to be let in.
const QUEUE_MAX: usize = 8192;

/// Milliseconds since 1970. Expiry must mean the same to the next process.
pub type WallClock = fn() -> u64;

/// A store in an SQLite file. Requests are carried out in the order in which they are made.
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
    /// Opens the file, or makes it, and removes what has expired. Blocks.
    ///
    /// # Errors
    ///
    /// Returns [`OpenError`] when the file is damaged, of a newer release, or cannot be used.
    pub fn open(path: &Path, now: WallClock) -> Result<Self, OpenError> {
        Self::open_with_threads(path, now.into()).map(|(store, _)| store)
    }

    /// Opens the file, and returns what waits until it is closed after the end of the store.
    /// Blocks.
    ///
    /// # Errors
    ///
    /// As [`SqliteStore::open`].
    pub fn open_with_threads(
        path: &Path,
        clock: StoreClock,
    ) -> Result<(Self, StoreThreads), OpenError> {
        let connection = file::open(path)?;
        match table::clean(&connection, clock.now()) {
            // A disk that is full does not keep the entries from being read.
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

    /// Waits until every change that was made before is committed.
    ///
    /// # Errors
    ///
    /// Fails when the file cannot be used.
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

/// Starts a thread that ends by itself when the store is dropped.
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
