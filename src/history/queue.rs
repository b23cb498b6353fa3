//! The queue of records for the writing thread. Calls never wait for it.
//!
//! Records for a file are written soon, and refused if the thread is too slow. Without a file, the
//! queue is a ring: it keeps the last records until a reader asks for them.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::record::CallRecord;

/// How long records are collected, so that many are written at once.
const GATHER: Duration = Duration::from_millis(100);

/// Size of waiting records that are written immediately, in bytes.
const URGENT_BYTES: usize = 1 << 20;

/// Number of records that are kept without a file.
pub(super) const RING_CALLS_MAX: usize = 1000;

/// Maximum size of the records that are kept without a file, in bytes.
pub(super) const RING_BYTES_MAX: usize = 16 << 20;

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
    is_ring: bool,
    is_closed: bool,
}

/// The next work of the thread.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) records: VecDeque<CallRecord>,
    /// Notified once everything before is written.
    pub(super) flushes: Vec<oneshot::Sender<()>>,
}

impl RecordQueue {
    /// Whether records wait for a reader instead of the file.
    pub(super) fn set_ring(&self, is_ring: bool) {
        self.state.lock().is_ring = is_ring;
        self.changed.notify_one();
    }

    /// Drops the waiting records.
    pub(super) fn clear(&self) {
        let mut state = self.state.lock();
        let records = std::mem::take(&mut state.waiting.records);
        state.bytes = 0;
        drop(state);
        drop(records);
    }

    /// Adds a record. Returns false, and drops the record, if `bytes_max` is reached; a ring drops
    /// its oldest records instead.
    pub(super) fn push(&self, record: CallRecord, bytes_max: usize) -> bool {
        let size = record.size();
        let mut state = self.state.lock();
        if state.is_ring {
            let oldest = state.make_room(size);
            state.add(record, size);
            drop(state);
            drop(oldest);
            return true;
        }
        if state.is_closed || state.bytes + size > bytes_max {
            return false;
        }
        let was_empty = state.waiting.records.is_empty();
        let was_urgent = state.is_urgent();
        state.add(record, size);
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
        let is_idle = |state: &mut QueueState| !state.has_work() && !state.is_closed;
        let idle = self.changed.wait_while_for(&mut state, is_idle, IDLE_MAX);
        if !idle.timed_out() && !state.is_ring {
            let gathers = |state: &mut QueueState| !state.is_urgent();
            self.changed.wait_while_for(&mut state, gathers, GATHER);
        }
        if state.is_closed && !state.has_work() {
            return None;
        }
        if !state.has_work() {
            return Some(Batch::default());
        }
        state.bytes = 0;
        Some(std::mem::take(&mut state.waiting))
    }
}

impl QueueState {
    /// Whether the thread has anything to do now.
    fn has_work(&self) -> bool {
        !self.waiting.flushes.is_empty() || !self.is_ring && !self.waiting.records.is_empty()
    }

    fn add(&mut self, record: CallRecord, size: usize) {
        self.waiting.records.push_back(record);
        self.bytes += size;
    }

    /// Takes the oldest records out of the ring until one more fits.
    fn make_room(&mut self, size: usize) -> Option<CallRecord> {
        let mut last = None;
        while self.waiting.records.len() >= RING_CALLS_MAX || self.bytes + size > RING_BYTES_MAX {
            last = Some(self.waiting.records.pop_front()?);
            self.bytes -= last.as_ref().map_or(0, CallRecord::size);
        }
        last
    }

    fn is_urgent(&self) -> bool {
        self.is_closed || !self.waiting.flushes.is_empty() || self.bytes >= URGENT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::record::RecordRequest;
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
    fn without_a_file_the_last_records_wait_for_a_reader() {
        let queue = RecordQueue::default();
        queue.set_ring(true);
        for at in 1..=RING_CALLS_MAX as u64 + 5 {
            assert!(queue.push(record(at), 0));
        }
        let flushed = queue.flush();
        let batch = queue.take().unwrap();
        assert_eq!(
            (batch.records.len(), batch.records[0].at),
            (RING_CALLS_MAX, 6)
        );
        drop((flushed, batch));
        let large = || CallRecord {
            request: RecordRequest::Raw("x".repeat(RING_BYTES_MAX / 4).into()),
            ..record(1)
        };
        for _ in 0..10 {
            assert!(queue.push(large(), 0));
        }
        let flushed = queue.flush();
        assert_eq!(queue.take().unwrap().records.len(), 3);
        drop(flushed);
        assert!(queue.push(record(1), 0));
        queue.close();
        assert!(queue.take().is_none(), "no reader is left");
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
