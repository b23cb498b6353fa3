//! The limit of open files: the gateway raises its own to the maximum, and children get the
//! original limit.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Limit to set if the hard limit is infinite; more than any gateway needs.
const WANTED_MAX: u64 = 1 << 20;

/// The original limit of the process, if it was raised.
static BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit of open files to the hard limit. Must be called before the first child
/// starts.
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
        // A second call changes nothing.
        Ok(()) => drop(BEFORE.set(before)),
        Err(error) => log::warn!(error:%; "could not raise the limit of open files"),
    }
}

/// The limit for children; `None` if they inherit the limit of this process.
pub(super) fn limit_of_children() -> Option<Rlimit> {
    BEFORE.get().copied()
}
