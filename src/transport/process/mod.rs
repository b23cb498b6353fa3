//! Calls to the operating system that start and end a server's processes.
//!
//! One module per family of systems; the rest of the crate does not know which one it runs on.

use serde::{Deserialize, Serialize};

#[cfg(unix)]
mod open_files;
#[cfg(not(unix))]
mod other;
#[cfg(target_os = "linux")]
mod proc_stat;
mod process_tag;
#[cfg(target_os = "linux")]
mod tagged_linux;
#[cfg(not(target_os = "linux"))]
mod tagged_other;
#[cfg(unix)]
mod unix;
#[cfg(target_os = "linux")]
mod usage_linux;

use std::time::Duration;

#[cfg(unix)]
pub use open_files::raise_open_files;
pub use process_tag::ProcessOwner;
pub(crate) use process_tag::{OrphanScope, TAG_VARIABLE};
#[cfg(target_os = "linux")]
pub(crate) use tagged_linux::{TaggedProcess, end, find, reap};
#[cfg(not(target_os = "linux"))]
pub(crate) use tagged_other::{TaggedProcess, end, find, reap};

#[cfg(not(unix))]
pub(crate) use other::{ChildPipes, PipeGauge, ProcessGroup, prepare};
#[cfg(target_os = "linux")]
pub(crate) use usage_linux::process_usage;

#[cfg(unix)]
pub(crate) use unix::{ChildPipes, PipeGauge, ProcessGroup, prepare};

/// Whether processes can be found by their tag on this system.
pub(crate) const FINDS_TAGGED_PROCESSES: bool = cfg!(target_os = "linux");

/// The resources that a process uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProcessUsage {
    pub(crate) pid: u32,
    pub(crate) group: u32,
    /// Start time, which distinguishes the process from an earlier one with the same id.
    pub(crate) started: u64,
    /// CPU time since the start.
    pub(crate) cpu: Duration,
    pub(crate) rss_bytes: u64,
}

/// Reports nothing, because this system does not provide it.
#[cfg(not(target_os = "linux"))]
pub(crate) fn process_usage() -> Vec<ProcessUsage> {
    Vec::new()
}

/// Exit status of a process.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcessExit {
    Code(i32),
    Signal(i32),
    /// The system did not report the status.
    Unknown,
}

impl From<std::process::ExitStatus> for ProcessExit {
    fn from(status: std::process::ExitStatus) -> Self {
        #[cfg(unix)]
        if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
            return Self::Signal(signal);
        }
        status.code().map_or(Self::Unknown, Self::Code)
    }
}

impl std::fmt::Display for ProcessExit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(signal) => write!(f, "ended by signal {signal}"),
            Self::Unknown => f.write_str("ended"),
        }
    }
}
