//! Finds out what this kernel offers to this user, by confining this process.

use std::env;
use std::fs;
use std::io::{self, Write as _};
use std::process::ExitCode;

use super::{covers, files, forked, namespaces, syscalls};
use crate::sandbox::places::{SOCKET_VARIABLES, SOCKETS};
use crate::sandbox::{Confinement, KernelSupport, Namespaces};

/// Writes a [`KernelSupport`] to standard output.
pub(super) fn run() -> ExitCode {
    let all = Namespaces {
        mounts: true,
        processes: true,
        no_network: true,
    };
    let confinement = Confinement {
        namespaces: all,
        ..Confinement::default()
    };
    let guarded_sockets = has_guarded_sockets();
    let entered = namespaces::enter(all).and_then(|()| covers::hide(&confinement));
    let mounts = entered.as_ref().err().map(ToString::to_string);
    let processes = entered.is_ok() && {
        let init = forked(|| u8::from(namespaces::mount_proc().is_err()));
        init.is_ok_and(|status| status.success())
    };
    let support = KernelSupport {
        namespaces: entered.is_ok(),
        no_namespaces: mounts,
        processes,
        landlock: files::restrict(&confinement).unwrap_or(0),
        seccomp: syscalls::restrict(&confinement).is_ok(),
        guarded_sockets,
    };
    let text = serde_json::to_string(&support).unwrap_or_default();
    let written = writeln!(io::stdout(), "{text}");
    ExitCode::from(u8::from(written.is_err()))
}

/// Whether there are sockets that servers may not use. An empty directory for them is none.
fn has_guarded_sockets() -> bool {
    let exists = |path: &&str| match fs::read_dir(path) {
        Ok(mut entries) => entries.next().is_some(),
        Err(_) => fs::exists(path).unwrap_or(true),
    };
    let is_set = |name: &&str| env::var_os(name).is_some();
    SOCKETS.iter().any(exists) || SOCKET_VARIABLES.iter().any(is_set)
}
