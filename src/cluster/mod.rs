//! Replicas: several gateways that form one endpoint.
//!
//! Each gateway is a replica. Ids name the replica that minted them (`mint`), an engine (Valkey or
//! Redis, `engine`) stores which replicas are alive (`membership`, `beats`) and the records of
//! sessions (`records`), and replicas recognize each other by one secret (`raw_key`). This part
//! knows nothing of MCP: a record is bytes. docs/cluster.md describes the behaviour.

mod beats;
mod engine;
mod handle;
mod ids;
mod membership;
mod mint;
mod probe;
mod pulse;
mod raw_key;
mod records;
mod replica;
mod route;
mod sealing;
mod secret;
mod status;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use tests::memory::MemoryEngine;

pub use engine::{EngineError, EngineFacts, EngineSpec, InvalidEngine, check_engine};
pub use handle::Cluster;
pub use ids::{Birthplace, Incarnation, REPLICAS_MAX, ReplicaNumber, ReplicaRef, Term};
pub use membership::{Member, Verdict};
pub use mint::{Mint, RandomMint};
pub use records::{ClaimError, Holder, Records, SaveError, StoredRecord};
pub use replica::{ClusterError, ClusterSpec, Health};
pub use route::{Action, Attempt, Finding, FoundRecord, OwnCopy};
pub use secret::{ClusterSecret, InvalidSecret, SECRET_BYTES_MIN};
pub use status::{ClusterStatus, EngineStatus, ReplicaState, ReplicaStatus};
