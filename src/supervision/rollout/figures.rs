//! The figures of a rollout, for decisions and for operators.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::telemetry::counted;

/// One answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub took: Duration,
    pub is_error: bool,
}

/// State of a rollout.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RolloutState {
    /// The candidate starts.
    #[default]
    Starting,
    /// The candidate gets a share of the calls as well.
    Watching,
    /// The candidate took the place of the old version.
    Promoted,
    /// The candidate was stopped.
    RolledBack,
}

impl RolloutState {
    pub fn is_final(self) -> bool {
        matches!(self, Self::Promoted | Self::RolledBack)
    }
}

/// Figures of one version.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SideFigures {
    /// Compared calls that it answered with an error.
    pub errors: u64,
    /// The 99th percentile of the durations of compared calls, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<u64>,
    /// Resident memory in bytes, if it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
}

/// A rollout at one moment, or its outcome.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RolloutView {
    pub state: RolloutState,
    /// The new version, if it has a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Why it was rolled back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Consequence of the outcome for the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Time until the state ends, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_ms: Option<u64>,
    /// Compared calls.
    pub calls: u64,
    pub old: SideFigures,
    pub candidate: SideFigures,
}

/// One sentence with the figures of both sides.
impl fmt::Display for RolloutView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.version.as_deref().unwrap_or("the new version");
        match self.state {
            RolloutState::Starting => write!(f, "{version} starts beside the old one")?,
            RolloutState::Watching => write!(f, "{version} is watched beside the old one")?,
            RolloutState::Promoted => write!(f, "{version} replaced the old one")?,
            RolloutState::RolledBack => write!(f, "{version} was rolled back")?,
        }
        if let Some(why) = &self.why {
            write!(f, ": {why}")?;
        }
        write!(
            f,
            "; {}",
            counted(self.calls, "compared call", "compared calls")
        )?;
        let (old, new) = (&self.old, &self.candidate);
        if self.calls > 0 {
            write!(f, ", errors {} -> {}", old.errors, new.errors)?;
        }
        if let (Some(old), Some(new)) = (old.p99_ms, new.p99_ms) {
            write!(f, ", p99 {old} ms -> {new} ms")?;
        }
        if let (Some(old), Some(new)) = (old.memory, new.memory) {
            write!(f, ", memory {} MiB -> {} MiB", old >> 20, new >> 20)?;
        }
        match &self.note {
            Some(note) => write!(f, "; {note}"),
            None => Ok(()),
        }
    }
}
