//! The queue of records for the writing thread. Calls never wait for it.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::record::CallRecord;

/// How long records are collected, so that many are written at once.
const GATHER: Duration = Duration::from_millis(100);

/// Size of waiting records that are written immediately, in bytes.
const URGENT_BYTES: usize = 1 << 20;

/// Maximum interval between searches for old records.
const IDLE_MAX: Duration = Duration::from_secs(10 * 60);

#[derive(Debug, Default)]
pub(super) struct RecordQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    waiting: Batch,
    bytes: usize,
    is_closed: bool,
}

/// The next work of the thread.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) records: Vec<CallRecord>,
    /// Notified once everything before is written.
    pub(super) flushes: Vec<oneshot::Sender<()>>,
}

impl RecordQueue {
    /// Adds a record. Returns false, and drops the record, if `bytes_max` is reached.
    pub(super) fn push(&self, record: CallRecord, bytes_max: usize) -> bool {
        let size = record.size();
        let mut state = self.state.lock();
        if state.is_closed || state.bytes + size > bytes_max {
            return false;
        }
        let was_empty = state.waiting.records.is_empty();
        let was_urgent = state.is_urgent();
        state.waiting.records.push(record);
        state.bytes += size;
        let must_wake = was_empty || !was_urgent && state.is_urgent();
        drop(state);
        if must_wake {
            self.changed.notify_one();
        }
        true
    }

    /// Resolves once all earlier records are written, or cannot be.
    pub(super) fn flush(&self) -> oneshot::Receiver<()> {
        let (done, flushed) = oneshot::channel();
        let mut state = self.state.lock();
        if !state.is_closed {
            state.waiting.flushes.push(done);
        }
        drop(state);
        self.changed.notify_one();
        flushed
    }

    /// Ends the thread after all waiting records are written.
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_one();
    }

    /// Waits for work; `None` when there will be no more.
    pub(super) fn take(&self) -> Option<Batch> {
        let mut state = self.state.lock();
        let is_idle = |state: &mut QueueState| state.waiting.is_empty() && !state.is_closed;
        let idle = self.changed.wait_while_for(&mut state, is_idle, IDLE_MAX);
        if !idle.timed_out() {
            let gathers = |state: &mut QueueState| !state.is_urgent();
            self.changed.wait_while_for(&mut state, gathers, GATHER);
        }
        if state.is_closed && state.waiting.is_empty() {
            return None;
        }
        state.bytes = 0;
        Some(std::mem::take(&mut state.waiting))
    }
}

impl QueueState {
    fn is_urgent(&self) -> bool {
        self.is_closed || !self.waiting.flushes.is_empty() || self.bytes >= URGENT_BYTES
    }
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.records.is_empty() && self.flushes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::tests::record;

    #[test]
    fn records_over_the_limit_are_lost_and_nobody_waits() {
        let queue = RecordQueue::default();
        let max = 2 * record(1).size();
        let taken: Vec<bool> = (1..=3).map(|at| queue.push(record(at), max)).collect();
        assert_eq!(taken, [true, true, false]);
        let batch = queue.take().unwrap();
        assert_eq!(batch.records.len(), 2);
        assert!(queue.push(record(4), max));
        queue.close();
        assert!(!queue.push(record(5), max));
        assert_eq!(queue.take().unwrap().records.len(), 1);
        assert!(queue.take().is_none());
    }

    #[test]
    fn a_flush_covers_all_earlier_records() {
        let queue = RecordQueue::default();
        assert!(queue.push(record(1), usize::MAX));
        let flushed = queue.flush();
        let batch = queue.take().unwrap();
        assert_eq!((batch.records.len(), batch.flushes.len()), (1, 1));
        drop((flushed, batch));
        queue.close();
        assert!(queue.flush().blocking_recv().is_err());
    }
}
