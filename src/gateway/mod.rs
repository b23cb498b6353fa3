//! The whole gateway: builds the tree, applies configuration changes, and shuts down in order.

mod applied_config;
mod build;
mod cluster;
mod config_file;
mod config_reader;
mod config_task;
mod configured;
mod credentials;
mod health;
mod history;
mod key_uses;
mod operator;
mod place;
mod saved_state;
mod secrets;
mod server_counts;
mod server_times;
pub mod service;
mod sources;
mod startup;
mod state_place;
mod stdio;
mod stop;
mod stored_notices;
mod tls;
mod watchdog;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use tokio::sync::watch;
use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use crate::admin::{
    AdminEndpoints, CrashWriter, DataDir, GatewayState, LocalServer, MetricsExporter,
    MetricsServer, Operator, Registration,
};
use crate::cluster::Cluster;
use crate::config::{Config, Loaded};
use crate::downstream::ServerSettings;
use crate::front::{FrontServer, TlsError};
use crate::sandbox::SandboxHost;
use crate::store::{DirectoryLease, DurableStore, OpenError};
use crate::supervision::Arbiters;
use crate::telemetry::{Counters, LogRecords, unix_millis};
use crate::transport::{ProcessOwner, Spawner};
use applied_config::AppliedConfig;
use build::{TreeInputs, build};
pub use config_file::{ConfigFile, ConfigOverrides};
use config_reader::ConfigReader;
use config_task::{ConfigTask, Hangup};
use configured::{check_sandboxes, config_view, has_sandboxes, note_earlier, ready_servers};
use history::start_history;
use operator::operator;
use place::{listen_for_metrics, register, shown_address};
use saved_state::SavedState;
pub use secrets::add_secrets_of;
pub use server_counts::ServerCounts;
pub use startup::Clients;
use startup::{open_listener, start_crashes, start_front, start_metrics, start_traces};
use state_place::{OpenedPlace, open_data_dir};
use stdio::lock_free_data_dir;
pub use stored_notices::stored_notices;
use tls::CertificateWatch;
use watchdog::{Watchdog, pulse};

/// Name of the state file in the data directory.
const STATE_FILE: &str = "state.db";

