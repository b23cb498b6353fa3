//! The observable state of a child, shared by logs, APIs and tests.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Phase of a child's life.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChildPhase {
    /// Stopped on purpose: not woken yet, unused, or ended normally.
    #[default]
    Idle,
    /// Needed, but kept from starting until something else is ready.
    Waiting,
    /// Started but not ready.
    Starting,
    Up,
    /// Failed; another attempt is due.
    Backoff,
    /// Failed too often; attempts are now rare.
    Broken,
    /// Asked to leave, permanently or until it is released.
    Stopping,
    /// Gone permanently, or held until it is released.
    Stopped,
}

impl ChildPhase {
    /// The serialized form.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Waiting => "waiting",
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

/// The state of one child at one moment.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChildView {
    pub name: Arc<str>,
    pub phase: ChildPhase,
    /// Time in this phase, in milliseconds.
    pub phase_ms: u64,
    /// Time since the first failure, in milliseconds, while the child has not been up again.
    pub failing_ms: Option<u64>,
    /// Failed attempts in that time.
    pub failures: u32,
    /// Number of the current or last incarnation, from 1; 0 before the first.
    pub generation: u64,
    /// Number of incarnations after the first.
    pub restarts: u64,
    /// Restarts by the reason for which the previous incarnation ended.
    #[serde(skip)]
    pub restart_reasons: BTreeMap<&'static str, u64>,
    /// Number of times that the child failed too often.
    #[serde(skip)]
    pub escalations: u64,
    /// Total number of exits by panic.
    pub panics: u64,
    /// Killed incarnations that did not exit in time because their thread was blocked.
    pub stuck: u64,
    /// How the previous incarnation ended, for operators.
    pub last_exit: Option<String>,
    /// How the previous incarnation ended, in a form safe for any reader.
    #[serde(skip)]
    pub last_exit_sentence: Option<String>,
    /// How the previous incarnation ended, as a stable word.
    pub last_exit_code: Option<Cow<'static, str>>,
    /// Time until the next attempt, in milliseconds.
    pub next_attempt_ms: Option<u64>,
    /// Messages waiting in its [`super::Inbox`], if it has one.
    #[serde(skip)]
    pub waiting: usize,
}
