//! SQLite files of the data directory: made, opened, and brought to their present format.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags};

use super::open_error::OpenError;
use super::private::private_file;

/// How the content of a file is laid out.
pub(crate) struct DatabaseFormat {
    /// Each step brings the file from one format to the next; `PRAGMA user_version` is the number
    /// of steps that were taken. Steps are never changed, only added.
    pub(crate) migrations: &'static [&'static str],
    /// Runs before the missing steps, with the format that was found.
    pub(crate) before_steps: fn(u32, &Path, &Connection) -> Result<(), OpenError>,
}

/// Bytes of the write-ahead log at which a writer that leaves checkpoints to others waits for the
/// disk itself, so that the log does not grow without limit.
const LOG_MAX: i64 = 64 * 1024 * 1024;

/// How long one connection to a file waits for another.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens the file for the thread that writes; makes it or updates its format if needed.
pub(crate) fn open(path: &Path, format: &DatabaseFormat) -> Result<Connection, OpenError> {
    // SQLite gives its other files the same permissions.
    private_file(path).map_err(|error| OpenError::io(path, &error))?;
    let mut connection = connect(path)?;
    limit_log(&connection).map_err(|error| OpenError::sqlite(path, &error))?;
    migrate(path, &mut connection, format)?;
    Ok(connection)
}

/// Moves a damaged file that is closed aside, with the changes beside it. Returns its new path.
pub(crate) fn move_aside(path: &Path, now: u64) -> Result<PathBuf, OpenError> {
    let now = Timestamp::from_millisecond(i64::try_from(now).unwrap_or_default());
    let now = now.unwrap_or_default().strftime("%Y-%m-%dT%H-%M-%SZ");
    let beside = |end: &str| {
        let mut name = OsString::from(path);
        name.push(end);
        PathBuf::from(name)
    };
    let aside = beside(&format!(".damaged-{now}"));
    fs::rename(path, &aside).map_err(|error| OpenError::io(path, &error))?;
    let mut log = aside.clone().into_os_string();
    log.push("-wal");
    // There may be none.
    let _ = fs::rename(beside("-wal"), log);
    Ok(aside)
}

fn limit_log(connection: &Connection) -> rusqlite::Result<()> {
    let page: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
    connection.pragma_update(None, "wal_autocheckpoint", LOG_MAX / page.max(1))
}

/// Opens a connection with the settings of all threads.
pub(crate) fn connect(path: &Path) -> Result<Connection, OpenError> {
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

fn migrate(
    path: &Path,
    connection: &mut Connection,
    format: &DatabaseFormat,
) -> Result<(), OpenError> {
    let failed = |error: rusqlite::Error| OpenError::sqlite(path, &error);
    let found: u32 = connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(failed)?;
    let known = u32::try_from(format.migrations.len()).unwrap_or(u32::MAX);
    let taken = usize::try_from(found).unwrap_or(usize::MAX);
    let Some(missing) = format.migrations.get(taken..) else {
        let path = path.to_owned();
        return Err(OpenError::Newer { path, found, known });
    };
    if missing.is_empty() {
        return Ok(());
    }
    let transaction = connection.transaction().map_err(failed)?;
    (format.before_steps)(found, path, &transaction)?;
    for step in missing {
        transaction.execute_batch(step).map_err(failed)?;
    }
    transaction
        .pragma_update(None, "user_version", known)
        .map_err(failed)?;
    transaction.commit().map_err(failed)
}
