//! Decides when to return freed memory to the system: after large responses, removed lists and
//! servers, and closed connections and sessions.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Freed bytes that justify a trim of the heap.
const WORTH: usize = 8 << 20;

/// Bytes between two checks that count as ongoing traffic, which would undo a trim immediately.
const BUSY: usize = 1 << 20;

/// Number of checks after which the heap is trimmed although traffic never pauses.
const LOOKS_MAX: usize = 30;

/// Bytes that all threads reported since the last check.
static PASSED: AtomicUsize = AtomicUsize::new(0);

/// Reports bytes that were allocated briefly.
pub(crate) fn note_passed(bytes: usize) {
    PASSED.fetch_add(bytes, Ordering::Relaxed);
}

/// Reports that something large of unknown size was freed: a server, or many of its items.
pub(crate) fn note_freed() {
    note_passed(WORTH);
}

/// The reports since the last trim. The owner checks at regular intervals.
#[derive(Debug, Default)]
pub(crate) struct PassedMemory {
    bytes: usize,
    looks: usize,
}

impl PassedMemory {
    /// Takes the reports since the last check, and returns whether to trim the heap now.
    pub(crate) fn is_due(&mut self) -> bool {
        self.is_due_after(PASSED.swap(0, Ordering::Relaxed))
    }

    fn is_due_after(&mut self, passed: usize) -> bool {
        self.bytes = self.bytes.saturating_add(passed);
        if self.bytes < WORTH {
            return false;
        }
        self.looks += 1;
        let is_due = passed < BUSY || self.looks >= LOOKS_MAX;
        if is_due {
            *self = Self::default();
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_is_trimmed_once_traffic_pauses() {
        let table = [
            (vec![0, WORTH - 1, 0, 0], vec![]),
            (vec![WORTH, BUSY, 0, 0], vec![2]),
            (vec![WORTH / 2, 1, WORTH / 2, 1, WORTH, 0], vec![3, 5]),
            (vec![WORTH; LOOKS_MAX + 2], vec![LOOKS_MAX - 1]),
        ];
        for (passed, expected) in table {
            let mut memory = PassedMemory::default();
            let looks = passed.iter().enumerate();
            let due = looks.filter(|(_, bytes)| memory.is_due_after(**bytes));
            let due: Vec<usize> = due.map(|(look, _)| look).collect();
            assert_eq!(due, expected, "{passed:?}");
        }
    }
}
