//! The maintenance thread: syncs commits to disk and removes expired entries through a separate
//! connection, so that writers do not wait for it.

use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::mpsc::WeakSender;

use super::writer::StoreRequest;
use super::{StoreClock, spawn, table};
use crate::store::OpenError;
use crate::store::database::connect;

/// Interval between checkpoints.
const CHECKPOINT_EVERY: Duration = Duration::from_millis(900);

/// Interval between searches for expired entries, in milliseconds.
const SWEEP_EVERY: i64 = 60_000;

/// Pause between the steps of a search, in which others can write.
const SWEEP_PAUSE: Duration = Duration::from_millis(5);

/// Handle to the thread, which ends when this is dropped.
pub(super) struct Maintenance {
    _alive: mpsc::Sender<()>,
}

impl Maintenance {
    pub(super) fn start(
        path: &Path,
        clock: StoreClock,
        writer: WeakSender<StoreRequest>,
    ) -> Result<(Self, JoinHandle<()>), OpenError> {
        let connection = connect(path)?;
        let (alive, ended) = mpsc::channel();
        let thread = spawn("store-disk", path, move || {
            run(&connection, &ended, &clock, &writer);
        })?;
        Ok((Self { _alive: alive }, thread))
    }
}

fn run(
    connection: &Connection,
    ended: &Receiver<()>,
    clock: &StoreClock,
    writer: &WeakSender<StoreRequest>,
) {
    let mut next_sweep = clock.now().saturating_add(SWEEP_EVERY);
    let mut failed = false;
    while wait_unless_ended(ended, CHECKPOINT_EVERY) {
        if clock.jump().is_some()
            && let Some(writer) = writer.upgrade()
        {
            // The writer checks the clock before each request.
            let _ = writer.blocking_send(StoreRequest::nothing());
        }
        if clock.now() >= next_sweep {
            if let Err(error) = sweep(connection, ended, clock) {
                log::warn!(error:%; "expired entries could not be removed");
            }
            next_sweep = clock.now().saturating_add(SWEEP_EVERY);
        }
        let written = checkpoint(connection);
        if let (Err(error), false) = (&written, failed) {
            log::warn!(error:%; "the store could not be synced to disk");
        }
        failed = written.is_err();
    }
}

/// Waits. Returns false as soon as the store is dropped.
fn wait_unless_ended(ended: &Receiver<()>, wait: Duration) -> bool {
    ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout)
}

/// Removes expired entries, in steps.
fn sweep(
    connection: &Connection,
    ended: &Receiver<()>,
    clock: &StoreClock,
) -> rusqlite::Result<()> {
    let mut from = String::new();
    while let Some(last) = table::sweep(connection, &from, clock.now())? {
        if !wait_unless_ended(ended, SWEEP_PAUSE) {
            break;
        }
        from = last;
    }
    Ok(())
}

/// Copies the write-ahead log to the file while others write. Does nothing if there is nothing new.
fn checkpoint(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
}
