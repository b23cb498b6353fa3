//! The thread that brings what is committed to the disk and removes what has expired, through a
//! connection of its own: whoever writes does not wait for it.

use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use rusqlite::Connection;

use super::file::to_column;
use super::{WallClock, spawn, table};
use crate::store::OpenError;
use crate::store::database::connect;

/// Time between two checkpoints.
const CHECKPOINT_EVERY: Duration = Duration::from_millis(900);

/// Milliseconds between two searches for expired entries.
const SWEEP_EVERY: u64 = 60_000;

/// Time between two steps of a search, in which others may write.
const SWEEP_PAUSE: Duration = Duration::from_millis(5);

/// The thread; it ends when this is dropped.
pub(super) struct Maintenance {
    _alive: mpsc::Sender<()>,
}

impl Maintenance {
    pub(super) fn start(path: &Path, now: WallClock) -> Result<Self, OpenError> {
        let connection = connect(path)?;
        let (alive, ended) = mpsc::channel();
        spawn("store-disk", path, move || run(&connection, &ended, now))?;
        Ok(Self { _alive: alive })
    }
}

fn run(connection: &Connection, ended: &Receiver<()>, now: WallClock) {
    let mut next_sweep = now().saturating_add(SWEEP_EVERY);
    while goes_on(ended, CHECKPOINT_EVERY) {
        if now() >= next_sweep {
            if let Err(error) = sweep(connection, ended, now) {
                log::warn!(error:%; "expired entries could not be removed");
            }
            next_sweep = now().saturating_add(SWEEP_EVERY);
        }
        if let Err(error) = checkpoint(connection) {
            log::warn!(error:%; "the store could not be brought to the disk");
        }
    }
}

/// Waits. False as soon as the store is dropped.
fn goes_on(ended: &Receiver<()>, wait: Duration) -> bool {
    ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout)
}

/// Removes expired entries, in steps.
fn sweep(connection: &Connection, ended: &Receiver<()>, now: WallClock) -> rusqlite::Result<()> {
    let mut from = String::new();
    while let Some(last) = table::sweep(connection, &from, to_column(now()))? {
        if !goes_on(ended, SWEEP_PAUSE) {
            break;
        }
        from = last;
    }
    Ok(())
}

/// Copies the write-ahead log to the file while others write. Does nothing if nothing is new.
fn checkpoint(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
}
