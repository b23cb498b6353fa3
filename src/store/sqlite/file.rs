//! The SQLite file: creates it, or migrates it to the current format.

use std::path::Path;

use rusqlite::Connection;

use super::import;
use crate::store::OpenError;
use crate::store::database::{self, DatabaseFormat};

const FORMAT: DatabaseFormat = DatabaseFormat {
    migrations: &[
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
    ],
    before_steps: |found, path, connection| match found {
        FORMAT_WITH_CHANGES => import::import(path, connection),
        _ => Ok(()),
    },
};

/// The format of the release that wrote changes beside the table.
const FORMAT_WITH_CHANGES: u32 = 2;

/// Opens the file for the thread that reads and writes; creates it or migrates its format if
/// necessary.
pub(super) fn open(path: &Path) -> Result<Connection, OpenError> {
    let connection = database::open(path, &FORMAT)?;
    import::clear(path)?;
    Ok(connection)
}

/// Converts a time to the format of the column `expires`.
pub(super) fn to_column(millis: u64) -> i64 {
    i64::try_from(millis).unwrap_or(i64::MAX)
}
