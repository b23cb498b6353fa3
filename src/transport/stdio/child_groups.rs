//! Tracks the process groups of a server's children, for resource metrics.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

/// Process groups of all connections to one server. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct ChildGroups(Arc<Mutex<BTreeSet<u32>>>);

/// Registers a running child until it is dropped.
#[derive(Debug)]
pub(super) struct RunningChild {
    groups: ChildGroups,
    leader: Option<u32>,
}

impl ChildGroups {
    pub(super) fn enter(&self, leader: Option<u32>) -> RunningChild {
        self.0.lock().extend(leader);
        let groups = self.clone();
        RunningChild { groups, leader }
    }

    /// Process ids of the group leaders.
    pub(super) fn all(&self) -> Vec<u32> {
        self.0.lock().iter().copied().collect()
    }
}

impl Drop for RunningChild {
    fn drop(&mut self) {
        if let Some(leader) = self.leader {
            self.groups.0.lock().remove(&leader);
        }
    }
}
