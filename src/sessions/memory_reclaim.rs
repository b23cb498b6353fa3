//! When many sessions have ended, what they occupied is worth giving back.

/// Fewer sessions than this are not worth a look at memory.
const SESSIONS_MIN: usize = 1000;

/// Looked at from time to time.
#[derive(Default)]
pub(crate) struct MemoryReclaim {
    /// Most sessions at a time since memory was last given back.
    peak: usize,
    last: usize,
}

impl MemoryReclaim {
    /// Whether at least half of the most sessions have ended, and no more are leaving at the
    /// moment: what they occupy would have to be given back once more.
    pub(crate) fn is_due(&mut self, now: usize) -> bool {
        let falls = now < std::mem::replace(&mut self.last, now);
        self.peak = self.peak.max(now);
        let has_left = self.peak >= SESSIONS_MIN && now <= self.peak / 2 && !falls;
        if has_left {
            self.peak = now;
        }
        has_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_has_left_once_nobody_leaves_any_more() {
        let table = [
            (&[0, 10, 999, 0, 0][..], &[][..]),
            (&[0, 1000, 501, 501], &[]),
            (&[0, 1000, 500, 500, 500], &[3]),
            // The last few are too few for another time.
            (&[10_000, 6000, 900, 0, 0, 0], &[4]),
            (&[10_000, 4000, 4001, 2000, 2000, 0, 0], &[2, 4, 6]),
        ];
        for (counts, expected) in table {
            let mut reclaim = MemoryReclaim::default();
            let left = counts.iter().enumerate();
            let left = left.filter(|(_, now)| reclaim.is_due(**now));
            let left: Vec<usize> = left.map(|(at, _)| at).collect();
            assert_eq!(left, expected, "{counts:?}");
        }
    }
}
