//! Finds tagged processes in `/proc` and ends them one by one.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Read as _;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open, pidfd_send_signal,
    waitpid,
};

use super::proc_stat::{ProcStat, pids};
use super::process_tag::{ProcessOwner, ProcessTag};

/// Maximum bytes read of an environment: more than the system accepts by default.
const ENVIRON_MAX: u64 = 8 << 20;

/// Maximum length of the chain of parents; a longer one is invalid.
const PARENTS_MAX: usize = 1000;

/// A process that was started for our data directory.
#[derive(Clone, Debug)]
pub(crate) struct TaggedProcess {
    pub(crate) pid: i32,
    pub(crate) tag: ProcessTag,
    /// Name of the process, for logs.
    pub(crate) name: String,
}

/// All processes with a tag of this data directory, except this one and its ancestors, because a
/// gateway can be started from a process that an earlier gateway left behind. Processes of other
/// users cannot be read and are not found. Takes some milliseconds.
pub(crate) fn find(instance: &ProcessOwner) -> Vec<TaggedProcess> {
    let found = pids().into_iter().flatten().filter_map(|pid| {
        let tag = tag_of(instance, pid)?;
        let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        let name = String::from_utf8_lossy(&name);
        let name = name.trim_end().escape_debug().to_string();
        Some(TaggedProcess { pid, tag, name })
    });
    let mut found: Vec<TaggedProcess> = found.collect();
    if !found.is_empty() {
        let spared = ourselves();
        found.retain(|process| !spared.contains(&process.pid));
    }
    found
}

/// Signals a process if it still is the one that was found, because its id can have been reused,
/// even by another tagged process. Returns whether it was signalled.
pub(crate) fn end(instance: &ProcessOwner, process: &TaggedProcess, at_once: bool) -> bool {
    let signal = if at_once { Signal::KILL } else { Signal::TERM };
    let is_it = || tag_of(instance, process.pid) == Some(process.tag);
    let Some(pid) = Pid::from_raw(process.pid) else {
        return false;
    };
    match pidfd_open(pid, PidfdFlags::empty()) {
        // The tag is read after the handle is opened, so it belongs to the process that the handle
        // refers to, while that process is alive.
        Ok(handle) => is_it() && pidfd_send_signal(handle, signal).is_ok(),
        // The system does not support handles, or forbids them.
        Err(Errno::NOSYS | Errno::PERM | Errno::INVAL | Errno::MFILE | Errno::NFILE) => {
            is_it() && kill_process(pid, signal).is_ok()
        }
        Err(_) => false,
    }
}

/// Reaps an ended process that became our child, as happens if the gateway is process 1.
pub(crate) fn reap(process: &TaggedProcess) {
    if let Some(pid) = Pid::from_raw(process.pid) {
        // This fails for processes that are not our children.
        let _ = waitpid(Some(pid), WaitOptions::NOHANG);
    }
}

/// The tag of a process; a zombie has no environment and therefore no tag.
fn tag_of(instance: &ProcessOwner, pid: i32) -> Option<ProcessTag> {
    let mut environ = Vec::new();
    let file = File::open(format!("/proc/{pid}/environ")).ok()?;
    file.take(ENVIRON_MAX).read_to_end(&mut environ).ok()?;
    instance.tag_in(&environ)
}

fn ourselves() -> HashSet<i32> {
    let mut line = HashSet::new();
    let mut next = Some(getpid().as_raw_pid());
    while let Some(pid) = next.filter(|pid| *pid > 0 && line.len() < PARENTS_MAX) {
        if !line.insert(pid) {
            break;
        }
        next = ProcStat::read(pid).map(|stat| stat.parent);
    }
    line
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_gateway_and_its_parents_are_spared() {
        let line = ourselves();
        let pids = [Some(getpid()), rustix::process::getppid()];
        let mut pids = pids.into_iter().flatten();
        assert!(pids.all(|pid| line.contains(&pid.as_raw_pid())));
    }

    #[test]
    fn a_process_that_does_not_carry_the_mark_is_not_ended() {
        let [owner, run] = [1, 2].map(Uuid::from_u128);
        let instance = ProcessOwner::new(owner, run);
        let tag = |child| {
            let text = format!(
                "{}={}\0",
                crate::transport::process::process_tag::TAG_VARIABLE,
                instance.tag(child)
            );
            instance.tag_in(text.as_bytes()).unwrap()
        };
        let mut command = std::process::Command::new("sleep");
        command.arg("1000");
        command.env(
            crate::transport::process::process_tag::TAG_VARIABLE,
            instance.tag(1),
        );
        let mut child = command.spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let found = |tag| TaggedProcess {
            pid,
            tag,
            name: String::new(),
        };
        // The child can still be about to execute the other program.
        while !find(&instance).iter().any(|process| process.pid == pid) {
            assert!(child.try_wait().unwrap().is_none());
        }
        let another = ProcessOwner::new(run, owner);
        assert!(!end(&instance, &found(tag(2)), true));
        assert!(!end(&another, &found(tag(1)), true));
        assert!(find(&another).is_empty());
        assert!(child.try_wait().unwrap().is_none());
        assert!(end(&instance, &found(tag(1)), false));
        assert!(!child.wait().unwrap().success());
        assert!(!end(&instance, &found(tag(1)), true));
        assert!(pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).is_err());
    }
}
