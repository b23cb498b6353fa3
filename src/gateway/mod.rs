//! The whole gateway: builds the tree, applies changes of the configuration, and stops in order.

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
    ClientTransport, log_start, open_listener, start_front, start_metrics, start_metrics_export,
    start_traces,
};
use state_place::{OpenedPlace, open_data_dir};
use stdio::{adapt_to_stdio, lock_free_data_dir};
pub use stored_notices::stored_notices;
use tls::CertificateWatch;

/// The store, in the data directory.
const STATE_FILE: &str = "state.db";

/// Why the gateway cannot start.
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
    /// Another process may serve the socket after this one.
    shares_socket: bool,
    _clocks: AbortOnDropHandle<()>,
    _key_uses: AbortOnDropHandle<()>,
    /// Ends streams when a key of the configuration expires.
    sources: SourceTasks,
    /// `None` where plain HTTP is served.
    certificate: Option<CertificateWatch>,
    config: Config,
    /// The content of the file that is in force.
    fingerprint: Fingerprint,
    config_requests: mpsc::Receiver<ConfigRequest>,
    /// The address that clients connect to, or `stdio`.
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
    /// Starts everything. With a socket that a service manager opened and keeps open, connections
    /// are left to the next process when this one stops. Must be called within an actix system, on
    /// the thread that ends last.
    ///
    /// # Errors
    ///
    /// Returns [`StartError`]; then nothing runs.
    pub async fn start(
        loaded: Loaded,
        inherited: Option<TcpListener>,
        log: LogRecords,
    ) -> Result<Self, StartError> {
        Self::start_in(None, loaded, ClientTransport::Http(inherited), log).await
    }

    /// Starts everything for one client behind stdin and stdout ([`Gateway::serve_stdio`]).
    /// Nothing listens, and the state is kept beside that of a gateway that serves HTTP, so that
    /// any number of them can run with one configuration.
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
        client_transport: ClientTransport,
        log: LogRecords,
    ) -> Result<Self, StartError> {
        let config = loaded.config;
        add_secrets_of(&config, log.secrets());
        let listens = client_transport.is_http();
        let (place, kept) = open_data_dir(&config.data_dir, locked, listens).await?;
        let OpenedPlace { lease, store, .. } = &place;
        let certificate = CertificateWatch::start(&config.front.tls)?;
        let shares_socket = client_transport.is_inherited();
        let listener = open_listener(client_transport, &config)?;
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
        count_lost_lines(&counters);
        let of_crashes = (lease.clone(), counters.clone());
        let crashes = CrashWriter::start(&config.data_dir, of_crashes, unix_millis)?;
        let inputs = TreeInputs {
            arbiters: &arbiters,
            spawner: &spawner,
            store,
            history: start_history(&config, (&counters, &log, lease))?,
            traces: start_traces(&config, &counters),
            counters,
            crashes: crashes.sink(),
            sealing: saved.sealing,
            log,
            tls: tls(),
        };
        let known = (saved.parts.clone(), saved.start_times, saved.pins);
        let view = config_view(loaded.path, loaded.warnings);
        let state = build(&config, inputs, view, known)?;
        restore_sessions(&state, &servers).await;
        let token = server.address.and(Some(Arc::clone(&kept.token)));
        let files = kept.named(token.clone(), &address);
        place.keep(&config.data_dir, files).await;
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

    /// Starts the servers, then serves. `known` is what the process before this one listed.
    async fn begin(&self, known: Vec<(Arc<ServerPart>, u64)>, uses: &KeyUses) {
        log_start(self.server.address, &self.config);
        let known = known.into_iter().map(|(part, _)| part).collect();
        self.offer_tree();
        self.identify();
        self.arrange();
        key_uses::restore(&self.config.front.auth, uses);
        know_keys(&self.config, &self.state);
        // Orphans may hold what the servers need.
        self.spawner.end_orphans(self.config.orphan_grace).await;
        // Before the first request, which finds its server then, if not connected yet.
        self.start_servers(known).await;
        let front = self.front();
        let health = health_source(self.state.clone(), front.closing());
        self.server.open(front);
        self.endpoints.open(AdminParts {
            health,
            operator: self.operator.clone(),
        });
    }

    /// Asks the sources of the configuration from now on. `changed` is called when the servers of
    /// one are others, which the next reading of the configuration finds.
    pub fn follow_sources(&mut self, changed: impl Fn() + 'static) {
        self.sources.notify(Rc::new(changed));
        self.sources.follow(&self.config.sources, &self.state);
    }

    /// Where clients connect; nowhere if nothing listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.server.address
    }

    /// The token of the API; none where nothing listens.
    pub fn api_token(&self) -> Option<String> {
        self.operator.token.as_ref().map(|token| token.expose())
    }

    /// A link to the dashboard that signs in once; none where nothing listens.
    pub fn login_link(&self) -> Option<String> {
        self.operator.login_link().ok()
    }

    /// Serves the client behind stdin and stdout, which sees this view. The future ends when it has left; what it still
    /// waits for is written while the gateway stops (S-STDIO-05).
    ///
    /// # Errors
    ///
    /// Returns the system's error when the threads cannot be made.
    pub fn serve_stdio(&self, view: ViewId) -> io::Result<impl Future<Output = ()> + use<>> {
        self.server.serve_stdio(view)
    }

    /// One line for whoever watches the process.
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

    /// How many servers are up now.
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

    /// Tells the catalog what the lists of each server are kept under.
    fn identify(&self) {
        let servers = ready_servers(&self.config).into_iter();
        let identities = servers.map(|server| (server.name.clone(), server.identity()));
        self.state.publisher.identify(identities.collect());
    }

    /// Tells the catalog which servers there are, in which order, under which names.
    fn arrange(&self) {
        self.state.publisher.arrange(arrangement(&self.config));
    }

    /// Goes over to another configuration: only what changed is touched. A file that could not
    /// be loaded changes nothing. The certificate is read again, too.
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
                log::error!("configuration is not applied: {}", error.summary());
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
            log::warn!("`{key}` changes with a restart of the gateway");
        }
        log::info!("configuration is applied: {}", plan.words());
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
            // Of no call: whoever may still read opens another.
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
        // A server that starts again may have to be listed first.
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

/// Whose sign-ins at servers may be there: those of the keys, and of tokens.
fn know_keys(config: &Config, state: &GatewayState) {
    let auth = config.front.auth.clone();
    state.keys.store(Arc::new(auth.keys.clone()));
    state.key_principals.store(Arc::new(auth.principals()));
    // Whoever gets a key of the same name later is somebody else.
    let is_gone = move |principal: &_| auth.has_lost(principal);
    state.credentials.forget_users(Arc::new(is_gone));
}
