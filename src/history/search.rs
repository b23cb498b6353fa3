//! Reads the history file: pages of calls, and single calls.

use std::collections::BinaryHeap;

use rusqlite::{Connection, OptionalExtension as _, params_from_iter};
use tokio::time::Instant;

use super::block::{BlockCall, calls};
use super::entry::{HistoryEntry, HistoryPage};
use super::query::{HistoryQuery, IdRange, Kind, TablePart};

/// Reads one page. Results not found by the deadline are omitted, and the page is marked
/// incomplete.
pub(super) fn page(
    connection: &Connection,
    query: &HistoryQuery,
    deadline: Instant,
) -> rusqlite::Result<HistoryPage> {
    // One transaction, so that the page is consistent.
    let reading = connection.unchecked_transaction()?;
    let kinds = kinds(&reading)?;
    let matching = kinds.iter().filter(|kind| query.filter.matches_kind(kind));
    let mut search = Search {
        connection: &reading,
        query,
        matching: matching.map(|kind| kind.id).collect(),
        parts: query.filter.parts(&kinds),
        kinds: &kinds,
        deadline,
        skipped: 0,
        page: HistoryPage {
            limit: query.limit,
            offset: query.offset,
            ..HistoryPage::default()
        },
    };
    search.page.total = search.total()?;
    search.fill()?;
    Ok(search.page)
}

/// Reads one call.
pub(super) fn one(connection: &Connection, id: i64) -> rusqlite::Result<Option<HistoryEntry>> {
    let reading = connection.unchecked_transaction()?;
    let block = block_before(&reading, id.saturating_add(1))?;
    let records = block.map(|block| records(&reading, block)).transpose()?;
    let records = records.flatten().unwrap_or_default();
    let found = calls(&records).find(|call| call.id() == id);
    let kinds = kinds(&reading)?;
    Ok(found.map(|call| call.entry(&kinds)))
}

struct Search<'s> {
    connection: &'s Connection,
    query: &'s HistoryQuery,
    kinds: &'s [Kind],
    /// Kinds that match the filter.
    matching: Vec<i64>,
    parts: Vec<TablePart>,
    deadline: Instant,
    /// Entries skipped for the offset.
    skipped: usize,
    page: HistoryPage,
}

