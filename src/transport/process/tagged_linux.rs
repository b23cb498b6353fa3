//! Looks for marked processes in `/proc`, and ends them one by one.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use super::process_tag::{ProcessOwner, ProcessTag};

/// How much of an environment is read: more than the system takes by default.
const ENVIRON_MAX: u64 = 8 << 20;

/// More parents than this are no line of parents.
const PARENTS_MAX: usize = 1000;

/// A process that was started for our data directory.
#[derive(Clone, Debug)]
pub(crate) struct TaggedProcess {
    pub(crate) pid: i32,
    pub(crate) tag: ProcessTag,
    /// What it calls itself, for people.
    pub(crate) name: String,
}

/// All processes that carry a tag of this data directory, but for ourselves and those who
/// started us: a gateway may be started from what an earlier one left. Those of other users
/// cannot be read and are not found. Takes some milliseconds.
pub(crate) fn find(instance: &ProcessOwner) -> Vec<TaggedProcess> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = processes
        .flatten()
        .filter_map(|process| process.file_name().to_str()?.parse().ok());
    let found = pids.filter_map(|pid| {
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

/// Tells a process to end if it still is the one that was found: that number may be another's by
/// now, and so may the tag. It says whether it was told.
pub(crate) fn end(instance: &ProcessOwner, process: &TaggedProcess, at_once: bool) -> bool {
    let signal = if at_once {
        Signal::SIGKILL
    } else {
        Signal::SIGTERM
    };
    let is_it = || tag_of(instance, process.pid) == Some(process.tag);
    match handle(process.pid) {
        // What is read after the handle was taken is of its process, if that one still lives
        // when the signal comes: its number is not given away before.
        Ok(handle) => is_it() && send(&handle, signal).is_ok(),
        // A system without handles, or one that forbids them.
        Err(Errno::ENOSYS | Errno::EPERM | Errno::EINVAL | Errno::EMFILE | Errno::ENFILE) => {
            is_it() && kill(Pid::from_raw(process.pid), signal).is_ok()
        }
        Err(_) => false,
    }
}

/// Takes leave of an ended process that became our child, as of a gateway that is process 1.
pub(crate) fn reap(process: &TaggedProcess) {
    // For all others it fails.
    let _ = waitpid(Pid::from_raw(process.pid), Some(WaitPidFlag::WNOHANG));
}

/// A zombie has no environment.
fn tag_of(instance: &ProcessOwner, pid: i32) -> Option<ProcessTag> {
    let mut environ = Vec::new();
    let file = File::open(format!("/proc/{pid}/environ")).ok()?;
    file.take(ENVIRON_MAX).read_to_end(&mut environ).ok()?;
    instance.tag_in(&environ)
}

fn ourselves() -> HashSet<i32> {
    let mut line = HashSet::new();
    let mut next = Some(Pid::this().as_raw());
    while let Some(pid) = next.filter(|pid| *pid > 0 && line.len() < PARENTS_MAX) {
        if !line.insert(pid) {
            break;
        }
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
        next = stat.ok().and_then(|stat| parent_in(&stat));
    }
    line
}

/// The parent that `/proc/*/stat` shows. The name, in parentheses, may hold anything; after it
/// stand state and parent.
fn parent_in(stat: &str) -> Option<i32> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// A handle of a process, which stays its own when the number is given to another.
fn handle(pid: i32) -> Result<OwnedFd, Errno> {
    #[expect(
        unsafe_code,
        reason = "neither libc nor nix wraps the call; it takes two numbers and gives a descriptor that is ours"
    )]
    // The flags must be zero; the descriptor is closed on exec.
    unsafe {
        let handle = Errno::result(libc::syscall(libc::SYS_pidfd_open, pid, 0))?;
        let handle = i32::try_from(handle).map_err(|_| Errno::EINVAL)?;
        Ok(OwnedFd::from_raw_fd(handle))
    }
}

fn send(handle: &OwnedFd, signal: Signal) -> io::Result<()> {
    let (handle, signal) = (handle.as_raw_fd(), signal as i32);
    let nothing = std::ptr::null::<libc::siginfo_t>();
    #[expect(
        unsafe_code,
        reason = "neither libc nor nix wraps the call; the descriptor is open, and it reads no memory where the third argument is null"
    )]
    let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, handle, signal, nothing, 0) };
    Errno::result(sent).map(drop).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn the_parent_is_read_after_the_name() {
        for (stat, expected) in [
            ("7 (sh) S 42 7 7 0 -1", Some(42)),
            ("7 (a) S 1 (b) Z 43 7 7", Some(43)),
            ("7 (sh) S", None),
            ("7 sh", None),
            ("", None),
        ] {
            assert_eq!(parent_in(stat), expected, "{stat}");
        }
        let line = ourselves();
        let parent = nix::unistd::getppid().as_raw();
        assert!(line.contains(&Pid::this().as_raw()) && line.contains(&parent));
    }

    #[test]
    fn a_process_that_does_not_carry_the_mark_is_not_ended() {
        let [owner, run] = [1, 2].map(Uuid::from_u128);
        let instance = ProcessOwner::new(owner, run);
        let tag = |child| {
            let text = format!(
                "{}={}\0",
                super::super::process_tag::TAG_VARIABLE,
                instance.tag(child)
            );
            instance.tag_in(text.as_bytes()).unwrap()
        };
        let mut command = std::process::Command::new("sleep");
        command.arg("1000");
        command.env(super::super::process_tag::TAG_VARIABLE, instance.tag(1));
        let mut child = command.spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let found = |tag| TaggedProcess {
            pid,
            tag,
            name: String::new(),
        };
        // It may not have become another program yet.
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
        assert!(handle(pid).is_err());
    }
}
