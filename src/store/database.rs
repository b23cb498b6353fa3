//! Opens the SQLite files of the data directory, creating them or migrating them to the current
//! format.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags};

use super::open_error::OpenError;
use super::private::private_file;

/// The schema of a file.
pub(crate) struct DatabaseFormat {
    /// Each step migrates the file from one format to the next; `PRAGMA user_version` is the number
    /// of completed steps. Steps are only added, never changed.
    pub(crate) migrations: &'static [&'static str],
    /// Runs before the missing steps, with the file's current format.
    pub(crate) before_steps: fn(u32, &Path, &Connection) -> Result<(), OpenError>,
}

/// Size of the write-ahead log, in bytes, at which a writer that leaves checkpoints to another
/// thread syncs the disk itself, so that the log stays bounded.
const LOG_MAX: i64 = 64 * 1024 * 1024;

/// How long one connection to a file waits for another.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens the file for the writing thread; creates it or migrates its format if necessary.
pub(crate) fn open(path: &Path, format: &DatabaseFormat) -> Result<Connection, OpenError> {
    // SQLite gives its auxiliary files the same permissions.
    private_file(path).map_err(|error| OpenError::io(path, &error))?;
    let mut connection = connect(path)?;
    limit_log(&connection).map_err(|error| OpenError::sqlite(path, &error))?;
    migrate(path, &mut connection, format)?;
    Ok(connection)
}

/// Opens a database in memory, which connections of this process with the same name share until the
/// last one closes.
pub(crate) fn open_in_memory(name: &str, format: &DatabaseFormat) -> Result<Connection, OpenError> {
    let mut connection = connect_in_memory(name)?;
    migrate(Path::new(name), &mut connection, format)?;
    Ok(connection)
}

/// Opens another connection to a database in memory.
pub(crate) fn connect_in_memory(name: &str) -> Result<Connection, OpenError> {
    let set_up = || {
        // Only names with a slash in front are shared.
        let path = format!("/{name}");
        let connection = Connection::open_with_flags_and_vfs(path, OpenFlags::default(), "memdb")?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        Ok(connection)
    };
    set_up().map_err(|error| OpenError::sqlite(Path::new(name), &error))
}

/// Moves a damaged, closed file aside, together with its write-ahead log. Returns its new path.
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
    // The log does not always exist.
    let _ = fs::rename(beside("-wal"), log);
    Ok(aside)
}

fn limit_log(connection: &Connection) -> rusqlite::Result<()> {
    let page: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
    connection.pragma_update(None, "wal_autocheckpoint", LOG_MAX / page.max(1))
}

/// Opens a connection with the settings that all threads use.
pub(crate) fn connect(path: &Path) -> Result<Connection, OpenError> {
    let set_up = || {
        let connection = open_exclusively(path)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        // A log larger than this is truncated when it is reset.
        connection.pragma_update(None, "journal_size_limit", LOG_MAX)?;
        Ok(connection)
    };
    set_up().map_err(|error| OpenError::sqlite(path, &error))
}

/// This process has locked the data directory, so SQLite needs no file locks, which take a third of
/// the time of a write.
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
