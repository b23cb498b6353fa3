//! The time by which entries expire. It goes on evenly: when the wall clock is set, all entries are
//! moved with it, so that none expires by that, neither now nor in the next process.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::WallClock;
use super::file::to_column;

/// Least milliseconds between the wall clock and the even one that are taken for a jump.
const JUMP_MIN: u64 = 60_000;

/// Clones are of the same clock.
#[derive(Clone, Debug)]
pub struct StoreClock {
    wall: WallClock,
    even: WallClock,
    /// Milliseconds that the wall clock was ahead of the even one when it jumped last.
    ahead: Arc<AtomicI64>,
}

impl From<WallClock> for StoreClock {
    fn from(clock: WallClock) -> Self {
        Self::new(clock, clock)
    }
}

impl StoreClock {
    /// `even` begins with the time of the wall clock, and is never set.
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

    /// All entries are moved by a jump.
    pub(super) fn follow(&self, jump: i64) {
        self.ahead.fetch_add(jump, Ordering::Relaxed);
    }
}
