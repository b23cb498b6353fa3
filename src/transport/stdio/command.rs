//! The command line and environment of a child.

use std::ffi::OsString;
use std::io;
use std::process::Stdio;

use globset::{Glob, GlobSetBuilder};
use secrecy::ExposeSecret as _;
use tokio::process::Command;

use crate::transport::{InheritEnv, StdioSettings};

/// Variables that a child gets even if it does not inherit the gateway's environment: what
/// programs need to find other programs, their home, their language, the screen, the network and
/// the services that they are made for. None of them is a secret. `*` stands for any text.
pub const PASSED_VARIABLES: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "TMPDIR",
    "XDG_*",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "DBUS_SESSION_BUS_ADDRESS",
    "*_PROXY",
    "*_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "SSH_AUTH_SOCK",
    "KUBECONFIG",
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "DOCKER_CONFIG",
    "DOCKER_CERT_PATH",
    "DOCKER_TLS_VERIFY",
    "npm_config_cache",
    "NVM_DIR",
    "VOLTA_HOME",
    "UV_CACHE_DIR",
    "UV_PYTHON_INSTALL_DIR",
    "UV_TOOL_DIR",
    "PIP_CACHE_DIR",
    "PYENV_ROOT",
    "PLAYWRIGHT_BROWSERS_PATH",
    "JAVA_HOME",
];

/// Without these, no program starts on Windows.
const NEEDED_ON_WINDOWS: &[&str] = &[
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

/// The part of `environment` that a child gets.
fn passed(
    environment: impl Iterator<Item = (OsString, OsString)>,
    inherit: &InheritEnv,
) -> impl Iterator<Item = (OsString, OsString)> {
    let patterns = match inherit {
        InheritEnv::All => vec!["*"],
        InheritEnv::Matching(more) => {
            let more = more.iter().map(String::as_str);
            let passed = [PASSED_VARIABLES, NEEDED_ON_WINDOWS].concat();
            passed.into_iter().chain(more).collect()
        }
    };
    let mut globs = GlobSetBuilder::new();
    // The configuration has none that is no glob.
    let valid = patterns.into_iter().filter_map(|text| Glob::new(text).ok());
    for glob in valid {
        globs.add(glob);
    }
    let globs = globs.build().unwrap_or_default();
    environment.filter(move |(name, _)| globs.is_match(name))
}

pub(super) fn build(settings: &StdioSettings) -> Command {
    let mut command = Command::new(&settings.command);
    let args = settings.args.iter().map(|arg| arg.expose_secret());
    command.args(args);
    let environment = passed(std::env::vars_os(), &settings.inherit_env);
    command.env_clear().envs(environment);
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

    fn names_passed(names: &[&str], inherit: &InheritEnv) -> Vec<OsString> {
        let environment = names.iter().map(|name| ((*name).into(), "x".into()));
        let passed = passed(environment, inherit);
        passed.map(|(name, _)| name).collect()
    }

    #[test]
    fn a_child_gets_what_programs_need_and_no_secrets() {
        let names = [
            ("PATH", true),
            ("LC_ALL", true),
            ("XDG_RUNTIME_DIR", true),
            ("HTTPS_PROXY", true),
            ("https_proxy", true),
            ("NO_PROXY", true),
            ("no_proxy", true),
            ("SSL_CERT_FILE", true),
            ("SSL_CERT_DIR", true),
            ("REQUESTS_CA_BUNDLE", true),
            ("NODE_EXTRA_CA_CERTS", true),
            ("KUBECONFIG", true),
            ("DOCKER_HOST", true),
            ("SSH_AUTH_SOCK", true),
            ("DISPLAY", true),
            ("WAYLAND_DISPLAY", true),
            ("npm_config_cache", true),
            ("UV_CACHE_DIR", true),
            ("AWS_SECRET_ACCESS_KEY", false),
            ("GITHUB_TOKEN", false),
            ("KUBE_TOKEN", false),
            ("npm_config__auth", false),
            ("path", false),
        ];
        let kept = names_passed(&names.map(|(name, _)| name), &InheritEnv::default());
        let expected = names.iter().filter(|(_, is_kept)| *is_kept);
        let expected: Vec<OsString> = expected.map(|(name, _)| (*name).into()).collect();
        assert_eq!(kept, expected);
    }

    #[test]
    fn more_variables_are_named_by_globs() {
        let names = ["AWS_REGION", "PATH", "MY_AWS_REGION", "GITHUB_TOKEN"];
        let aws = InheritEnv::Matching(vec!["AWS_*".to_owned()]);
        assert_eq!(names_passed(&names, &aws), ["AWS_REGION", "PATH"]);
        assert_eq!(names_passed(&names, &InheritEnv::All), names);
    }
}
