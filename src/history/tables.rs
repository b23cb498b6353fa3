//! The tables of the history, in a file or in memory, and the operations of the writing thread.
//!
//! Calls are grouped into blocks of some hundred: a row for each call would cost more than the rest
//! of recording it. A call refers to its kind, which is the combination of method, server and
//! outcome. There are few kinds, so each block's number of calls by kind, and by session, is
//! stored.

use std::collections::HashMap;
use std::path::PathBuf;

use rusqlite::{Connection, params};

use super::block;
use super::queue::{RING_BYTES_MAX, RING_CALLS_MAX};
use super::record::CallRecord;
use super::settings::HistorySettings;
use crate::store::OpenError;
use crate::store::database::{self, DatabaseFormat};
use crate::telemetry::millis;

const FORMAT: DatabaseFormat = DatabaseFormat {
    migrations: &[
        "CREATE TABLE kind (
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
CREATE INDEX call_by_session ON call (session, kind) WHERE session IS NOT NULL",
        "DROP TABLE call;
DELETE FROM kind;
CREATE TABLE block (
    id INTEGER PRIMARY KEY, -- of its first call
    last INTEGER NOT NULL, -- the id of its last call
    calls INTEGER NOT NULL,
    records BLOB NOT NULL
) STRICT;
CREATE TABLE block_kind (
    kind INTEGER NOT NULL,
    block INTEGER NOT NULL,
    calls INTEGER NOT NULL,
    PRIMARY KEY (kind, block)
) STRICT, WITHOUT ROWID;
CREATE TABLE block_session (
    session INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    block INTEGER NOT NULL,
    calls INTEGER NOT NULL,
    PRIMARY KEY (session, kind, block)
) STRICT, WITHOUT ROWID",
    ],
    before_steps: |_, _, _| Ok(()),
};

/// Number of pages in the write-ahead log after which it is copied to the file.
const CHECKPOINT_PAGES: u32 = 4000;

/// Size at which a block is full, in bytes.
const BLOCK_BYTES: usize = 64 * 1024;

/// Blocks removed in one transaction.
const TRIM_STEP: u32 = 16;

/// Maximum number of transactions in one cleanup; the next batch continues it.
const TRIM_STEPS_MAX: usize = 20;

/// Clients can invent methods: above this number of kinds, invented methods are stored as one.
const KINDS_MAX: usize = 1000;

/// The method name that replaces all invented ones.
const OTHER_METHOD: &str = "other";

/// Kinds by key: method, server and outcome, joined by [`write_key`].
type Kinds = HashMap<Vec<u8>, i64>;

/// Where the tables are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HistoryPlace {
    File(PathBuf),
    /// The name of a database in memory.
    Memory(String),
}

impl HistoryPlace {
    /// Opens a connection for reading.
    pub(super) fn connect(&self) -> Result<Connection, OpenError> {
        match self {
            Self::File(path) => database::connect(path),
            Self::Memory(name) => database::connect_in_memory(name),
        }
    }

    fn open(&self) -> Result<Connection, OpenError> {
        match self {
            Self::File(path) => database::open(path, &FORMAT),
            Self::Memory(name) => database::open_in_memory(name, &FORMAT),
        }
    }

    /// Turns an error of SQLite into one that names the place.
    pub(super) fn failed(&self, error: &rusqlite::Error) -> OpenError {
        match self {
            Self::File(path) => OpenError::sqlite(path, error),
            Self::Memory(name) => OpenError::sqlite(name.as_ref(), error),
        }
    }
}

pub(super) struct HistoryTables {
    connection: Connection,
    /// Whether only the last calls are kept.
    is_in_memory: bool,
    kinds: Kinds,
    last_id: i64,
    /// The last block, if it was written here and is not full.
    open: RecordBlock,
}

/// A block that is being filled.
#[derive(Clone, Debug, Default)]
struct RecordBlock {
    /// The id of its first call; 0 while it is empty.
    id: i64,
    calls: i64,
    records: Vec<u8>,
}

/// Numbers of calls added to a block, by kind, and by session and kind.
#[derive(Debug, Default)]
struct BlockCounts {
    kinds: HashMap<i64, i64>,
    sessions: HashMap<(u32, i64), i64>,
}

impl BlockCounts {
    fn add(&mut self, kind: i64, session: Option<u32>) {
        *self.kinds.entry(kind).or_default() += 1;
        if let Some(session) = session {
            *self.sessions.entry((session, kind)).or_default() += 1;
        }
    }
}

