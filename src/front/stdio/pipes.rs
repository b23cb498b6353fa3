//! Lines from stdin and to stdout, each on a thread of its own: reads of a terminal or a pipe
//! cannot be cancelled, and a thread that is left in one does not keep the process from ending.

use std::io::{self, Read, Write};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use crate::front::encode::as_line;
use crate::transport::{Line, LineSplitter};

/// Lines that were read and not taken yet.
const LINES_MAX: usize = 16;

/// Bytes that a pipe holds.
const READ_SIZE: usize = 64 * 1024;

/// How long the last messages may take to be written.
pub(super) const WRITE_OUT_MAX: Duration = Duration::from_secs(5);

/// Reads lines until the input ends, or nobody takes them. `length_max` comes when reading may
/// begin: the longest line in bytes.
///
/// # Errors
///
/// Returns the system's error when the thread cannot be made.
pub(super) fn start_reader(
    mut input: impl Read + Send + 'static,
    length_max: oneshot::Receiver<usize>,
) -> io::Result<mpsc::Receiver<Line>> {
    let (lines, taken) = mpsc::channel(LINES_MAX);
    thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(move || {
            let Ok(length_max) = length_max.blocking_recv() else {
                return;
            };
            let mut splitter = LineSplitter::new(length_max);
            let mut part = vec![0; READ_SIZE];
            loop {
                let read = match input.read(&mut part) {
                    Ok(0) => break,
                    Ok(read) => read,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => {
                        log::warn!(error:%; "stdin cannot be read");
                        break;
                    }
                };
                let space = splitter.space();
                space.extend_from_slice(part.get(..read).unwrap_or_default());
                while let Some(line) = splitter.next_line() {
                    if lines.blocking_send(line).is_err() {
                        return;
                    }
                }
            }
            if let Some(line) = splitter.finish() {
                let _ = lines.blocking_send(line);
            }
        })?;
    Ok(taken)
}

/// Writes messages as lines until there are no more, or nobody reads them. The returned channel
/// tells when that is.
///
/// # Errors
///
/// Returns the system's error when the thread cannot be made.
pub(super) fn start_writer<M: Into<Bytes> + Send + 'static>(
    mut output: impl Write + Send + 'static,
    messages: oneshot::Receiver<mpsc::Receiver<M>>,
) -> io::Result<oneshot::Receiver<()>> {
    let (ended, done) = oneshot::channel();
    thread::Builder::new()
        .name("stdout".to_owned())
        .spawn(move || {
            if let Ok(mut messages) = messages.blocking_recv() {
                while let Some(message) = messages.blocking_recv() {
                    let written = output
                        .write_all(&as_line(&message.into()))
                        .and_then(|()| output.flush());
                    if let Err(error) = written {
                        log::info!(error:%; "stdout is closed");
                        break;
                    }
                }
            }
            let _ = ended.send(());
        })?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines_of(input: &'static [u8]) -> Vec<Line> {
        let (max, of_reader) = oneshot::channel();
        max.send(8).unwrap();
        let mut lines = start_reader(input, of_reader).unwrap();
        let mut found = Vec::new();
        while let Some(line) = lines.recv().await {
            found.push(line);
        }
        found
    }

    #[tokio::test]
    async fn input_is_cut_into_lines_of_bounded_length() {
        let whole = |text: &'static str| Line::Whole(Bytes::from(text));
        let long = || Line::TooLong { id: None };
        assert_eq!(lines_of(b"").await, []);
        assert_eq!(
            lines_of(b"a\r\n\nb").await,
            [whole("a"), whole(""), whole("b")]
        );
        assert_eq!(
            lines_of(b"12345678\n123456789\nc\n").await,
            [whole("12345678"), long(), whole("c")]
        );
    }

    /// Fails after the first write.
    struct Broken(bool);

    impl Write for Broken {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if std::mem::replace(&mut self.0, true) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_closed_output_is_noticed_by_its_writer() {
        let (messages, to_write) = mpsc::channel(1);
        let (start, started) = oneshot::channel();
        let done = start_writer(Broken(false), started).unwrap();
        start.send(to_write).unwrap();
        messages.send(Bytes::from("1")).await.unwrap();
        messages.send(Bytes::from("2")).await.unwrap();
        messages.closed().await;
        done.await.unwrap();
    }
}
