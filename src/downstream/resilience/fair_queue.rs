//! A bounded queue that serves its keys in turns, however many entries one of them has. Pure.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Entries by key: keys take turns, and the entries of a key keep their order.
#[derive(Debug)]
pub(crate) struct FairQueue<K, T> {
    /// Keys in the order of their turns; each has at least one entry.
    turns: VecDeque<K>,
    entries: HashMap<K, VecDeque<(u64, T)>>,
    len: usize,
}

/// The outcome of a push.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PushOutcome<T> {
    Taken,
    /// Queued; the newest entry of the key with the most entries was removed to make room.
    Displaced(u64, T),
    /// The queue is full, and no other key has enough entries to make room.
    Refused(T),
}

impl<K, T> Default for FairQueue<K, T> {
    fn default() -> Self {
        Self {
            turns: VecDeque::new(),
            entries: HashMap::new(),
            len: 0,
        }
    }
}

impl<K: Clone + Eq + Hash, T> FairQueue<K, T> {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Adds an entry if the queue has fewer than `max`, or if another key can make room for it.
    pub(crate) fn push(&mut self, key: K, number: u64, entry: T, max: usize) -> PushOutcome<T> {
        if self.len < max {
            self.put(key, number, entry);
            return PushOutcome::Taken;
        }
        let own = self.entries.get(&key).map_or(0, VecDeque::len);
        let most = self.entries.iter().max_by_key(|(_, entries)| entries.len());
        let most = most.filter(|(_, entries)| entries.len() > own + 1);
        let Some(most) = most.map(|(most, _)| most.clone()) else {
            return PushOutcome::Refused(entry);
        };
        let newest = self.entries.get_mut(&most).and_then(VecDeque::pop_back);
        let Some((out, displaced)) = newest else {
            return PushOutcome::Refused(entry);
        };
        self.len -= 1;
        self.put(key, number, entry);
        PushOutcome::Displaced(out, displaced)
    }

    fn put(&mut self, key: K, number: u64, entry: T) {
        let entries = self.entries.entry(key.clone()).or_default();
        if entries.is_empty() {
            self.turns.push_back(key);
        }
        entries.push_back((number, entry));
        self.len += 1;
    }

    /// Takes the next entry in turn.
    pub(crate) fn pop(&mut self) -> Option<(u64, T)> {
        let key = self.turns.pop_front()?;
        let entries = self.entries.get_mut(&key)?;
        let next = entries.pop_front();
        if entries.is_empty() {
            self.entries.remove(&key);
        } else {
            self.turns.push_back(key);
        }
        self.len -= usize::from(next.is_some());
        next
    }

    /// Removes an entry if it is still queued.
    pub(crate) fn remove(&mut self, key: &K, number: u64) -> Option<T> {
        let entries = self.entries.get_mut(key)?;
        let at = entries.iter().position(|(known, _)| *known == number)?;
        let (_, entry) = entries.remove(at)?;
        self.len -= 1;
        if entries.is_empty() {
            self.entries.remove(key);
            self.turns.retain(|turn| turn != key);
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn queue(entries: &[(char, u64)]) -> FairQueue<char, ()> {
        let mut queue = FairQueue::default();
        for (key, number) in entries {
            assert_eq!(queue.push(*key, *number, (), 100), PushOutcome::Taken);
        }
        queue
    }

    fn drained(mut queue: FairQueue<char, ()>) -> Vec<u64> {
        std::iter::from_fn(|| queue.pop().map(|(number, ())| number)).collect()
    }

    #[test]
    fn everybody_gets_a_turn_in_their_own_order() {
        let queue = queue(&[('a', 1), ('a', 2), ('a', 3), ('b', 4), ('c', 5), ('b', 6)]);
        assert_eq!(queue.len(), 6);
        assert_eq!(drained(queue), [1, 4, 5, 2, 6, 3]);
    }

    #[test]
    fn a_request_that_is_taken_back_is_gone() {
        let mut queue = queue(&[('a', 1), ('a', 2), ('b', 3)]);
        assert_eq!(queue.remove(&'b', 3), Some(()));
        assert_eq!(queue.remove(&'b', 3), None);
        assert_eq!(queue.remove(&'a', 1), Some(()));
        assert_eq!(queue.len(), 1);
        assert_eq!(drained(queue), [2]);
    }

    #[test]
    fn a_full_queue_makes_room_at_the_cost_of_whoever_has_most() {
        let mut queue = queue(&[('a', 1), ('a', 2), ('a', 3), ('b', 4)]);
        assert_eq!(queue.push('a', 5, (), 4), PushOutcome::Refused(()));
        assert_eq!(queue.push('c', 6, (), 4), PushOutcome::Displaced(3, ()));
        // No key has two entries more than the others.
        assert_eq!(queue.push('b', 7, (), 4), PushOutcome::Refused(()));
        assert_eq!(queue.push('d', 8, (), 4), PushOutcome::Displaced(2, ()));
        assert_eq!(queue.push('e', 9, (), 4), PushOutcome::Refused(()));
        assert_eq!(drained(queue), [1, 4, 6, 8]);
    }

    proptest! {
        /// For any sequence of steps, no entry is lost or duplicated and the limit holds.
        #[test]
        fn entries_leave_once(steps in proptest::collection::vec((0..4u8, 0..5u8), 0..300)) {
            let mut queue = FairQueue::default();
            let mut inside = std::collections::BTreeMap::new();
            let mut next = 0;
            for (what, key) in steps {
                match what {
                    0 | 1 => {
                        next += 1;
                        match queue.push(key, next, next, 8) {
                            PushOutcome::Taken => { inside.insert(next, key); }
                            PushOutcome::Displaced(number, _) => {
                                prop_assert!(inside.remove(&number).is_some());
                                inside.insert(next, key);
                            }
                            PushOutcome::Refused(number) => prop_assert_eq!(number, next),
                        }
                    }
                    2 => {
                        let popped = queue.pop();
                        prop_assert_eq!(popped.is_some(), !inside.is_empty());
                        if let Some((number, _)) = popped {
                            prop_assert!(inside.remove(&number).is_some());
                        }
                    }
                    _ => {
                        let first = inside.iter().find(|(_, owner)| **owner == key);
                        if let Some(number) = first.map(|(number, _)| *number) {
                            prop_assert_eq!(queue.remove(&key, number), Some(number));
                            inside.remove(&number);
                        }
                    }
                }
                prop_assert_eq!(queue.len(), inside.len());
                prop_assert!(queue.len() <= 8);
            }
        }
    }
}