impl HistoryTables {
    pub(super) fn open(place: &HistoryPlace) -> Result<Self, OpenError> {
        let connection = place.open()?;
        let failed = |error| place.failed(&error);
        connection
            .pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)
            .map_err(failed)?;
        let kinds = read_kinds(&connection).map_err(failed)?;
        let last = connection.query_row("SELECT max(last) FROM block", [], |row| row.get(0));
        let last: Option<i64> = last.map_err(failed)?;
        Ok(Self {
            connection,
            is_in_memory: matches!(place, HistoryPlace::Memory(_)),
            kinds,
            last_id: last.unwrap_or(0),
            open: RecordBlock::default(),
        })
    }

    /// Writes all records, which must be masked, or none. After an error the tables must be
    /// reopened.
    pub(super) fn write<'r>(
        &mut self,
        records: impl IntoIterator<Item = &'r CallRecord>,
    ) -> rusqlite::Result<()> {
        let transaction = self.connection.unchecked_transaction()?;
        let mut counts = BlockCounts::default();
        let mut key = Vec::new();
        for record in records {
            let kind = kind_of(&transaction, &mut self.kinds, record, &mut key)?;
            // The id encodes when a call ended, but only increases, even if the clock is set back.
            self.last_id = id_at(record.at).max(self.last_id + 1);
            if self.open.calls == 0 {
                self.open.id = self.last_id;
            }
            block::push(&mut self.open.records, record, self.last_id, kind);
            self.open.calls += 1;
            counts.add(kind, record.session);
            if self.open.records.len() >= BLOCK_BYTES {
                write_block(&transaction, &self.open, self.last_id, &counts)?;
                self.open.records.clear();
                self.open.calls = 0;
                counts = BlockCounts::default();
            }
        }
        if !counts.kinds.is_empty() {
            write_block(&transaction, &self.open, self.last_id, &counts)?;
        }
        transaction.commit()
    }

    /// Simulates a disk that is full after this many more pages.
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

    /// Removes records that are too old, and the oldest above the size limit. Returns true if more
    /// may remain.
    pub(super) fn trim(&mut self, now: u64, settings: &HistorySettings) -> rusqlite::Result<bool> {
        let age_max = millis(settings.age_max);
        let oldest = id_at(now.saturating_sub(age_max));
        for _ in 0..TRIM_STEPS_MAX {
            let (is_full, step) = match self.is_in_memory {
                true => (self.has_spare_block()?, 1),
                false => (
                    used_bytes(&self.connection)? > settings.bytes_max,
                    TRIM_STEP,
                ),
            };
            let before = if is_full { i64::MAX } else { oldest };
            if !self.remove_oldest(before, step)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether memory holds enough calls without the oldest block, or too many bytes.
    fn has_spare_block(&self) -> rusqlite::Result<bool> {
        let text = "SELECT ifnull(sum(calls), 0) FROM block WHERE id > (SELECT min(id) FROM block)";
        let newer: i64 = self.connection.query_row(text, [], |row| row.get(0))?;
        let is_enough = usize::try_from(newer).unwrap_or(0) >= RING_CALLS_MAX;
        Ok(is_enough || used_bytes(&self.connection)? > RING_BYTES_MAX as u64)
    }

    /// Removes up to `step` of the oldest blocks whose calls are all before an id. Returns false if
    /// there are none.
    fn remove_oldest(&mut self, before: i64, step: u32) -> rusqlite::Result<bool> {
        let transaction = self.connection.unchecked_transaction()?;
        let text = "SELECT id, records FROM block WHERE last < ?1 ORDER BY id LIMIT ?2";
        let mut select = transaction.prepare_cached(text)?;
        let mut rows = select.query(params![before, step])?;
        let mut removed: Vec<(i64, BlockCounts)> = Vec::new();
        while let Some(row) = rows.next()? {
            let mut counts = BlockCounts::default();
            let records: Vec<u8> = row.get(1)?;
            for call in block::calls(&records) {
                counts.add(call.kind(), call.session());
            }
            removed.push((row.get(0)?, counts));
        }
        drop(rows);
        drop(select);
        for (block, counts) in &removed {
            remove_block(&transaction, *block, counts)?;
            if *block == self.open.id {
                self.open = RecordBlock::default();
            }
        }
        if transaction.execute("DELETE FROM kind WHERE calls <= 0", [])? > 0 {
            self.kinds = read_kinds(&transaction)?;
        }
        transaction.commit()?;
        Ok(!removed.is_empty())
    }
}

/// The first id of a millisecond.
pub(super) fn id_at(millis: u64) -> i64 {
    i64::try_from(millis)
        .unwrap_or(i64::MAX)
        .saturating_mul(1000)
}

/// Bytes of the file in use.
fn used_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let pages = number("page_count")? - number("freelist_count")?;
    Ok(u64::try_from(pages.saturating_mul(number("page_size")?)).unwrap_or(0))
}

