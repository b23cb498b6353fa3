//! The process groups of a server's children, for whoever measures them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Of all connections to one server. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct ChildGroups(Arc<Mutex<BTreeSet<u32>>>);

/// A child that runs, until this is dropped.
#[derive(Debug)]
pub(super) struct RunningChild {
    groups: ChildGroups,
    leader: Option<u32>,
}

impl ChildGroups {
    pub(super) fn enter(&self, leader: Option<u32>) -> RunningChild {
        self.groups().extend(leader);
        let groups = self.clone();
        RunningChild { groups, leader }
    }

    /// The numbers of their leaders.
    pub(super) fn all(&self) -> Vec<u32> {
        self.groups().iter().copied().collect()
    }

    fn groups(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RunningChild {
    fn drop(&mut self) {
        if let Some(leader) = self.leader {
            self.groups.groups().remove(&leader);
        }
    }
}
