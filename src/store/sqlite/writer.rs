//! The thread that owns the connection through which the store reads and writes.

use std::slice;

use bytes::Bytes;
use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use super::file::to_column;
use super::{WallClock, table};
use crate::store::{StoreError, StoredEntry};

/// Most requests of one transaction.
const BATCH_MAX: usize = 256;

pub(super) enum StoreOperation {
    Get(String),
    Put {
        key: String,
        value: Bytes,
        expires: Option<i64>,
    },
    Delete(String),
    CompareAndSet {
        key: String,
        expected: Option<Bytes>,
        value: Bytes,
        expires: Option<i64>,
    },
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

/// Works until the store is dropped.
pub(super) fn run(
    mut connection: Connection,
    mut queue: mpsc::Receiver<StoreRequest>,
    now: WallClock,
) {
    let mut requests = Vec::new();
    while queue.blocking_recv_many(&mut requests, BATCH_MAX) > 0 {
        let (operations, replies): (Vec<_>, Vec<_>) = requests
            .drain(..)
            .map(|request| (request.operation, request.reply))
            .unzip();
        let outcomes = carry_out(&mut connection, &operations, to_column(now()));
        for (reply, outcome) in replies.into_iter().zip(outcomes) {
            // Whoever asked may be gone.
            let _ = reply.send(outcome);
        }
    }
}

fn carry_out(
    connection: &mut Connection,
    operations: &[StoreOperation],
    now: i64,
) -> Vec<OperationOutcome> {
    if let Ok(outcomes) = commit(connection, operations, now) {
        return outcomes;
    }
    // Each alone, so that one that fails does not fail the others.
    let alone = operations.iter().map(|operation| {
        let outcome = commit(connection, slice::from_ref(operation), now).map(|mut one| one.pop());
        match outcome {
            Ok(Some(outcome)) => outcome,
            Ok(None) => Ok(StoreReply::Done),
            Err(error) => {
                log::warn!(error:%; "the store failed");
                Err(StoreError::Unavailable(error.to_string()))
            }
        }
    });
    alone.collect()
}

/// Carries out all operations, or none if one fails.
fn commit(
    connection: &mut Connection,
    operations: &[StoreOperation],
    now: i64,
) -> rusqlite::Result<Vec<OperationOutcome>> {
    if let [operation] = operations {
        // It writes once at most, and a statement is a transaction of its own.
        return Ok(vec![operate(connection, operation, now)?]);
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let outcomes = operations
        .iter()
        .map(|operation| operate(&transaction, operation, now))
        .collect::<rusqlite::Result<_>>()?;
    transaction.commit()?;
    Ok(outcomes)
}

fn operate(
    connection: &Connection,
    operation: &StoreOperation,
    now: i64,
) -> rusqlite::Result<OperationOutcome> {
    let reply = match operation {
        StoreOperation::Nothing => StoreReply::Done,
        StoreOperation::Get(key) => StoreReply::Value(table::get(connection, key, now)?),
        StoreOperation::Scan(prefix) => StoreReply::Entries(table::scan(connection, prefix, now)?),
        StoreOperation::Put {
            key,
            value,
            expires,
        } => {
            table::put(connection, key, value, *expires)?;
            StoreReply::Done
        }
        StoreOperation::Delete(key) => {
            table::delete(connection, key)?;
            StoreReply::Done
        }
        StoreOperation::CompareAndSet {
            key,
            expected,
            value,
            expires,
        } => {
            if table::get(connection, key, now)? != *expected {
                return Ok(Err(StoreError::Conflict(key.clone())));
            }
            table::put(connection, key, value, *expires)?;
            StoreReply::Done
        }
    };
    Ok(Ok(reply))
}
