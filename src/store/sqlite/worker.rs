//! The thread that reads and writes, and the one that brings what was written to the disk.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::super::{Entry, StoreError};
use super::WallClock;
use super::file::{OpenError, connect, to_column};

/// Operations in one transaction.
const BATCH_MAX: usize = 256;

/// Time between two searches for expired entries.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Entries that are looked at in one step of a search, so that nobody waits for a whole one.
const SWEEP_STEP: u32 = 500;

/// Time between two steps while there is nothing else to do.
const SWEEP_PAUSE: Duration = Duration::from_millis(5);

/// What was written is brought to the disk this often.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);

pub(super) enum Operation {
    Get(String),
    Put {
        key: String,
        value: Bytes,
        expires: Option<i64>,
    },
    Delete(String),
    CompareAndSet {
        key: String,
        expected: Option<Bytes>,
        value: Bytes,
        expires: Option<i64>,
    },
    Scan(String),
    /// Its answer tells that everything before it is done.
    Nothing,
}

pub(super) enum Done {
    Nothing,
    Value(Option<Bytes>),
    Entries(Vec<Entry>),
}

pub(super) struct Job {
    pub(super) operation: Operation,
    pub(super) reply: oneshot::Sender<Result<Done, StoreError>>,
    /// Its place in the queue, given back with the answer.
    pub(super) place: OwnedSemaphorePermit,
}

pub(super) struct Worker {
    connection: Connection,
    now: WallClock,
    dirty: Arc<AtomicBool>,
    /// Milliseconds since 1970.
    next_sweep: u64,
    /// The last key that the search under way has looked at.
    sweep_at: Option<String>,
}

pub(super) fn spawn(
    name: &str,
    path: &Path,
    run: impl FnOnce() + Send + 'static,
) -> Result<(), OpenError> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(run);
    // It ends by itself when nobody can ask it any more.
    thread
        .map(drop)
        .map_err(|error| OpenError::io(path, &error))
}

impl Worker {
    pub(super) fn new(connection: Connection, now: WallClock, dirty: Arc<AtomicBool>) -> Self {
        Self {
            connection,
            now,
            dirty,
            next_sweep: now().saturating_add(millis(SWEEP_EVERY)),
            sweep_at: None,
        }
    }

