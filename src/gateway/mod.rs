//! The whole gateway: builds the tree, applies configuration changes, and shuts down in order.

mod build;
mod config_requests;
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

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use crate::admin::{
    AdminEndpoints, AdminParts, ConfigRequest, ConfigView, CrashWriter, DataDir, GatewayState,
    KeyUses, LocalServer, MetricsExporter, MetricsServer, Operator, Registration, tree_source,
};
use crate::catalog::ServerPart;
use crate::config::{Config, ConfigError, Fingerprint, Loaded, Plan, ServerState};
use crate::downstream::{ServerChange, ServerSettings};
use crate::front::{Front, FrontServer, TlsError};
use crate::id::ViewId;
use crate::store::{DirectoryLease, DurableStore, OpenError};
use crate::supervision::Arbiters;
use crate::telemetry::{Counter, Counters, LogRecords, count_lost_lines, counted, unix_millis};
use crate::transport::{ProcessOwner, Spawner};
use build::{TreeInputs, build};
use configured::{arrangement, config_view, configured_servers, policy, ready_servers};
use health::health_source;
use history::start_history;
use operator::operator;
use place::{listen_for_metrics, register, shown_address};
use saved_state::SavedState;
pub use secrets::add_secrets_of;
pub use server_counts::ServerCounts;
use sources::SourceTasks;
use startup::{
    ClientTransport, log_start, open_listener, start_crashes, start_front, start_metrics,
    start_metrics_export, start_traces,
};
use state_place::{OpenedPlace, open_data_dir};
use stdio::{adapt_to_stdio, lock_free_data_dir};
pub use stored_notices::stored_notices;
use tls::CertificateWatch;

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
    #[error("[tls] cannot be served: {0}")]
    Tls(#[from] TlsError),
    #[error("cannot start: {0}")]
    Io(#[from] io::Error),
}

/// A running gateway.
pub struct Gateway {
    state: Arc<GatewayState>,
    operator: Arc<Operator>,
    server: FrontServer,
    endpoints: AdminEndpoints,
    metrics: Option<MetricsServer>,
    metrics_export: Option<MetricsExporter>,
    arbiters: Arbiters,
    spawner: Spawner,
    store: Arc<DurableStore>,
    lease: DirectoryLease,
    crashes: CrashWriter,
    /// Whether another process may serve the socket after this one.
    shares_socket: bool,
    _clocks: AbortOnDropHandle<()>,
    _key_uses: AbortOnDropHandle<()>,
    /// Polls the sources of the configuration.
    sources: SourceTasks,
    /// `None` when serving plain HTTP.
    certificate: Option<CertificateWatch>,
    config: Config,
    /// Fingerprint of the active configuration file.
    fingerprint: Fingerprint,
    config_requests: mpsc::Receiver<ConfigRequest>,
    /// Address that clients connect to, or `stdio`.
    listen: String,
    _control: LocalServer,
    _registration: Option<Registration>,
}

async fn restore_sessions(state: &GatewayState, servers: &[Arc<ServerSettings>]) {
    if let Err(error) = state.sessions.restore(servers).await {
        log::warn!(error:%; "could not restore the sessions of the previous process");
    }
}

impl Gateway {
    /// Starts the gateway. If a service manager opened the socket and keeps it open, connections
    /// are left to the next process at shutdown. Must be called within an actix system, on the
    /// thread that ends last.
    ///
    /// # Errors
    ///
    /// Returns [`StartError`]; nothing is left running.
    pub async fn start(
        loaded: Loaded,
        inherited: Option<TcpListener>,
        log: LogRecords,
    ) -> Result<Self, StartError> {
        Self::start_in(None, loaded, ClientTransport::Http(inherited), log).await
    }

    /// Starts the gateway for one client on stdin and stdout ([`Gateway::serve_stdio`]). It does
    /// not listen, and stores its state separately from a gateway that serves HTTP, so any number
    /// of such gateways can share one configuration.
    ///
    /// # Errors
    ///
    /// As [`Gateway::start`].
    pub async fn start_for_stdio(mut loaded: Loaded, log: LogRecords) -> Result<Self, StartError> {
        let (path, locked) = lock_free_data_dir(&loaded.config.data_dir).await?;
        adapt_to_stdio(&mut loaded.config, path);
        Self::start_in(locked, loaded, ClientTransport::Stdio, log).await
    }

    async fn start_in(
        locked: Option<DataDir>,
        loaded: Loaded,
        clients: ClientTransport,
        log: LogRecords,
    ) -> Result<Self, StartError> {
        let config = loaded.config;
        add_secrets_of(&config, log.secrets());
        let (place, kept) = open_data_dir(&config.data_dir, locked, clients.is_http()).await?;
        let OpenedPlace { lease, store, .. } = &place;
        let certificate = CertificateWatch::start(&config.front.tls)?;
        let (listener, shares_socket) = open_listener(clients, &config)?;
        let metrics_listener = config.metrics_listen.map(listen_for_metrics).transpose()?;
        let spawner = Spawner::start(ProcessOwner::new(kept.owner, Uuid::new_v4()))?;
        let endpoints = AdminEndpoints::default();
        let tls = || certificate.as_ref().map(CertificateWatch::tls);
        let server = start_front(listener, tls(), &config, &endpoints).await?;
        let address = shown_address(server.address);
        let arbiters = Arbiters::adopt(server.workers.clone())?;
        let registration = register(&config, loaded.path.as_deref(), &address);
        let (servers, counters) = (ready_servers(&config), Counters::default());
        let saved = SavedState::load_or_forget(store, &config, &servers, &log).await?;
        let crashes = start_crashes(&config, (&counters, lease))?;
        let inputs = TreeInputs {
            arbiters: &arbiters,
            spawner: &spawner,
            store,
            history: start_history(&config, (&counters, &log, lease))?,
            traces: start_traces(&config, &counters),
            counters,
            crashes: crashes.sink(),
            log,
            tls: tls(),
        };
        let view = config_view(loaded.path, loaded.warnings);
        let state = build(&config, inputs, view, &saved)?;
        restore_sessions(&state, &servers).await;
        let token = server.address.and(Some(Arc::clone(&kept.token)));
        place
            .keep(&config.data_dir, kept.named(token.clone(), &address))
            .await;
        let (operator, config_requests) = operator(&state, &config, token, &server);
        let control = LocalServer::start(&config.data_dir, lease.clone(), operator.clone()).await;
        let gateway = Self {
            _clocks: watch_clocks(&state),
            metrics: start_metrics(metrics_listener, &operator)?,
            metrics_export: start_metrics_export(&config, &operator),
            _control: control,
            _key_uses: key_uses::keep(state.clone(), config.data_dir.clone(), &kept.key_uses),
            state,
            operator,
            server,
            endpoints,
            arbiters,
            spawner,
            store: Arc::clone(store),
            lease: lease.clone(),
            crashes,
            shares_socket,
            sources: SourceTasks::default(),
            certificate,
            config,
            fingerprint: loaded.fingerprint,
            config_requests,
            listen: address,
            _registration: registration,
        };
        gateway.begin(saved.parts, &kept.key_uses).await;
        Ok(gateway)
    }

    /// Starts the servers, then serves. `known` contains the lists from the previous process.
    async fn begin(&self, known: Vec<(Arc<ServerPart>, u64)>, uses: &KeyUses) {
        count_lost_lines(&self.state.counters);
        log_start(self.server.address, &self.config);
        let known = known.into_iter().map(|(part, _)| part).collect();
        self.offer_tree();
        self.identify();
        self.arrange();
        key_uses::restore(&self.config.front.auth, uses);
        know_keys(&self.config, &self.state);
        // Orphaned processes may hold resources that the servers need.
        self.spawner.end_orphans(self.config.orphan_grace).await;
        // Must happen before the first request, which can then find its server even if it is not
        // connected yet.
        self.start_servers(known).await;
        let front = self.front();
        let health = health_source(self.state.clone(), front.closing());
        self.server.open(front);
        self.endpoints.open(AdminParts {
            health,
            operator: self.operator.clone(),
        });
    }

    /// Starts polling the sources of the configuration. `changed` is called when a source's servers
    /// change; the next read of the configuration then includes them.
    pub fn follow_sources(&mut self, changed: impl Fn() + 'static) {
        self.sources.notify(Rc::new(changed));
        self.sources.follow(&self.config.sources, &self.state);
    }

    /// Address that clients connect to; `None` if the gateway does not listen.
    pub fn address(&self) -> Option<SocketAddr> {
        self.server.address
    }

    /// The API token; `None` if the gateway does not listen.
    pub fn api_token(&self) -> Option<String> {
        self.operator.token.as_ref().map(|token| token.expose())
    }

    /// A single-use link that signs in to the dashboard; `None` if the gateway does not listen.
    pub fn login_link(&self) -> Option<String> {
        self.operator.login_link().ok()
    }

    /// Serves the client on stdin and stdout with this view. The future completes when the client
    /// has left; pending answers are written while the gateway stops (S-STDIO-05).
    ///
    /// # Errors
    ///
    /// Returns the system's error when threads cannot be created.
    pub fn serve_stdio(&self, view: ViewId) -> io::Result<impl Future<Output = ()> + use<>> {
        self.server.serve_stdio(view)
    }

    /// A one-line summary for operators.
    pub fn summary(&self) -> String {
        let servers = ready_servers(&self.config).len();
        let servers = counted(servers as u64, "server", "servers");
        match self.address() {
            Some(address) => {
                let scheme = self.config.front.scheme();
                format!("serves {scheme}://{address}, {servers}")
            }
            None => format!("serves one client, {servers}"),
        }
    }

    /// The number of servers per state.
    pub fn server_counts(&self) -> ServerCounts {
        let servers = self.state.server_statuses();
        ServerCounts::of(servers.iter().map(|server| server.state.as_str()))
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    fn front(&self) -> Front {
        Front::new(
            self.config.front.clone(),
            self.state.sessions.clone(),
            self.state.counters.clone(),
            self.state.credentials.subjects().clone(),
            self.state.log.secrets().clone(),
        )
    }

    async fn start_servers(&self, known: Vec<Arc<ServerPart>>) {
        for server in &self.config.servers {
            if let ServerState::Misconfigured(reason) = &server.state {
                log::error!(server = server.name.as_str(), reason; "misconfigured");
            }
        }
        let start = ready_servers(&self.config).into_iter();
        let change = ServerChange {
            start: start.map(Arc::unwrap_or_clone).collect(),
            known,
            ..ServerChange::default()
        };
        self.state.downstreams.applied(change).await;
    }

    /// Passes the identity of each server to the catalog, which stores lists under it.
    fn identify(&self) {
        let servers = ready_servers(&self.config).into_iter();
        let identities = servers.map(|server| (server.name.clone(), server.identity()));
        self.state.publisher.identify(identities.collect());
    }

    /// Passes the servers to the catalog, with their order and names.
    fn arrange(&self) {
        self.state.publisher.arrange(arrangement(&self.config));
    }

    /// Applies a configuration and touches only what changed. A file that failed to load changes
    /// nothing. The certificate is also reloaded.
    pub fn reload(&mut self, loaded: Result<Loaded, ConfigError>) {
        if let Some(certificate) = &self.certificate {
            certificate.renew();
        }
        match loaded {
            Ok(mut loaded) => {
                if self.server.address.is_none() {
                    adapt_to_stdio(&mut loaded.config, self.config.data_dir.clone());
                }
                self.apply(loaded);
            }
            Err(error) => {
                self.state.counters.add(Counter::ConfigRefused);
                log::error!("configuration rejected: {}", error.summary());
                let mut view = ConfigView::clone(&self.state.config.load());
                view.refused = Some(error.to_string());
                self.state.config.store(Arc::new(view));
            }
        }
    }

    fn offer_tree(&self) {
        let is_offered = self.config.catalog.tree_resource;
        let source = is_offered.then(|| tree_source(&self.state, self.listen.clone()));
        self.state.sessions.offer_tree(source);
    }

    fn apply(&mut self, mut loaded: Loaded) {
        let plan = Plan::between(&self.config, &loaded.config);
        self.fingerprint = loaded.fingerprint;
        let mut view = config_view(loaded.path, loaded.warnings);
        view.needs_restart.clone_from(&plan.needs_restart);
        self.state.config.store(Arc::new(view));
        if plan.is_empty() {
            log::info!("configuration is unchanged");
            return;
        }
        self.state.counters.add(Counter::ConfigApplied);
        for key in &plan.needs_restart {
            log::warn!("`{key}` changed; restart the gateway to apply it");
        }
        log::info!("configuration applied: {}", plan.words());
        let auth_changed = self.config.front.auth != loaded.config.front.auth;
        key_uses::take_over(&mut loaded.config.front.auth, &self.config.front.auth);
        let before = arrangement(&self.config);
        self.config = loaded.config.with_fixed_of(&self.config);
        add_secrets_of(&self.config, self.state.log.secrets());
        self.state
            .servers
            .store(Arc::new(configured_servers(&self.config)));
        self.server.configure(self.config.front.clone());
        if auth_changed {
            // This ends only general streams; clients that are still authorized reopen them.
            let auth = self.config.front.auth.clone();
            self.state.sessions.use_credentials(auth);
            self.server.close_channels();
            know_keys(&self.config, &self.state);
        }
        self.state.sessions.configure(self.config.session.clone());
        self.state.sessions.set_policy(policy(&self.config));
        self.sources.follow(&self.config.sources, &self.state);
        self.state.history.configure(self.config.history.clone());
        self.offer_tree();
        self.identify();
        // A server that starts again may need to be added to the catalog first.
        let has_starts = !(plan.start.is_empty() && plan.restart.is_empty());
        if has_starts || arrangement(&self.config) != before {
            self.arrange();
        }
        self.state.downstreams.apply(ServerChange {
            start: plan
                .start
                .into_iter()
                .chain(plan.restart)
                .map(Arc::unwrap_or_clone)
                .collect(),
            retune: plan.retune.into_iter().map(Arc::unwrap_or_clone).collect(),
            stop: plan.stop,
            known: Vec::new(),
        });
    }
}

fn watch_clocks(state: &GatewayState) -> AbortOnDropHandle<()> {
    let downstreams = state.downstreams.clone();
    let clocks = downstreams.watch_clocks(unix_millis, state.counters.clone());
    AbortOnDropHandle::new(actix_rt::spawn(clocks))
}

/// Updates the keys, and forgets sign-ins of users whose keys were removed.
fn know_keys(config: &Config, state: &GatewayState) {
    let auth = config.front.auth.clone();
    state.keys.store(Arc::new(auth.keys.clone()));
    state.key_principals.store(Arc::new(auth.principals()));
    // A later key with the same name belongs to a different user.
    let is_gone = move |principal: &_| auth.has_lost(principal);
    state.credentials.forget_users(Arc::new(is_gone));
}
