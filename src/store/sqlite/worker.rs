//! The thread that reads and writes the table, and the one that brings what was written to the
//! disk.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use super::super::{Entry, StoreError};
use super::changes::{Batch, ChangeLog};
use super::file::{OpenError, connect, to_column};
use super::{WallClock, table};

/// So long changes are gathered before they are carried over to the table.
const GATHER: Duration = Duration::from_millis(100);

/// Time between two searches for expired entries.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Time between two steps of a search while there is nothing else to do.
const SWEEP_PAUSE: Duration = Duration::from_millis(5);

/// What is in the table is brought to the disk this often: together with [`GATHER`] a second.
const CHECKPOINT_EVERY: Duration = Duration::from_millis(900);

/// What the thread is told.
pub(super) enum Message {
    /// There are changes to be carried over.
    Changed,
    Job(Job),
}

pub(super) enum Operation {
    Get(String),
    CompareAndSet {
        key: String,
        expected: Option<Bytes>,
        value: Bytes,
        expires: Option<i64>,
    },
    Scan(String),
    /// Its answer tells that everything before it is in the table.
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
    changes: Arc<Mutex<ChangeLog>>,
    /// One that could not be carried over.
    failed: Option<Batch>,
    /// When changes are to be carried over.
    carry_at: Option<Instant>,
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
    pub(super) fn new(
        connection: Connection,
        changes: Arc<Mutex<ChangeLog>>,
        now: WallClock,
        dirty: Arc<AtomicBool>,
    ) -> Self {
        Self {
            connection,
            changes,
            failed: None,
            carry_at: None,
            now,
            dirty,
            next_sweep: now().saturating_add(millis(SWEEP_EVERY)),
            sweep_at: None,
        }
    }

    /// Works until nobody can ask for anything any more.
    pub(super) fn run(mut self, queue: &Receiver<Message>) {
        loop {
            match queue.recv_timeout(self.wait()) {
                Ok(Message::Changed) => {
                    self.carry_at.get_or_insert_with(|| Instant::now() + GATHER);
                }
                Ok(Message::Job(job)) => self.carry_out(job),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.carry_over_in_time();
                    return;
                }
            }
            if self.carry_at.is_some_and(|at| at <= Instant::now()) {
                self.carry_over_in_time();
            }
            self.sweep_if_due();
        }
    }

    fn wait(&self) -> Duration {
        let wait = match self.sweep_at {
            Some(_) => SWEEP_PAUSE,
            None => SWEEP_EVERY,
        };
        let carry = self
            .carry_at
            .map(|at| at.saturating_duration_since(Instant::now()));
        carry.map_or(wait, |carry| carry.min(wait))
    }

    fn carry_over_in_time(&mut self) {
        self.carry_at = None;
        if let Err(error) = self.carry_over() {
            log::warn!(error:%; "changes of the state wait: they cannot be written to the table");
            self.carry_at = Some(Instant::now() + CHECKPOINT_EVERY);
        }
    }

    /// Carries all changes that were made so far over to the table.
    fn carry_over(&mut self) -> Result<(), StoreError> {
        while let Some(batch) = self.failed.take().or_else(|| lock(&self.changes).take()) {
            let written = table::carry_over(&mut self.connection, &batch.changes, batch.sequence);
            if let Err(error) = written {
                self.failed = Some(batch);
                return Err(unavailable(&error));
            }
            self.dirty.store(true, Ordering::Relaxed);
            if let Err((batch, error)) = lock(&self.changes).carried(batch) {
                self.failed = Some(batch);
                return Err(unavailable(&error));
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, job: Job) {
        // What was changed before must be seen.
        let outcome = self.carry_over().and_then(|()| {
            let done = self.operate(job.operation);
            done.unwrap_or_else(|error| Err(unavailable(&error)))
        });
        if let Err(error @ StoreError::Unavailable(_)) = &outcome {
            log::warn!(error:%; "the store failed");
        }
        // Whoever asked may be gone: it is done all the same.
        let _ = job.reply.send(outcome);
        drop(job.place);
    }

    fn operate(&mut self, operation: Operation) -> rusqlite::Result<Result<Done, StoreError>> {
        let now = to_column((self.now)());
        Ok(match operation {
            Operation::Nothing => Ok(Done::Nothing),
            Operation::Get(key) => Ok(Done::Value(table::get(&self.connection, &key, now)?)),
            Operation::Scan(prefix) => {
                Ok(Done::Entries(table::scan(&self.connection, &prefix, now)?))
            }
            Operation::CompareAndSet {
                key,
                expected,
                value,
                expires,
            } => {
                let (expected, new) = (expected.as_ref(), (&value, expires));
                self.dirty.store(true, Ordering::Relaxed);
                let set = table::compare_and_set(&mut self.connection, &key, expected, new, now)?;
                set.map(|()| Done::Nothing)
            }
        })
    }

    fn sweep_if_due(&mut self) {
        let now = (self.now)();
        if self.sweep_at.is_none() && now < self.next_sweep {
            return;
        }
        let from = self.sweep_at.take().unwrap_or_default();
        match table::sweep(&self.connection, &from, to_column(now)) {
            Ok((removed, last)) => {
                self.dirty.fetch_or(removed > 0, Ordering::Relaxed);
                self.sweep_at = last;
            }
            Err(error) => log::warn!(error:%; "expired entries could not be removed"),
        }
        if self.sweep_at.is_none() {
            self.next_sweep = now.saturating_add(millis(SWEEP_EVERY));
        }
    }
}

pub(super) fn lock(changes: &Mutex<ChangeLog>) -> std::sync::MutexGuard<'_, ChangeLog> {
    changes.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn unavailable(error: &dyn std::error::Error) -> StoreError {
    StoreError::Unavailable(error.to_string())
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