impl Search<'_> {
    /// The number of all matching calls, if it can be computed without reading them.
    fn total(&self) -> rusqlite::Result<Option<u64>> {
        let filter = &self.query.filter;
        if let Some(kept) = filter.kept_count(self.kinds) {
            return Ok(Some(kept));
        }
        if filter.text.is_some() {
            return Ok(None);
        }
        let ids = filter.ids();
        let first = block_before(self.connection, ids.from.saturating_add(1))?;
        let last = block_before(self.connection, ids.to)?;
        // Blocks at the edges can contain calls outside the range.
        let mut edges: Vec<i64> = first.into_iter().chain(last).collect();
        edges.dedup();
        let mut total = 0;
        for edge in edges {
            let records = records(self.connection, edge)?.unwrap_or_default();
            let found = calls(&records).filter(|call| self.matches(call, ids));
            total += found.count() as u64;
        }
        let between = IdRange {
            from: first.map_or(i64::MIN, |first| first.saturating_add(1)),
            to: last.unwrap_or(i64::MIN),
        };
        for part in &self.parts {
            let mut select = self.connection.prepare_cached(&part.count())?;
            let parameters = params_from_iter(part.parameters(between));
            let counted: i64 = select.query_row(parameters, |row| row.get(0))?;
            total += u64::try_from(counted).unwrap_or(0);
        }
        Ok(Some(total))
    }

    fn matches(&self, call: &BlockCall<'_>, ids: IdRange) -> bool {
        let session = self.query.filter.session;
        (ids.from..ids.to).contains(&call.id())
            && session.is_none_or(|session| call.session() == Some(session))
            && (self.parts == [TablePart::All] || self.matching.contains(&call.kind()))
    }

    /// Visits the blocks of all parts, the newest first, until the page is full.
    fn fill(&mut self) -> rusqlite::Result<()> {
        let ids = self.query.ids();
        let blocks = IdRange {
            from: block_before(self.connection, ids.from.saturating_add(1))?.unwrap_or(i64::MIN),
            to: ids.to,
        };
        let (connection, parts) = (self.connection, self.parts.clone());
        let statements = parts
            .iter()
            .map(|part| connection.prepare_cached(&part.newest_first()));
        let mut statements: Vec<_> = statements.collect::<rusqlite::Result<_>>()?;
        let mut sources = Vec::new();
        let mut heads: BinaryHeap<Head> = BinaryHeap::new();
        for (statement, part) in statements.iter_mut().zip(&parts) {
            let mut rows = statement.query(params_from_iter(part.parameters(blocks)))?;
            if let Some(row) = rows.next()? {
                heads.push((row.get(0)?, sources.len(), row.get(1)?));
                sources.push(rows);
            }
        }
        let mut is_first = true;
        while let Some((block, _, _)) = heads.peek().copied() {
            let mut found = 0;
            while let Some((_, source, calls)) = pop_at(&mut heads, block) {
                found += usize::try_from(calls).unwrap_or(0);
                if let Some(row) = sources[source].next()? {
                    heads.push((row.get(0)?, source, row.get(1)?));
                }
            }
            let is_whole = !std::mem::take(&mut is_first) && block > blocks.from;
            if is_whole && self.skips_block(found) {
                continue;
            }
            if !self.visit(block, ids)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Skips all calls of a block without reading it, if the offset is beyond them.
    fn skips_block(&mut self, calls: usize) -> bool {
        let is_beyond =
            self.query.filter.text.is_none() && self.skipped + calls <= self.query.offset;
        if is_beyond {
            self.skipped += calls;
        }
        is_beyond
    }

    /// Visits a block; returns false if the page is full or the time is up.
    fn visit(&mut self, block: i64, ids: IdRange) -> rusqlite::Result<bool> {
        let records = records(self.connection, block)?.unwrap_or_default();
        let found: Vec<BlockCall<'_>> = calls(&records)
            .filter(|call| self.matches(call, ids))
            .collect();
        for call in found.into_iter().rev() {
            if Instant::now() >= self.deadline {
                self.page.is_complete = false;
                return Ok(false);
            }
            let is_full = self.page.entries.len() == self.query.limit;
            let is_skipped = self.skipped < self.query.offset;
            let text = self.query.filter.text.as_deref();
            let is_read = text.is_some() || !is_full && !is_skipped;
            let entry = is_read.then(|| call.entry(self.kinds));
            let is_other = |text| entry.as_ref().is_some_and(|entry| !entry.contains(text));
            if text.is_some_and(is_other) {
                self.page.last = Some(call.id());
                continue;
            }
            if is_full {
                self.page.has_more = true;
                return Ok(false);
            }
            self.page.last = Some(call.id());
            if is_skipped {
                self.skipped += 1;
            } else {
                self.page.entries.extend(entry);
            }
        }
        Ok(true)
    }
}

/// A block, the index of a part with calls in it, and their number.
type Head = (i64, usize, i64);

/// Pops the greatest entry if it belongs to this block.
fn pop_at(heads: &mut BinaryHeap<Head>, block: i64) -> Option<Head> {
    let is_of_block = heads.peek().is_some_and(|(of, _, _)| *of == block);
    is_of_block.then(|| heads.pop()).flatten()
}

/// The last block that starts before an id.
fn block_before(connection: &Connection, id: i64) -> rusqlite::Result<Option<i64>> {
    let text = "SELECT max(id) FROM block WHERE id < ?1";
    let mut select = connection.prepare_cached(text)?;
    select.query_row([id], |row| row.get(0))
}

fn records(connection: &Connection, block: i64) -> rusqlite::Result<Option<Vec<u8>>> {
    let mut select = connection.prepare_cached("SELECT records FROM block WHERE id = ?1")?;
    select.query_row([block], |row| row.get(0)).optional()
}

fn kinds(connection: &Connection) -> rusqlite::Result<Vec<Kind>> {
    let text = "SELECT id, method, server, outcome, calls FROM kind";
    let mut select = connection.prepare_cached(text)?;
    let kinds = select.query_map([], |row| {
        Ok(Kind {
            id: row.get(0)?,
            method: row.get(1)?,
            server: row.get(2)?,
            outcome: row.get(3)?,
            calls: u64::try_from(row.get::<_, i64>(4)?).unwrap_or(0),
        })
    })?;
    kinds.collect()
}
