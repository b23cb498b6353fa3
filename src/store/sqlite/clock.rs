//! The clock for expiry. It advances steadily: when the wall clock is set, all entries are shifted
//! with it, so that none expires because of that, neither now nor in the next process.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::WallClock;
use super::file::to_column;

/// Minimum difference between the wall clock and the steady clock that counts as a jump, in
/// milliseconds.
const JUMP_MIN: u64 = 60_000;

/// Clones share the clock.
#[derive(Clone, Debug)]
pub struct StoreClock {
    wall: WallClock,
    even: WallClock,
    /// Difference between the wall clock and the steady clock at the last jump, in milliseconds.
    ahead: Arc<AtomicI64>,
}

impl From<WallClock> for StoreClock {
    fn from(clock: WallClock) -> Self {
        Self::new(clock, clock)
    }
}

impl StoreClock {
    /// `even` starts at the time of the wall clock, and is never adjusted.
    pub fn new(wall: WallClock, even: WallClock) -> Self {
        let ahead = Arc::default();
        Self { wall, even, ahead }
    }

    pub(super) fn now(&self) -> i64 {
        to_column((self.even)()).saturating_add(self.ahead.load(Ordering::Relaxed))
    }

    /// Milliseconds by which the wall clock has jumped.
    pub(super) fn jump(&self) -> Option<i64> {
        let jump = to_column((self.wall)()).saturating_sub(self.now());
        (jump.unsigned_abs() >= JUMP_MIN).then_some(jump)
    }

    /// Records that all entries were shifted by a jump.
    pub(super) fn follow(&self, jump: i64) {
        self.ahead.fetch_add(jump, Ordering::Relaxed);
    }
}
