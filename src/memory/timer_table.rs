//! A table of entries with deadlines.

use std::borrow::Borrow;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use tokio::time::Instant;

/// A table whose entries each have a time, such as a deadline or an expiry. A single timer, set to
/// [`TimerTable::next`], serves all of them.
///
/// The hash does not resist chosen collisions, so a table with keys from outside must be bounded.
#[derive(Debug)]
pub(crate) struct TimerTable<K, V = (), T = Instant> {
    entries: HashMap<K, (T, V), foldhash::fast::RandomState>,
    order: BTreeSet<(T, K)>,
}

impl<K, V, T> Default for TimerTable<K, V, T> {
    fn default() -> Self {
        Self {
            entries: HashMap::default(),
            order: BTreeSet::new(),
        }
    }
}

impl<K: Clone + Eq + Hash + Ord, T: Copy + Ord> TimerTable<K, (), T> {
    /// Sets or changes the time of a key.
    pub(crate) fn set(&mut self, key: K, at: T) {
        self.insert(key, at, ());
    }
}

impl<K: Clone + Eq + Hash + Ord, V, T: Copy + Ord> TimerTable<K, V, T> {
    /// Adds an entry, or replaces it together with its time.
    pub(crate) fn insert(&mut self, key: K, at: T, value: V) {
        self.remove(&key);
        self.order.insert((at, key.clone()));
        self.entries.insert(key, (at, value));
    }

    /// Like [`TimerTable::insert`], with at most `max` entries: drops all due entries and, if
    /// necessary, the earliest remaining one. Returns the key of an entry that was dropped early.
    pub(crate) fn insert_within(
        &mut self,
        max: usize,
        now: T,
        (key, at, value): (K, T, V),
    ) -> Option<K> {
        while self.pop_due(now).is_some() {}
        let is_full = self.entries.len() >= max && !self.entries.contains_key(&key);
        let dropped = self.order.first().filter(|_| is_full);
        let dropped = dropped.map(|(_, first)| first.clone());
        if let Some(first) = &dropped {
            self.remove(first);
        }
        self.insert(key, at, value);
        dropped
    }

    pub(crate) fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let (key, (at, value)) = self.entries.remove_entry(key)?;
        self.order.remove(&(at, key));
        Some(value)
    }

    /// The time and the value of a key.
    pub(crate) fn get<Q>(&self, key: &Q) -> Option<(T, &V)>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.entries.get(key).map(|(at, value)| (*at, value))
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key).map(|(_, value)| value)
    }

    /// All entries with their times, including due ones.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, T, &V)> {
        let entries = self.entries.iter();
        entries.map(|(key, (at, value))| (key, *at, value))
    }

    /// The earliest time.
    pub(crate) fn next(&self) -> Option<T> {
        self.order.first().map(|(at, _)| *at)
    }

    /// The latest time.
    pub(crate) fn last(&self) -> Option<T> {
        self.order.last().map(|(at, _)| *at)
    }

    /// Removes and returns a due entry, earliest first.
    pub(crate) fn pop_due(&mut self, now: T) -> Option<(K, V)> {
        self.order.first().filter(|(at, _)| *at <= now)?;
        let (_, key) = self.order.pop_first()?;
        let (_, value) = self.entries.remove(&key)?;
        Some((key, value))
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.order.clear();
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_due_in_order_and_moved_ones_later() {
        let mut table = TimerTable::<_, (), u64>::default();
        table.set("a", 10);
        table.set("b", 5);
        table.set("c", 7);
        table.set("b", 20);
        table.remove(&"c");
        assert_eq!((table.next(), table.last()), (Some(10), Some(20)));
        assert_eq!(table.pop_due(9), None);
        assert_eq!(table.pop_due(30), Some(("a", ())));
        assert_eq!(table.pop_due(30), Some(("b", ())));
        assert_eq!((table.pop_due(30), table.next()), (None, None));
    }

    #[test]
    fn the_entry_whose_time_comes_first_makes_room() {
        let mut table = TimerTable::<u8, &str, u64>::default();
        let mut add = |now, key, at| table.insert_within(2, now, (key, at, "x"));
        assert_eq!([add(0, 1, 10), add(0, 2, 5), add(0, 2, 6)], [None; 3]);
        assert_eq!(add(0, 3, 1), Some(2));
        // Due entries are dropped first.
        assert_eq!(add(1, 4, 20), None);
        assert_eq!(table.len(), 2);
        let found = [1, 2, 3, 4].map(|key| table.get(&key).is_some());
        assert_eq!(found, [true, false, false, true]);
    }
}
