//! Numbers the workers of a server that has several listeners: each listener creates its services on
//! every worker.

use std::sync::Arc;
use std::thread::{self, ThreadId};

use parking_lot::Mutex;

/// The threads of the workers in the order of their start. Clones share them.
#[derive(Clone, Default)]
pub(super) struct WorkerNumbers(Arc<Mutex<Vec<ThreadId>>>);

impl WorkerNumbers {
    /// Returns the number of the calling worker. `started` is called once per worker.
    pub(super) fn of_this_thread(&self, started: impl FnOnce(usize)) -> usize {
        let own = thread::current().id();
        let mut threads = self.0.lock();
        if let Some(number) = threads.iter().position(|known| *known == own) {
            return number;
        }
        let number = threads.len();
        threads.push(own);
        started(number);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_has_one_number_for_all_listeners() {
        let numbers = WorkerNumbers::default();
        let of_thread = |numbers: WorkerNumbers| {
            let mut started = Vec::new();
            let first = numbers.of_this_thread(|number| started.push(number));
            let again = numbers.of_this_thread(|number| started.push(number));
            (first, again, started)
        };
        assert_eq!(of_thread(numbers.clone()), (0, 0, vec![0]));
        let other = thread::spawn(move || of_thread(numbers)).join().unwrap();
        assert_eq!(other, (1, 1, vec![1]));
    }
}
