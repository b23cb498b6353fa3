//! The statements.

use std::time::Duration;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};

use super::super::{Entry, StoreError};
use super::changes::{Change, Changes};
use super::file::to_column;

/// Entries that are looked at in one step of a search for expired ones, so that nobody waits for a
/// whole search.
const SWEEP_STEP: u32 = 500;

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
) -> rusqlite::Result<Vec<Entry>> {
    let text = "SELECT key, expires, value FROM entry WHERE key >= ?1 AND key < ?2 \
                AND (expires IS NULL OR expires > ?3) ORDER BY key";
    let mut select = connection.prepare_cached(text)?;
    let end = format!("{prefix}{}", char::MAX);
    let entries = select.query_map(params![prefix, end, now], |row| {
        let expires: Option<i64> = row.get(1)?;
        let left = |at: i64| u64::try_from(at.saturating_sub(now)).unwrap_or(0);
        Ok(Entry {
            key: row.get(0)?,
            value: Bytes::from(row.get::<_, Vec<u8>>(2)?),
            expires_in: expires.map(|at| Duration::from_millis(left(at))),
        })
    })?;
    entries.collect()
}

/// Writes `value` if the entry still is `expected`.
pub(super) fn compare_and_set(
    connection: &mut Connection,
    key: &str,
    expected: Option<&Bytes>,
    (value, expires): (&Bytes, Option<i64>),
    now: i64,
) -> rusqlite::Result<Result<(), StoreError>> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if get(&transaction, key, now)?.as_ref() != expected {
        return Ok(Err(StoreError::Conflict(key.to_owned())));
    }
    put(&transaction, key, value, expires)?;
    transaction.commit().map(Ok)
}

/// The number of the last change that is in the table.
pub(super) fn carried(connection: &Connection) -> rusqlite::Result<u64> {
    let number: i64 = connection.query_row("SELECT sequence FROM carried", [], |row| row.get(0))?;
    Ok(u64::try_from(number).unwrap_or(0))
}

/// All or nothing. `sequence` is the number of the last of the changes.
pub(super) fn carry_over(
    connection: &mut Connection,
    changes: &Changes,
    sequence: u64,
) -> rusqlite::Result<()> {
    if changes.is_empty() {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for (key, change) in changes {
        match change {
            Change::Put { value, expires } => put(&transaction, key, value, *expires)?,
            Change::Delete => {
                let text = "DELETE FROM entry WHERE key = ?1";
                transaction.prepare_cached(text)?.execute([key])?;
            }
        }
    }
    let text = "UPDATE carried SET sequence = ?1";
    transaction.execute(text, [to_column(sequence)])?;
    transaction.commit()
}

fn put(
    connection: &Connection,
    key: &str,
    value: &[u8],
    expires: Option<i64>,
) -> rusqlite::Result<()> {
    let text = "INSERT INTO entry (key, expires, value) VALUES (?1, ?2, ?3) \
                ON CONFLICT (key) DO UPDATE SET expires = ?2, value = ?3";
    let mut insert = connection.prepare_cached(text)?;
    insert.execute(params![key, expires, value]).map(|_| ())
}

/// Removes what has expired, which reads the whole table: a damaged one is found here.
pub(super) fn clean(connection: &Connection, now: i64) -> rusqlite::Result<()> {
    let text = "DELETE FROM entry WHERE expires <= ?1";
    connection.execute(text, [now]).map(|_| ())
}

/// Looks at some entries after a key and removes those that have expired: how many, and the last
/// key that was looked at, unless that was the end.
pub(super) fn sweep(
    connection: &Connection,
    from: &str,
    now: i64,
) -> rusqlite::Result<(usize, Option<String>)> {
    let last: Option<String> = connection
        .prepare_cached("SELECT key FROM entry WHERE key > ?1 ORDER BY key LIMIT 1 OFFSET ?2")?
        .query_row(params![from, SWEEP_STEP - 1], |row| row.get(0))
        .optional()?;
    let removed = match &last {
        Some(last) => connection
            .prepare_cached("DELETE FROM entry WHERE key > ?1 AND key <= ?2 AND expires <= ?3")?
            .execute(params![from, last, now])?,
        None => connection
            .prepare_cached("DELETE FROM entry WHERE key > ?1 AND expires <= ?2")?
            .execute(params![from, now])?,
    };
    Ok((removed, last))
}
