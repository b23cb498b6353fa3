//! Decides whether a new version of a child, the candidate, takes the place of the old one. Pure: the
//! caller runs both side by side, passes what it sees of them, and carries out the actions.

mod figures;

use std::time::Duration;

use tokio::time::Instant;

use crate::telemetry::millis;

pub use figures::{RolloutState, RolloutView, Sample, SideFigures};

/// Comparisons from which on the rate of errors decides before the window is over.
const JUDGED_EARLY: usize = 20;

/// Comparisons from which on durations are compared.
const TIMED_MIN: usize = 5;

/// Maximum comparisons whose durations are kept; the newest ones count.
const SAMPLES_MAX: usize = 10_000;

/// A difference of durations that is no slowdown.
const SLOWDOWN_MIN: Duration = Duration::from_millis(50);

/// Memory that a candidate can use in addition to its share, in bytes.
const MEMORY_FREE: u64 = 64 << 20;

/// The gates of a rollout.
#[derive(Clone, Debug, PartialEq)]
pub struct RolloutPolicy {
    /// How long the candidate is watched beside the old version.
    pub window: Duration,
    /// Share of the calls that the candidate gets as well.
    pub share: f64,
    /// Minimum comparisons; the window lasts until then.
    pub calls: u64,
    /// Maximum excess of the candidate's rate of errors over the old version's rate.
    pub max_errors: f64,
    /// The candidate's 99th percentile, as a multiple of the old version's.
    pub max_slowdown: f64,
    /// The candidate's memory, as a multiple of the old version's.
    pub max_memory: f64,
}

impl Default for RolloutPolicy {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(2 * 60),
            share: 0.1,
            calls: 0,
            max_errors: 0.01,
            max_slowdown: 2.0,
            max_memory: 2.0,
        }
    }
}

/// Observation of the owner of both versions.
#[derive(Clone, Debug, PartialEq)]
pub enum RolloutEvent {
    /// The candidate is ready, and can serve the callers of the old version.
    Ready,
    /// The candidate cannot replace the old version, for this reason.
    Failed(String),
    /// Both versions answered the same call; the text says how the answers differ.
    Compared {
        old: Sample,
        candidate: Sample,
        difference: Option<String>,
    },
    /// The memory of both, in bytes; 0 if it is unknown.
    Measured { old: u64, candidate: u64 },
    /// Time passed. `waiting` calls are not compared yet.
    Tick { waiting: usize },
}

/// Task for the owner of both versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RolloutAction {
    /// Give the candidate a share of the calls as well.
    Watch,
    /// New calls go to the candidate, and the old version drains.
    Promote,
    /// Stop the candidate; the old version stays.
    RollBack,
}

/// The rollout of one candidate.
#[derive(Clone, Debug)]
pub struct RolloutMachine {
    policy: RolloutPolicy,
    state: RolloutState,
    /// When the current state ends.
    until: Instant,
    why: Option<String>,
    compared: u64,
    samples: Vec<(Sample, Sample)>,
    errors: (u64, u64),
    memory: (u64, u64),
    /// The candidate's memory when it was measured first.
    first_memory: u64,
}

impl RolloutMachine {
    /// A rollout whose candidate was just started, and has to be ready at `starts_by`.
    pub fn new(policy: RolloutPolicy, starts_by: Instant) -> Self {
        Self {
            policy,
            state: RolloutState::Starting,
            until: starts_by,
            why: None,
            compared: 0,
            samples: Vec::new(),
            errors: (0, 0),
            memory: (0, 0),
            first_memory: 0,
        }
    }

    pub fn state(&self) -> RolloutState {
        self.state
    }

    /// Whether the candidate should get a share of the calls that arrive now.
    pub fn wants_calls(&self, now: Instant) -> bool {
        let is_due = now >= self.until && self.compared >= self.policy.calls;
        self.state == RolloutState::Watching && !is_due
    }

