//! Calls to the operating system that start and end a server's processes.
//!
//! One module per family of systems; the rest of the crate does not know which one it runs on.

use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

#[cfg(target_os = "linux")]
mod cgroup_linux;
#[cfg(not(target_os = "linux"))]
mod cgroup_other;
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

#[cfg(target_os = "linux")]
pub(crate) use cgroup_linux::{ChildCgroup, ServerCgroups, pressure_of};
#[cfg(not(target_os = "linux"))]
pub(crate) use cgroup_other::{ChildCgroup, ServerCgroups, pressure_of};
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
pub(crate) use usage_linux::open_descriptors;
#[cfg(target_os = "linux")]
use usage_linux::read_process_usage;

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

/// Share of the last minute in which at least one process of a control group waited for a resource,
/// in percent (the kernel's "pressure stall information").
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pressure {
    pub cpu: f64,
    pub memory: f64,
}

/// Usage of all processes that can be read. It is read beside the threads that serve, because a
/// machine can have thousands of processes.
pub(crate) async fn process_usage() -> Vec<ProcessUsage> {
    // A panic was reported where it happened.
    spawn_blocking(read_process_usage).await.unwrap_or_default()
}

/// Reports nothing, because this system does not provide it.
#[cfg(not(target_os = "linux"))]
fn read_process_usage() -> Vec<ProcessUsage> {
    Vec::new()
}

/// Reports nothing, because this system does not provide it.
#[cfg(not(target_os = "linux"))]
pub(crate) fn open_descriptors(_: u32) -> u64 {
    0
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChildEnd {
    pub(crate) exit: ProcessExit,
    /// Whether the kernel killed a process of its tree because no memory was left for it.
    pub(crate) out_of_memory: bool,
}

impl From<ProcessExit> for ChildEnd {
    fn from(exit: ProcessExit) -> Self {
        Self {
            exit,
            out_of_memory: false,
        }
    }
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

/// Returns the meaning of an exit code where programs and shells agree on it (`sysexits.h`).
fn meaning(code: i32) -> Option<&'static str> {
    Some(match code {
        64 => "wrong usage of its command line",
        65 => "wrong input data",
        66 => "an input file cannot be read",
        69 => "a service that it needs is unavailable",
        70 => "an internal error",
        71 => "an error of the system",
        73 => "an output file cannot be created",
        74 => "an input or output error",
        75 => "a temporary failure",
        77 => "a permission is missing",
        78 => "a configuration error",
        126 => "the command cannot be executed",
        127 => "the command was not found",
        134 => "aborted by itself, signal 6",
        137 => "killed by signal 9",
        139 => "invalid memory access, signal 11",
        143 => "ended by signal 15",
        _ => return None,
    })
}

impl std::fmt::Display for ProcessExit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => match meaning(*code) {
                Some(meaning) => write!(f, "exited with code {code} ({meaning})"),
                None => write!(f, "exited with code {code}"),
            },
            Self::Signal(signal) => write!(f, "ended by signal {signal}"),
            Self::Unknown => f.write_str("ended"),
        }
    }
}
