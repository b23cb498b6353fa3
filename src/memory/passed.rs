//! When memory that large answers and connections took is worth giving back.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that are worth it.
const WORTH: usize = 8 << 20;

/// More between two looks means that as much comes again at once.
const BUSY: usize = 1 << 20;

/// Looks at a process that is busy all the time, after which it is given back all the same.
const LOOKS_MAX: usize = 30;

/// Bytes since the last look, of all threads.
static PASSED: AtomicUsize = AtomicUsize::new(0);

/// Memory was taken for a moment.
pub(crate) fn note_passed(bytes: usize) {
    PASSED.fetch_add(bytes, Ordering::Relaxed);
}

/// Looked at from time to time.
#[derive(Debug, Default)]
pub(crate) struct PassedMemory {
    bytes: usize,
    looks: usize,
}

impl PassedMemory {
    /// Whether memory is to be given back now.
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
    fn memory_is_given_back_once_it_is_quiet() {
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
