//! The thread that owns the connection for reads and writes.

use std::slice;
use std::time::Duration;

use bytes::Bytes;
use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use super::{StoreClock, table};
use crate::store::{StoreError, StoredEntry};

/// Maximum number of requests in one transaction.
const BATCH_MAX: usize = 256;

pub(super) enum StoreOperation {
    Get(String),
    Put {
        key: String,
        value: Bytes,
        ttl: Option<Duration>,
    },
    Delete(String),
    Scan(String),
    Nothing,
}

pub(super) enum StoreReply {
    Done,
    Value(Option<Bytes>),
    Entries(Vec<StoredEntry>),
}

type OperationOutcome = Result<StoreReply, StoreError>;

pub(super) struct StoreRequest {
    pub(super) operation: StoreOperation,
    pub(super) reply: oneshot::Sender<OperationOutcome>,
}

impl StoreRequest {
    /// A request that does nothing and whose response is ignored.
    pub(super) fn nothing() -> Self {
        let (reply, _) = oneshot::channel();
        let operation = StoreOperation::Nothing;
        Self { operation, reply }
    }
}

/// Runs until the store is dropped.
pub(super) fn run(
    mut connection: Connection,
    mut queue: mpsc::Receiver<StoreRequest>,
    clock: &StoreClock,
) {
    let mut requests = Vec::new();
    while queue.blocking_recv_many(&mut requests, BATCH_MAX) > 0 {
        let (operations, replies): (Vec<_>, Vec<_>) = requests
            .drain(..)
            .map(|request| (request.operation, request.reply))
            .unzip();
        if let Some(jump) = clock.jump() {
            follow(&connection, clock, jump);
        }
        let outcomes = carry_out(&mut connection, &operations, clock.now());
        for (reply, outcome) in replies.into_iter().zip(outcomes) {
            // Ignore an error: the requester is gone.
            let _ = reply.send(outcome);
        }
    }
}

/// Shifts all entries by a jump of the wall clock. Until then, none can expire because of it.
fn follow(connection: &Connection, clock: &StoreClock, jump: i64) {
    let before = jump.min(0);
    clock.follow(before);
    match table::shift(connection, jump) {
        Ok(()) => {
            clock.follow(jump - before);
            log::info!(seconds = jump / 1000; "the wall clock was set; entry lifetimes are adjusted");
        }
        Err(error) => {
            clock.follow(-before);
            log::debug!(error:%; "entry lifetimes could not be adjusted to the new wall clock");
        }
    }
}

fn expiry(now: i64, ttl: Duration) -> i64 {
    now.saturating_add(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX))
}

fn carry_out(
    connection: &mut Connection,
    operations: &[StoreOperation],
    now: i64,
) -> Vec<OperationOutcome> {
    if let Ok(outcomes) = commit(connection, operations, now) {
        return outcomes;
    }
    // One at a time, so that a failing request does not fail the others.
    let alone = operations.iter().map(|operation| {
        let outcome = commit(connection, slice::from_ref(operation), now).map(|mut one| one.pop());
        match outcome {
            Ok(Some(outcome)) => outcome,
            Ok(None) => Ok(StoreReply::Done),
            Err(error) => Err(failure(&error)),
        }
    });
    alone.collect()
}

fn failure(error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            StoreError::Damaged(error.to_string())
        }
        _ => StoreError::Unavailable(error.to_string()),
    }
}

/// Carries out all operations, or none if one fails.
fn commit(
    connection: &mut Connection,
    operations: &[StoreOperation],
    now: i64,
) -> rusqlite::Result<Vec<OperationOutcome>> {
    if let [operation] = operations {
        // The operation writes at most once, and a single statement is a transaction.
        return Ok(vec![Ok(operate(connection, operation, now)?)]);
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let outcomes = operations
        .iter()
        .map(|operation| operate(&transaction, operation, now).map(Ok))
        .collect::<rusqlite::Result<_>>()?;
    transaction.commit()?;
    Ok(outcomes)
}

fn operate(
    connection: &Connection,
    operation: &StoreOperation,
    now: i64,
) -> rusqlite::Result<StoreReply> {
    let reply = match operation {
        StoreOperation::Nothing => StoreReply::Done,
        StoreOperation::Get(key) => StoreReply::Value(table::get(connection, key, now)?),
        StoreOperation::Scan(prefix) => StoreReply::Entries(table::scan(connection, prefix, now)?),
        StoreOperation::Put { key, value, ttl } => {
            table::put(connection, key, value, ttl.map(|ttl| expiry(now, ttl)))?;
            StoreReply::Done
        }
        StoreOperation::Delete(key) => {
            table::delete(connection, key)?;
            StoreReply::Done
        }
    };
    Ok(reply)
}
