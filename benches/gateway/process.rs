//! Child processes of the benchmark: starts, measures and ends them.

use std::fs;
use std::io;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::Instant;

use crate::Fallible;

/// Maximum time for a process to exit after it was asked to.
const END: Duration = Duration::from_secs(10);

/// A child process, which is ended on drop.
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts a process with a pipe as stdin, by which it can detect that this process has ended.
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        Ok(Self {
            child: command.stdin(Stdio::piped()).spawn()?,
        })
    }

    /// Starts this program again in another role.
    pub(crate) fn again(arguments: &[&str]) -> io::Result<Self> {
        Self::start(
            Command::new(std::env::current_exe()?)
                .args(arguments)
                .stdout(Stdio::null()),
        )
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Fails if the process has ended.
    pub(crate) fn check(&mut self) -> Fallible<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(format!("the process ended: {status}").into()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process can already have exited.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if begun.elapsed() > END {
                eprintln!(
                    "process {} did not end within {END:?}: killed",
                    self.child.id()
                );
                let _ = self.child.kill();
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
}

/// Fields of `/proc/PID/stat`, starting with the state.
fn stat(pid: u32) -> Option<Vec<u64>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    Some(
        fields
            .split_whitespace()
            .map(|field| field.parse().unwrap_or(0))
            .collect(),
    )
}

/// CPU time in microseconds of a process and its children of the same name, such as nginx workers.
pub(crate) fn cpu_us(pid: u32) -> u64 {
    let tick_us = 10_000;
    let own = |pid| {
        stat(pid).map_or(0, |fields| {
            (field(&fields, 11) + field(&fields, 12)) * tick_us
        })
    };
    let workers = children(pid)
        .into_iter()
        .filter(|child| name(*child) == name(pid));
    own(pid) + workers.map(own).sum::<u64>()
}

fn field(fields: &[u64], at: usize) -> u64 {
    fields.get(at).copied().unwrap_or(0)
}

fn name(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/comm")).ok()
}

/// Processes that this one started.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let ours = |child: &u32| stat(*child).is_some_and(|fields| field(&fields, 1) == u64::from(pid));
    pids.filter(ours).collect()
}

/// Resident memory in bytes.
pub(crate) fn rss(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}

/// A loopback port that was free a moment ago.
pub(crate) fn free_port() -> io::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?
        .local_addr()?
        .port())
}
