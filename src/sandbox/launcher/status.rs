//! The pipe through which process 1 tells the outer process how the server ended: its own exit code
//! could not distinguish a signal from a code.

use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Added to the number of a signal by shells.
const SHELL_SIGNAL: u8 = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerEnd {
    Code(u8),
    Signal(i32),
}

impl ServerEnd {
    pub(super) fn shell_code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => {
                SHELL_SIGNAL.saturating_add(u8::try_from(signal).unwrap_or_default())
            }
        }
    }

    fn bytes(self) -> [u8; 2] {
        match self {
            Self::Code(code) => [0, code],
            Self::Signal(signal) => [1, u8::try_from(signal).unwrap_or_default()],
        }
    }
}

impl From<ExitStatus> for ServerEnd {
    fn from(status: ExitStatus) -> Self {
        match status.signal() {
            Some(signal) => Self::Signal(signal),
            None => Self::Code(
                status
                    .code()
                    .and_then(|it| u8::try_from(it).ok())
                    .unwrap_or(1),
            ),
        }
    }
}

/// The pipe in the outer process. The server inherits neither end, because both close when a program
/// is executed.
pub(super) struct StatusPipe {
    /// Process 1 takes it out of its copy, to see whether the outer process still has it.
    reader: Arc<Mutex<Option<PipeReader>>>,
    writer: PipeWriter,
}

impl StatusPipe {
    pub(super) fn open() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let reader = Arc::new(Mutex::new(Some(reader)));
        Ok(Self { reader, writer })
    }

    /// The end for process 1.
    pub(super) fn writer(&self) -> io::Result<StatusWriter> {
        let (reader, writer) = (Arc::clone(&self.reader), self.writer.try_clone()?);
        Ok(StatusWriter { reader, writer })
    }

    /// How the server ended, after process 1 has ended; `None` if it did not say so.
    pub(super) fn read(self) -> Option<ServerEnd> {
        let Self { reader, writer } = self;
        let mut reader = reader.lock().take()?;
        let mut bytes = [0; 2];
        // From here on, an empty pipe is at its end.
        drop(writer);
        reader.read_exact(&mut bytes).ok()?;
        match bytes {
            [0, code] => Some(ServerEnd::Code(code)),
            [_, signal] => Some(ServerEnd::Signal(signal.into())),
        }
    }
}

pub(super) struct StatusWriter {
    reader: Arc<Mutex<Option<PipeReader>>>,
    writer: PipeWriter,
}

impl StatusWriter {
    /// Whether the outer process is gone.
    pub(super) fn is_unread(&self) -> bool {
        drop(self.reader.lock().take());
        let mut polled = [PollFd::new(&self.writer, PollFlags::empty())];
        let none = Timespec::default();
        let ready = poll(&mut polled, Some(&none));
        ready.is_ok() && polled[0].revents().contains(PollFlags::ERR)
    }

    pub(super) fn write(&self, end: ServerEnd) {
        // Without a reader the end is not requested.
        let _ = (&self.writer).write_all(&end.bytes());
    }
}
