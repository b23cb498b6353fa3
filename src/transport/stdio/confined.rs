//! Starts a server in its sandbox: through the launcher, with a home of its own.

use std::env::{self, current_dir};
use std::ffi::OsString;
use std::fs::{File, metadata};
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use secrecy::ExposeSecret as _;
use tokio::process::Command;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::command::passed_by_name;
use crate::masking::shown_arguments;
use crate::sandbox::{
    Confinement, LAUNCHER, Level, ORDER_VARIABLE, OUTER, OWN_BINARY, Plan, PlanInput, SandboxHost,
    plan,
};
use crate::transport::StdioSettings;

/// Part of `~/.npmrc` that is read, in bytes.
const NPMRC_MAX: u64 = 64 << 10;

/// Time to read `~/.npmrc`; a home can be on a network.
const NPMRC_WAIT: Duration = Duration::from_secs(2);

/// The sandbox of one server, apart from its own settings.
#[derive(Clone, Debug)]
pub struct ServerSandbox {
    pub host: SandboxHost,
    pub server: String,
    /// Roots (`file://` URIs) of the server.
    pub roots: Vec<String>,
}

/// A command, and the confinement that it runs in, if any.
pub(super) struct Confined {
    pub(super) command: Command,
    pub(super) confinement: Option<Arc<Confinement>>,
}

/// Wraps the command of a server.
pub(super) async fn confine(
    command: Command,
    settings: &StdioSettings,
    sandbox: Option<&ServerSandbox>,
) -> Confined {
    let level = settings.sandbox.level();
    let Some(sandbox) = sandbox.filter(|_| level != Level::Off && cfg!(target_os = "linux")) else {
        return Confined {
            command,
            confinement: None,
        };
    };
    // A server that is tried out can be the first program.
    sandbox.host.detect().await;
    let args: Vec<&str> = settings.args.iter().map(|it| it.expose_secret()).collect();
    let env = settings.env.iter();
    let env: Vec<(&str, &str)> = env
        .map(|(name, value)| (name.as_str(), value.expose_secret()))
        .collect();
    let npmrc = match user_home() {
        Some(home) => npmrc(home).await,
        None => String::new(),
    };
    let plan = plan_of(settings, sandbox, (&args, &env), &npmrc);
    // A path that is not valid UTF-8 cannot be configured.
    let order = serde_json::to_string(&plan.confinement).unwrap_or_default();
    let inner = command.as_std();
    let mut outer = Command::new(OWN_BINARY);
    outer.arg0("mcpvisor").args([LAUNCHER, OUTER]);
    outer.arg(inner.get_program()).args(inner.get_args());
    let environment = inner.get_envs();
    let environment = environment.filter_map(|(name, value)| Some((name, value?)));
    outer.env_clear().envs(environment);
    for name in &plan.removed {
        outer.env_remove(name);
    }
    outer.envs(plan.variables).env(ORDER_VARIABLE, order);
    if let Some(directory) = inner.get_current_dir() {
        outer.current_dir(directory);
    }
    outer
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Confined {
        command: outer,
        confinement: Some(Arc::new(plan.confinement)),
    }
}

fn plan_of(
    settings: &StdioSettings,
    sandbox: &ServerSandbox,
    (args, env): (&[&str], &[(&str, &str)]),
    npmrc: &str,
) -> Plan {
    plan(&PlanInput {
        settings: &settings.sandbox,
        support: &sandbox.host.support(),
        server: &sandbox.server,
        command: &settings.command,
        args,
        env,
        passed: &passed_by_name(&settings.inherit_env),
        inherited: &|name| env::var(name).ok().filter(|value| !value.is_empty()),
        roots: &sandbox.roots,
        cwd: settings.cwd.as_deref(),
        gateway_cwd: &current_dir().unwrap_or_default(),
        home: user_home().as_deref(),
        npmrc,
        data_dir: sandbox.host.data_dir(),
        gateway_files: sandbox.host.gateway_files(),
    })
}

fn user_home() -> Option<PathBuf> {
    env::var_os("HOME").map(PathBuf::from)
}

/// Tells in sentences what the program of a server can reach. Values of variables and secret
/// arguments can look like paths, so none of them appears.
pub(super) fn sentences(settings: &StdioSettings, sandbox: &ServerSandbox) -> Vec<String> {
    if settings.sandbox.level() == Level::Off || !cfg!(target_os = "linux") {
        return vec![
            "It runs without a sandbox, with all rights of the gateway's user.".to_owned(),
        ];
    }
    let args = settings.args.iter().map(|it| it.expose_secret());
    let args = shown_arguments(args, "…");
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let plan = plan_of(settings, sandbox, (&args, &[]), "");
    let mut sentences = plan.confinement.sentences();
    if !settings.env.is_empty() {
        sentences.push("It also writes to paths that its `env` names.".to_owned());
    }
    sentences
}

/// The settings that npm reads from a home; empty if they cannot be read.
async fn npmrc(home: PathBuf) -> String {
    let path = home.join(".npmrc");
    let read = spawn_blocking(move || -> io::Result<String> {
        let mut text = String::new();
        // Opening a pipe would wait for its writer.
        if metadata(&path)?.is_file() {
            File::open(&path)?
                .take(NPMRC_MAX)
                .read_to_string(&mut text)?;
        }
        Ok(text)
    });
    let read = timeout(NPMRC_WAIT, read).await;
    read.ok()
        .and_then(Result::ok)
        .and_then(Result::ok)
        .unwrap_or_default()
}

/// `PATH` of a command.
pub(super) fn search_path(command: &Command) -> OsString {
    let mut environment = command.as_std().get_envs();
    let path = environment.find(|(name, _)| *name == "PATH");
    let path = path.and_then(|(_, value)| value);
    path.unwrap_or_default().to_owned()
}
