//! Lines of bounded length from a byte stream.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// The next line, or why there is none.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line without its line feed.
    Full(Vec<u8>),
    /// A line over the limit; it was read to its end and thrown away.
    TooLong,
    /// The stream ended; a last line without line feed is given before this.
    End,
}

pub(super) struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    too_long: bool,
    max: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(reader: R, max: usize) -> Self {
        let reader = BufReader::with_capacity(64 * 1024, reader);
        Self {
            reader,
            line: Vec::new(),
            too_long: false,
            max,
        }
    }

    /// The next line. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> io::Result<Line> {
        loop {
            let found = self.reader.fill_buf().await?;
            if found.is_empty() {
                let nothing = self.line.is_empty() && !self.too_long;
                return Ok(if nothing { Line::End } else { self.take() });
            }
            let end = found.iter().position(|byte| *byte == b'\n');
            let part = end.map_or(found, |end| &found[..end]);
            if self.line.len() + part.len() > self.max {
                self.too_long = true;
                self.line = Vec::new();
            }
            if !self.too_long {
                self.line.extend_from_slice(part);
            }
            let used = end.map_or(found.len(), |end| end + 1);
            self.reader.consume(used);
            if end.is_some() {
                return Ok(self.take());
            }
        }
    }

    fn take(&mut self) -> Line {
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.too_long) {
            Line::TooLong
        } else {
            Line::Full(line)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_bounded() {
        let cases: [(&str, &[Line]); 5] = [
            ("", &[]),
            (
                "a\nbc\n",
                &[Line::Full(b"a".to_vec()), Line::Full(b"bc".to_vec())],
            ),
            (
                "\nlast",
                &[Line::Full(vec![]), Line::Full(b"last".to_vec())],
            ),
            (
                "12345678\n123456789\nx\n",
                &[
                    Line::Full(b"12345678".to_vec()),
                    Line::TooLong,
                    Line::Full(b"x".to_vec()),
                ],
            ),
            ("1234567890", &[Line::TooLong]),
        ];
        for (input, wanted) in cases {
            let mut lines = Lines::new(input.as_bytes(), 8);
            for line in wanted {
                assert_eq!(&lines.next().await.unwrap(), line, "{input:?}");
            }
            assert_eq!(lines.next().await.unwrap(), Line::End, "{input:?}");
        }
    }
}
