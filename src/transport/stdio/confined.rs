//! Starts a server in its sandbox: through the launcher, with a home of its own.

use std::env::{self, current_dir};
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use secrecy::ExposeSecret as _;
use tokio::process::Command;

use super::command::passed_by_name;
use crate::sandbox::{
    Confinement, LAUNCHER, Level, ORDER_VARIABLE, OUTER, OWN_BINARY, PlanInput, SandboxHost, plan,
};
use crate::transport::StdioSettings;

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
pub(super) fn confine(
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
    let args: Vec<&str> = settings.args.iter().map(|it| it.expose_secret()).collect();
    let env = settings.env.iter();
    let env: Vec<(&str, &str)> = env
        .map(|(name, value)| (name.as_str(), value.expose_secret()))
        .collect();
    let home = env::var_os("HOME").map(PathBuf::from);
    let npmrc = home.as_ref().map(|home| home.join(".npmrc"));
    let npmrc = npmrc.and_then(|path| fs::read_to_string(path).ok());
    let plan = plan(&PlanInput {
        settings: &settings.sandbox,
        support: sandbox.host.support(),
        server: &sandbox.server,
        command: &settings.command,
        args: &args,
        env: &env,
        passed: &passed_by_name(&settings.inherit_env),
        inherited: &|name| env::var(name).ok().filter(|value| !value.is_empty()),
        roots: &sandbox.roots,
        cwd: settings.cwd.as_deref(),
        gateway_cwd: &current_dir().unwrap_or_default(),
        home: home.as_deref(),
        npmrc: npmrc.as_deref().unwrap_or_default(),
        data_dir: sandbox.host.data_dir(),
        gateway_files: sandbox.host.gateway_files(),
    });
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

/// `PATH` of a command.
pub(super) fn search_path(command: &Command) -> OsString {
    let mut environment = command.as_std().get_envs();
    let path = environment.find(|(name, _)| *name == "PATH");
    let path = path.and_then(|(_, value)| value);
    path.unwrap_or_default().to_owned()
}
