//! Looks at processes through /proc: which carry a mark, and whether they are still there.

use rustix::process::{Pid, Signal, kill_process};

/// Processes that carry `NAME=VALUE` in their environment; zombies have none.
pub(crate) fn processes_of(mark: &str) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| {
        std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environment| {
            environment
                .split(|byte| *byte == 0)
                .any(|variable| variable == mark.as_bytes())
        })
    })
    .collect()
}

/// Whether a process is a launcher, which starts a server in its sandbox.
pub(crate) fn is_launcher(pid: i32) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).nth(1) == Some(b"sandbox-exec")
}

/// Whether a process runs; one that was not reaped yet does not.
pub(crate) fn alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        let state = stat.rsplit(')').next().unwrap_or_default();
        !state.trim_start().starts_with(['Z', 'X'])
    })
}

pub(crate) fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}
