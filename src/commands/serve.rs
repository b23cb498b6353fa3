//! `mcpvisor serve` and `mcpvisor stdio`: configuration, gateway, signals, drain.

use std::io::IsTerminal as _;
use std::mem::ManuallyDrop;
use std::net::TcpListener;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use mcpvisor::admin::ConfigRequest;
use mcpvisor::config::watch::{Changed, Watch, WatchSettings};
use mcpvisor::config::{
    Config, ConfigError, Fingerprint, Loaded, LoadedFile, LogFormat, Lookup, ProcessEnvironment,
    ServerFile,
};
use mcpvisor::gateway::service::{self, ServiceState};
use mcpvisor::gateway::{Gateway, ServerCounts};
use mcpvisor::id::ViewId;
use mcpvisor::protocol::Failure;
use mcpvisor::telemetry::LogRecords;
use mcpvisor::{telemetry, transport};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Interval, interval};
use uuid::Uuid;

use super::output::CliError;

/// How often the number of servers that are up is printed.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// How clients reach the gateway.
pub(crate) enum ServeMode {
    Http,
    /// One client, over stdin and stdout, that enters by this view.
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
    // Before the first thread starts, since this changes the environment.
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
    let load = |path: Option<&Path>| {
        let mut loaded = Config::load(path, mode.lookup(), &environment)?;
        if stateless {
            loaded.config = loaded.config.without_sessions();
        }
        if let ServeMode::Stdio(ViewId::Server(name)) = &mode {
            loaded.config = loaded.config.for_server(name);
        }
        Ok::<_, ConfigError>(loaded)
    };
    let loaded = load(path)?;
    if let ServeMode::Stdio(view) = &mode {
        check_view(&loaded.config, view)?;
    }
    let log = start_logging(&loaded);
    let found = loaded.path.clone();
    // One that is not there yet is looked for again.
    let reload = || load(found.as_deref().or(path));
    let file = match (&found, &mode) {
        (None, ServeMode::Http) => Some(Config::file_to_write(path, &environment)?),
        (found, _) => found.clone(),
    };
    let open = || ServerFile::new(file.as_deref(), &environment, Uuid::new_v4);
    let file = ConfigFile {
        path: file.as_deref(),
        reload: &reload,
        open: &open,
    };
    // Never dropped: that would wait for the threads of a disk that hangs.
    let system = ManuallyDrop::new(actix::System::new());
    system.block_on(run_gateway(loaded, &mode, (inherited, log), file))
}

/// The file that a gateway runs with.
struct ConfigFile<'a> {
    /// It may not be there yet; `None` is the built-in one for good.
    path: Option<&'a Path>,
    /// Reads it again.
    reload: &'a dyn Fn() -> Result<Loaded, ConfigError>,
    /// Opens it to be shown or changed.
    open: &'a dyn Fn() -> Result<ServerFile<'a>, Failure>,
}

impl ConfigFile<'_> {
    /// All files that a change is noticed of: those that were read, or the one that is not there yet.
    fn watched(&self, loaded: &Loaded) -> Vec<LoadedFile> {
        let fingerprint = Fingerprint::of(&[]);
        let missing = self.path.filter(|_| loaded.path.is_none());
        let missing = missing.map(|path| LoadedFile {
            path: path.to_owned(),
            fingerprint,
        });
        loaded.files.iter().cloned().chain(missing).collect()
    }
}

/// Refuses a view that shows nothing.
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
    file: ConfigFile<'_>,
) -> Result<(), CliError> {
    // A terminal that closes sends SIGHUP, too, and takes the gateway with it as any other program.
    let had_terminal = std::io::stdin().is_terminal();
    let mut hangup = signal(SignalKind::hangup())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let is_watched = loaded.config.watch && file.path.is_some();
    // One change stands for all until it is taken.
    let (report, mut changes) = mpsc::channel(1);
    let settings = WatchSettings::default();
    let mut watch =
        is_watched.then(|| Watch::start(&file.watched(&loaded), &settings, report.clone()));
    let mut read_again = || {
        let loaded = (file.reload)();
        if let (Some(watch), Ok(loaded)) = (&mut watch, &loaded) {
            watch.follow(&file.watched(loaded));
        }
        loaded
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
            () = starting.due() => {
                starting.print(&gateway.server_counts());
                continue;
            }
            Some(Changed) = changes.recv() => {
                // A change by the API is in force already.
                if read_again().is_ok_and(|loaded| gateway.has_applied(&loaded)) {
                    continue;
                }
            }
            Some(request) = gateway.config_request() => {
                change_file(&mut gateway, request, &file, &mut read_again).await;
                continue;
            }
            Some(()) = hangup.recv() => {
                if had_terminal && !std::io::stdin().is_terminal() {
                    break;
                }
                log::info!("SIGHUP: configuration is read again");
            }
            _ = terminate.recv() => break,
            _ = tokio::signal::ctrl_c() => break,
            () = &mut client_left => break,
        }
        service::notify(ServiceState::Reloading);
        gateway.reload(read_again());
        service::notify(ServiceState::Ready(gateway.summary()));
    }
    stop(gateway, terminate).await
}

/// Ends with the client of stdio; without one, never.
async fn ended(client: Option<impl Future<Output = ()>>) {
    match client {
        Some(client) => client.await,
        None => std::future::pending().await,
    }
}

/// Stops in order, unless a second signal comes meanwhile.
async fn stop(gateway: Gateway, mut terminate: Signal) -> Result<(), CliError> {
    service::notify(ServiceState::Stopping);
    tokio::select! {
        () = gateway.stop() => Ok(()),
        _ = terminate.recv() => Err("stopped at once by a second signal".into()),
        _ = tokio::signal::ctrl_c() => Err("stopped at once by a second signal".into()),
    }
}

/// Prints at a terminal how many servers are up, until all are or failed.
struct StartReport {
    /// `None` once there is nothing more to print.
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

/// Carries out what an operator asks for, and answers when it is in force.
async fn change_file(
    gateway: &mut Gateway,
    request: ConfigRequest,
    file: &ConfigFile<'_>,
    read_again: &mut dyn FnMut() -> Result<Loaded, ConfigError>,
) {
    // A client may have left before its answer.
    match request {
        ConfigRequest::Servers {
            order,
            if_match,
            reply,
        } => {
            let opened = (file.open)();
            let outcome = opened.and_then(|file| file.carry_out(order, if_match.as_deref()));
            let answer = match outcome {
                Ok(outcome) => {
                    if outcome.changed.is_some() {
                        gateway.reload(read_again());
                    }
                    Ok(gateway.with_times(outcome).await)
                }
                Err(refused) => Err(refused),
            };
            let _ = reply.send(answer);
        }
        ConfigRequest::File {
            order,
            if_match,
            reply,
        } => {
            let opened = (file.open)();
            let outcome = opened.and_then(|file| file.carry_out_whole(order, if_match.as_deref()));
            let _ = reply.send(outcome.map(|outcome| {
                if outcome.is_replaced {
                    gateway.reload(read_again());
                }
                outcome.answer
            }));
        }
        ConfigRequest::Reload { reply } => {
            gateway.reload(read_again());
            let _ = reply.send(gateway.config_view());
        }
    }
}

/// For whoever sits before the terminal; a log is no place for it.
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
