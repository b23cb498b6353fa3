//! Mints the ids that clients return to the gateway.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use uuid::Uuid;

use super::ids::{IdKeys, ReplicaNumber};

/// Mints ids that cannot be guessed.
pub trait Mint: fmt::Debug + Send + Sync {
    fn mint(&self) -> Uuid;

    /// Returns whether this gateway minted an id, in this or an earlier process. There is no other
    /// one without a cluster.
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
    /// Changes when another replica took the number while this one was frozen.
    pub(super) number: AtomicU16,
}

impl ReplicaMint {
    pub(super) fn number(&self) -> ReplicaNumber {
        ReplicaNumber(self.number.load(Ordering::Relaxed))
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
