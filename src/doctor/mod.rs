//! `mcpvisor doctor`: looks for problems of this machine and this configuration concurrently, and
//! suggests fixes. Findings contain no secrets.

mod cluster;
mod endpoint;
mod finding;
mod machine;
mod programs;
mod running;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{self, Stream};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::admin::Status;
use crate::cluster::EngineSpec;
use crate::config::{
    Config, ConfigError, Environment, Loaded, ServerEntry, ServerState, program_path,
    unable_servers,
};
use crate::downstream::{TransportSettings, unpinned};
use crate::telemetry::counted;
use crate::transport::{Tls, TreeLimits};

pub use finding::{Finding, Level, report_json, report_text};

/// Timeout of a single check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(15);

/// Maximum concurrent checks.
const CHECKS_AT_ONCE: usize = 32;

/// The machine and configuration to examine.
pub struct Subject<'s> {
    pub loaded: &'s Result<Loaded, ConfigError>,
    /// `None` if the configuration could not be read far enough to know it.
    pub data_dir: Option<&'s Path>,
    /// Status of the gateway that runs with the configuration, if one does.
    pub status: Option<&'s Status>,
    pub environment: &'s dyn Environment,
    /// Describes which process uses an address.
    pub address_in_use: fn(SocketAddr) -> String,
}

/// A check: a name for progress display, and the work.
pub struct Check {
    pub name: String,
    work: LocalBoxFuture<'static, Vec<Finding>>,
}

impl Check {
    fn new(name: impl Into<String>, work: impl Future<Output = Vec<Finding>> + 'static) -> Self {
        Self {
            name: name.into(),
            work: Box::pin(work),
        }
    }

    /// A check that may block its thread.
    fn blocking(
        name: impl Into<String>,
        work: impl FnOnce() -> Vec<Finding> + Send + 'static,
    ) -> Self {
        Self::new(name, async {
            // Fails when the work panics.
            spawn_blocking(work).await.unwrap_or_default()
        })
    }

    /// Runs the check, with a timeout.
    async fn run(self) -> (String, Vec<Finding>) {
        let found = timeout(CHECK_TIMEOUT, self.work).await;
        let late = || {
            let seconds = CHECK_TIMEOUT.as_secs();
            let message = format!("{}: no result within {seconds} seconds", self.name);
            vec![
                Finding::error("doctor", message)
                    .advice("check whether the machine or its network hangs"),
            ]
        };
        (self.name.clone(), found.unwrap_or_else(|_| late()))
    }
}

/// Runs checks concurrently; yields the name and findings of each as it completes.
pub fn run_checks(checks: Vec<Check>) -> impl Stream<Item = (String, Vec<Finding>)> {
    stream::iter(checks)
        .map(Check::run)
        .buffer_unordered(CHECKS_AT_ONCE)
}

/// Findings available immediately, and the checks that take time.
pub fn checks(subject: &Subject<'_>) -> (Vec<Finding>, Vec<Check>) {
    let mut found = config_findings(subject);
    found.extend(running::findings(subject.status));
    let front = subject.loaded.as_ref().map(|it| it.config.front.clone());
    let front = front.unwrap_or_default();
    let mut checks = vec![Check::blocking("machine", move || machine::limits(&front))];
    if let Some(data_dir) = subject.data_dir.map(Path::to_owned) {
        let check = move || machine::data_dir(&data_dir);
        checks.push(Check::blocking("data directory", check));
    }
    let Ok(loaded) = subject.loaded else {
        return (found, checks);
    };
    let config = &loaded.config;
    if let Some(path) = loaded.path.clone() {
        checks.push(Check::blocking("configuration", move || {
            machine::config_file(&path)
        }));
    }
    // A file of CAs that cannot be read fails the gateway's start, with its name.
    let ca = config.cluster.engine_ca.as_ref();
    let ca = ca.and_then(|path| std::fs::read(path).ok());
    let engine = config.cluster.replica().map(|(engine, ..)| engine);
    if let Some(Ok(engine)) = engine.map(|engine| EngineSpec::parse(&engine, ca)) {
        checks.push(Check::new("cluster", cluster::findings(engine)));
    }
    let vault = config.vault(subject.environment);
    checks.push(Check::blocking("credentials", move || {
        machine::vault(&vault)
    }));
    let programs = config.servers.iter();
    if programs.filter_map(ServerEntry::sandbox).next().is_some() {
        checks.push(Check::new("sandbox", machine::sandbox()));
    }
    let held = subject.status.and_then(|status| {
        let listen = status.listen.parse().ok()?;
        Some((listen, u64::from(status.pid)))
    });
    let (listen, address_in_use) = (config.front.listen, subject.address_in_use);
    if config.front.socket.is_none() {
        checks.push(Check::blocking("port", move || {
            machine::port(listen, held, address_in_use)
        }));
    }
    if let Some(pid) = subject.status.map(|status| status.pid)
        && cfg!(target_os = "linux")
    {
        let is_needed = config.servers.iter().any(has_tree_limits);
        checks.push(Check::blocking("control groups", move || {
            machine::cgroups(pid, is_needed)
        }));
    }
    let (of_programs, mut of_urls) = server_checks(config, subject.environment);
    checks.extend(of_programs);
    checks.append(&mut of_urls);
    (found, checks)
}

