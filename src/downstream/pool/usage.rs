//! Tracks the use of a server's shared connection, and decides when it is stopped as idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::telemetry::millis;
use tokio::time::Instant;

/// Counts the calls that need a server's shared connection, from before they look for it until they
/// are answered.
#[derive(Debug)]
pub(crate) struct Usage {
    calls: AtomicUsize,
    epoch: Instant,
    /// Milliseconds from `epoch` to the last start or end of a use.
    last: AtomicU64,
    /// Uses since the start.
    total: AtomicU64,
    /// The incarnation whose uses are counted, the total at its start, and a random number that
    /// stays the same during its life.
    life: Mutex<(u64, u64, f64)>,
    /// Whether the server runs only so that its lists can be read.
    for_lists: AtomicBool,
}

/// One use of a server's shared connection, until it is dropped.
#[derive(Debug)]
pub struct UseGuard(Arc<Usage>);

impl Usage {
    pub(crate) fn new(for_lists: bool) -> Self {
        Self {
            calls: AtomicUsize::new(0),
            epoch: Instant::now(),
            last: AtomicU64::new(0),
            total: AtomicU64::new(0),
            life: Mutex::new((0, 0, 0.0)),
            for_lists: AtomicBool::new(for_lists),
        }
    }

    /// Counts a use. Ordered with [`crate::supervision::ChildRef::idle_if`]: a use that `idle_if`
    /// does not see finds the connection stopped.
    pub(crate) fn enter(self: &Arc<Self>) -> UseGuard {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.total.fetch_add(1, Ordering::Relaxed);
        self.wanted();
        UseGuard(self.clone())
    }

    /// Records that the server is needed for more than its lists.
    pub(crate) fn wanted(&self) {
        self.for_lists.store(false, Ordering::SeqCst);
        self.touch();
    }

    /// Records that the server was stopped as idle; it is started again only for use.
    pub(crate) fn stopped_idle(&self) {
        self.for_lists.store(false, Ordering::SeqCst);
    }

    pub(crate) fn is_used(&self) -> bool {
        self.calls.load(Ordering::SeqCst) > 0
    }

    pub(crate) fn is_for_lists(&self) -> bool {
        self.for_lists.load(Ordering::SeqCst)
    }

    /// Uses of the incarnation of this generation since it was first asked about, and its random
    /// number.
    pub(crate) fn life(&self, generation: u64, chance: impl FnOnce() -> f64) -> (u64, f64) {
        let total = self.total.load(Ordering::Relaxed);
        let mut life = self.life.lock();
        if life.0 != generation {
            *life = (generation, total, chance());
        }
        (total - life.1, life.2)
    }

    fn touch(&self) {
        let now = millis(self.epoch.elapsed());
        self.last.fetch_max(now, Ordering::SeqCst);
    }

    /// Since when the connection has been unused.
    pub(crate) fn unused_since(&self) -> Instant {
        self.epoch + Duration::from_millis(self.last.load(Ordering::SeqCst))
    }
}

impl Drop for UseGuard {
    fn drop(&mut self) {
        self.0.touch();
        self.0.calls.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Use of a shared connection that is up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UsageSnapshot {
    /// Whether its lists were read.
    pub(crate) is_listed: bool,
    pub(crate) is_for_lists: bool,
    /// Whether calls or subscriptions use it.
    pub(crate) is_used: bool,
    /// How long it has been up without a call.
    pub(crate) unused: Duration,
}

/// When to stop a connection that is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdleDecision {
    Now,
    /// Check again after this time.
    In(Duration),
    /// Do not stop it because of elapsed time.
    Never,
}

pub(crate) fn idle_decision(idle_stop: Duration, usage: UsageSnapshot) -> IdleDecision {
    if !usage.is_listed {
        return IdleDecision::Never;
    }
    if usage.is_for_lists && !usage.is_used {
        return IdleDecision::Now;
    }
    if idle_stop.is_zero() {
        return IdleDecision::Never;
    }
    if usage.is_used {
        return IdleDecision::In(idle_stop);
    }
    match idle_stop.checked_sub(usage.unused) {
        None | Some(Duration::ZERO) => IdleDecision::Now,
        Some(left) => IdleDecision::In(left),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_stopped_when_it_was_listed_and_unused_for_long_enough() {
        let seconds = Duration::from_secs;
        let idle = UsageSnapshot {
            is_listed: true,
            is_for_lists: false,
            is_used: false,
            unused: seconds(3),
        };
        let unlisted = UsageSnapshot {
            is_listed: false,
            is_for_lists: true,
            ..idle
        };
        let for_lists = UsageSnapshot {
            is_for_lists: true,
            ..idle
        };
        let used = UsageSnapshot {
            is_used: true,
            ..idle
        };
        let used_early = UsageSnapshot {
            is_for_lists: true,
            ..used
        };
        let table = [
            (0, idle, IdleDecision::Never),
            (5, idle, IdleDecision::In(seconds(2))),
            (3, idle, IdleDecision::Now),
            (1, idle, IdleDecision::Now),
            (1, unlisted, IdleDecision::Never),
            (0, for_lists, IdleDecision::Now),
            (5, for_lists, IdleDecision::Now),
            (1, used, IdleDecision::In(seconds(1))),
            (0, used, IdleDecision::Never),
            (0, used_early, IdleDecision::Never),
        ];
        for (idle_stop, usage, expected) in table {
            assert_eq!(
                idle_decision(seconds(idle_stop), usage),
                expected,
                "{usage:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_use_lasts_until_it_is_dropped() {
        let usage = Arc::new(Usage::new(true));
        assert!(usage.is_for_lists() && !usage.is_used());
        tokio::time::advance(Duration::from_secs(5)).await;
        let (one, two) = (usage.enter(), usage.enter());
        assert!(usage.is_used() && !usage.is_for_lists());
        drop(one);
        assert!(usage.is_used());
        tokio::time::advance(Duration::from_secs(5)).await;
        drop(two);
        assert!(!usage.is_used());
        assert_eq!(usage.unused_since(), Instant::now());
    }
}
