//! The store in a file of the data directory, which survives `kill -9`.
//!
//! One thread writes ([`writer`]): it commits all changes that wait in one transaction. The kernel
//! has what is committed, so that it survives the end of the process. A second thread
//! ([`maintenance`]) brings it to the disk each second, so that the end of the machine loses no
//! more than that, and removes what has expired.

mod file;
mod import;
mod maintenance;
mod table;
mod writer;

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

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
    now: WallClock,
    _maintenance: Maintenance,
}

impl SqliteStore {
    /// Opens the file, or makes it, and removes what has expired. Blocks.
    ///
    /// # Errors
    ///
    /// Returns [`OpenError`] when the file is damaged, of a newer release, or cannot be used.
    pub fn open(path: &Path, now: WallClock) -> Result<Self, OpenError> {
        let connection = file::open(path)?;
        table::clean(&connection, file::to_column(now()))
            .map_err(|error| OpenError::sqlite(path, &error))?;
        let maintenance = Maintenance::start(path, now)?;
        let (requests, queue) = mpsc::channel(QUEUE_MAX);
        spawn("store", path, move || writer::run(connection, queue, now))?;
        Ok(Self {
            requests,
            now,
            _maintenance: maintenance,
        })
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

    fn expiry(&self, ttl: Option<Duration>) -> Option<i64> {
        let ttl = u64::try_from(ttl?.as_millis()).unwrap_or(u64::MAX);
        Some(file::to_column((self.now)().saturating_add(ttl)))
    }
}

fn ended() -> StoreError {
    StoreError::Unavailable("its thread has ended".to_owned())
}

/// Starts a thread that ends by itself when the store is dropped.
fn spawn(name: &str, path: &Path, run: impl FnOnce() + Send + 'static) -> Result<(), OpenError> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    let started = thread.spawn(run).map(drop);
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
            expires: self.expiry(ttl),
        };
        async move { self.request(operation).await.map(drop) }.boxed()
    }

    fn delete(&self, key: &str) -> BoxFuture<'_, Result<(), StoreError>> {
        let operation = StoreOperation::Delete(key.to_owned());
        async move { self.request(operation).await.map(drop) }.boxed()
    }

    fn compare_and_set(
        &self,
        key: &str,
        expected: Option<Bytes>,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let operation = StoreOperation::CompareAndSet {
            key: key.to_owned(),
            expected,
            value,
            expires: self.expiry(ttl),
        };
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
