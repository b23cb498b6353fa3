//! When this replica last beat and was awake: whether it can trust its copies of sessions.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// How long a replica without beats may go without noting that it is awake.
const AWAKE_MAX: Duration = Duration::from_millis(900);

/// When this replica last beat and was awake, readable from every worker.
#[derive(Debug)]
pub(super) struct Pulse {
    start: Instant,
    ttl: Duration,
    /// Start of the last successful beat, in milliseconds since `start`.
    beat: AtomicU64,
    awake: AtomicU64,
    slept: AtomicBool,
    /// Number of successful beats.
    pub(super) beats: watch::Sender<u64>,
}

impl Pulse {
    pub(super) fn new(ttl: Duration) -> Self {
        Self {
            start: Instant::now(),
            ttl,
            beat: AtomicU64::new(0),
            awake: AtomicU64::new(0),
            slept: AtomicBool::new(true),
            beats: watch::Sender::new(0),
        }
    }

    fn millis(&self, at: Instant) -> u64 {
        u64::try_from((at - self.start).as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn since_beat(&self, now: Instant) -> Duration {
        let beat = self.beat.load(Ordering::Relaxed);
        Duration::from_millis(self.millis(now).saturating_sub(beat))
    }

    /// Other replicas can have declared this one gone only after its beat expired and while it did
    /// not answer: after a sleep.
    pub(super) fn is_confirmed(&self, now: Instant) -> bool {
        let awake = self.awake.load(Ordering::Relaxed);
        let since_awake = Duration::from_millis(self.millis(now).saturating_sub(awake));
        let sleeps = since_awake > AWAKE_MAX && self.since_beat(now) > self.ttl;
        !self.slept.load(Ordering::Relaxed) && !sleeps
    }

    pub(super) fn tick(&self, now: Instant) {
        if !self.is_confirmed(now) {
            self.slept.store(true, Ordering::Relaxed);
        }
        self.awake.store(self.millis(now), Ordering::Relaxed);
    }

    /// A beat that began at `at` was answered.
    pub(super) fn beat(&self, at: Instant) {
        self.beat.store(self.millis(at), Ordering::Relaxed);
        self.slept.store(false, Ordering::Relaxed);
        self.beats.send_modify(|beats| *beats += 1);
    }
}