/// Why the gateway could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{0}")]
    DataDir(String),
    #[error("state {0}")]
    Store(OpenError),
    #[error("cannot listen on {address}: {why}")]
    Listen { address: SocketAddr, why: String },
    #[error("cannot listen on unix:{path}: {why}", path = path.display())]
    Socket { path: PathBuf, why: String },
    #[error("[tls] cannot be served: {0}")]
    Tls(#[from] TlsError),
    #[error("cannot join the cluster: {0}")]
    Cluster(String),
    #[error("cannot start: {0}")]
    Io(#[from] io::Error),
}

/// A running gateway.
pub struct Gateway {
    state: Arc<GatewayState>,
    operator: Arc<Operator>,
    server: Rc<FrontServer>,
    metrics: Option<MetricsServer>,
    metrics_export: Option<MetricsExporter>,
    spawner: Spawner,
    lease: DirectoryLease,
    crashes: CrashWriter,
    /// Whether another process may serve the socket after this one.
    shares_socket: bool,
    _clocks: AbortOnDropHandle<()>,
    _watchdog: Option<Watchdog>,
    _key_uses: AbortOnDropHandle<()>,
    /// Owns the configuration.
    config_task: AbortOnDropHandle<()>,
    /// `shutdown_grace` of the active configuration.
    grace: watch::Receiver<Duration>,
    /// Serves the client on stdin and stdout; never completes for other clients.
    stdio_client: LocalBoxFuture<'static, ()>,
    _control: LocalServer,
    _registration: Option<Registration>,
}

/// Detects what the kernel offers to servers that are programs, while the gateway opens its files. The
/// configured data directory holds the homes of servers and is hidden from them, also by gateways for
/// one client, whose own directories are in it.
fn start_sandbox(loaded: &Loaded) -> SandboxHost {
    let files = loaded.files.iter().map(|file| file.path.clone()).collect();
    let host = SandboxHost::new(&loaded.config.data_dir, files);
    if has_sandboxes(&loaded.config) {
        let host = host.clone();
        actix_rt::spawn(async move { host.detect().await.clone() });
    }
    host
}

/// Loads the state of the previous process, and warns of what changed since.
async fn load_saved(
    store: &Arc<DurableStore>,
    config: &Config,
    log: &LogRecords,
    (sandbox, warnings): (&SandboxHost, &mut Vec<String>),
    cluster: Option<&Cluster>,
) -> io::Result<(Vec<Arc<ServerSettings>>, SavedState)> {
    let servers = ready_servers(config);
    let saved = SavedState::load_or_forget(store, config, &servers, log, cluster).await?;
    note_earlier(config, warnings, sandbox, &saved);
    Ok((servers, saved))
}

/// Waits for what the kernel offers, if a server needs it, and applies it to the configuration.
async fn judge_sandboxes(loaded: &mut Loaded, sandbox: &SandboxHost) {
    if has_sandboxes(&loaded.config) {
        sandbox.detect().await;
    }
    check_sandboxes(loaded, sandbox);
}

async fn restore_sessions(state: &GatewayState, servers: &[Arc<ServerSettings>]) {
    if let Err(error) = state.sessions.restore(servers).await {
        log::warn!(error:%; "could not restore the sessions of the previous process");
    }
}

impl Gateway {
    /// Starts the gateway with the configuration that was read from `file`, and applies later
    /// changes of the file. Must be called within an actix system, on the thread that ends last.
    ///
    /// A gateway for one client does not listen, and stores its state separately from a gateway
    /// that serves HTTP, so any number of such gateways can share one configuration.
    ///
    /// # Errors
    ///
    /// Returns [`StartError`]; nothing is left running.
    pub async fn start(
        mut file: ConfigFile,
        mut loaded: Loaded,
        clients: Clients,
        log: LogRecords,
    ) -> Result<Self, StartError> {
        let hangup = Hangup::listen()?;
        add_secrets_of(&loaded.config, log.secrets());
        let sandbox = start_sandbox(&loaded);
        let mut locked = None;
        if let Clients::Stdio(_) = &clients {
            let (path, directory) = lock_free_data_dir(&loaded.config.data_dir).await?;
            file.adapt_to_stdio(&mut loaded.config, path);
            locked = directory;
        }
        // Too large for the stack of the caller.
        Box::pin(Self::start_in(
            locked,
            (file, loaded, sandbox),
            clients,
            (hangup, log),
        ))
        .await
    }

    async fn start_in(
        locked: Option<DataDir>,
        (file, mut loaded, sandbox): (ConfigFile, Loaded, SandboxHost),
        mut clients: Clients,
        (hangup, log): (Hangup, LogRecords),
    ) -> Result<Self, StartError> {
        let reader = ConfigReader::start(file, &loaded);
        let config = &loaded.config;
        let (place, kept) = open_data_dir(&config.data_dir, locked, clients.is_http()).await?;
        let OpenedPlace { lease, store, .. } = &place;
        let certificate = CertificateWatch::start(&config.front.tls)?;
        let (listener, shares_socket) = open_listener(&mut clients, config)?;
        let metrics_listener = config.metrics_listen.map(listen_for_metrics).transpose()?;
        let spawner = Spawner::start(ProcessOwner::new(kept.owner, Uuid::new_v4()))?;
        let (endpoints, counters) = (AdminEndpoints::default(), Counters::default());
        let tls = || certificate.as_ref().map(CertificateWatch::tls);
        let cluster = cluster::begin(config, (kept.owner, &clients), store).await?;
        let server = start_front((listener, tls(), &cluster), config, &endpoints).await?;
        let address = shown_address(&server, &config.front);
        let arbiters = Arbiters::adopt(server.workers.clone())?;
        let registration = register(config, loaded.path.as_deref(), &address);
        judge_sandboxes(&mut loaded, &sandbox).await;
        let config = loaded.config;
        let notes = (&sandbox, &mut loaded.warnings);
        let (servers, saved) = load_saved(store, &config, &log, notes, cluster.as_ref()).await?;
        let crashes = start_crashes(&config, (&counters, lease))?;
        let inputs = TreeInputs {
            arbiters: &arbiters,
            spawner: &spawner,
            sandbox: &sandbox,
            store,
            history: start_history(&config, (&counters, &log, lease))?,
            traces: start_traces(&config, &counters),
            counters,
            crashes: crashes.sink(),
            log,
            tls: tls(),
            cluster,
        };
        let view = config_view(loaded.path, loaded.warnings);
        let state = build(&config, inputs, view, &saved)?;
        restore_sessions(&state, &servers).await;
        let token = server.is_http().then(|| Arc::clone(&kept.token));
        let named = kept.named(token.clone(), &address);
        place.keep(&config.data_dir, named).await;
        let (operator, requests) = operator(&state, &config, token, &server);
        let control = LocalServer::start(&config.data_dir, lease.clone(), operator.clone()).await;
        let key_uses = key_uses::keep(&state, &config, kept.key_uses);
        let (metrics, metrics_export) = start_metrics(metrics_listener, &config, &operator)?;
        let parts = (state.clone(), server.clone(), certificate, sandbox);
        let mut applied = AppliedConfig::new((config, loaded.fingerprint), parts, reader.report());
        applied.start(saved.parts, &spawner).await;
        let (grace, pulse) = (applied.grace(), pulse(&server.workers));
        applied.open_front(&endpoints, &operator, pulse.clone());
        let task = ConfigTask::new((reader, hangup), requests, applied).run();
        Ok(Self {
            _clocks: watch_clocks(&state),
            _watchdog: Watchdog::start(pulse)?,
            _control: control,
            _key_uses: key_uses,
            _registration: registration,
            config_task: AbortOnDropHandle::new(actix_rt::spawn(task)),
            grace,
            stdio_client: clients.serve(&server)?,
            state,
            operator,
            server,
            metrics,
            metrics_export,
            spawner,
            lease: lease.clone(),
            crashes,
            shares_socket,
        })
    }

    /// A single-use link that signs in to the dashboard; `None` if the gateway does not listen.
    pub fn login_link(&self) -> Option<String> {
        self.operator.login_link().ok()
    }

    /// Counts the servers per state.
    pub fn server_counts(&self) -> impl Fn() -> ServerCounts + use<> {
        let state = self.state.clone();
        move || {
            let servers = state.server_statuses();
            ServerCounts::of(servers.iter().map(|server| server.state.as_str()))
        }
    }

    /// Completes when the gateway has to be stopped without a signal: its only client has left, its
    /// terminal was closed, or a group of servers escalated.
    ///
    /// # Errors
    ///
    /// Returns an error if a group escalated, or the task that owns the configuration panicked.
    pub async fn ended(&mut self) -> Result<(), GatewayError> {
        tokio::select! {
            () = &mut self.stdio_client => Ok(()),
            ended = &mut self.config_task => Ok(ended?),
            group = self.state.downstreams.escalated() => {
                Err(GatewayError::Escalated(group.to_string()))
            }
        }
    }
}

/// Why a gateway has to be stopped.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    #[error(
        "group `{0}` of servers failed too often, and `groups.{0}.escalate` ends the gateway then"
    )]
    Escalated(String),
    #[error(transparent)]
    ConfigTask(#[from] JoinError),
}

fn watch_clocks(state: &GatewayState) -> AbortOnDropHandle<()> {
    let downstreams = state.downstreams.clone();
    let clocks = downstreams.watch_clocks(unix_millis, state.counters.clone());
    AbortOnDropHandle::new(actix_rt::spawn(clocks))
}
