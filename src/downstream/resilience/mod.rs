//! Protects callers from a failing or overloaded server.
//!
//! - `breakers`: a server or tool that keeps failing is not called for a while
//! - `admission`: how many calls a server is given at once, and who is next
//! - `fair_queue`: the order of those who wait: everybody gets a turn
//! - [`RetryBudget`]: how many calls may be sent a second time
//!
//! Servers of the pool own one of each; callers and calls in flight ask them. They know neither
//! links nor messages, and the time comes from outside.

pub(crate) mod admission;
pub(crate) mod breakers;
mod fair_queue;

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::downstream::resilience::breakers::BreakerSettings;

/// Breakers, the queue before the server, and calls that are sent once more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resilience {
    pub breaker: BreakerSettings,
    pub queue: QueueSettings,
    pub retry: RetrySettings,
}

/// Calls that wait because the server has as many as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    /// Calls that wait at one server; zero refuses at once.
    pub max: usize,
    /// How long one of them waits before it is refused.
    pub wait: Duration,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            max: 256,
            wait: Duration::from_secs(5),
        }
    }
}

/// Calls that the gateway itself sends once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetrySettings {
    /// Whether calls are sent again at all: the server must be trusted for it.
    pub is_allowed: bool,
    /// Calls of one server that are sent again within a minute.
    pub per_minute: usize,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            is_allowed: false,
            per_minute: 60,
        }
    }
}

const MINUTE: Duration = Duration::from_secs(60);

/// How often calls of one server were sent again lately.
#[derive(Debug, Default)]
pub(crate) struct RetryBudget {
    /// Within the last minute, oldest first.
    lately: VecDeque<Instant>,
    taken: u64,
}

impl RetryBudget {
    /// Takes one of the retries of this minute, if one is left.
    pub(crate) fn take(&mut self, per_minute: usize, now: Instant) -> bool {
        while self.lately.front().is_some_and(|at| *at + MINUTE <= now) {
            self.lately.pop_front();
        }
        let is_left = self.lately.len() < per_minute;
        if is_left {
            self.lately.push_back(now);
            self.taken += 1;
        }
        is_left
    }

    /// How many were taken in all.
    pub(crate) const fn taken(&self) -> u64 {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_for_each_minute() {
        let mut budget = RetryBudget::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut take = |seconds| budget.take(2, at(seconds));
        let taken = [0, 30, 31, 59, 60, 61, 90].map(&mut take);
        assert_eq!(taken, [true, true, false, false, true, false, true]);
        assert_eq!(budget.taken(), 4);
    }
}
