//! The command line and environment of a child.

use std::ffi::OsString;
use std::io;
use std::process::Stdio;

use secrecy::ExposeSecret as _;
use tokio::process::Command;

use crate::transport::StdioSettings;

/// Variables that a child gets even if it does not inherit the gateway's environment: what
/// programs need to find other programs, their home, their language and the network.
const NEEDED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "LANG",
    "TZ",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    // Without these, no program starts on Windows.
    "SystemRoot",
    "SystemDrive",
    "windir",
    "ComSpec",
    "PATHEXT",
    "TEMP",
    "TMP",
    "USERNAME",
    "USERPROFILE",
    "HOMEDRIVE",
    "HOMEPATH",
    "APPDATA",
    "LOCALAPPDATA",
    "ProgramData",
    "ProgramFiles",
];

/// Variables that a service manager sets for the gateway only.
const GATEWAY_ONLY: [&str; 5] = [
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "LISTEN_PID",
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
];

/// Families of such variables, by prefix and suffix.
const NEEDED_PREFIXES: &[&str] = &["LC_", "XDG_"];
const NEEDED_SUFFIXES: &[&str] = &["_PROXY", "_proxy"];

fn is_needed(name: &str) -> bool {
    NEEDED.contains(&name)
        || NEEDED_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix))
        || NEEDED_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
}

/// The part of `environment` that a child gets which does not inherit all of it.
fn needed(
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> impl Iterator<Item = (OsString, OsString)> {
    environment.filter(|(name, _)| name.to_str().is_some_and(is_needed))
}

pub(super) fn build(settings: &StdioSettings) -> Command {
    let mut command = Command::new(&settings.command);
    let args = settings.args.iter().map(|arg| arg.expose_secret());
    command.args(args);
    if !settings.inherit_env {
        command.env_clear().envs(needed(std::env::vars_os()));
    }
    for name in GATEWAY_ONLY {
        command.env_remove(name);
    }
    let env = settings.env.iter();
    command.envs(env.map(|(name, value)| (name, value.expose_secret())));
    if let Some(cwd) = &settings.cwd {
        command.current_dir(cwd);
    }
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Why a start failed, with what to do.
pub(super) fn explain(settings: &StdioSettings, error: &io::Error) -> String {
    if let Some(cwd) = settings.cwd.as_ref().filter(|cwd| !cwd.is_dir()) {
        return format!("its working directory {} does not exist", cwd.display());
    }
    match error.kind() {
        io::ErrorKind::NotFound => {
            "not found; install it, or give its full path or a `PATH` in `env`".to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "permission denied; check that the file is executable".to_owned()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_gets_what_programs_need_and_no_secrets() {
        let names = [
            ("PATH", true),
            ("LC_ALL", true),
            ("XDG_RUNTIME_DIR", true),
            ("HTTPS_PROXY", true),
            ("no_proxy", true),
            ("SSL_CERT_FILE", true),
            ("AWS_SECRET_ACCESS_KEY", false),
            ("GITHUB_TOKEN", false),
            ("path", false),
        ];
        let environment = names.iter().map(|(name, _)| ((*name).into(), "x".into()));
        let kept: Vec<_> = needed(environment).map(|(name, _)| name).collect();
        let expected = names.iter().filter(|(_, is_kept)| *is_kept);
        let expected: Vec<OsString> = expected.map(|(name, _)| (*name).into()).collect();
        assert_eq!(kept, expected);
    }
}
