//! A queue that keeps the newest entries. Readers hold the number of the last entry that they read.

use std::collections::VecDeque;

/// The limits of a [`Ring`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingLimits {
    pub(crate) entries: usize,
    /// Maximum sum of [`RingEntry::bytes`].
    pub(crate) bytes: usize,
}

/// An entry of a [`Ring`].
pub(crate) trait RingEntry {
    /// Bytes that count towards the limit. They must not change while the ring holds the entry.
    fn bytes(&self) -> usize;
}

/// The newest entries, numbered from 1 in the order in which they were added.
#[derive(Debug)]
pub(crate) struct Ring<T> {
    entries: VecDeque<T>,
    bytes: usize,
    newest: u64,
}

impl<T> Default for Ring<T> {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            bytes: 0,
            newest: 0,
        }
    }
}

impl<T: RingEntry> Ring<T> {
    /// Adds an entry and drops the oldest ones until the limits are met, including the new entry if
    /// it is too large on its own.
    pub(crate) fn push(&mut self, entry: T, limits: RingLimits) {
        self.newest += 1;
        self.bytes += entry.bytes();
        self.entries.push_back(entry);
        while self.entries.len() > limits.entries || self.bytes > limits.bytes {
            self.pop_oldest();
        }
    }

    pub(crate) fn pop_oldest(&mut self) -> Option<T> {
        let oldest = self.entries.pop_front()?;
        self.bytes -= oldest.bytes();
        Some(oldest)
    }

    /// Drops all entries and skips a number, so that every reader sees a gap.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.bytes = 0;
        self.newest += 1;
    }

    /// The entries whose numbers are greater than `number`, oldest first.
    pub(crate) fn after(
        &self,
        number: u64,
    ) -> impl DoubleEndedIterator<Item = (u64, &T)> + ExactSizeIterator {
        let read = number.saturating_add(1).saturating_sub(self.oldest());
        let read = usize::try_from(read).unwrap_or(usize::MAX);
        let unread = self.entries.range(read.min(self.entries.len())..);
        let first = self.newest + 1 - unread.len() as u64;
        unread
            .enumerate()
            .map(move |(at, entry)| (first + at as u64, entry))
    }

    pub(crate) fn get(&self, number: u64) -> Option<&T> {
        let at = number.checked_sub(self.oldest())?;
        self.entries.get(usize::try_from(at).ok()?)
    }

    /// All entries, oldest first.
    pub(crate) fn iter(&self) -> std::collections::vec_deque::Iter<'_, T> {
        self.entries.iter()
    }

    /// Number of the newest entry that was ever added.
    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    /// Number of the oldest entry that is kept, or of the next one if the ring is empty.
    pub(crate) fn oldest(&self) -> u64 {
        self.newest + 1 - self.entries.len() as u64
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of all entries.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl RingEntry for &str {
        fn bytes(&self) -> usize {
            self.len()
        }
    }

    fn after(ring: &Ring<&'static str>, number: u64) -> Vec<(u64, &'static str)> {
        ring.after(number)
            .map(|(number, text)| (number, *text))
            .collect()
    }

    #[test]
    fn the_newest_entries_stay_within_both_limits() {
        for (entries, bytes) in [(2, 1000), (1000, 5)] {
            let (mut ring, limits) = (Ring::default(), RingLimits { entries, bytes });
            for text in ["aa", "bb", "cc"] {
                ring.push(text, limits);
            }
            assert_eq!(after(&ring, 0), [(2, "bb"), (3, "cc")]);
            assert_eq!((ring.len(), ring.bytes(), ring.oldest()), (2, 4, 2));
            ring.push("too large", RingLimits { entries, bytes: 5 });
            assert_eq!((ring.len(), ring.bytes(), ring.newest()), (0, 0, 4));
            assert_eq!(ring.pop_oldest(), None);
        }
    }

    #[test]
    fn a_reader_continues_where_it_stopped_and_sees_gaps() {
        let limits = RingLimits {
            entries: 3,
            bytes: 100,
        };
        let mut ring = Ring::default();
        assert_eq!((after(&ring, 0), ring.oldest()), (vec![], 1));
        for text in ["a", "b", "c", "d"] {
            ring.push(text, limits);
        }
        assert_eq!(after(&ring, 3), [(4, "d")]);
        assert_eq!((after(&ring, 4), after(&ring, u64::MAX)), (vec![], vec![]));
        let found = [0, 1, 2, 4, 5, u64::MAX].map(|number| ring.get(number).copied());
        assert_eq!(found, [None, None, Some("b"), Some("d"), None, None]);
        assert_eq!(ring.after(1).next_back(), Some((4, &"d")));
        ring.clear();
        ring.push("e", limits);
        assert_eq!((after(&ring, 4), ring.oldest()), (vec![(6, "e")], 6));
    }
}
