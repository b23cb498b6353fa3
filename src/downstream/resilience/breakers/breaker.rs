//! A circuit breaker: closed, open or half-open. Pure: the caller passes the time.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// When a breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    /// Failures in a row that open the breaker; zero disables it.
    pub failures: usize,
    /// Time within which these failures must occur.
    pub within: Duration,
    /// Time from opening until one trial call is let through, and until the next one if the trial
    /// is not answered.
    pub open_for: Duration,
    /// Whether each tool has a breaker of its own besides the server's.
    pub tools: bool,
    /// Whether a result with `isError` is a failure of the tool.
    pub tool_errors: bool,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            failures: 5,
            within: Duration::from_secs(30),
            open_for: Duration::from_secs(5),
            tools: true,
            tool_errors: false,
        }
    }
}

/// How a call ended, from a breaker's point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallVerdict {
    Success,
    Failure,
    /// The call ended with its connection. Calls lost together count as one failure.
    Loss,
    /// Proves nothing: the call was cancelled, or refused by the gateway.
    Nothing,
}

/// A call that a breaker let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// Number of the latest event when the call was let through; event numbers increase.
    pub(crate) event_number: u64,
    /// Whether this is the trial call of an open breaker.
    pub(crate) is_trial: bool,
}

/// A breaker's transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BreakerTransition {
    Opened,
    Closed,
}

#[derive(Debug, PartialEq, Eq)]
enum BreakerState {
    /// Times of the failures in a row, oldest first.
    Closed(VecDeque<Instant>),
    Open {
        until: Instant,
    },
    /// A trial call is in flight; if it is unanswered by `until`, another one is let through.
    HalfOpen {
        until: Instant,
    },
    /// Opened by an operator until it is reset.
    Tripped,
}

/// The observable state of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BreakerSnapshot {
    Closed { failures: usize },
    Open { next_try: Duration },
    HalfOpen,
    Tripped,
}

#[derive(Debug)]
pub(crate) struct Breaker {
    state: BreakerState,
    /// Number of the event that closed the breaker; calls from before it no longer count.
    closed_at: u64,
    /// Number of the last failure that was counted.
    failed_at: u64,
    /// Failures since the last success, however long ago.
    in_a_row: usize,
}

/// Why a call was not let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BreakerRefusal {
    /// The breaker is open; a trial call is let through after this time.
    For(Duration),
    Tripped,
}

impl Breaker {
    /// A closed breaker.
    pub(crate) fn new(event_number: u64) -> Self {
        Self {
            state: BreakerState::Closed(VecDeque::new()),
            closed_at: event_number,
            failed_at: event_number,
            in_a_row: 0,
        }
    }

    /// Whether the breaker is in the same state as a new one.
    pub(crate) fn is_healthy(&self) -> bool {
        matches!(&self.state, BreakerState::Closed(failures) if failures.is_empty())
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.state, BreakerState::Closed(_))
    }

    /// Failures since the last success.
    pub(crate) fn in_a_row(&self) -> usize {
        self.in_a_row
    }

    /// Lets a call through or refuses it; returns whether the call is a trial.
    pub(crate) fn ask(
        &mut self,
        now: Instant,
        settings: &BreakerSettings,
    ) -> Result<bool, BreakerRefusal> {
        match self.state {
            BreakerState::Closed(_) => Ok(false),
            BreakerState::Tripped => Err(BreakerRefusal::Tripped),
            BreakerState::Open { until } | BreakerState::HalfOpen { until } if until > now => {
                Err(BreakerRefusal::For(until - now))
            }
            BreakerState::Open { .. } | BreakerState::HalfOpen { .. } => {
                let until = now + settings.open_for;
                self.state = BreakerState::HalfOpen { until };
                Ok(true)
            }
        }
    }

    /// Records the outcome of a call that was let through; `event_number` is the number of this
    /// event.
    pub(crate) fn record(
        &mut self,
        ticket: Ticket,
        verdict: CallVerdict,
        event_number: u64,
        now: Instant,
        settings: &BreakerSettings,
    ) -> Option<BreakerTransition> {
        match (&mut self.state, verdict) {
            (BreakerState::HalfOpen { .. }, _) if ticket.is_trial => {
                self.tried(verdict, event_number, now, settings)
            }
            (BreakerState::Closed(_), _) if ticket.event_number < self.closed_at => None,
            (BreakerState::Closed(failures), CallVerdict::Success) => {
                failures.clear();
                self.in_a_row = 0;
                None
            }
            (BreakerState::Closed(_), CallVerdict::Loss)
                if ticket.event_number < self.failed_at =>
            {
                None
            }
            (BreakerState::Closed(failures), CallVerdict::Failure | CallVerdict::Loss) => {
                self.failed_at = event_number;
                self.in_a_row += 1;
                failures.retain(|failed| *failed + settings.within >= now);
                failures.push_back(now);
                let opens = settings.failures > 0 && failures.len() >= settings.failures;
                opens.then(|| self.open(now + settings.open_for))
            }
            _ => None,
        }
    }

    fn tried(
        &mut self,
        verdict: CallVerdict,
        event_number: u64,
        now: Instant,
        settings: &BreakerSettings,
    ) -> Option<BreakerTransition> {
        match verdict {
            CallVerdict::Success => {
                self.reset(event_number);
                Some(BreakerTransition::Closed)
            }
            CallVerdict::Failure | CallVerdict::Loss => {
                self.in_a_row += 1;
                Some(self.open(now + settings.open_for))
            }
            // The next call is the trial.
            CallVerdict::Nothing => {
                self.state = BreakerState::Open { until: now };
                None
            }
        }
    }

    fn open(&mut self, until: Instant) -> BreakerTransition {
        self.state = BreakerState::Open { until };
        BreakerTransition::Opened
    }

    /// Lets a trial call through at once, because something changed.
    pub(crate) fn retry_now(&mut self, now: Instant) {
        if let BreakerState::Open { until } = &mut self.state {
            *until = now;
        }
    }

    pub(crate) fn trip(&mut self) {
        self.state = BreakerState::Tripped;
    }

    /// Closes the breaker; `event_number` is the number of this event.
    pub(crate) fn reset(&mut self, event_number: u64) {
        *self = Self::new(event_number);
    }

    pub(crate) fn seen(&self, now: Instant) -> BreakerSnapshot {
        match &self.state {
            BreakerState::Closed(failures) => BreakerSnapshot::Closed {
                failures: failures.len(),
            },
            BreakerState::Open { until } => BreakerSnapshot::Open {
                next_try: until.saturating_duration_since(now),
            },
            BreakerState::HalfOpen { .. } => BreakerSnapshot::HalfOpen,
            BreakerState::Tripped => BreakerSnapshot::Tripped,
        }
    }
}
