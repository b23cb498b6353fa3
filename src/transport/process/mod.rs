//! What is asked of the operating system to start and end a server's processes.
//!
//! One module per family of systems; the rest of the crate does not know which one it runs on.

use serde::Serialize;

#[cfg(target_os = "linux")]
mod marked;
mod marks;
#[cfg(not(unix))]
mod other;
#[cfg(unix)]
mod unix;
#[cfg(not(target_os = "linux"))]
mod unmarked;

#[cfg(target_os = "linux")]
pub(crate) use marked::{Marked, end, find, reap};
pub use marks::Instance;
pub(crate) use marks::{VARIABLE, Wanted};
#[cfg(not(target_os = "linux"))]
pub(crate) use unmarked::{Marked, end, find, reap};

#[cfg(not(unix))]
pub(crate) use other::{Group, Pipes, prepare};
#[cfg(unix)]
pub(crate) use unix::{Group, Pipes, prepare};

/// Whether processes can be found by their mark on this system.
pub(crate) const FINDS_MARKED: bool = cfg!(target_os = "linux");

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Exit {
    Code(i32),
    Signal(i32),
    /// The system did not tell.
    Unknown,
}

impl From<std::process::ExitStatus> for Exit {
    fn from(status: std::process::ExitStatus) -> Self {
        #[cfg(unix)]
        if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
            return Self::Signal(signal);
        }
        status.code().map_or(Self::Unknown, Self::Code)
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(signal) => write!(f, "ended by signal {signal}"),
            Self::Unknown => f.write_str("ended"),
        }
    }
}
