//! Process groups, signals and pipes of Unix systems.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{ChildStderr as StdStderr, ChildStdin as StdStdin, ChildStdout as StdStdout};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use crate::transport::ChildLimits;

/// Seconds of CPU time after `SIGXCPU` until the system kills a process that does not heed it.
const CPU_GRACE: rlim_t = 2;

/// Makes the child the leader of a process group of its own, sets its limits and, where the
/// system can, has it killed when the calling thread ends: call it only from a thread that lives
/// as long as the gateway.
pub(crate) fn prepare(command: &mut Command, limits: ChildLimits) {
    command.process_group(0);
    let parent = Pid::this();
    let in_child = move || {
        #[cfg(target_os = "linux")]
        die_with(parent)?;
        set(limits)
    };
    #[expect(
        unsafe_code,
        reason = "the closure runs between fork and exec; it makes a few system calls, allocates nothing and takes no lock"
    )]
    unsafe {
        command.pre_exec(in_child);
    }
}

#[cfg(target_os = "linux")]
fn die_with(parent: Pid) -> io::Result<()> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    // The parent may have died before the call: then no signal will ever come.
    if Pid::parent() == parent {
        Ok(())
    } else {
        Err(io::Error::from(Errno::ESRCH))
    }
}

/// Limits the calling process and all that it starts.
fn set(limits: ChildLimits) -> io::Result<()> {
    let limit = |resource, soft: rlim_t, hard: rlim_t| {
        // Only a privileged process may go beyond what it was given itself.
        let (_, given) = getrlimit(resource)?;
        setrlimit(resource, soft.min(given), hard.min(given))
    };
    if let Some(bytes) = limits.memory_max {
        limit(Resource::RLIMIT_DATA, bytes, bytes)?;
    }
    if let Some(time) = limits.cpu_max {
        let seconds = time.as_secs();
        limit(
            Resource::RLIMIT_CPU,
            seconds,
            seconds.saturating_add(CPU_GRACE),
        )?;
    }
    if let Some(count) = limits.open_files_max {
        limit(Resource::RLIMIT_NOFILE, count, count)?;
    }
    Ok(())
}

/// All processes of one child. Dropping it kills them.
#[derive(Debug)]
pub(crate) struct ProcessGroup {
    /// `None` once nobody is left: the number may belong to others by then.
    leader: Option<Pid>,
}

impl ProcessGroup {
    pub(crate) fn of(child: &Child) -> Self {
        let leader = child.id().and_then(|id| i32::try_from(id).ok());
        Self {
            leader: leader.map(Pid::from_raw),
        }
    }

    pub(crate) fn terminate(&self) {
        self.signal(Signal::SIGTERM);
    }

    pub(crate) fn kill(&self) {
        self.signal(Signal::SIGKILL);
    }

    /// Whether processes are left. To be asked only after the leader was waited for; reaps
    /// descendants that became our children (as for a gateway that is process 1).
    pub(crate) fn is_alive(&mut self) -> bool {
        let Some(leader) = self.leader else {
            return false;
        };
        let descendants = Pid::from_raw(-leader.as_raw());
        while let Ok(status) = waitpid(descendants, Some(WaitPidFlag::WNOHANG)) {
            if status == WaitStatus::StillAlive {
                break;
            }
        }
        let exists = killpg(leader, None) != Err(Errno::ESRCH);
        if exists && runs(leader) {
            return true;
        }
        // One that forked while we looked may have been missed.
        self.kill();
        self.leader = None;
        false
    }

    fn signal(&self, signal: Signal) {
        if let Some(leader) = self.leader {
            // It fails only when nobody is left.
            let _ = killpg(leader, signal);
        }
    }
}

/// Whether a group holds more than zombies, for which a signal says that they exist: some inits
/// take seconds to reap what was left to them.
#[cfg(target_os = "linux")]
fn runs(group: Pid) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return true;
    };
    let group = group.to_string();
    processes.flatten().any(|process| {
        let is_process = process
            .file_name()
            .as_encoded_bytes()
            .iter()
            .all(u8::is_ascii_digit);
        let stat = is_process.then(|| std::fs::read_to_string(process.path().join("stat")).ok());
        stat.flatten()
            .is_some_and(|stat| is_live_member(&stat, &group))
    })
}

#[cfg(not(target_os = "linux"))]
fn runs(_group: Pid) -> bool {
    true
}

/// Whether `/proc/*/stat` shows a process of this group that is no zombie. The name, in
/// parentheses, may hold anything; after it stand state, parent and group.
#[cfg(target_os = "linux")]
fn is_live_member(stat: &str, group: &str) -> bool {
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields);
    let mut fields = fields.unwrap_or_default().split_ascii_whitespace();
    let state = fields.next();
    !matches!(state, None | Some("Z" | "X")) && fields.nth(1) == Some(group)
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The gateway's ends of a child's pipes, on their way to another thread.
#[derive(Debug)]
pub(crate) struct ChildPipes {
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

impl ChildPipes {
    /// Takes the pipes out of a child that was started with all three piped.
    pub(crate) fn take(child: &mut Child) -> io::Result<Self> {
        let missing = || io::Error::other("the child has no pipes");
        let stdin = child.stdin.take().ok_or_else(missing)?;
        let stdout = child.stdout.take().ok_or_else(missing)?;
        let stderr = child.stderr.take().ok_or_else(missing)?;
        Ok(Self {
            stdin: stdin.into_owned_fd()?,
            stdout: stdout.into_owned_fd()?,
            stderr: stderr.into_owned_fd()?,
        })
    }

    /// Registers the pipes with the runtime of the calling thread.
    pub(crate) fn adopt(self) -> io::Result<(ChildStdin, ChildStdout, ChildStderr)> {
        Ok((
            ChildStdin::from_std(StdStdin::from(self.stdin))?,
            ChildStdout::from_std(StdStdout::from(self.stdout))?,
            ChildStderr::from_std(StdStderr::from(self.stderr))?,
        ))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_the_group_runs_unless_it_is_a_zombie() {
        let cases = [
            ("7 (sh) S 1 42 42 0 -1", true),
            ("7 (sh) R 42 42 42", true),
            ("7 (a) Z 1 42) R 1 42 42", true),
            ("7 (sh) Z 1 42 42 0 -1", false),
            ("7 (sh) S 42 7 42", false),
            ("7 (sh", false),
            ("", false),
        ];
        for (stat, expected) in cases {
            assert_eq!(is_live_member(stat, "42"), expected, "{stat}");
        }
        assert!(runs(nix::unistd::getpgrp()));
    }
}
