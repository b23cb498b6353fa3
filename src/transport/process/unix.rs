//! Process groups, signals and pipes on Unix systems.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{ChildStderr as StdStderr, ChildStdin as StdStdin, ChildStdout as StdStdout};

use rustix::io::Errno;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, getrlimit, kill_process_group, setrlimit,
    test_kill_process_group, waitpgid,
};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::ChildCgroup;
use super::open_files::limit_of_children;
use crate::sandbox::before_exec;
use crate::transport::ChildLimits;

/// Seconds of CPU time between `SIGXCPU` and the kill of a process that ignores it.
const CPU_GRACE: u64 = 2;

/// Amount that the kernel adds to the badness of servers when it chooses a process to kill for its
/// memory, from -1,000 to 1,000.
#[cfg(target_os = "linux")]
const OOM_SCORE: &[u8] = b"300";

/// Size of a child's stdout pipe, in bytes: with Linux's 64 KiB, a child that writes a large result
/// waits for the gateway repeatedly.
#[cfg(target_os = "linux")]
const STDOUT_PIPE: usize = 256 * 1024;

/// Makes the child the leader of a new process group, sets its limits and, if the system supports
/// it, has it killed when the calling thread ends. Call it only from a thread that lives until
/// the gateway ends. The child enters its control group, if it has one, before it runs.
///
/// # Errors
///
/// Returns the system's error if the group cannot be opened.
pub(crate) fn prepare(
    command: &mut Command,
    limits: ChildLimits,
    cgroup: Option<&ChildCgroup>,
) -> io::Result<()> {
    command.process_group(0);
    let entrance = cgroup.map(ChildCgroup::entrance).transpose()?;
    #[cfg(target_os = "linux")]
    let parent = rustix::process::getpid();
    let open_files = limit_of_children();
    let in_child = move || {
        #[cfg(target_os = "linux")]
        {
            die_with(parent)?;
            die_before_gateway();
        }
        if let Some(entrance) = &entrance {
            rustix::io::write(entrance, b"0")?;
        }
        if let Some(limit) = open_files {
            setrlimit(Resource::Nofile, limit)?;
        }
        set(limits)
    };
    // It makes a few system calls, allocates nothing and takes no lock.
    before_exec(command.as_std_mut(), in_child);
    Ok(())
}

#[cfg(target_os = "linux")]
fn die_with(parent: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // If the parent died before this call, no signal will ever come.
    if rustix::process::getppid() == Some(parent) {
        Ok(())
    } else {
        Err(io::Error::from(Errno::SRCH))
    }
}

/// Makes the kernel choose the calling process and all processes that it starts before the gateway
/// when memory runs out.
#[cfg(target_os = "linux")]
fn die_before_gateway() {
    use rustix::fs::{Mode, OFlags, open};

    // Without `/proc`, or if the score is higher already, the kernel decides by size.
    if let Ok(score) = open(c"/proc/self/oom_score_adj", OFlags::WRONLY, Mode::empty()) {
        let _ = rustix::io::write(&score, OOM_SCORE);
    }
}

/// Limits the calling process and all processes that it starts.
fn set(limits: ChildLimits) -> io::Result<()> {
    let limit = |resource, soft: u64, hard: u64| {
        // Only a privileged process can exceed the limit that it was started with.
        let given = getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let new = Rlimit {
            current: Some(soft.min(given)),
            maximum: Some(hard.min(given)),
        };
        setrlimit(resource, new)
    };
    if let Some(bytes) = limits.memory_max {
        limit(Resource::Data, bytes, bytes)?;
    }
    if let Some(time) = limits.cpu_max {
        // The system counts whole seconds.
        let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
        limit(Resource::Cpu, seconds, seconds.saturating_add(CPU_GRACE))?;
    }
    if let Some(count) = limits.open_files_max {
        limit(Resource::Nofile, count, count)?;
    }
    Ok(())
}

/// All processes of one child. Dropping it kills them.
#[derive(Debug)]
pub(crate) struct ProcessGroup {
    /// `None` once no process is left, because the id can be reused then.
    leader: Option<Pid>,
    /// Also contains descendants that left the process group.
    cgroup: Option<ChildCgroup>,
}

impl ProcessGroup {
    pub(crate) fn of(child: &Child, cgroup: Option<ChildCgroup>) -> Self {
        let leader = child.id().and_then(|id| i32::try_from(id).ok());
        Self {
            leader: leader.and_then(Pid::from_raw),
            cgroup,
        }
    }

    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    pub(crate) fn kill(&self) {
        if let Some(cgroup) = &self.cgroup {
            cgroup.kill();
        }
        self.signal(Signal::KILL);
    }

    /// Whether processes are left. Must be called only after the leader was waited for; reaps
    /// descendants that became our children, as happens if the gateway is process 1.
    pub(crate) fn is_alive(&mut self) -> bool {
        let Some(leader) = self.leader else {
            return false;
        };
        while let Ok(Some(_)) = waitpgid(leader, WaitOptions::NOHANG) {}
        let exists = test_kill_process_group(leader) != Err(Errno::SRCH);
        if exists && runs(leader) {
            return true;
        }
        // The check can have missed a process that forked meanwhile.
        self.kill();
        self.leader = None;
        false
    }

    fn signal(&self, signal: Signal) {
        if let Some(leader) = self.leader {
            // This fails only if no process is left.
            let _ = kill_process_group(leader, signal);
        }
    }
}

/// Whether a group contains a process that is not a zombie. A signal does not tell, because zombies
/// exist until they are reaped, for which some inits take seconds.
#[cfg(target_os = "linux")]
fn runs(group: Pid) -> bool {
    let Ok(mut pids) = super::proc_stat::pids() else {
        return true;
    };
    let group = group.as_raw_pid();
    let stat = super::proc_stat::ProcStat::read;
    pids.any(|pid| stat(pid).is_some_and(|stat| !stat.is_zombie && stat.group == group))
}

#[cfg(not(target_os = "linux"))]
fn runs(_group: Pid) -> bool {
    true
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The gateway's ends of a child's pipes, detached so that they can move to another thread.
#[derive(Debug)]
pub(crate) struct ChildPipes {
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

impl ChildPipes {
    /// Takes the pipes of a child that was started with all three piped.
    pub(crate) fn take(child: &mut Child) -> io::Result<Self> {
        let missing = || io::Error::other("the child has no pipes");
        let stdin = child.stdin.take().ok_or_else(missing)?;
        let stdout = child.stdout.take().ok_or_else(missing)?;
        let stderr = child.stderr.take().ok_or_else(missing)?;
        // The kernel can refuse a larger pipe to a user with many pipes; the default size also
        // works.
        #[cfg(target_os = "linux")]
        let _ = rustix::pipe::fcntl_setpipe_size(&stdout, STDOUT_PIPE);
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

/// Measures how many bytes written to a pipe have not been read. Keeps the pipe open.
#[derive(Debug)]
pub(crate) struct PipeGauge(OwnedFd);

impl PipeGauge {
    pub(crate) fn of(pipe: &ChildStdin) -> Option<Self> {
        pipe.as_fd().try_clone_to_owned().ok().map(Self)
    }

    pub(crate) fn bytes(&self) -> Option<u64> {
        rustix::io::ioctl_fionread(&self.0).ok()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn our_own_group_runs() {
        assert!(runs(rustix::process::getpgrp()));
    }
}
