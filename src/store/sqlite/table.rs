//! The SQL statements.

use std::time::Duration;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::store::StoredEntry;

/// Entries examined in one step of a search for expired entries, so that no request waits for a
/// whole search.
const SWEEP_STEP: u32 = 500;

/// Greater than every key.
const KEYS_END: &str = "\u{10ffff}";

pub(super) fn get(connection: &Connection, key: &str, now: i64) -> rusqlite::Result<Option<Bytes>> {
    let text = "SELECT value FROM entry WHERE key = ?1 AND (expires IS NULL OR expires > ?2)";
    let mut select = connection.prepare_cached(text)?;
    let value = select.query_row(params![key, now], |row| row.get::<_, Vec<u8>>(0));
    Ok(value.optional()?.map(Bytes::from))
}

pub(super) fn scan(
    connection: &Connection,
    prefix: &str,
    now: i64,
) -> rusqlite::Result<Vec<StoredEntry>> {
    let text = "SELECT key, expires, value FROM entry WHERE key >= ?1 AND key < ?2 \
                AND (expires IS NULL OR expires > ?3) ORDER BY key";
    let mut select = connection.prepare_cached(text)?;
    let end = format!("{prefix}{KEYS_END}");
    let entries = select.query_map(params![prefix, end, now], |row| {
        let expires: Option<i64> = row.get(1)?;
        let left = |at: i64| u64::try_from(at.saturating_sub(now)).unwrap_or(0);
        Ok(StoredEntry {
            key: row.get(0)?,
            value: Bytes::from(row.get::<_, Vec<u8>>(2)?),
            expires_in: expires.map(|at| Duration::from_millis(left(at))),
        })
    })?;
    entries.collect()
}

pub(super) fn put(
    connection: &Connection,
    key: &str,
    value: &[u8],
    expires: Option<i64>,
) -> rusqlite::Result<()> {
    let text = "INSERT INTO entry (key, expires, value) VALUES (?1, ?2, ?3) \
                ON CONFLICT (key) DO UPDATE SET expires = ?2, value = ?3";
    let mut insert = connection.prepare_cached(text)?;
    insert.execute(params![key, expires, value]).map(drop)
}

/// Deletes an entry and all entries below it: `0` is the character after `/`.
pub(super) fn delete(connection: &Connection, key: &str) -> rusqlite::Result<()> {
    let text = "DELETE FROM entry \
                WHERE key >= ?1 AND key < ?1 || '0' AND (key = ?1 OR key >= ?1 || '/')";
    connection.prepare_cached(text)?.execute([key]).map(drop)
}

/// Shifts the expiry of all entries.
pub(super) fn shift(connection: &Connection, millis: i64) -> rusqlite::Result<()> {
    let text = "UPDATE entry SET expires = expires + ?1 WHERE expires IS NOT NULL";
    connection.execute(text, [millis]).map(drop)
}

/// Removes expired entries. This reads the whole table, so that damage is detected.
pub(super) fn clean(connection: &Connection, now: i64) -> rusqlite::Result<()> {
    let text = "DELETE FROM entry WHERE expires <= ?1";
    connection.execute(text, [now]).map(drop)
}

/// Removes the expired entries among the next ones after `from`. Returns the last key examined;
/// `None` if there are no more.
pub(super) fn sweep(
    connection: &Connection,
    from: &str,
    now: i64,
) -> rusqlite::Result<Option<String>> {
    let text = "SELECT key FROM entry WHERE key > ?1 ORDER BY key LIMIT 1 OFFSET ?2";
    let last: Option<String> = connection
        .prepare_cached(text)?
        .query_row(params![from, SWEEP_STEP - 1], |row| row.get(0))
        .optional()?;
    let text = "DELETE FROM entry WHERE key > ?1 AND key <= ?2 AND expires <= ?3";
    let end = last.as_deref().unwrap_or(KEYS_END);
    connection
        .prepare_cached(text)?
        .execute(params![from, end, now])?;
    Ok(last)
}
