//! The file: created, or updated to the present format.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::import;
use super::open_error::OpenError;
use crate::store::private_file;

/// Each step brings the file from one format to the next; `PRAGMA user_version` is the number of
/// steps that were taken. Steps are never changed, only added.
const MIGRATIONS: [&str; 3] = [
    "CREATE TABLE entry (
    key TEXT NOT NULL PRIMARY KEY,
    expires INTEGER, -- milliseconds since 1970; absent: never
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID",
    "CREATE TABLE carried (
    sequence INTEGER NOT NULL -- of the last change that is in the table
) STRICT;
INSERT INTO carried VALUES (0)",
    "DROP TABLE carried",
];

/// The format whose release wrote changes beside the table.
const FORMAT_WITH_CHANGES: u32 = 2;

/// Bytes of the write-ahead log at which the writer itself waits for the disk, so that the log does
/// not grow without limit. Usually the log is copied to the file before it is that long.
const LOG_MAX: i64 = 64 * 1024 * 1024;

/// How long one of the two connections waits for the other.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens the file for the thread that reads and writes; makes it or updates its format if needed.
pub(super) fn open(path: &Path) -> Result<Connection, OpenError> {
    // It holds session ids. SQLite gives its other files the same permissions.
    private_file(path).map_err(|error| OpenError::io(path, &error))?;
    let mut connection = connect(path)?;
    limit_log(&connection).map_err(|error| OpenError::sqlite(path, &error))?;
    migrate(path, &mut connection)?;
    import::clear(path)?;
    Ok(connection)
}

fn limit_log(connection: &Connection) -> rusqlite::Result<()> {
    let page: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
    connection.pragma_update(None, "wal_autocheckpoint", LOG_MAX / page.max(1))
}

/// Opens a connection with the settings of both threads.
pub(super) fn connect(path: &Path) -> Result<Connection, OpenError> {
    let set_up = || {
        let connection = open_exclusively(path)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        // A log that grew beyond this is cut when it starts anew.
        connection.pragma_update(None, "journal_size_limit", LOG_MAX)?;
        Ok(connection)
    };
    set_up().map_err(|error| OpenError::sqlite(path, &error))
}

/// The data directory is locked by this process, so that SQLite needs no file locks: they take a
/// third of the time of a change.
fn open_exclusively(path: &Path) -> rusqlite::Result<Connection> {
    if cfg!(unix) {
        Connection::open_with_flags_and_vfs(path, OpenFlags::default(), "unix-excl")
    } else {
        Connection::open(path)
    }
}

fn migrate(path: &Path, connection: &mut Connection) -> Result<(), OpenError> {
    let failed = |error: rusqlite::Error| OpenError::sqlite(path, &error);
    let found: u32 = connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(failed)?;
    let known = u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX);
    let taken = usize::try_from(found).unwrap_or(usize::MAX);
    let Some(missing) = MIGRATIONS.get(taken..) else {
        let path = path.to_owned();
        return Err(OpenError::Newer { path, found, known });
    };
    if missing.is_empty() {
        return Ok(());
    }
    let transaction = connection.transaction().map_err(failed)?;
    if found == FORMAT_WITH_CHANGES {
        import::import(path, &transaction)?;
    }
    for step in missing {
        transaction.execute_batch(step).map_err(failed)?;
    }
    transaction
        .pragma_update(None, "user_version", known)
        .map_err(failed)?;
    transaction.commit().map_err(failed)
}

/// A time of the clock as the column `expires` holds it.
pub(super) fn to_column(millis: u64) -> i64 {
    i64::try_from(millis).unwrap_or(i64::MAX)
}
