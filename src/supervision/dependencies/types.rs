//! Input and output of the machine: the states of children, and orders.

use std::sync::Arc;

use tokio::time::Instant;

use crate::supervision::view::ChildPhase;

/// The state of a child at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sighting {
    pub phase: ChildPhase,
    /// Whether an incarnation exists, even if it is leaving.
    pub is_running: bool,
    pub generation: u64,
    /// Failures since the child's supervisor started.
    pub failures: u64,
}

impl Sighting {
    pub(super) fn is_up(&self) -> bool {
        self.phase == ChildPhase::Up
    }

    /// Whether the child is not needed or was stopped on purpose, so that its group does not wait.
    pub(super) fn rests(&self) -> bool {
        matches!(
            self.phase,
            ChildPhase::Idle | ChildPhase::Stopping | ChildPhase::Stopped
        )
    }
}

/// An order for the owner of the children, who knows members by their position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DependencyOrder {
    /// Keep the member from running, for this reason.
    Block(usize, &'static str),
    Unblock(usize),
    /// Start the member now, because others need it or its group is tried again.
    Wake(usize),
    /// No dependant of the member runs any more: it can leave, as it was announced.
    Leave(usize),
    /// The group of this name is broken, and escalates.
    Escalate(Arc<str>),
}

/// The reason why a member does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A dependency that is not up.
    Dependency(Arc<str>),
    /// A dependency that is disabled or not configured.
    Absent(Arc<str>),
    /// An earlier member of its group, which starts first.
    Earlier(Arc<str>),
    /// The member's group is broken, and is tried again at this time.
    Broken(Arc<str>, Instant),
    /// The member's group restarts, and the member has to end first.
    Restart(Arc<str>),
}

/// The state of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupState {
    #[default]
    Working,
    /// Failed too often: its members are stopped until then.
    Broken { next_attempt: Instant },
    /// Tried again after it was broken; one more failure breaks it again.
    Retrying,
}