    /// Works until nobody can ask for anything any more.
    pub(super) fn run(mut self, queue: &Receiver<Job>) {
        loop {
            let wait = match self.sweep_at {
                Some(_) => SWEEP_PAUSE,
                None => SWEEP_EVERY,
            };
            match queue.recv_timeout(wait) {
                Ok(first) => {
                    let more = queue.try_iter().take(BATCH_MAX - 1);
                    self.carry_out(std::iter::once(first).chain(more).collect());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.sweep_if_due();
        }
    }

    fn carry_out(&mut self, jobs: Vec<Job>) {
        match self.transact(&jobs) {
            Ok(outcomes) => {
                for (job, outcome) in jobs.into_iter().zip(outcomes) {
                    job.answer(outcome);
                }
            }
            Err(error) => {
                log::warn!(operations = jobs.len(), error:%; "the store failed");
                for job in jobs {
                    job.answer(Err(StoreError::Unavailable(error.to_string())));
                }
            }
        }
    }

    /// All or nothing: nobody is told of a success that is not committed.
    fn transact(&mut self, jobs: &[Job]) -> rusqlite::Result<Vec<Result<Done, StoreError>>> {
        let now = to_column((self.now)());
        let writes = jobs.iter().any(|job| job.operation.writes());
        let outcomes = match jobs {
            // One statement is a transaction by itself, and two fewer to be run.
            [job] if job.operation.is_one_statement() => {
                vec![job.operation.carry_out(&self.connection, now)?]
            }
            _ => self.in_transaction(jobs, writes, now)?,
        };
        self.dirty.fetch_or(writes, Ordering::Relaxed);
        Ok(outcomes)
    }

    fn in_transaction(
        &mut self,
        jobs: &[Job],
        writes: bool,
        now: i64,
    ) -> rusqlite::Result<Vec<Result<Done, StoreError>>> {
        let behavior = if writes {
            TransactionBehavior::Immediate
        } else {
            TransactionBehavior::Deferred
        };
        let transaction = self.connection.transaction_with_behavior(behavior)?;
        let outcomes = jobs
            .iter()
            .map(|job| job.operation.carry_out(&transaction, now))
            .collect::<rusqlite::Result<Vec<_>>>()?;
        transaction.commit()?;
        Ok(outcomes)
    }

    fn sweep_if_due(&mut self) {
        let now = (self.now)();
        if self.sweep_at.is_none() && now < self.next_sweep {
            return;
        }
        let from = self.sweep_at.take().unwrap_or_default();
        match self.sweep(&from, now) {
            Ok(Some(last)) => self.sweep_at = Some(last),
            Ok(None) => self.next_sweep = now.saturating_add(millis(SWEEP_EVERY)),
            Err(error) => {
                log::warn!(error:%; "expired entries could not be removed");
                self.next_sweep = now.saturating_add(millis(SWEEP_EVERY));
            }
        }
    }

    /// Looks at some entries after a key and removes those that have expired; the last key that
    /// was looked at, unless that was the end.
    fn sweep(&mut self, from: &str, now: u64) -> rusqlite::Result<Option<String>> {
        let last: Option<String> = self
            .connection
            .prepare_cached("SELECT key FROM entry WHERE key > ?1 ORDER BY key LIMIT 1 OFFSET ?2")?
            .query_row(params![from, SWEEP_STEP - 1], |row| row.get(0))
            .optional()?;
        let removed = match &last {
            Some(last) => self
                .connection
                .prepare_cached("DELETE FROM entry WHERE key > ?1 AND key <= ?2 AND expires <= ?3")?
                .execute(params![from, last, to_column(now)])?,
            None => self
                .connection
                .prepare_cached("DELETE FROM entry WHERE key > ?1 AND expires <= ?2")?
                .execute(params![from, to_column(now)])?,
        };
        if removed > 0 {
            self.dirty.store(true, Ordering::Relaxed);
        }
        Ok(last)
    }
}

impl Job {
    fn answer(self, outcome: Result<Done, StoreError>) {
        // Whoever asked may be gone: it is done all the same.
        let _ = self.reply.send(outcome);
        drop(self.place);
    }
}

impl Operation {
    fn writes(&self) -> bool {
        match self {
            Self::Get(_) | Self::Scan(_) | Self::Nothing => false,
            Self::Put { .. } | Self::Delete(_) | Self::CompareAndSet { .. } => true,
        }
    }

    fn is_one_statement(&self) -> bool {
        !matches!(self, Self::CompareAndSet { .. })
    }

    fn carry_out(
        &self,
        connection: &Connection,
        now: i64,
    ) -> rusqlite::Result<Result<Done, StoreError>> {
        match self {
            Self::Nothing => {}
            Self::Get(key) => return get(connection, key, now).map(|value| Ok(Done::Value(value))),
            Self::Put {
                key,
                value,
                expires,
            } => put(connection, key, value, *expires)?,
            Self::Delete(key) => {
                let mut delete = connection.prepare_cached("DELETE FROM entry WHERE key = ?1")?;
                delete.execute([key])?;
            }
            Self::CompareAndSet {
                key,
                expected,
                value,
                expires,
            } => {
                if get(connection, key, now)? != *expected {
                    return Ok(Err(StoreError::Conflict(key.clone())));
                }
                put(connection, key, value, *expires)?;
            }
            Self::Scan(prefix) => {
                return scan(connection, prefix, now).map(|entries| Ok(Done::Entries(entries)));
            }
        }
        Ok(Ok(Done::Nothing))
    }
}

fn get(connection: &Connection, key: &str, now: i64) -> rusqlite::Result<Option<Bytes>> {
    let text = "SELECT value FROM entry WHERE key = ?1 AND (expires IS NULL OR expires > ?2)";
    let mut select = connection.prepare_cached(text)?;
    let value = select.query_row(params![key, now], |row| row.get::<_, Vec<u8>>(0));
    Ok(value.optional()?.map(Bytes::from))
}

fn put(
    connection: &Connection,
    key: &str,
    value: &[u8],
    expires: Option<i64>,
) -> rusqlite::Result<()> {
    let text = "INSERT INTO entry (key, expires, value) VALUES (?1, ?2, ?3) \
                ON CONFLICT (key) DO UPDATE SET expires = ?2, value = ?3";
    let mut insert = connection.prepare_cached(text)?;
    insert.execute(params![key, expires, value]).map(|_| ())
}

fn scan(connection: &Connection, prefix: &str, now: i64) -> rusqlite::Result<Vec<Entry>> {
    let text = "SELECT key, expires, value FROM entry WHERE key >= ?1 AND key < ?2 \
                AND (expires IS NULL OR expires > ?3) ORDER BY key";
    let mut select = connection.prepare_cached(text)?;
    let end = format!("{prefix}{}", char::MAX);
    let entries = select.query_map(params![prefix, end, now], |row| {
        let expires: Option<i64> = row.get(1)?;
        let left = |at: i64| u64::try_from(at.saturating_sub(now)).unwrap_or(0);
        Ok(Entry {
            key: row.get(0)?,
            value: Bytes::from(row.get::<_, Vec<u8>>(2)?),
            expires_in: expires.map(|at| Duration::from_millis(left(at))),
        })
    })?;
    entries.collect()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The second thread; it ends when this is dropped.
pub(super) struct Checkpoints {
    /// Whether there is something new in the write-ahead log.
    pub(super) dirty: Arc<AtomicBool>,
    _alive: mpsc::Sender<()>,
}

impl Checkpoints {
    pub(super) fn start(path: &Path) -> Result<Self, OpenError> {
        let connection = connect(path)?;
        let (alive, ended) = mpsc::channel::<()>();
        let dirty = Arc::new(AtomicBool::new(true));
        let flag = dirty.clone();
        spawn("store-disk", path, move || {
            while ended.recv_timeout(CHECKPOINT_EVERY) == Err(RecvTimeoutError::Timeout) {
                if flag.swap(false, Ordering::Relaxed)
                    && let Err(error) = checkpoint(&connection)
                {
                    log::warn!(error:%; "the store could not be brought to the disk");
                    flag.store(true, Ordering::Relaxed);
                }
            }
        })?;
        Ok(Self {
            dirty,
            _alive: alive,
        })
    }
}

/// Copies the log to the file while writers go on.
fn checkpoint(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
}
