//! Protects callers from a failing or overloaded server.
//!
//! - `breakers`: stops calls to a server or tool that keeps failing
//! - `admission`: limits the calls in flight at a server, and queues the others
//! - `fair_queue`: the order of queued calls, in which clients take turns
//! - [`RetryBudget`]: limits how many calls are retried
//!
//! Each server of the pool owns one of each, used by callers and by calls in flight. They do not
//! use links or messages, and callers pass the time.

pub(crate) mod admission;
pub(crate) mod breakers;
mod fair_queue;

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::downstream::resilience::breakers::BreakerSettings;

/// Settings of a server's breakers, queue and retries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resilience {
    pub breaker: BreakerSettings,
    pub queue: QueueSettings,
    pub retry: RetrySettings,
}

/// Settings of the queue for calls over the server's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    /// Maximum queued calls per server; zero refuses them at once.
    pub max: usize,
    /// Maximum wait in the queue before a call is refused.
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

/// Settings of the retries that the gateway makes on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetrySettings {
    /// Whether calls are retried at all; allowed only for trusted servers.
    pub is_allowed: bool,
    /// Maximum retries of a server's calls per minute.
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

/// Limits the retries of one server's calls.
#[derive(Debug, Default)]
pub(crate) struct RetryBudget {
    /// Times of the retries in the last minute, oldest first.
    lately: VecDeque<Instant>,
    taken: u64,
}

impl RetryBudget {
    /// Takes one of this minute's retries, if one is left.
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

    /// Total number of retries taken.
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
