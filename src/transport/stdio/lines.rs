//! Splits the bytes of a pipe into lines of bounded length.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;

use crate::transport::large_answers::MessageBuffer;
use crate::transport::messages::MessageScanner;

/// One line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Whole(Bytes),
    /// A line over the limit; its bytes were dropped. `id` is the request that it answers.
    TooLong {
        id: Option<u64>,
    },
}

/// Splits a byte stream into lines. Buffers at most one line of the limit and one read.
#[derive(Debug)]
pub(crate) struct LineSplitter {
    length_max: usize,
    buffer: BytesMut,
    /// Bytes of `buffer` that were searched and contain no line end.
    scanned: usize,
    /// Set while the rest of a line over the limit is skipped.
    discarding: Option<MessageScanner>,
}

/// Size of one read: the capacity of a pipe.
const READ_SIZE: usize = 64 * 1024;

/// Largest buffer that is kept; a larger one is freed after its long line.
const BUFFER_KEPT: usize = 4 * READ_SIZE;

/// Longest line that is copied, so that the read buffer can be reused and a kept line does not keep
/// 64 KiB alive.
const COPY_MAX: usize = 16 * 1024;

impl LineSplitter {
    pub(crate) fn new(length_max: usize) -> Self {
        Self {
            length_max,
            buffer: BytesMut::new(),
            scanned: 0,
            discarding: None,
        }
    }

    /// The buffer for the next read, with room for [`READ_SIZE`] bytes.
    pub(crate) fn space(&mut self) -> &mut BytesMut {
        if self.buffer.is_empty() && self.buffer.capacity() > BUFFER_KEPT {
            self.buffer = BytesMut::new();
        }
        self.buffer.reserve(READ_SIZE);
        &mut self.buffer
    }

    /// The next complete line.
    pub(crate) fn next_line(&mut self) -> Option<Line> {
        let unseen = self.buffer.get(self.scanned..).unwrap_or_default();
        let Some(offset) = memchr(b'\n', unseen) else {
            self.scanned = self.buffer.len();
            // One byte over the limit can be the CR of a line that just fits.
            if self.discarding.is_some() || self.buffer.len() > self.length_max + 1 {
                self.discard();
            }
            return None;
        };
        let end = self.scanned + offset;
        self.scanned = 0;
        let line = self.take(end);
        self.buffer.advance(1);
        Some(line)
    }

    /// The text after the last line end, once the stream has ended.
    pub(crate) fn finish(&mut self) -> Option<Line> {
        self.scanned = 0;
        let rest = !self.buffer.is_empty() || self.discarding.is_some();
        rest.then(|| self.take(self.buffer.len()))
    }

    fn take(&mut self, end: usize) -> Line {
        let line = self.buffer.get(..end).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let length = line.len();
        if self.discarding.is_some() || length > self.length_max {
            let mut scanner = self.discarding.take().unwrap_or_default();
            scanner.feed(line);
            self.buffer.advance(end);
            return Line::TooLong {
                id: scanner.response_id(),
            };
        }
        if length <= COPY_MAX {
            let copy = Bytes::copy_from_slice(line);
            self.buffer.advance(end);
            return Line::Whole(copy);
        }
        let mut line = self.buffer.split_to(end);
        line.truncate(length);
        Line::Whole(line.freeze())
    }
}

impl MessageBuffer for LineSplitter {
    fn incomplete(&self) -> usize {
        self.buffer.len()
    }

    fn discard(&mut self) {
        let scanner = self.discarding.get_or_insert_default();
        scanner.feed(&self.buffer);
        self.buffer.clear();
        self.scanned = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(splitter: &mut LineSplitter, chunks: &[&[u8]]) -> Vec<Line> {
        let mut lines = Vec::new();
        for chunk in chunks {
            splitter.space().extend_from_slice(chunk);
            while let Some(line) = splitter.next_line() {
                lines.push(line);
            }
        }
        lines.extend(splitter.finish());
        lines
    }

    fn whole(text: &str) -> Line {
        Line::Whole(Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn lines_end_with_lf_or_crlf_or_the_stream() {
        let lines = split(&mut LineSplitter::new(10), &[b"a\nb\r\n\nc", b"d\ne"]);
        assert_eq!(lines, ["a", "b", "", "cd", "e"].map(whole));
    }

    #[test]
    fn an_over_long_line_names_its_call_and_does_not_spoil_the_next() {
        let long = br#"{"id":7,"result":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}"#;
        for chunk in [1, 3, 11, 1000] {
            let text = [&long[..], b"\nnext\n"].concat();
            let chunks: Vec<&[u8]> = text.chunks(chunk).collect();
            let lines = split(&mut LineSplitter::new(10), &chunks);
            let expected = [Line::TooLong { id: Some(7) }, whole("next")];
            assert_eq!(lines, expected, "{chunk}");
        }
    }

    #[test]
    fn the_limit_is_exact() {
        let lines = split(&mut LineSplitter::new(3), &[b"abc\nabc", b"\r\nabcd\n"]);
        assert_eq!(
            lines,
            [whole("abc"), whole("abc"), Line::TooLong { id: None }]
        );
    }

    #[test]
    fn memory_stays_bounded_while_a_line_is_discarded_and_after_a_long_one() {
        let mut splitter = LineSplitter::new(1 << 20);
        let mut largest = 0;
        for _ in 0..100 {
            splitter.space().extend_from_slice(&[b'x'; READ_SIZE]);
            assert_eq!(splitter.next_line(), None);
            largest = splitter.buffer.capacity().max(largest);
        }
        assert!(largest <= 4 << 20, "{largest} bytes");
        for length in [0, 1 << 20] {
            let lines = split(&mut splitter, &[&vec![b'x'; length], b"\n"]);
            assert_eq!(lines.len(), 1);
            drop(lines);
            assert!(splitter.space().capacity() <= BUFFER_KEPT, "{length}");
        }
    }

    proptest! {
        #[test]
        fn chunks_do_not_matter(
            bytes in proptest::collection::vec(
                prop_oneof![Just(b'\n'), Just(b'\r'), Just(b'x'), Just(b'{')],
                0..100,
            ),
            chunk in 1..20_usize,
            length_max in 0..30_usize,
        ) {
            let whole = split(&mut LineSplitter::new(length_max), &[&bytes]);
            let chunks: Vec<&[u8]> = bytes.chunks(chunk).collect();
            prop_assert_eq!(split(&mut LineSplitter::new(length_max), &chunks), whole);
        }
    }
}
