//! The pipe through which process 1 tells the outer process how the server ended: its own exit code
//! could not distinguish a signal from a code.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

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

pub(super) struct StatusPipe {
    reader: PipeReader,
    writer: PipeWriter,
}

impl StatusPipe {
    pub(super) fn open() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        Ok(Self { reader, writer })
    }

    /// Where process 1 opens the pipe, before it mounts its own `/proc`. A descriptor that it
    /// inherited could not be closed before the server starts without unsafe code.
    pub(super) fn place(&self) -> OsString {
        let pid = std::process::id();
        format!("/proc/{pid}/fd/{}", self.writer.as_raw_fd()).into()
    }

    /// How the server ended, after process 1 has ended; `None` if it did not say so.
    pub(super) fn read(self) -> Option<ServerEnd> {
        let Self { mut reader, writer } = self;
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

pub(super) struct StatusWriter(File);

impl StatusWriter {
    pub(super) fn open(place: &OsStr) -> Option<Self> {
        File::options().write(true).open(place).ok().map(Self)
    }

    /// Whether the reader is gone.
    pub(super) fn is_unread(&self) -> bool {
        let mut polled = [PollFd::new(&self.0, PollFlags::empty())];
        let none = Timespec::default();
        let ready = poll(&mut polled, Some(&none));
        ready.is_ok() && polled[0].revents().contains(PollFlags::ERR)
    }

    pub(super) fn write(mut self, end: ServerEnd) {
        // Without a reader the end is not requested.
        let _ = self.0.write_all(&end.bytes());
    }
}
