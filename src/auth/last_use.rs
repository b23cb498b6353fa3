//! When a key was last used.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Uses are recorded with this precision, in milliseconds, so that few requests cause a write.
const PRECISION: u64 = 60_000;

/// The last use of a key. Clones share it; it does not affect the equality of keys.
#[derive(Clone, Debug, Default)]
pub struct LastUse(Arc<AtomicU64>);

impl LastUse {
    /// Time in milliseconds since 1970; `None` if the key was never used.
    pub fn get(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|at| *at > 0)
    }

    /// Records a use; `now` is in milliseconds since 1970.
    pub fn note(&self, now: u64) {
        let minute = now - now % PRECISION;
        if self.0.load(Ordering::Relaxed) != minute {
            self.0.store(minute, Ordering::Relaxed);
        }
    }
}

impl PartialEq for LastUse {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for LastUse {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_the_last_use_with_minute_precision() {
        let use_of_key = LastUse::default();
        let copy = use_of_key.clone();
        assert_eq!(copy.get(), None);
        use_of_key.note(119_999);
        assert_eq!(copy.get(), Some(60_000));
        use_of_key.note(120_000);
        assert_eq!(copy.get(), Some(120_000));
    }
}
