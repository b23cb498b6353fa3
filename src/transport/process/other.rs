//! Process handling on systems without process groups, where only the child itself can be ended.

use std::io;

use super::ChildCgroup;
use crate::transport::ChildLimits;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

pub(crate) fn prepare(
    command: &mut Command,
    limits: ChildLimits,
    _cgroup: Option<&ChildCgroup>,
) -> io::Result<()> {
    if limits != ChildLimits::default() {
        log::warn!("limits of child processes are not enforced on this system");
    }
    command.kill_on_drop(true);
    Ok(())
}

/// Placeholder for a process group. The child itself is killed when its owner drops it.
#[derive(Debug)]
pub(crate) struct ProcessGroup;

impl ProcessGroup {
    pub(crate) fn of(_child: &Child, _cgroup: Option<ChildCgroup>) -> Self {
        Self
    }

    pub(crate) fn terminate(&self) {}

    pub(crate) fn kill(&self) {}

    pub(crate) fn is_alive(&mut self) -> bool {
        false
    }
}

/// The gateway's ends of a child's pipes.
#[derive(Debug)]
pub(crate) struct ChildPipes {
    stdin: ChildStdin,
    stdout: ChildStdout,
    stderr: ChildStderr,
}

impl ChildPipes {
    pub(crate) fn take(child: &mut Child) -> io::Result<Self> {
        let missing = || io::Error::other("the child has no pipes");
        Ok(Self {
            stdin: child.stdin.take().ok_or_else(missing)?,
            stdout: child.stdout.take().ok_or_else(missing)?,
            stderr: child.stderr.take().ok_or_else(missing)?,
        })
    }

    /// Pipes on these systems are not bound to a runtime.
    pub(crate) fn adopt(self) -> io::Result<(ChildStdin, ChildStdout, ChildStderr)> {
        Ok((self.stdin, self.stdout, self.stderr))
    }
}

/// Placeholder: these systems do not show how much a child has read.
#[derive(Debug)]
pub(crate) struct PipeGauge;

impl PipeGauge {
    pub(crate) fn of(_pipe: &ChildStdin) -> Option<Self> {
        None
    }

    pub(crate) fn bytes(&self) -> Option<u64> {
        None
    }
}
