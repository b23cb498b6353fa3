//! Finds out what this kernel offers to this user, by confining this process.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::{Command, ExitCode};

use super::{covers, files, namespaces, syscalls};
use crate::sandbox::{Confinement, KernelSupport, LAUNCHER, Namespaces, OWN_BINARY, PROBE};

/// Second argument of the process that tries `/proc` in a namespace of processes.
const PROC: &str = "proc";

/// Writes a [`KernelSupport`] to standard output.
pub(super) fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    if arguments.next().is_some_and(|it| it == PROC) {
        return ExitCode::from(u8::from(namespaces::mount_proc().is_err()));
    }
    let all = Namespaces {
        mounts: true,
        processes: true,
        no_network: true,
    };
    let confinement = Confinement {
        namespaces: all,
        ..Confinement::default()
    };
    let entered = namespaces::enter(all).and_then(|()| covers::hide(&confinement));
    let mounts = entered.as_ref().err().map(ToString::to_string);
    let processes = entered.is_ok() && {
        let mut init = Command::new(OWN_BINARY);
        init.args([LAUNCHER, PROBE, PROC]);
        init.status().is_ok_and(|status| status.success())
    };
    let support = KernelSupport {
        namespaces: entered.is_ok(),
        no_namespaces: mounts,
        processes,
        landlock: files::restrict(&confinement).unwrap_or(0),
        seccomp: syscalls::restrict(&confinement).is_ok(),
    };
    let text = serde_json::to_string(&support).unwrap_or_default();
    let written = writeln!(io::stdout(), "{text}");
    ExitCode::from(u8::from(written.is_err()))
}
