//! The store in a file of the data directory, which survives `kill -9`.
//!
//! A change is in the kernel, and so survives the end of the process, as soon as it is appended to
//! a file beside the table ([`changes`]). One thread owns the connection to SQLite, and carries
//! changes over to the table many at a time, and before it answers a question. A second thread
//! brings the table to the disk, so that the end of the machine loses no more than a second.

mod changes;
mod file;
mod table;
mod worker;

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use changes::{Change, ChangeLog};
pub use file::OpenError;
use worker::{Checkpoints, Done, Job, Message, Operation, Worker, lock, unavailable};

use super::{Entry, Store, StoreError};

/// Questions that wait or are being answered; whoever comes later waits for a place.
const QUEUE_MAX: usize = 8192;

/// Milliseconds since 1970. Expiry must mean the same to the next process.
pub type WallClock = fn() -> u64;

/// A store in an SQLite file. A question sees every change that was made before it.
pub struct SqliteStore {
    changes: Arc<Mutex<ChangeLog>>,
    worker: mpsc::Sender<Message>,
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
        let (connection, changes) = open(path, now())?;
        let changes = Arc::new(Mutex::new(changes));
        let checkpoints = Checkpoints::start(path)?;
        let (sender, queue) = mpsc::channel();
        let dirty = checkpoints.dirty.clone();
        let worker = Worker::new(connection, changes.clone(), now, dirty);
        worker::spawn("store", path, move || worker.run(&queue))?;
        Ok(Self {
            changes,
            worker: sender,
            places: Arc::new(Semaphore::new(QUEUE_MAX)),
            now,
            _checkpoints: checkpoints,
        })
    }

    /// Waits until every change that was made before is in the table.
    ///
    /// # Errors
    ///
    /// Fails when the table cannot be written: the changes are kept beside it.
    pub async fn flush(&self) -> Result<(), StoreError> {
        self.submit(Operation::Nothing).await.map(|_| ())
    }

    /// Makes a change; the kernel has it then.
    fn change(&self, key: &str, change: Change) -> BoxFuture<'static, Result<(), StoreError>> {
        let noted = lock(&self.changes).append(key, change);
        let outcome = match noted {
            Ok(true) => self.worker.send(Message::Changed).map_err(|_| gone()),
            Ok(false) => Ok(()),
            Err(error) => Err(unavailable(&error)),
        };
        ready(outcome).boxed()
    }

    fn submit(&self, operation: Operation) -> BoxFuture<'static, Result<Done, StoreError>> {
        let (reply, answer) = oneshot::channel();
        let worker = self.worker.clone();
        let send = move |place: OwnedSemaphorePermit| {
            let job = Job {
                operation,
                reply,
                place,
            };
            worker.send(Message::Job(job)).map_err(|_| gone())
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

/// Opens the table together with what was changed but was not in it yet.
fn open(path: &Path, now: u64) -> Result<(Connection, ChangeLog), OpenError> {
    let io = |error: io::Error| OpenError::io(path, &error);
    let sqlite = |error: rusqlite::Error| OpenError::sqlite(path, &error);
    let mut connection = file::open(path)?;
    let carried = table::carried(&connection).map_err(sqlite)?;
    let (left, sequence) = changes::left(path, carried).map_err(io)?;
    table::carry_over(&mut connection, &left, sequence).map_err(sqlite)?;
    let changes = ChangeLog::begin(path, sequence).map_err(io)?;
    table::clean(&connection, file::to_column(now)).map_err(sqlite)?;
    Ok((connection, changes))
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
        let expires = self.expiry(ttl);
        self.change(key, Change::Put { value, expires })
    }

    fn delete(&self, key: &str) -> BoxFuture<'_, Result<(), StoreError>> {
        self.change(key, Change::Delete)
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
