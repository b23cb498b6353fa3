//! The file: its tables, and what the writing thread does with them.
//!
//! A record names its kind, which is its method, server and outcome. There are few of them, so one
//! index finds the records of any combination of these, and their counts are kept.

use std::collections::HashMap;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension as _, params};

use super::record::{CallOutcome, CallRecord};
use super::redaction::KeptBody;
use super::settings::HistorySettings;
use crate::store::OpenError;
use crate::store::database::{self, DatabaseFormat};

const FORMAT: DatabaseFormat = DatabaseFormat {
    migrations: &["CREATE TABLE kind (
    id INTEGER PRIMARY KEY,
    method TEXT NOT NULL,
    server TEXT NOT NULL, -- empty: none was found
    outcome TEXT NOT NULL,
    calls INTEGER NOT NULL, -- as many as the table of calls has
    UNIQUE (method, server, outcome)
) STRICT;
CREATE TABLE call (
    id INTEGER PRIMARY KEY, -- when it ended, in microseconds since 1970
    kind INTEGER NOT NULL,
    session INTEGER,
    name TEXT NOT NULL,
    client TEXT,
    revision TEXT NOT NULL,
    request_id TEXT NOT NULL,
    code TEXT,
    total_us INTEGER NOT NULL,
    server_us INTEGER NOT NULL,
    queue_us INTEGER NOT NULL,
    request_bytes INTEGER NOT NULL,
    answer_bytes INTEGER NOT NULL,
    params_state INTEGER NOT NULL, -- 1: whole, 2: redacted, 3: both
    result_state INTEGER NOT NULL,
    params TEXT,
    result TEXT
) STRICT;
CREATE INDEX call_by_kind ON call (kind);
CREATE INDEX call_by_session ON call (session, kind) WHERE session IS NOT NULL"],
    before_steps: |_, _, _| Ok(()),
};

/// Pages of the write-ahead log after which it is copied to the file.
const CHECKPOINT_PAGES: u32 = 4000;

/// Records that are removed in one transaction.
const TRIM_STEP: u32 = 1000;

/// Transactions of one search for records that are too many; the next batch goes on.
const TRIM_STEPS_MAX: usize = 20;

/// Clients may invent methods: with more kinds, theirs are kept as one.
const KINDS_MAX: usize = 1000;

/// The method that stands for all invented ones.
const OTHER_METHOD: &str = "other";

/// Bits of a body's state.
pub(super) const WHOLE: i64 = 1;
pub(super) const IS_REDACTED: i64 = 2;

/// Microseconds by which ids run ahead of the clock at most, when there are many in a millisecond.
const AHEAD_MAX: i64 = 1_000_000;

type KindKey = (String, String, CallOutcome);

pub(super) struct HistoryFile {
    connection: Connection,
    kinds: HashMap<KindKey, i64>,
    last_id: i64,
}

impl HistoryFile {
    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        let connection = database::open(path, &FORMAT)?;
        let failed = |error| OpenError::sqlite(path, &error);
        connection
            .pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)
            .map_err(failed)?;
        let kinds = read_kinds(&connection).map_err(failed)?;
        Ok(Self {
            connection,
            kinds,
            last_id: 0,
        })
    }

    /// Writes all records, or none.
    pub(super) fn write(&mut self, records: &[CallRecord]) -> rusqlite::Result<()> {
        let transaction = self.connection.unchecked_transaction()?;
        let mut counts: HashMap<i64, i64> = HashMap::new();
        for record in records {
            let kind = kind_of(&transaction, &mut self.kinds, record)?;
            *counts.entry(kind).or_default() += 1;
            self.last_id = insert(&transaction, record, kind, next_id(record, self.last_id))?;
        }
        add_to_kinds(&transaction, counts)?;
        transaction.commit()
    }

    /// As a disk that is full after so many more pages.
    #[cfg(test)]
    pub(super) fn fill_disk(&self, pages_left: i64) {
        let number = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
        let pages = self
            .connection
            .pragma_query_value(None, "page_count", number);
        let max = pages.unwrap() + pages_left;
        let limit = format!("PRAGMA max_page_count = {max}");
        self.connection.query_row(&limit, [], number).unwrap();
    }

    /// Removes records that are too old, and the oldest of too many. True if there may be more.
    pub(super) fn trim(&mut self, now: u64, settings: &HistorySettings) -> rusqlite::Result<bool> {
        let age_max = u64::try_from(settings.age_max.as_millis()).unwrap_or(u64::MAX);
        let oldest = id_at(now.saturating_sub(age_max));
        for _ in 0..TRIM_STEPS_MAX {
            let is_full = used_bytes(&self.connection)? > settings.bytes_max;
            let before = if is_full { i64::MAX } else { oldest };
            if !self.remove_oldest(before)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes some of the oldest records before an id. False if there are none.
    fn remove_oldest(&mut self, before: i64) -> rusqlite::Result<bool> {
        let transaction = self.connection.unchecked_transaction()?;
        let text = "SELECT id, kind FROM call WHERE id < ?1 ORDER BY id LIMIT ?2";
        let mut select = transaction.prepare_cached(text)?;
        let mut rows = select.query(params![before, TRIM_STEP])?;
        let mut counts: HashMap<i64, i64> = HashMap::new();
        let mut last = None;
        while let Some(row) = rows.next()? {
            last = Some(row.get::<_, i64>(0)?);
            *counts.entry(row.get(1)?).or_default() -= 1;
        }
        drop(rows);
        drop(select);
        let Some(last) = last else { return Ok(false) };
        transaction.execute("DELETE FROM call WHERE id <= ?1", [last])?;
        add_to_kinds(&transaction, counts)?;
        if transaction.execute("DELETE FROM kind WHERE calls <= 0", [])? > 0 {
            self.kinds = read_kinds(&transaction)?;
        }
        transaction.commit()?;
        Ok(true)
    }
}

/// The first id of a millisecond.
pub(super) fn id_at(millis: u64) -> i64 {
    i64::try_from(millis)
        .unwrap_or(i64::MAX)
        .saturating_mul(1000)
}

/// The id says when a call ended, and is greater than those before, unless the clock was set back.
fn next_id(record: &CallRecord, last: i64) -> i64 {
    let id = id_at(record.at);
    let is_ahead = last >= id && last - id < AHEAD_MAX;
    if is_ahead { last + 1 } else { id }
}

/// Bytes of the file that are in use.
fn used_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let pages = number("page_count")? - number("freelist_count")?;
    Ok(u64::try_from(pages.saturating_mul(number("page_size")?)).unwrap_or(0))
}

