//! The engine: what all replicas share, in Valkey or Redis.
//!
//! Every operation is atomic in the engine and touches as few keys as possible. Orders about records
//! are fenced by owner and term. A model in memory states in Rust what the scripts of the real engine
//! do (`src/cluster/tests/memory.rs`), and one set of tests holds for both.

mod redis;

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::ids::{Incarnation, ReplicaNumber, ReplicaRef, Term};
pub(super) use redis::RedisEngine;
pub use redis::{EngineFacts, EngineSpec, InvalidEngine, check_engine};

/// How long one request to the engine may take, including its wait in the queue.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_millis(500);

/// Why the engine did not answer. A write that timed out may have happened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    #[error("the engine is not connected: {0}")]
    Away(String),
    #[error("the engine did not answer within {} ms", REQUEST_TIMEOUT.as_millis())]
    Timeout,
    #[error("too many requests wait for the engine")]
    Overloaded,
    #[error("the engine refused the request: {0}")]
    Refused(String),
    #[error("a value in the engine is damaged or sealed with another secret")]
    Damaged,
}

/// An operation of one replica on one record.
#[derive(Debug, Clone)]
pub(super) struct RecordOrder {
    pub(super) replica: ReplicaRef,
    /// The term that the replica knows.
    pub(super) term: Term,
    pub(super) act: RecordAct,
}

#[derive(Debug, Clone)]
pub(super) enum RecordAct {
    /// Writes the record if there is none.
    Open { record: Bytes, ttl: Duration },
    /// Writes the record if there is none, if the stored term is lower, or if term and owner are
    /// the stored ones. A record with a lower term loses its fields.
    Save { record: Bytes, ttl: Duration },
    /// Writes or removes a field of the owner's record.
    Field { name: String, value: Option<Bytes> },
    /// Takes the record from `expected`. Its term becomes one more than the stored term and the
    /// given one, and its lifetime starts again.
    Claim { expected: Option<ReplicaRef> },
    /// Removes the owner, so that any replica can claim the record.
    Release,
    /// Deletes the record unless its term is higher or another replica owns it.
    End,
}

/// The result of a [`RecordOrder`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RecordAnswer {
    /// Done; the record's term.
    Done(Term),
    /// Another replica or another term has the record.
    Refused {
        owner: Option<ReplicaRef>,
        term: Term,
    },
    Missing,
}

/// A record as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecordRow {
    /// `None` after a release.
    pub(super) owner: Option<ReplicaRef>,
    pub(super) term: Term,
    pub(super) record: Bytes,
    pub(super) fields: Vec<Bytes>,
    /// The lifetime that the last write set.
    pub(super) ttl: Duration,
}

/// A replica that joined, as it describes itself with each beat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MemberRecord {
    pub(super) number: ReplicaNumber,
    pub(super) incarnation: Incarnation,
    /// Proves that a later process runs in the same data directory.
    pub(super) instance: String,
    /// Host and port where other replicas connect.
    pub(super) address: String,
    pub(super) name: String,
    pub(super) version: String,
    #[serde(default)]
    pub(super) leaving: bool,
    #[serde(default)]
    pub(super) sessions: u64,
}

impl MemberRecord {
    pub(super) fn replica(&self) -> ReplicaRef {
        ReplicaRef {
            number: self.number,
            incarnation: self.incarnation,
        }
    }
}

/// All replicas that the engine knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Members {
    /// The replicas that joined and did not leave.
    pub(super) joined: Vec<MemberRecord>,
    /// The replicas whose beat has not expired.
    pub(super) living: Vec<ReplicaRef>,
    pub(super) epoch: EngineEpoch,
}

impl Members {
    pub(super) fn living(&self, number: ReplicaNumber) -> Option<ReplicaRef> {
        self.living.iter().find(|it| it.number == number).copied()
    }
}

/// The result of a beat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BeatOutcome {
    Kept,
    /// The former beat expired, or the engine lost it.
    Expired,
    /// Another incarnation has the number.
    Replaced,
}

/// Changes when the engine can have lost writes: another process, or a mark that is missing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct EngineEpoch {
    pub(super) run: String,
    pub(super) mark: String,
}

/// The engine's answer to one request.
pub(super) type Asked<'e, T> = BoxFuture<'e, Result<T, EngineError>>;

/// The operations of the engine.
pub(super) trait Engine: Send + Sync {
    /// Carries out orders about named records in their sequence, not as one transaction. Answers
    /// have the same sequence.
    fn records(&self, orders: Vec<(String, RecordOrder)>) -> Asked<'_, Vec<RecordAnswer>>;

    /// Reads a record by its name.
    fn record(&self, name: String) -> Asked<'_, Option<RecordRow>>;

    /// The engine's time in microseconds, above each earlier answer.
    fn next_incarnation(&self) -> Asked<'_, Incarnation>;

    /// Takes a number if it is free, or if the same instance has an earlier incarnation of it.
    fn take_number(&self, member: MemberRecord, ttl: Duration) -> Asked<'_, bool>;

    /// Extends the life of a member unless it expired or was replaced, and reads all members.
    fn beat(&self, member: MemberRecord, ttl: Duration) -> Asked<'_, (BeatOutcome, Members)>;

    fn members(&self) -> Asked<'_, Members>;

    /// Removes the member with this number, unless another incarnation has it.
    fn leave(&self, member: ReplicaRef) -> Asked<'_, ()>;

    /// This replica's address as the engine sees it; `None` if it sees none.
    fn own_address(&self) -> Asked<'_, Option<String>>;

    /// The number of requests that failed since the start.
    fn failures(&self) -> u64;
}
