//! The cluster as operators see it.

use serde::{Deserialize, Serialize};

/// State of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReplicaState {
    /// It waits for the engine or for a number.
    Joining,
    Alive,
    /// It stops and gives up its sessions.
    Leaving,
    /// Its beat expired.
    Expired,
}

/// A replica of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ReplicaStatus {
    pub name: String,
    pub number: u16,
    /// Host and port where other replicas connect.
    pub address: String,
    pub state: ReplicaState,
    pub version: String,
    /// Sessions that the replica runs or can resume.
    pub sessions: u64,
    /// Milliseconds since the last beat that this replica saw; absent if it has seen none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_beat_ms: Option<u64>,
    /// Whether this is the replica that answers.
    pub is_self: bool,
}

/// The engine of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EngineStatus {
    /// Address without credentials.
    pub address: String,
    pub is_up: bool,
    /// Milliseconds since the engine last answered; present if it is away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub away_ms: Option<u64>,
    /// Why the last request failed; present if the engine is away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Requests that failed since the start.
    pub failures: u64,
}

/// All replicas and the engine, as this replica sees them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClusterStatus {
    pub engine: EngineStatus,
    pub replicas: Vec<ReplicaStatus>,
}
