//! The observable state of a child: the same struct for logs, interfaces and tests.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Where a child is in its life.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChildPhase {
    /// Not running by intent: it was not woken yet, is at rest, or ended as it should.
    #[default]
    Idle,
    /// Born, not ready.
    Starting,
    Up,
    /// It failed; another attempt is due.
    Backoff,
    /// It failed too often; attempts are rare now.
    Broken,
    /// AccessRequest to leave, for good or until it is released.
    Stopping,
    /// Gone for good, or held until it is released.
    Stopped,
}

impl ChildPhase {
    /// The word that is also its serialised form.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Starting => "starting",
            Self::Up => "up",
            Self::Backoff => "backoff",
            Self::Broken => "broken",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
        }
    }
}

impl fmt::Display for ChildPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One child at one moment.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChildView {
    pub name: Arc<str>,
    pub phase: ChildPhase,
    /// How long it has been in this phase, in milliseconds.
    pub phase_ms: u64,
    /// Number of the current or last incarnation, from 1; 0 before the first.
    pub generation: u64,
    /// Incarnations after the first.
    pub restarts: u64,
    /// The same by why the incarnation before each ended, or was ended.
    #[serde(skip)]
    pub restart_reasons: BTreeMap<&'static str, u64>,
    /// Times that it began to fail too often.
    #[serde(skip)]
    pub escalations: u64,
    /// Ends by panic, all in all.
    pub panics: u64,
    /// Killed incarnations that were still there when their time was up: their thread was
    /// blocked.
    pub stuck: u64,
    /// How the incarnation before ended, for operators.
    pub last_exit: Option<String>,
    /// The same for anybody.
    #[serde(skip)]
    pub last_exit_sentence: Option<String>,
    /// The same as a stable word.
    pub last_exit_code: Option<Cow<'static, str>>,
    /// When the next attempt is due, in milliseconds from now.
    pub next_attempt_ms: Option<u64>,
    /// Messages that wait in its [`super::Inbox`], if it has one.
    #[serde(skip)]
    pub waiting: usize,
}
