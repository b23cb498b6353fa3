//! Builds the command line and environment of a child.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::process::Stdio;

use globset::{Glob, GlobSetBuilder};
use secrecy::ExposeSecret as _;
use tokio::process::Command;

use crate::transport::{InheritEnv, StdioSettings};

/// Variables that a child always inherits: what programs need to find other programs, their home
/// directory, language, display, network and the services that they exist for. All names are
/// complete, because a pattern would also match secrets.
pub const PASSED_VARIABLES: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_ADDRESS",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_IDENTIFICATION",
    "LC_MEASUREMENT",
    "LC_MESSAGES",
    "LC_MONETARY",
    "LC_NAME",
    "LC_NUMERIC",
    "LC_PAPER",
    "LC_TELEPHONE",
    "LC_TIME",
    "TZ",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_DIRS",
    "XDG_CONFIG_HOME",
    "XDG_CURRENT_DESKTOP",
    "XDG_DATA_DIRS",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_SESSION_TYPE",
    "XDG_STATE_HOME",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
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

/// No program starts on Windows without these.
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

/// Variables that are only passed if listed by their full name: access to the user's SSH agent and
/// keyring, and proxies, whose addresses can contain a password.
fn needs_its_name(name: &str) -> bool {
    let is_proxy = name.to_ascii_lowercase().ends_with("_proxy");
    is_proxy || matches!(name, "SSH_AUTH_SOCK" | "DBUS_SESSION_BUS_ADDRESS")
}

/// Variables for the gateway only: the key of its tokens, and variables of a service manager.
const GATEWAY_ONLY: [&str; 6] = [
    "MCPVISOR_CREDENTIALS_KEY",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "LISTEN_PID",
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
];

/// The part of `environment` that a child inherits.
fn passed(
    environment: impl Iterator<Item = (OsString, OsString)>,
    inherit: &InheritEnv,
) -> impl Iterator<Item = (OsString, OsString)> {
    let more: &[String] = match inherit {
        InheritEnv::All => &[],
        InheritEnv::Matching(more) => more,
    };
    let is_all = *inherit == InheritEnv::All;
    let named = [PASSED_VARIABLES, NEEDED_ON_WINDOWS].concat().into_iter();
    let named: HashSet<&str> = named.chain(more.iter().map(String::as_str)).collect();
    let mut globs = GlobSetBuilder::new();
    // The configuration was checked to contain only valid globs.
    for glob in more.iter().filter_map(|text| Glob::new(text).ok()) {
        globs.add(glob);
    }
    let globs = globs.build().unwrap_or_default();
    environment.filter(move |(name, _)| {
        let text = name.to_string_lossy();
        is_all || named.contains(&*text) || globs.is_match(name) && !needs_its_name(&text)
    })
}

/// The names that a child inherits because they are listed in full.
pub(super) fn passed_by_name(inherit: &InheritEnv) -> Vec<&str> {
    match inherit {
        InheritEnv::All => Vec::new(),
        InheritEnv::Matching(names) => names.iter().map(String::as_str).collect(),
    }
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

/// Explains why a start failed, with advice.
pub(super) fn explain(settings: &StdioSettings, error: &io::Error) -> String {
    if let Some(cwd) = settings.cwd.as_ref().filter(|cwd| !cwd.is_dir()) {
        return format!("working directory {} does not exist", cwd.display());
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
            ("SSH_AUTH_SOCK", false),
            ("DBUS_SESSION_BUS_ADDRESS", false),
            ("MY_SECRET_PROXY", false),
            ("LC_SECRET", false),
            ("XDG_SECRET", false),
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

    #[test]
    fn what_leads_to_an_agent_or_a_proxy_is_passed_by_its_full_name_only() {
        let names = [
            "SSH_AUTH_SOCK",
            "SSH_TTY",
            "DBUS_SESSION_BUS_ADDRESS",
            "MY_PROXY",
            "my_proxy",
            "My_Proxy",
        ];
        let with = |patterns: &[&str]| {
            let patterns = patterns.iter().map(|it| (*it).to_owned()).collect();
            names_passed(&names, &InheritEnv::Matching(patterns))
        };
        for pattern in [
            "*",
            "SSH_*",
            "[S]SH_AUTH_SOCK",
            "*{_PROXY,_SOCK,TTY}",
            "?*",
            "DBUS_SESSION_BUS_ADDRES?",
        ] {
            let passed = with(&[pattern]);
            assert!(
                passed.iter().all(|name| name == "SSH_TTY"),
                "{pattern}: {passed:?}"
            );
        }
        for name in names {
            assert_eq!(with(&[name]), [name]);
        }
        assert_eq!(names_passed(&names, &InheritEnv::All), names);
    }
}
