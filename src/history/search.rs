//! Reading the file: pages of calls, and single ones.

use std::collections::BinaryHeap;

use rusqlite::{Connection, OptionalExtension as _, Row, params_from_iter};
use tokio::time::Instant;

use super::entry::{HistoryEntry, HistoryPage};
use super::query::{COUNT_MAX, HistoryQuery, IdRange, Kind, TablePart};

/// Reads one page. What is not found until the deadline is left out, and the page says so.
pub(super) fn page(
    connection: &Connection,
    query: &HistoryQuery,
    deadline: Instant,
) -> rusqlite::Result<HistoryPage> {
    let kinds = kinds(connection)?;
    let mut page = HistoryPage {
        limit: query.limit,
        offset: query.offset,
        ..HistoryPage::default()
    };
    count(connection, query, &kinds, &mut page)?;
    let mut skipped = 0;
    let parts = query.filter.parts(&kinds);
    newest_first(connection, &parts, query.ids(), |id| {
        if Instant::now() >= deadline {
            page.is_complete = false;
            return Ok(false);
        }
        if page.entries.len() == query.limit {
            page.has_more = true;
            return Ok(false);
        }
        page.last = Some(id);
        if query.filter.text.is_none() && skipped < query.offset {
            skipped += 1;
            return Ok(true);
        }
        // It may have been removed meanwhile.
        let Some(entry) = entry(connection, id, &kinds)? else {
            return Ok(true);
        };
        let is_found = |text: &String| entry.contains(text);
        if query
            .filter
            .text
            .as_ref()
            .is_some_and(|text| !is_found(text))
        {
            return Ok(true);
        }
        if skipped < query.offset {
            skipped += 1;
            return Ok(true);
        }
        page.entries.push(entry);
        Ok(true)
    })?;
    Ok(page)
}

/// Reads one call.
pub(super) fn one(connection: &Connection, id: i64) -> rusqlite::Result<Option<HistoryEntry>> {
    entry(connection, id, &kinds(connection)?)
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

/// Counts all calls that match, where that takes no search.
fn count(
    connection: &Connection,
    query: &HistoryQuery,
    kinds: &[Kind],
    page: &mut HistoryPage,
) -> rusqlite::Result<()> {
    let filter = &query.filter;
    if let Some(kept) = filter.kept_count(kinds) {
        page.total = Some(kept);
        return Ok(());
    }
    if filter.text.is_some() {
        return Ok(());
    }
    let mut total = 0;
    for part in filter.parts_to_count(kinds) {
        let mut select = connection.prepare_cached(&part.count())?;
        let mut parameters = part.parameters(filter.ids());
        parameters.push(i64::try_from(COUNT_MAX - total).unwrap_or(i64::MAX));
        let counted: i64 = select.query_row(params_from_iter(parameters), |row| row.get(0))?;
        total += u64::try_from(counted).unwrap_or(0);
        if total >= COUNT_MAX {
            page.has_more_than_total = true;
            break;
        }
    }
    page.total = Some(total);
    Ok(())
}

/// Visits the ids of all parts, the newest first, until `visit` has enough.
fn newest_first(
    connection: &Connection,
    parts: &[TablePart],
    ids: IdRange,
    mut visit: impl FnMut(i64) -> rusqlite::Result<bool>,
) -> rusqlite::Result<()> {
    let statements = parts
        .iter()
        .map(|part| connection.prepare_cached(&part.newest_first()));
    let mut statements: Vec<_> = statements.collect::<rusqlite::Result<_>>()?;
    let mut sources = Vec::new();
    let mut heads = BinaryHeap::new();
    for (statement, part) in statements.iter_mut().zip(parts) {
        let mut rows = statement.query(params_from_iter(part.parameters(ids)))?;
        if let Some(row) = rows.next()? {
            heads.push((row.get::<_, i64>(0)?, sources.len()));
            sources.push(rows);
        }
    }
    while let Some((id, source)) = heads.pop() {
        if !visit(id)? {
            return Ok(());
        }
        if let Some(row) = sources[source].next()? {
            heads.push((row.get(0)?, source));
        }
    }
    Ok(())
}

fn entry(
    connection: &Connection,
    id: i64,
    kinds: &[Kind],
) -> rusqlite::Result<Option<HistoryEntry>> {
    let text = "SELECT kind, session, name, client, revision, request_id, code, total_us, \
                server_us, queue_us, request_bytes, answer_bytes, params_state, result_state, \
                params, result FROM call WHERE id = ?1";
    let mut select = connection.prepare_cached(text)?;
    let read = |row: &Row<'_>| {
        let kind: i64 = row.get(0)?;
        let kind = kinds.iter().find(|known| known.id == kind);
        let of_kind =
            |text: fn(&Kind) -> &String| kind.map_or_else(String::new, |k| text(k).clone());
        Ok(HistoryEntry {
            id,
            method: of_kind(|kind| &kind.method),
            server: of_kind(|kind| &kind.server),
            outcome: of_kind(|kind| &kind.outcome),
            session: row.get(1)?,
            name: row.get(2)?,
            client: row.get(3)?,
            revision: row.get(4)?,
            request_id: row.get(5)?,
            code: row.get(6)?,
            total_us: row.get(7)?,
            server_us: row.get(8)?,
            queue_us: row.get(9)?,
            request_bytes: row.get(10)?,
            answer_bytes: row.get(11)?,
            params_state: row.get(12)?,
            result_state: row.get(13)?,
            params: row.get(14)?,
            result: row.get(15)?,
        })
    };
    select.query_row([id], read).optional()
}
