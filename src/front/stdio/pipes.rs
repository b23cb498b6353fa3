//! Reads lines from stdin and writes lines to stdout on two threads. Reads of a terminal or pipe
//! cannot be cancelled, but a thread that is blocked in one does not prevent the process from
//! exiting.

use std::io::{self, Read, Write};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use crate::front::encode::as_line;
use crate::transport::{Line, LineSplitter};

/// Maximum number of lines queued for the receiver.
const LINES_MAX: usize = 16;

/// Size of the read buffer in bytes, which is the capacity of a pipe.
const READ_SIZE: usize = 64 * 1024;

/// How long writing the last messages may take.
pub(super) const WRITE_OUT_MAX: Duration = Duration::from_secs(5);

/// Reads lines until the input ends or the receiver is dropped. Reading starts when `length_max`
/// delivers the maximum length of a line, in bytes.
///
/// # Errors
///
/// Returns the system's error if the thread cannot be created.
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
                        log::warn!(error:%; "could not read stdin");
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

/// Writes messages as lines until the sender is dropped or writing fails. The returned channel then
/// receives a message.
///
/// # Errors
///
/// Returns the system's error if the thread cannot be created.
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
                        log::info!(error:%; "could not write to stdout");
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
