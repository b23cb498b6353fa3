//! A limit on the bytes that are queued in one place.

use std::sync::atomic::{AtomicBool, Ordering};

use super::byte_gauge::{ByteGauge, ByteShare};

/// The queued bytes. The limit is passed with each request, because settings can change.
#[derive(Debug, Default)]
pub(crate) struct ByteBudget {
    taken: ByteGauge,
    is_exhausted: AtomicBool,
}

/// The error for a message that does not fit the limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Exhausted {
    /// Whether this is the first refusal since the budget had room: only the first is logged.
    pub(crate) is_first: bool,
}

impl ByteBudget {
    /// Reserves the bytes of a message until the share is dropped.
    ///
    /// # Errors
    ///
    /// Fails if the total would exceed `max` bytes.
    pub(crate) fn take(&self, bytes: usize, max: usize) -> Result<ByteShare, Exhausted> {
        match self.taken.take_within(bytes, max) {
            Some(share) => {
                if share.all() == share.own() {
                    self.is_exhausted.store(false, Ordering::Relaxed);
                }
                Ok(share)
            }
            None => Err(Exhausted {
                is_first: !self.is_exhausted.swap(true, Ordering::Relaxed),
            }),
        }
    }

    pub(crate) fn is_unused(&self) -> bool {
        self.taken.all() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_refusal_of_each_series_is_marked() {
        let budget = ByteBudget::default();
        let is_first = |refused: Result<ByteShare, Exhausted>| refused.err().map(|it| it.is_first);
        for _ in 0..2 {
            let held = [60, 40].map(|bytes| budget.take(bytes, 100).unwrap());
            assert_eq!(is_first(budget.take(1, 100)), Some(true));
            assert_eq!(is_first(budget.take(1, 100)), Some(false));
            let [large, small] = held;
            drop(large);
            drop(budget.take(1, 100).unwrap());
            assert_eq!(is_first(budget.take(61, 100)), Some(false));
            drop(small);
            assert!(budget.is_unused());
            drop(budget.take(100, 100).unwrap());
        }
    }
}