    /// Handles an event. After [`RolloutAction::Promote`] or [`RolloutAction::RollBack`], nothing
    /// follows.
    pub fn on(&mut self, event: RolloutEvent, now: Instant) -> Option<RolloutAction> {
        if self.state.is_final() {
            return None;
        }
        match event {
            RolloutEvent::Failed(why) => self.roll_back(why),
            RolloutEvent::Ready if self.state == RolloutState::Starting => {
                self.state = RolloutState::Watching;
                self.until = now + self.policy.window;
                Some(RolloutAction::Watch)
            }
            RolloutEvent::Ready => None,
            RolloutEvent::Compared {
                old,
                candidate,
                difference,
            } => self.compare(old, candidate, difference),
            RolloutEvent::Measured { old, candidate } => self.measure(old, candidate),
            RolloutEvent::Tick { .. } if now < self.until => None,
            RolloutEvent::Tick { .. } if self.state == RolloutState::Starting => {
                self.roll_back("it was not ready in time".to_owned())
            }
            RolloutEvent::Tick { waiting } => {
                if waiting > 0 || self.compared < self.policy.calls {
                    return None;
                }
                if let Some(why) = self.too_many_errors().or_else(|| self.too_slow()) {
                    return self.roll_back(why);
                }
                self.state = RolloutState::Promoted;
                Some(RolloutAction::Promote)
            }
        }
    }

    fn roll_back(&mut self, why: String) -> Option<RolloutAction> {
        self.state = RolloutState::RolledBack;
        self.why = Some(why);
        Some(RolloutAction::RollBack)
    }

    fn compare(
        &mut self,
        old: Sample,
        candidate: Sample,
        difference: Option<String>,
    ) -> Option<RolloutAction> {
        if self.state != RolloutState::Watching {
            return None;
        }
        let at = usize::try_from(self.compared).unwrap_or_default() % SAMPLES_MAX;
        match self.samples.get_mut(at) {
            Some(oldest) => *oldest = (old, candidate),
            None => self.samples.push((old, candidate)),
        }
        self.compared += 1;
        self.errors.0 += u64::from(old.is_error);
        self.errors.1 += u64::from(candidate.is_error);
        let early = self.samples.len() >= JUDGED_EARLY;
        let errors = || early.then(|| self.too_many_errors()).flatten();
        let why = difference.or_else(errors)?;
        self.roll_back(why)
    }

    fn measure(&mut self, old: u64, candidate: u64) -> Option<RolloutAction> {
        self.memory = (old, candidate);
        if self.first_memory == 0 {
            self.first_memory = candidate;
        }
        let most = old.max(self.first_memory) as f64 * self.policy.max_memory;
        let is_over = candidate as f64 > most + MEMORY_FREE as f64;
        is_over.then(|| self.roll_back("its memory grows".to_owned()))?
    }

    fn too_many_errors(&self) -> Option<String> {
        let (old, candidate) = self.errors;
        let most = old as f64 + self.compared as f64 * self.policy.max_errors;
        (candidate as f64 > most).then(|| "more of its answers are errors".to_owned())
    }

    fn too_slow(&self) -> Option<String> {
        let (old, candidate) = self.percentiles()?;
        let is_slow = candidate > old.mul_f64(self.policy.max_slowdown) + SLOWDOWN_MIN;
        (self.samples.len() >= TIMED_MIN && is_slow).then(|| "it is slower".to_owned())
    }

    /// The 99th percentiles of both.
    fn percentiles(&self) -> Option<(Duration, Duration)> {
        let of = |side: fn(&(Sample, Sample)) -> Sample| {
            let mut took: Vec<Duration> = self.samples.iter().map(|it| side(it).took).collect();
            took.sort_unstable();
            let rank = (took.len() * 99).div_ceil(100);
            took.get(rank.checked_sub(1)?).copied()
        };
        Some((of(|it| it.0)?, of(|it| it.1)?))
    }

    /// The figures of both sides.
    pub fn view(&self, now: Instant) -> RolloutView {
        let times = self.percentiles();
        let side = |errors, took: Option<Duration>, memory| SideFigures {
            errors,
            p99_ms: took.map(millis),
            memory: Some(memory).filter(|it| *it > 0),
        };
        let left = self.until.saturating_duration_since(now);
        RolloutView {
            state: self.state,
            version: None,
            why: self.why.clone(),
            note: None,
            left_ms: (!self.state.is_final()).then(|| millis(left)),
            calls: self.compared,
            old: side(self.errors.0, times.map(|it| it.0), self.memory.0),
            candidate: side(self.errors.1, times.map(|it| it.1), self.memory.1),
        }
    }
}

#[cfg(test)]
mod tests;