fn has_tree_limits(server: &ServerEntry) -> bool {
    let ServerState::Ready(settings) = &server.state else {
        return false;
    };
    match &settings.transport {
        TransportSettings::Stdio(stdio) => stdio.limits.tree != TreeLimits::default(),
        TransportSettings::Http(_) => false,
    }
}

fn config_findings(subject: &Subject<'_>) -> Vec<Finding> {
    let loaded = match subject.loaded {
        Ok(loaded) => loaded,
        Err(error) => {
            let advice = "fix the file; `mcpvisor check` shows only these errors";
            return vec![Finding::error("config", error.to_string()).advice(advice)];
        }
    };
    let path = loaded.path.as_ref();
    let path = path.map_or("built in".to_owned(), |path| path.display().to_string());
    let servers = counted(loaded.config.servers.len() as u64, "server", "servers");
    let mut found = vec![Finding::good("config", format!("{path}: {servers}"))];
    let warnings = loaded.warnings.iter();
    found.extend(warnings.map(|warning| Finding::warning("config", warning.clone())));
    let unable = unable_servers(&loaded.config, subject.environment);
    found.extend(unable.into_iter().map(|why| Finding::error("server", why)));
    found.extend(loaded.config.servers.iter().filter_map(unpinned_finding));
    found
}

/// A server that can run other code after any restart.
fn unpinned_finding(server: &ServerEntry) -> Option<Finding> {
    let ServerState::Ready(settings) = &server.state else {
        return None;
    };
    let TransportSettings::Stdio(stdio) = &settings.transport else {
        return None;
    };
    let (name, package) = (&server.name, unpinned(stdio)?);
    let message = format!("server `{name}` runs the newest version of {package} at each start");
    let advice = format!("`mcpvisor servers upgrade {name} --to VERSION` pins a version");
    Some(Finding::note("version", message).advice(advice))
}

/// Checks of URLs, and of programs, each program once regardless of how many servers use it.
fn server_checks(config: &Config, environment: &dyn Environment) -> (Vec<Check>, Vec<Check>) {
    let mut programs: Vec<(PathBuf, Vec<String>)> = Vec::new();
    let mut urls = Vec::new();
    let tls = Tls::system();
    for entry in &config.servers {
        let ServerState::Ready(settings) = &entry.state else {
            continue;
        };
        let name = entry.name.to_string();
        match &settings.transport {
            TransportSettings::Http(http) => {
                let (http, tls) = (http.clone(), tls.with_files(&http.tls_files));
                let shown = format!("server `{name}`");
                urls.push(Check::blocking(shown, move || {
                    endpoint::findings(&name, &http, &tls)
                }));
            }
            TransportSettings::Stdio(stdio) => {
                // The configuration check reports missing programs.
                let Ok(path) = program_path(stdio, environment) else {
                    continue;
                };
                match programs.iter_mut().find(|(known, _)| *known == path) {
                    Some((_, servers)) => servers.push(name),
                    None => programs.push((path, vec![name])),
                }
            }
        }
    }
    let mut checks = programs::runtimes(environment, &programs);
    checks.extend(programs.into_iter().map(|(path, servers)| {
        let shown = format!("program {}", path.display());
        Check::new(shown, programs::version_finding(path, servers))
    }));
    (checks, urls)
}