fn read_kinds(connection: &Connection) -> rusqlite::Result<HashMap<KindKey, i64>> {
    let mut select = connection.prepare("SELECT method, server, outcome, id FROM kind")?;
    let mut rows = select.query([])?;
    let mut kinds = HashMap::new();
    while let Some(row) = rows.next()? {
        let outcome: String = row.get(2)?;
        // One of another release is found by its filter, but not added to.
        if let Some(outcome) = CallOutcome::parse(&outcome) {
            kinds.insert((row.get(0)?, row.get(1)?, outcome), row.get(3)?);
        }
    }
    Ok(kinds)
}

fn kind_of(
    connection: &Connection,
    kinds: &mut HashMap<KindKey, i64>,
    record: &CallRecord,
) -> rusqlite::Result<i64> {
    let server = record.server.as_ref().map_or("", |server| server.as_str());
    let key = |method: &str| (method.to_owned(), server.to_owned(), record.outcome);
    let mut wanted = key(&record.method);
    if let Some(kind) = kinds.get(&wanted) {
        return Ok(*kind);
    }
    if kinds.len() >= KINDS_MAX {
        wanted = key(OTHER_METHOD);
        if let Some(kind) = kinds.get(&wanted) {
            return Ok(*kind);
        }
    }
    let text = "INSERT INTO kind (method, server, outcome, calls) VALUES (?1, ?2, ?3, 0)";
    let (method, server, outcome) = &wanted;
    connection.execute(text, params![method, server, outcome.as_str()])?;
    let kind = connection.last_insert_rowid();
    kinds.insert(wanted, kind);
    Ok(kind)
}

fn add_to_kinds(connection: &Connection, counts: HashMap<i64, i64>) -> rusqlite::Result<()> {
    let text = "UPDATE kind SET calls = calls + ?2 WHERE id = ?1";
    let mut update = connection.prepare_cached(text)?;
    for (kind, count) in counts {
        update.execute([kind, count])?;
    }
    Ok(())
}

/// Inserts a record under this id, or the next one that is free, and returns it.
fn insert(
    connection: &Connection,
    record: &CallRecord,
    kind: i64,
    mut id: i64,
) -> rusqlite::Result<i64> {
    let text = "INSERT OR IGNORE INTO call VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, \
                ?12, ?13, ?14, ?15, ?16, ?17)";
    let mut insert = connection.prepare_cached(text)?;
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let text_of = |body: &Option<KeptBody>| body.as_ref().map(|body| body.text.clone());
    let (params, result) = (text_of(&record.params), text_of(&record.result));
    loop {
        let inserted = insert.execute(params![
            id,
            kind,
            record.session,
            record.name,
            record.client.as_deref(),
            record.revision,
            record.request_id,
            record.code,
            number(record.durations.total),
            number(record.durations.server),
            number(record.durations.queue),
            number(record.request_bytes),
            number(record.answer_bytes),
            state_of(record.params.as_ref()),
            state_of(record.result.as_ref()),
            params,
            result,
        ])?;
        if inserted > 0 {
            return Ok(id);
        }
        // The clock was set back: there is one of this moment already.
        id = first_free(connection, id)?;
    }
}

fn first_free(connection: &Connection, id: i64) -> rusqlite::Result<i64> {
    let text = "SELECT id + 1 FROM call AS taken WHERE id >= ?1 \
                AND NOT EXISTS (SELECT 1 FROM call WHERE id = taken.id + 1) ORDER BY id LIMIT 1";
    let free = connection
        .query_row(text, [id], |row| row.get(0))
        .optional()?;
    Ok(free.unwrap_or(id))
}

fn state_of(body: Option<&KeptBody>) -> i64 {
    let Some(body) = body else { return 0 };
    let whole = if body.is_whole { WHOLE } else { 0 };
    let redacted = if body.is_redacted { IS_REDACTED } else { 0 };
    whole | redacted
}
