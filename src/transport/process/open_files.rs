//! The limit of open files: the gateway uses all that it is allowed, children get the limit that the
//! gateway was started with.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More descriptors than any gateway needs, where the hard limit is none.
const WANTED_MAX: u64 = 1 << 20;

/// The limit that the process was started with, if it was raised.
static BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit of open files to the hard one. To be called before the first child starts.
pub fn raise_open_files() {
    let before = getrlimit(Resource::Nofile);
    let wanted = before.maximum.unwrap_or(WANTED_MAX).min(WANTED_MAX);
    if before.current.is_none_or(|current| current >= wanted) {
        return;
    }
    let raised = Rlimit {
        current: Some(wanted),
        ..before
    };
    match setrlimit(Resource::Nofile, raised) {
        // A second call finds a limit that is raised.
        Ok(()) => drop(BEFORE.set(before)),
        Err(error) => log::warn!(error:%; "the limit of open files cannot be raised"),
    }
}

/// The limit for children; `None` is the limit of this process.
pub(super) fn limit_of_children() -> Option<Rlimit> {
    BEFORE.get().copied()
}
