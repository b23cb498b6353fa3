//! Mints the ids that clients return to the gateway.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use uuid::Uuid;

use super::ids::{IdKeys, ReplicaNumber, ReplicaRef};

/// Mints ids that cannot be guessed.
pub trait Mint: fmt::Debug + Send + Sync {
    fn mint(&self) -> Uuid;

    /// Returns whether this gateway minted an id, in this or an earlier process. Without a cluster
    /// it minted all.
    fn is_own(&self, _id: Uuid) -> bool {
        true
    }
}

/// Mints random UUIDs of version 4, for a gateway without a cluster.
#[derive(Debug, Clone, Copy, Default)]
pub struct RandomMint;

impl Mint for RandomMint {
    fn mint(&self) -> Uuid {
        Uuid::new_v4()
    }
}

/// Mints ids that name this replica.
#[derive(Debug)]
pub(super) struct ReplicaMint {
    pub(super) keys: Arc<IdKeys>,
    /// This replica. Its number changes when another one took it while this one was frozen.
    pub(super) own: Arc<RwLock<ReplicaRef>>,
}

impl ReplicaMint {
    pub(super) fn number(&self) -> ReplicaNumber {
        self.own.read().number
    }
}

impl Mint for ReplicaMint {
    fn mint(&self) -> Uuid {
        self.keys.id(Uuid::new_v4(), self.number())
    }

    fn is_own(&self, id: Uuid) -> bool {
        self.keys.number(id) == Some(self.number())
    }
}
