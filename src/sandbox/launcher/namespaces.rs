//! Enters namespaces, as an ordinary user or as root.

use std::fs;
use std::io;

use nix::sched::{CloneFlags, unshare};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};

use super::capabilities::{is_privileged, keep_needed};
use crate::sandbox::Namespaces;

/// Enters the namespaces for mounts and System V IPC, and the others that are asked for. Process 1
/// is the next process that this one starts.
///
/// Root with all capabilities needs no user namespace, in which files of other owners would belong
/// to the user `nobody`. Other users keep only their own user and group.
pub(super) fn enter(namespaces: Namespaces) -> io::Result<()> {
    let mut flags = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC;
    flags.set(CloneFlags::CLONE_NEWPID, namespaces.processes);
    flags.set(CloneFlags::CLONE_NEWNET, namespaces.no_network);
    let own_user = !is_privileged();
    let user = rustix::process::getuid().as_raw();
    let group = rustix::process::getgid().as_raw();
    flags.set(CloneFlags::CLONE_NEWUSER, own_user);
    unshare(flags)?;
    if own_user {
        // Required before an ordinary user can map a group.
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
        keep_needed()?;
    }
    // Mounts of the system still arrive here, but none leaves.
    let all = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    Ok(mount_change("/", all)?)
}

/// Replaces `/proc` by one that shows only the processes of the namespace.
pub(super) fn mount_proc() -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(mount("proc", "/proc", "proc", flags, None)?)
}
