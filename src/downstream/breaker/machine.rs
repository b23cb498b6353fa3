//! One breaker: closed, open, half-open. Pure: the time comes from outside.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// When a breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    /// Failures in a row that open it; zero never does.
    pub failures: usize,
    /// All of them within this time.
    pub within: Duration,
    /// Time from its opening to the one call that is let through to try.
    pub open_for: Duration,
    /// Whether each tool has a breaker of its own beside that of its server.
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

/// How a call ended, as far as a breaker is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Success,
    Failure,
    /// It ended with its connection. Calls that end together are one failure.
    Loss,
    /// It says nothing: taken back, refused by the gateway.
    Nothing,
}

/// A call that a breaker let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// The newest event when the call was let through: events are numbered upwards.
    pub(crate) mark: u64,
    /// It is the one that tries whether things work again.
    pub(crate) is_trial: bool,
}

/// What became of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Opened,
    Closed,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// With the failures in a row, oldest first.
    Closed(VecDeque<Instant>),
    Open {
        until: Instant,
    },
    /// One call is trying.
    HalfOpen,
    /// Opened by an operator, until it is reset.
    Tripped,
}

/// What can be seen of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Closed { failures: usize },
    Open { next_try: Duration },
    HalfOpen,
    Tripped,
}

#[derive(Debug)]
pub(crate) struct Breaker {
    state: State,
    /// The event with which it closed: calls from before say nothing any more.
    closed_at: u64,
    /// The last failure that was counted.
    failed_at: u64,
}

/// Why a call is not let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The next one is let through after this time.
    For(Duration),
    Tripped,
}

impl Breaker {
    /// A closed one.
    pub(crate) fn new(mark: u64) -> Self {
        Self {
            state: State::Closed(VecDeque::new()),
            closed_at: mark,
            failed_at: mark,
        }
    }

    /// Whether it knows nothing that a new one would not know.
    pub(crate) fn is_at_rest(&self) -> bool {
        matches!(&self.state, State::Closed(failures) if failures.is_empty())
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed(_))
    }

    /// Whether a call may go; one that does in half-open state is the only one.
    pub(crate) fn ask(
        &mut self,
        now: Instant,
        settings: &BreakerSettings,
    ) -> Result<bool, Refused> {
        match self.state {
            State::Closed(_) => Ok(false),
            State::Tripped => Err(Refused::Tripped),
            // How long the trial takes is not known.
            State::HalfOpen => Err(Refused::For(settings.open_for)),
            State::Open { until } if until > now => Err(Refused::For(until - now)),
            State::Open { .. } => {
                self.state = State::HalfOpen;
                Ok(true)
            }
        }
    }

    /// A call that was let through has ended; `mark` is the number of this event.
    pub(crate) fn tell(
        &mut self,
        ticket: Ticket,
        verdict: Verdict,
        mark: u64,
        now: Instant,
        settings: &BreakerSettings,
    ) -> Option<Turn> {
        match (&mut self.state, verdict) {
            (State::HalfOpen, _) if ticket.is_trial => self.tried(verdict, mark, now, settings),
            (State::Closed(_), _) if ticket.mark < self.closed_at => None,
            (State::Closed(failures), Verdict::Success) => {
                failures.clear();
                None
            }
            (State::Closed(_), Verdict::Loss) if ticket.mark < self.failed_at => None,
            (State::Closed(failures), Verdict::Failure | Verdict::Loss) => {
                self.failed_at = mark;
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
        verdict: Verdict,
        mark: u64,
        now: Instant,
        settings: &BreakerSettings,
    ) -> Option<Turn> {
        match verdict {
            Verdict::Success => {
                self.reset(mark);
                Some(Turn::Closed)
            }
            Verdict::Failure | Verdict::Loss => Some(self.open(now + settings.open_for)),
            // The next call tries.
            Verdict::Nothing => {
                self.state = State::Open { until: now };
                None
            }
        }
    }

    fn open(&mut self, until: Instant) -> Turn {
        self.state = State::Open { until };
        Turn::Opened
    }

    /// The next call tries: there is reason to think that things are different now.
    pub(crate) fn retry_now(&mut self, now: Instant) {
        if let State::Open { until } = &mut self.state {
            *until = now;
        }
    }

    pub(crate) fn trip(&mut self) {
        self.state = State::Tripped;
    }

    /// Closes it; `mark` is the number of this event.
    pub(crate) fn reset(&mut self, mark: u64) {
        *self = Self::new(mark);
    }

    pub(crate) fn seen(&self, now: Instant) -> Seen {
        match &self.state {
            State::Closed(failures) => Seen::Closed {
                failures: failures.len(),
            },
            State::Open { until } => Seen::Open {
                next_try: until.saturating_duration_since(now),
            },
            State::HalfOpen => Seen::HalfOpen,
            State::Tripped => Seen::Tripped,
        }
    }
}
