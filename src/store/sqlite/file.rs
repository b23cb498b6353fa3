//! The file: made with its tables, or brought up to date.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode};

/// Each step brings the file from the version of its index to the next; `PRAGMA user_version`
/// says how many were taken. Steps are never changed, only added.
const MIGRATIONS: [&str; 2] = [
    "CREATE TABLE entry (
    key TEXT NOT NULL PRIMARY KEY,
    expires INTEGER, -- milliseconds since 1970; absent: never
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID",
    "CREATE TABLE carried (
    sequence INTEGER NOT NULL -- of the last change that is in the table
) STRICT;
INSERT INTO carried VALUES (0)",
];

/// Bytes of the write-ahead log after which writers wait until it can start anew: what is brought
/// to the disk each second is less, unless the disk is slow or the writers are very fast.
const LOG_MAX: i64 = 64 * 1024 * 1024;

/// How long one of our two connections waits for the other.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "state file `{path}` is damaged ({reason}): move it away to start without what it holds"
    )]
    Damaged { path: PathBuf, reason: String },
    #[error(
        "state file `{path}` was written by a newer release (format {found}, this one knows {known}): \
         run that one, or set another `gateway.data_dir`"
    )]
    Newer {
        path: PathBuf,
        found: u32,
        known: u32,
    },
    #[error("state file `{path}` cannot be used: {reason}")]
    Unusable { path: PathBuf, reason: String },
}

impl OpenError {
    pub(super) fn io(path: &Path, error: &io::Error) -> Self {
        let (path, reason) = (path.to_owned(), error.to_string());
        Self::Unusable { path, reason }
    }

    pub(super) fn sqlite(path: &Path, error: &rusqlite::Error) -> Self {
        let (path, reason) = (path.to_owned(), error.to_string());
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Damaged { path, reason }
            }
            _ => Self::Unusable { path, reason },
        }
    }
}

/// Opens the file for the thread that reads and writes.
pub(super) fn open(path: &Path) -> Result<Connection, OpenError> {
    private(path).map_err(|error| OpenError::io(path, &error))?;
    let mut connection = connect(path)?;
    limit_log(&connection).map_err(|error| OpenError::sqlite(path, &error))?;
    migrate(path, &mut connection)?;
    Ok(connection)
}

fn limit_log(connection: &Connection) -> rusqlite::Result<()> {
    let page: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
    connection.pragma_update(None, "wal_autocheckpoint", LOG_MAX / page.max(1))
}

/// A connection with the settings that both of our threads use.
pub(super) fn connect(path: &Path) -> Result<Connection, OpenError> {
    let set_up = || {
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        // After a crowd, the log is made small again.
        connection.pragma_update(None, "journal_size_limit", LOG_MAX)?;
        Ok(connection)
    };
    set_up().map_err(|error| OpenError::sqlite(path, &error))
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
    for step in missing {
        transaction.execute_batch(step).map_err(failed)?;
    }
    transaction
        .pragma_update(None, "user_version", known)
        .map_err(failed)?;
    transaction.commit().map_err(failed)
}

/// Opens a file, or makes it. Only the owner may read it: session ids are keys. SQLite gives its
/// other files the same permissions.
pub(super) fn private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    #[cfg(unix)]
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    Ok(file)
}

/// Times of the clock as the column `expires` holds them.
pub(super) fn to_column(millis: u64) -> i64 {
    i64::try_from(millis).unwrap_or(i64::MAX)
}
