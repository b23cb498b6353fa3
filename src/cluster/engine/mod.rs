//! The engine: what all replicas share. Valkey or Redis, or the memory of a test.
//!
//! Every operation is atomic in the engine and touches as few keys as possible. Orders about records are fenced by
//! owner and term; [`MemoryEngine`] states in Rust what the scripts of the real engine do, and one
//! set of tests holds for both.

mod memory;
mod redis;

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::ids::{Incarnation, ReplicaNumber, ReplicaRef, Term};
pub use memory::MemoryEngine;
pub use redis::{EngineFacts, EngineSpec, InvalidEngine, RedisEngine, check_engine};

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

/// An operation on one record.
#[derive(Debug, Clone)]
pub enum RecordOrder {
    /// Writes a new record with term 1.
    Open {
        owner: ReplicaRef,
        record: Bytes,
        ttl: Duration,
    },
    /// Writes the record if there is none, if the stored term is lower, or if term and owner are
    /// the stored ones. A record with a lower term loses its fields.
    Save {
        owner: ReplicaRef,
        term: Term,
        record: Bytes,
        ttl: Duration,
    },
    /// Writes or removes a field of the owner's record.
    Field {
        owner: ReplicaRef,
        term: Term,
        name: String,
        value: Option<Bytes>,
    },
    Read,
    /// Takes the record from `expected`. Its term becomes one more than the stored term and `term`,
    /// and its lifetime begins again.
    Claim {
        owner: ReplicaRef,
        expected: Option<ReplicaRef>,
        term: Term,
    },
    /// Removes the owner, so that any replica can claim the record.
    Release {
        owner: ReplicaRef,
        term: Term,
    },
    /// Deletes the record unless its term is higher or another replica owns it.
    End {
        owner: ReplicaRef,
        term: Term,
    },
}

/// The result of a [`RecordOrder`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordAnswer {
    /// Done; the record's term.
    Done(Term),
    /// Another replica or another term has the record.
    Refused {
        owner: Option<ReplicaRef>,
        term: Term,
    },
    Missing,
    /// The answer to `Read`.
    Found {
        owner: Option<ReplicaRef>,
        term: Term,
        record: Bytes,
        fields: Vec<Bytes>,
        /// The lifetime that the last write set.
        ttl: Duration,
    },
}

/// A replica's row in the engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRecord {
    pub number: ReplicaNumber,
    pub incarnation: Incarnation,
    /// Proves that a later process runs in the same data directory.
    pub instance: String,
    /// Host and port where other replicas connect.
    pub address: String,
    pub name: String,
    pub version: String,
    #[serde(default)]
    pub leaving: bool,
    #[serde(default)]
    pub sessions: u64,
}

impl MemberRecord {
    pub(super) fn replica(&self) -> ReplicaRef {
        ReplicaRef {
            number: self.number,
            incarnation: self.incarnation,
        }
    }
}

/// The result of a beat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BeatAnswer {
    pub outcome: BeatOutcome,
    /// The members whose beat has not expired.
    pub living: Vec<MemberRecord>,
    /// Number, incarnation and address of each replica that joined and did not leave.
    pub joined: Vec<(ReplicaRef, String)>,
    pub epoch: EngineEpoch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeatOutcome {
    Kept,
    /// The former beat expired, or the engine lost it.
    Expired,
    /// Another incarnation has the number.
    Replaced,
}

/// Changes when the engine can have lost writes: another process, or a mark that is missing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EngineEpoch {
    pub run: String,
    pub mark: String,
}

/// The operations of the engine.
pub trait Engine: Send + Sync {
    /// Carries out orders in their sequence, not as one transaction. Answers have the same sequence.
    fn records(
        &self,
        orders: Vec<(String, RecordOrder)>,
    ) -> BoxFuture<'_, Result<Vec<RecordAnswer>, EngineError>>;

    /// The engine's time in microseconds, above each earlier answer.
    fn next_incarnation(&self) -> BoxFuture<'_, Result<Incarnation, EngineError>>;

    /// Number, incarnation and address of each replica that joined and did not leave.
    fn joined(&self) -> BoxFuture<'_, Result<Vec<(ReplicaRef, String)>, EngineError>>;

    /// Takes a number if it is free, or if the same instance has an earlier incarnation of it.
    fn take_number(
        &self,
        member: MemberRecord,
        ttl: Duration,
    ) -> BoxFuture<'_, Result<bool, EngineError>>;

    /// Extends the row of a member unless it expired or was replaced, and reads all members.
    fn beat(
        &self,
        member: MemberRecord,
        ttl: Duration,
    ) -> BoxFuture<'_, Result<BeatAnswer, EngineError>>;

    /// The row of a number, if its beat has not expired.
    fn member(
        &self,
        number: ReplicaNumber,
    ) -> BoxFuture<'_, Result<Option<MemberRecord>, EngineError>>;

    /// Removes the row and the number of this incarnation.
    fn leave(&self, member: ReplicaRef) -> BoxFuture<'_, Result<(), EngineError>>;

    /// This replica's address as the engine sees it; `None` if it sees none.
    fn own_address(&self) -> BoxFuture<'_, Result<Option<String>, EngineError>>;

    /// The number of requests that failed since the start.
    fn failures(&self) -> u64;
}
