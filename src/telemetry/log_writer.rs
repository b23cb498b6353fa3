//! The thread that writes the log. Other threads put their lines into a bounded queue, so a stderr
//! that is not read does not block them; lines above the limit are dropped and counted.

use std::io::{self, Write};
use std::mem;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::counters::{Counter, Counters};

/// Maximum size of queued lines, in bytes.
const QUEUE_MAX: usize = 1 << 20;

/// Formats the number of lost lines as a log line.
type LostLine = Box<dyn Fn(u64) -> String + Send>;

/// The queued lines. Clones share the queue.
#[derive(Clone, Debug, Default)]
pub(super) struct LogQueue(Arc<SharedQueue>);

#[derive(Debug, Default)]
struct SharedQueue {
    queued: Mutex<Queued>,
    changed: Condvar,
    counters: OnceLock<Counters>,
}

#[derive(Debug, Default)]
struct Queued {
    text: Vec<u8>,
    /// Lines dropped since the thread last took some.
    lost: u64,
    is_writing: bool,
}

impl LogQueue {
    /// Starts the thread that writes to `out`.
    ///
    /// # Errors
    ///
    /// Returns the system's error if the thread cannot be created.
    pub(super) fn start(out: impl Write + Send + 'static, lost_line: LostLine) -> io::Result<Self> {
        let queue = Self::default();
        let of_thread = queue.clone();
        let thread = std::thread::Builder::new().name("log-writer".to_owned());
        thread.spawn(move || of_thread.write_to(out, &lost_line))?;
        Ok(queue)
    }

    /// Adds a line, which must end with its newline. Never blocks.
    pub(super) fn push(&self, line: &[u8]) {
        let mut queued = self.0.queued.lock();
        // A single line always fits, however long.
        if !queued.text.is_empty() && queued.text.len() + line.len() > QUEUE_MAX {
            queued.lost += 1;
            drop(queued);
            if let Some(counters) = self.0.counters.get() {
                counters.add(Counter::LogLinesLost);
            }
            return;
        }
        queued.text.extend_from_slice(line);
        drop(queued);
        self.0.changed.notify_all();
    }

    /// Adds lost lines to these counters from now on.
    pub(super) fn count_in(&self, counters: Counters) {
        // A process has one gateway.
        let _ = self.0.counters.set(counters);
    }

    /// Waits until all lines are written, but no longer than `deadline`.
    pub(super) fn flush(&self, deadline: Duration) {
        let is_busy = |queued: &mut Queued| queued.is_writing || !queued.is_empty();
        let mut queued = self.0.queued.lock();
        self.0
            .changed
            .wait_while_for(&mut queued, is_busy, deadline);
    }

    fn write_to(&self, mut out: impl Write, lost_line: &LostLine) {
        loop {
            let (text, lost) = self.take();
            // A closed stderr loses the log, and nothing else.
            let _ = out.write_all(&text);
            if lost > 0 {
                let _ = out.write_all(lost_line(lost).as_bytes());
            }
            let _ = out.flush();
        }
    }

    /// Waits for lines.
    fn take(&self) -> (Vec<u8>, u64) {
        let mut queued = self.0.queued.lock();
        queued.is_writing = false;
        self.0.changed.notify_all();
        let changed = &self.0.changed;
        changed.wait_while(&mut queued, |queued| queued.is_empty());
        queued.is_writing = true;
        (mem::take(&mut queued.text), mem::take(&mut queued.lost))
    }
}

impl Queued {
    fn is_empty(&self) -> bool {
        self.text.is_empty() && self.lost == 0
    }
}

/// Implements the pipe of a logger, which writes whole lines.
impl Write for LogQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    /// A writer that blocks until each write is received, like a full pipe.
    struct BlockedPipe(SyncSender<Vec<u8>>);

    impl Write for BlockedPipe {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.send(text.to_vec()).map_err(io::Error::other)?;
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn blocked() -> (LogQueue, Receiver<Vec<u8>>) {
        let (pipe, written) = sync_channel(0);
        let lost = |lost| format!("lost {lost}\n");
        let queue = LogQueue::start(BlockedPipe(pipe), Box::new(lost)).unwrap();
        (queue, written)
    }

    #[test]
    fn an_unread_log_loses_lines_but_blocks_no_thread() {
        let (queue, written) = blocked();
        let counters = Counters::default();
        queue.count_in(counters.clone());
        let line = [vec![b'x'; QUEUE_MAX / 4 - 1], b"\n".to_vec()].concat();
        // The thread can have taken some of them before it blocked.
        (0..20).for_each(|_| queue.push(&line));
        queue.flush(Duration::ZERO);
        let lost = counters.view()["log_lines_lost"];
        assert!((12..=16).contains(&lost), "{lost}");
        let mut text = Vec::new();
        while !text.ends_with(format!("lost {lost}\n").as_bytes()) {
            text.extend(written.recv().unwrap());
        }
        let lines = text.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(lines as u64, 20 - lost + 1);
    }

    #[test]
    fn a_flush_waits_for_all_lines() {
        let (queue, written) = blocked();
        queue.push(b"one\n");
        queue.push(b"two\n");
        let reader = std::thread::spawn(move || {
            let mut text = Vec::new();
            while let Ok(more) = written.recv() {
                text.extend(more);
                if text == b"one\ntwo\n" {
                    break;
                }
            }
            text
        });
        queue.flush(Duration::MAX / 4);
        assert_eq!(reader.join().unwrap(), b"one\ntwo\n");
    }
}