fn read_kinds(connection: &Connection) -> rusqlite::Result<Kinds> {
    let mut select = connection.prepare("SELECT method, server, outcome, id FROM kind")?;
    let mut rows = select.query([])?;
    let mut kinds = HashMap::new();
    while let Some(row) = rows.next()? {
        let texts: [String; 3] = [row.get(0)?, row.get(1)?, row.get(2)?];
        let mut key = Vec::new();
        write_key(&mut key, texts.each_ref().map(String::as_str));
        kinds.insert(key, row.get(3)?);
    }
    Ok(kinds)
}

/// Joins the texts of a kind. None of them contains the byte 0xff.
fn write_key(key: &mut Vec<u8>, texts: [&str; 3]) {
    key.clear();
    for text in texts {
        key.extend_from_slice(text.as_bytes());
        key.push(0xff);
    }
}

fn kind_of(
    connection: &Connection,
    kinds: &mut Kinds,
    record: &CallRecord,
    key: &mut Vec<u8>,
) -> rusqlite::Result<i64> {
    let server = record.server.as_ref().map_or("", |server| server.as_str());
    let mut method = record.method.as_str();
    let outcome = record.outcome.as_str();
    write_key(key, [method, server, outcome]);
    if let Some(kind) = kinds.get(key) {
        return Ok(*kind);
    }
    if kinds.len() >= KINDS_MAX {
        method = OTHER_METHOD;
        write_key(key, [method, server, outcome]);
        if let Some(kind) = kinds.get(key) {
            return Ok(*kind);
        }
    }
    let text = "INSERT INTO kind (method, server, outcome, calls) VALUES (?1, ?2, ?3, 0)";
    connection.execute(text, params![method, server, outcome])?;
    let kind = connection.last_insert_rowid();
    kinds.insert(key.clone(), kind);
    Ok(kind)
}

/// Writes a new or extended block, and the numbers of calls added to it.
fn write_block(
    connection: &Connection,
    block: &RecordBlock,
    last: i64,
    counts: &BlockCounts,
) -> rusqlite::Result<()> {
    let text = "INSERT OR REPLACE INTO block VALUES (?1, ?2, ?3, ?4)";
    let mut insert = connection.prepare_cached(text)?;
    insert.execute(params![block.id, last, block.calls, block.records])?;
    let text = "INSERT INTO block_kind VALUES (?1, ?2, ?3) \
                ON CONFLICT DO UPDATE SET calls = calls + excluded.calls";
    let mut of_kind = connection.prepare_cached(text)?;
    let mut total =
        connection.prepare_cached("UPDATE kind SET calls = calls + ?2 WHERE id = ?1")?;
    for (kind, calls) in &counts.kinds {
        of_kind.execute([*kind, block.id, *calls])?;
        total.execute([*kind, *calls])?;
    }
    let text = "INSERT INTO block_session VALUES (?1, ?2, ?3, ?4) \
                ON CONFLICT DO UPDATE SET calls = calls + excluded.calls";
    let mut of_session = connection.prepare_cached(text)?;
    for ((session, kind), calls) in &counts.sessions {
        of_session.execute(params![session, kind, block.id, calls])?;
    }
    Ok(())
}

fn remove_block(connection: &Connection, block: i64, counts: &BlockCounts) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM block WHERE id = ?1", [block])?;
    let text = "DELETE FROM block_kind WHERE kind = ?1 AND block = ?2";
    let mut of_kind = connection.prepare_cached(text)?;
    let mut total =
        connection.prepare_cached("UPDATE kind SET calls = calls - ?2 WHERE id = ?1")?;
    for (kind, calls) in &counts.kinds {
        of_kind.execute([*kind, block])?;
        total.execute([*kind, *calls])?;
    }
    let text = "DELETE FROM block_session WHERE session = ?1 AND kind = ?2 AND block = ?3";
    let mut of_session = connection.prepare_cached(text)?;
    for (session, kind) in counts.sessions.keys() {
        of_session.execute(params![session, kind, block])?;
    }
    Ok(())
}
