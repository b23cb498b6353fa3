//! Imports changes that an earlier release had written to files beside the table.
//!
//! It appended each change to one of two files. A record consists of its length after the checksum,
//! a checksum, the number of the change, its kind, its expiry, the length of the key, the key and
//! the value. The table `carried` has the number of the last change that is in the table.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fs, io};

use bytes::Buf as _;
use rusqlite::Connection;

use super::table;
use crate::store::OpenError;

struct EarlierChange {
    number: i64,
    key: String,
    /// The value and its expiry; `None` if the key was deleted.
    put: Option<(Vec<u8>, Option<i64>)>,
}

/// Writes changes to the table that are only in the files.
pub(super) fn import(path: &Path, connection: &Connection) -> Result<(), OpenError> {
    let mut changes = Vec::new();
    for file in files(path) {
        let text = match fs::read(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(OpenError::io(&file, &error)),
        };
        let mut rest = text.as_slice();
        // The last record can be incomplete; its write was never acknowledged.
        while let Some(change) = read_change(&mut rest) {
            changes.push(change);
        }
    }
    changes.sort_by_key(|change| change.number);
    write(connection, &changes).map_err(|error| OpenError::sqlite(path, &error))
}

/// Removes the files.
pub(super) fn clear(path: &Path) -> Result<(), OpenError> {
    for file in files(path) {
        match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(OpenError::io(&file, &error));
            }
            _ => {}
        }
    }
    Ok(())
}

fn files(path: &Path) -> [PathBuf; 2] {
    ["-changes-0", "-changes-1"].map(|end| {
        let mut name = OsString::from(path);
        name.push(end);
        name.into()
    })
}

fn write(connection: &Connection, changes: &[EarlierChange]) -> rusqlite::Result<()> {
    let carried: i64 =
        connection.query_row("SELECT sequence FROM carried", [], |row| row.get(0))?;
    for change in changes.iter().filter(|change| change.number > carried) {
        match &change.put {
            Some((value, expires)) => table::put(connection, &change.key, value, *expires)?,
            None => table::delete(connection, &change.key)?,
        }
    }
    Ok(())
}

fn read_change(text: &mut &[u8]) -> Option<EarlierChange> {
    let length = usize::try_from(text.try_get_u32_le().ok()?).ok()?;
    let _checksum = text.try_get_u32_le().ok()?;
    let mut body = text.split_off(..length)?;
    let number = i64::try_from(body.try_get_u64_le().ok()?).ok()?;
    let kind = body.try_get_u8().ok()?;
    let expires = body.try_get_i64_le().ok()?;
    let key_length = usize::try_from(body.try_get_u32_le().ok()?).ok()?;
    let key = str::from_utf8(body.split_off(..key_length)?).ok()?;
    let put = match kind {
        0 => None,
        1 => Some((body.to_vec(), None)),
        2 => Some((body.to_vec(), Some(expires))),
        _ => return None,
    };
    let key = key.to_owned();
    Some(EarlierChange { number, key, put })
}
