//! Writes frames to a child's standard input, combining waiting frames into one write.

use std::rc::Rc;

use memchr::memchr2;
use tokio::io::AsyncWriteExt as _;
use tokio::process::ChildStdin;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::unread::Unread;
use crate::transport::link_sink::LinkSink;
use crate::transport::{LinkError, LinkEvent, OutgoingFrame};

/// Maximum bytes of several frames that are combined into one write.
const BATCH_SIZE: usize = 64 * 1024;

/// Largest buffer that is kept after a write.
const BUFFER_KEPT: usize = 4 * BATCH_SIZE;

pub(super) struct StdinWriter {
    pipe: ChildStdin,
    queue: mpsc::Receiver<OutgoingFrame>,
    stop: CancellationToken,
    sink: Rc<LinkSink>,
    unread: Rc<Unread>,
    batch: Vec<u8>,
    /// Frames in the batch.
    gathered: usize,
    /// Offset of each call in the batch.
    starts: Vec<(usize, u64)>,
}

/// The pipe broke, or the writer was stopped.
struct Ended {
    /// Bytes of the batch that the pipe accepted.
    written: usize,
}

impl StdinWriter {
    pub(super) fn new(
        pipe: ChildStdin,
        queue: mpsc::Receiver<OutgoingFrame>,
        stop: CancellationToken,
        sink: Rc<LinkSink>,
        unread: Rc<Unread>,
    ) -> Self {
        Self {
            pipe,
            queue,
            stop,
            sink,
            unread,
            batch: Vec::new(),
            gathered: 0,
            starts: Vec::new(),
        }
    }

    /// Writes until the queue is closed, the pipe breaks or `stop` is cancelled, then closes the
    /// pipe. Calls that never reached the pipe are reported as not sent.
    pub(super) async fn run(mut self) {
        let ended = self.write_all().await;
        let unwritten = self.starts.iter();
        let unwritten = unwritten.filter(|(start, _)| *start >= ended.written);
        for (_, call) in unwritten {
            self.not_sent(*call);
        }
        self.queue.close();
        while let Ok(outgoing) = self.queue.try_recv() {
            if let Some(call) = outgoing.call {
                self.not_sent(call);
            }
        }
    }

    async fn write_all(&mut self) -> Ended {
        loop {
            self.batch.clear();
            self.batch.shrink_to(BUFFER_KEPT);
            self.starts.clear();
            self.gathered = 0;
            let next = tokio::select! {
                biased;
                () = self.stop.cancelled() => None,
                next = self.queue.recv() => next,
            };
            let Some(first) = next else {
                return Ended { written: 0 };
            };
            self.gather(first);
            if let Err(ended) = self.write_batch().await {
                return ended;
            }
            self.unread.on_written(self.gathered);
        }
    }

    fn gather(&mut self, first: OutgoingFrame) {
        self.append(&first);
        while self.batch.len() < BATCH_SIZE
            && let Ok(next) = self.queue.try_recv()
        {
            self.append(&next);
        }
    }

    fn append(&mut self, outgoing: &OutgoingFrame) {
        let start = self.batch.len();
        self.gathered += 1;
        self.starts.extend(outgoing.call.map(|call| (start, call)));
        append_line(&mut self.batch, &outgoing.frame);
    }

    async fn write_batch(&mut self) -> Result<(), Ended> {
        let mut written = 0;
        while let Some(rest) = self.batch.get(written..).filter(|rest| !rest.is_empty()) {
            let taken = tokio::select! {
                biased;
                taken = self.pipe.write(rest) => taken.unwrap_or(0),
                () = self.stop.cancelled() => 0,
            };
            if taken == 0 {
                return Err(Ended { written });
            }
            written += taken;
        }
        Ok(())
    }

    fn not_sent(&self, call: u64) {
        let error = LinkError::NotSent("the server ended or stopped reading first".into());
        self.sink.send(LinkEvent::Failed { call, error });
    }
}

/// Appends a frame as one line (C-STDIO-01). A raw line break can only be between the tokens of
/// JSON, where a space is equivalent.
fn append_line(batch: &mut Vec<u8>, frame: &[u8]) {
    let start = batch.len();
    batch.extend_from_slice(frame);
    let line = batch.get_mut(start..).unwrap_or_default();
    let mut from = 0;
    while let Some(offset) = line
        .get(from..)
        .and_then(|rest| memchr2(b'\n', b'\r', rest))
    {
        from += offset;
        if let Some(byte) = line.get_mut(from) {
            *byte = b' ';
        }
    }
    batch.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_one_line() {
        let cases = [
            ("{}", "{}\n"),
            ("{\n\"a\":\r\n1}\n", "{ \"a\":  1} \n"),
            (r#"{"a":"\n"}"#, "{\"a\":\"\\n\"}\n"),
            ("", "\n"),
        ];
        for (frame, expected) in cases {
            let mut batch = b"before\n".to_vec();
            append_line(&mut batch, frame.as_bytes());
            assert_eq!(batch, [b"before\n", expected.as_bytes()].concat());
        }
    }
}
