//! `mcpvisor serve` and `mcpvisor stdio`: starts the gateway, and stops it on a signal.

use std::io::IsTerminal as _;
use std::mem::ManuallyDrop;
use std::path::Path;
use std::time::Duration;

use mcpvisor::config::{Config, Loaded, LogFormat, Lookup, ProcessEnvironment};
use mcpvisor::gateway::{Clients, ConfigFile, ConfigOverrides, Gateway, ServerCounts, service};
use mcpvisor::id::ViewId;
use mcpvisor::telemetry::LogRecords;
use mcpvisor::{telemetry, transport};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::output::CliError;

/// Interval for printing the number of servers that are up.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// How clients reach the gateway.
pub(crate) enum ServeMode {
    Http,
    /// One client on stdin and stdout, which uses this view.
    Stdio(ViewId),
}

impl ServeMode {
    fn lookup(&self) -> Lookup {
        match self {
            Self::Http => Lookup::WorkingDirectory,
            Self::Stdio(_) => Lookup::User,
        }
    }
}

pub(crate) fn serve(path: Option<&Path>, mode: ServeMode, stateless: bool) -> Result<(), CliError> {
    // Must run before the first thread starts, since it changes the environment.
    let inherited = match mode {
        ServeMode::Http => service::inherited_listener()?,
        ServeMode::Stdio(_) => None,
    };
    service::hide_from_servers();
    transport::install_crypto_provider();
    transport::raise_open_files();
    let mut environment = ProcessEnvironment::new();
    if let Some(listener) = &inherited {
        environment.listens_on(listener.local_addr()?);
    }
    let overrides = ConfigOverrides {
        stateless,
        server: match &mode {
            ServeMode::Stdio(ViewId::Server(name)) => Some(name.clone()),
            ServeMode::Stdio(_) | ServeMode::Http => None,
        },
    };
    let path = path.map(Path::to_owned);
    let (file, loaded) = ConfigFile::open(path, mode.lookup(), environment, overrides)?;
    if let ServeMode::Stdio(view) = &mode {
        check_view(&loaded.config, view)?;
    }
    let log = start_logging(&loaded);
    // Never dropped, because that would wait for threads blocked on a hanging disk.
    let system = ManuallyDrop::new(actix::System::new());
    let clients = match mode {
        ServeMode::Http => Clients::Http(inherited),
        ServeMode::Stdio(view) => Clients::Stdio(view),
    };
    system.block_on(run_gateway(file, loaded, clients, log))
}

/// Rejects a view that does not exist.
fn check_view(config: &Config, view: &ViewId) -> Result<(), CliError> {
    let (exists, place) = match view {
        ViewId::Default => (true, String::new()),
        ViewId::Named(name) => (config.views.contains_key(name), format!("[views.{name}]")),
        ViewId::Server(name) => {
            let mut servers = config.servers.iter();
            let exists = servers.any(|server| server.name == *name);
            (exists, format!("[servers.{name}]"))
        }
    };
    match exists {
        true => Ok(()),
        false => Err(format!("there is no `{place}` in the configuration").into()),
    }
}

/// Runs a gateway until it ends, or a signal ends it.
async fn run_gateway(
    file: ConfigFile,
    loaded: Loaded,
    clients: Clients,
    log: LogRecords,
) -> Result<(), CliError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut gateway = Box::pin(Gateway::start(file, loaded, clients, log)).await?;
    print_next_steps(&gateway);
    let report = AbortOnDropHandle::new(actix::spawn(report_start(gateway.server_counts())));
    let ended = tokio::select! {
        ended = gateway.ended() => ended,
        _ = terminate.recv() => Ok(()),
        _ = tokio::signal::ctrl_c() => Ok(()),
    };
    drop(report);
    tokio::select! {
        () = gateway.stop() => Ok(ended?),
        _ = terminate.recv() => Err("stopped immediately by a second signal".into()),
        _ = tokio::signal::ctrl_c() => Err("stopped immediately by a second signal".into()),
    }
}

/// Logs how many servers are up, until all have started or failed. Only on a terminal.
async fn report_start(counts: impl Fn() -> ServerCounts) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    let mut reported = None;
    loop {
        sleep(TELL_EVERY).await;
        let counts = counts();
        if reported.replace(counts) != Some(counts) {
            log::info!("{counts}");
        }
        if counts.starting == 0 {
            return;
        }
    }
}

/// Prints what to do next. Only on a terminal, because the link signs in and must not be logged.
fn print_next_steps(gateway: &Gateway) {
    let Some(link) = gateway
        .login_link()
        .filter(|_| std::io::stderr().is_terminal())
    else {
        return;
    };
    for (what, how) in [
        ("Add a server:", "mcpvisor servers add NAME -- PROGRAM …"),
        ("Connect a client:", "mcpvisor clients connect CLIENT"),
        ("Open the dashboard:", link.as_str()),
    ] {
        telemetry::print_line(&format!("{what:<20} {how}"));
    }
}

fn start_logging(loaded: &Loaded) -> LogRecords {
    let log = telemetry::init_logging(match loaded.config.log {
        LogFormat::Json => true,
        LogFormat::Human => false,
        LogFormat::Auto => !std::io::stderr().is_terminal(),
    });
    for warning in &loaded.warnings {
        log::warn!("{warning}");
    }
    log
}
