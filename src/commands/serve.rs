//! `mcpvisor serve` and `mcpvisor stdio`: configuration, gateway, signals, and shutdown.

use std::io::IsTerminal as _;
use std::mem::ManuallyDrop;
use std::net::TcpListener;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use mcpvisor::config::watch::{Changed, Watch, WatchSettings};
use mcpvisor::config::{Config, Loaded, LogFormat, Lookup, ProcessEnvironment};
use mcpvisor::gateway::service::{self, ServiceState};
use mcpvisor::gateway::{Gateway, ServerCounts};
use mcpvisor::id::ViewId;
use mcpvisor::telemetry::LogRecords;
use mcpvisor::{telemetry, transport};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Interval, interval};

use super::config_file::{Cause, ConfigFile, ConfigOverrides, ConfigWork, Done, Reading};
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
    system.block_on(run_gateway(loaded, &mode, (inherited, log), Arc::new(file)))
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

/// Runs a gateway until a signal or its only client ends it.
async fn run_gateway(
    loaded: Loaded,
    mode: &ServeMode,
    (inherited, log): (Option<TcpListener>, LogRecords),
    file: Arc<ConfigFile>,
) -> Result<(), CliError> {
    // A closing terminal also sends SIGHUP, and ends the gateway like any other program.
    let had_terminal = std::io::stdin().is_terminal();
    let mut hangup = signal(SignalKind::hangup())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let is_watched = loaded.config.watch && file.has_path();
    // One queued notification covers all changes until it is received.
    let (report, mut changes) = mpsc::channel(1);
    let settings = WatchSettings::default();
    let mut watch =
        is_watched.then(|| Watch::start(&file.watched(&loaded), &settings, report.clone()));
    let mut work = ConfigWork::new(Arc::clone(&file), report.clone());
    let mut follow = move |loaded: &Loaded| {
        if let Some(watch) = &mut watch {
            watch.follow(&file.watched(loaded));
        }
    };
    let mut gateway = match mode {
        ServeMode::Http => Box::pin(Gateway::start(loaded, inherited, log)).await?,
        ServeMode::Stdio(_) => Box::pin(Gateway::start_for_stdio(loaded, log)).await?,
    };
    let client = match mode {
        ServeMode::Http => None,
        ServeMode::Stdio(view) => Some(gateway.serve_stdio(view.clone())?),
    };
    let mut client_left = pin!(ended(client));
    gateway.follow_sources(move || {
        let _ = report.try_send(Changed);
    });
    print_access(&gateway);
    service::notify(ServiceState::Ready(gateway.summary()));
    let mut starting = StartReport::new();
    loop {
        tokio::select! {
            () = starting.due() => starting.print(&gateway.server_counts()),
            done = work.done() => put_in_force(&mut gateway, done, &mut follow).await,
            Some(Changed) = changes.recv(), if work.is_free() => work.read(Cause::Changed),
            Some(request) = gateway.config_request(), if work.is_free() => work.carry_out(request),
            Some(()) = hangup.recv() => {
                if had_terminal && !std::io::stdin().is_terminal() {
                    break;
                }
                log::info!("SIGHUP received; reloading the configuration");
                service::notify(ServiceState::Reloading);
                work.read(Cause::Asked);
            }
            _ = terminate.recv() => break,
            _ = tokio::signal::ctrl_c() => break,
            () = &mut client_left => break,
        }
    }
    stop(gateway, terminate).await
}

/// Completes when the stdio client disconnects; without one, never.
async fn ended(client: Option<impl Future<Output = ()>>) {
    match client {
        Some(client) => client.await,
        None => std::future::pending().await,
    }
}

/// Shuts down gracefully, unless a second signal arrives.
async fn stop(gateway: Gateway, mut terminate: Signal) -> Result<(), CliError> {
    service::notify(ServiceState::Stopping);
    tokio::select! {
        () = gateway.stop() => Ok(()),
        _ = terminate.recv() => Err("stopped at once by a second signal".into()),
        _ = tokio::signal::ctrl_c() => Err("stopped at once by a second signal".into()),
    }
}

/// Prints how many servers are up, until all have started or failed. Only on a terminal.
struct StartReport {
    /// `None` once nothing is left to print.
    every: Option<Interval>,
    printed: Option<ServerCounts>,
}

impl StartReport {
    fn new() -> Self {
        let every = std::io::stderr().is_terminal().then(|| {
            let mut every = interval(TELL_EVERY);
            every.reset();
            every
        });
        Self {
            every,
            printed: None,
        }
    }

    async fn due(&mut self) {
        match &mut self.every {
            Some(every) => drop(every.tick().await),
            None => std::future::pending().await,
        }
    }

    fn print(&mut self, counts: &ServerCounts) {
        if self.printed.as_ref() != Some(counts) {
            log::info!("{counts}");
            self.printed = Some(*counts);
        }
        if counts.starting == 0 {
            self.every = None;
        }
    }
}

/// Applies the result of a read, and answers the request that caused it.
async fn put_in_force(gateway: &mut Gateway, done: Done, follow: &mut dyn FnMut(&Loaded)) {
    // A reload by SIGHUP was already announced to the service manager.
    let is_announced = matches!(done, Done::Read(_, Cause::Asked));
    let mut reload = |gateway: &mut Gateway, reading: Reading| {
        if let Ok(loaded) = &reading {
            follow(loaded);
        }
        if !is_announced {
            service::notify(ServiceState::Reloading);
        }
        gateway.reload(reading);
        service::notify(ServiceState::Ready(gateway.summary()));
    };
    // The client may have disconnected before its answer.
    match done {
        // A change through the API has already been applied.
        Done::Read(Ok(loaded), Cause::Changed) if gateway.has_applied(&loaded) => follow(&loaded),
        Done::Read(reading, _) => reload(gateway, reading),
        Done::Reload(reading, reply) => {
            reload(gateway, reading);
            let _ = reply.send(gateway.config_view());
        }
        Done::Servers((outcome, reading), reply) => {
            reading.into_iter().for_each(|it| reload(gateway, it));
            let _ = reply.send(match outcome {
                Ok(outcome) => Ok(gateway.with_times(outcome).await),
                Err(refused) => Err(refused),
            });
        }
        Done::File((outcome, reading), reply) => {
            reading.into_iter().for_each(|it| reload(gateway, it));
            let _ = reply.send(outcome.map(|it| it.answer));
        }
    }
}

/// Prints the token and a sign-in link. Only on a terminal, because secrets must not be logged.
fn print_access(gateway: &Gateway) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    if let Some(token) = gateway.api_token() {
        telemetry::print_line(&format!("API token: {token}"));
    }
    if let Some(link) = gateway.login_link() {
        telemetry::print_line(&format!("Dashboard: {link}"));
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
