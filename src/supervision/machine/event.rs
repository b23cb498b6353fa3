//! The events, states and actions of a child's machine.

use std::time::Duration;

use tokio::time::Instant;

use crate::supervision::exit::ExitReason;
use crate::supervision::policy::Settings;

#[derive(Debug)]
pub(crate) enum ChildEvent {
    /// The child is needed: the first start, or the end of a wait. A child that is up is not
    /// affected.
    Wake,
    /// Like `Wake`, but a child that is up is restarted, for this reason.
    Reconnect(&'static str),
    /// The incarnation reports that it is ready.
    Ready,
    /// The incarnation is still starting, and will be ready or fail within this time.
    StillStarting(Duration),
    /// The incarnation is gone.
    Exit,
    /// The incarnation is gone as it was meant to, and shall restart.
    PlannedExit,
    /// The incarnation is gone, and another attempt makes no sense until something changes: new
    /// settings, a release or a reconnect.
    GiveUp,
    /// The deadline has passed.
    Tick,
    /// New settings; earlier failures are forgotten. With `renew`, the child's spec changed as
    /// well, and an old incarnation must be replaced.
    Configure { settings: Settings, renew: bool },
    /// Stop a child that is up but unused, until it is woken.
    Idle,
    /// Take the child out of service: it leaves, and waking does not restart it.
    Hold,
    /// Return the child to service after a hold.
    Release,
    /// Keep the child from running for this reason, until nothing blocks it: one that runs leaves,
    /// and one that is needed waits.
    Block(&'static str),
    /// Nothing blocks the child any more: it starts if it is needed.
    Unblock,
    /// Stop the child permanently.
    Stop,
}

impl ChildEvent {
    /// Why a child that is up is asked to leave, as a stable word.
    pub(crate) fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Reconnect(reason) | Self::Block(reason) => Some(reason),
            Self::Configure { .. } => Some("configuration"),
            Self::Idle => Some("unused"),
            Self::Hold => Some("operator"),
            Self::Wake
            | Self::Ready
            | Self::StillStarting(_)
            | Self::Exit
            | Self::PlannedExit
            | Self::GiveUp
            | Self::Tick
            | Self::Release
            | Self::Unblock
            | Self::Stop => None,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum ChildState {
    /// Stopped on purpose: not started yet, idle or held.
    Idle,
    /// Needed, but blocked.
    Blocked,
    /// Started, or about to be; must be ready by the deadline.
    Starting {
        deadline: Instant,
    },
    Up {
        since: Instant,
    },
    Waiting {
        next_attempt: Instant,
        broken: bool,
    },
    /// Asked to leave, or killed, and not known to be gone.
    Ending {
        deadline: Instant,
        killed: bool,
        then: AfterExit,
    },
    Stopped,
}

/// The state to enter once the incarnation has ended.
#[derive(Clone, Debug)]
pub(crate) enum AfterExit {
    Relaunch,
    /// Stay stopped until woken.
    Idle,
    Stop,
    /// Count the exit as a failure.
    Fail(ExitReason),
}

/// The supervisor's next action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Nothing,
    Launch,
    /// Ask the child to leave.
    Ask,
    Kill,
    /// The child is gone permanently.
    Finish,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) action: Action,
    /// A killed child has not exited: its thread is blocked, and it is abandoned.
    pub(crate) stuck: bool,
}

impl Decision {
    pub(super) const fn just(action: Action) -> Self {
        Self {
            action,
            stuck: false,
        }
    }

    pub(super) const NOTHING: Self = Self::just(Action::Nothing);
}
