//! The configuration in force, and the parts that receive it.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::cluster::watch_threads;
use super::configured::{
    arrangement, check_sandboxes, config_view, configured_servers, needs_arrangement, policy,
    ready_servers,
};
use super::health::health_source;
use super::key_uses;
use super::place::{shown_address, shown_place};
use super::secrets::add_secrets_of;
use super::sources::SourceTasks;
use super::startup::log_start;
use super::tls::CertificateWatch;
use crate::admin::{AdminEndpoints, AdminParts, ConfigView, GatewayState, Operator, tree_source};
use crate::catalog::ServerPart;
use crate::cluster::Cluster;
use crate::config::watch::Changed;
use crate::config::{Config, ConfigError, Fingerprint, Loaded, Plan, ServerState};
use crate::downstream::{ServerChange, ServerSettings};
use crate::front::{Front, FrontServer};
use crate::sandbox::SandboxHost;
use crate::store::DurableStore;
use crate::supervision::Pulse;
use crate::telemetry::{Counter, count_lost_lines, counted};
use crate::transport::Spawner;

/// The configuration in force.
pub(super) struct AppliedConfig {
    config: Config,
    /// Fingerprint of the files that it was read from.
    fingerprint: Fingerprint,
    state: Arc<GatewayState>,
    front: Rc<FrontServer>,
    sources: SourceTasks,
    certificate: Option<CertificateWatch>,
    sandbox: SandboxHost,
    /// Address that clients connect to, or `stdio`.
    listen: String,
    /// `shutdown_grace`.
    grace: watch::Sender<Duration>,
}

/// Parts that receive the configuration. The certificate is `None` when serving plain HTTP.
type PartsOfConfig = (
    Arc<GatewayState>,
    Rc<FrontServer>,
    Option<CertificateWatch>,
    SandboxHost,
);

impl AppliedConfig {
    pub(super) fn new(
        (config, fingerprint): (Config, Fingerprint),
        (state, front, certificate, sandbox): PartsOfConfig,
        source_reports: mpsc::Sender<Changed>,
    ) -> Self {
        Self {
            grace: watch::Sender::new(config.shutdown_grace),
            listen: shown_address(&front, &config.front),
            sources: SourceTasks::new(source_reports),
            config,
            fingerprint,
            state,
            front,
            certificate,
            sandbox,
        }
    }

    /// Applies the first configuration, and starts the servers. `known` contains their lists from
    /// the previous process.
    pub(super) async fn start(&mut self, known: Vec<(Arc<ServerPart>, u64)>, spawner: &Spawner) {
        for server in &self.config.servers {
            if let ServerState::Misconfigured(reason) = &server.state {
                log::error!(server = server.name.as_str(), reason; "misconfigured");
            }
        }
        self.configure();
        self.state.publisher.configure(arrangement(&self.config));
        // Orphaned processes may hold resources that the servers need.
        spawner.end_orphans(self.config.orphan_grace).await;
        let downstreams = &self.state.downstreams;
        downstreams.configure(ServerChange {
            start: owned(ready_servers(&self.config)),
            known: known.into_iter().map(|(part, _)| part).collect(),
            ..ServerChange::default()
        });
        downstreams.configured().await;
    }

    /// Starts answering clients and operators.
    pub(super) fn open_front(
        &self,
        endpoints: &AdminEndpoints,
        operator: &Arc<Operator>,
        pulse: Pulse,
    ) {
        let state = &self.state;
        count_lost_lines(&state.counters);
        log_start(
            &shown_address(&self.front, &self.config.front),
            &self.config,
        );
        let front = Front::new(
            self.config.front.clone(),
            state.sessions.clone(),
            state.counters.clone(),
            state.credentials.subjects().clone(),
            state.log.secrets().clone(),
        );
        let health = health_source(state.clone(), front.closing());
        if let Some(cluster) = &state.cluster {
            watch_threads(cluster, pulse.clone());
        }
        open_once_joined(&self.front, front, state.cluster.clone());
        endpoints.open(AdminParts {
            health,
            pulse,
            operator: operator.clone(),
        });
    }

    /// Whether this content of the files is already in force, and was not refused since.
    pub(super) fn has(&self, loaded: &Loaded) -> bool {
        self.fingerprint == loaded.fingerprint && self.state.config.load().refused.is_none()
    }

    /// The active configuration, and the result of the last reload.
    pub(super) fn view(&self) -> ConfigView {
        ConfigView::clone(&self.state.config.load())
    }

    /// The current `shutdown_grace`.
    pub(super) fn grace(&self) -> watch::Receiver<Duration> {
        self.grace.subscribe()
    }

    pub(super) fn sandbox(&self) -> &SandboxHost {
        &self.sandbox
    }

    pub(super) fn store(&self) -> &DurableStore {
        &self.state.store
    }

    /// A one-line summary for the service manager.
    pub(super) fn summary(&self) -> String {
        let servers = ready_servers(&self.config).len();
        let servers = counted(servers as u64, "server", "servers");
        let front = &self.config.front;
        let address = shown_address(&self.front, front);
        match self.front.is_http() {
            true => format!("serves {}, {servers}", shown_place(&address, front)),
            false => format!("serves one client, {servers}"),
        }
    }

    /// Applies a configuration and touches only what changed. A file that failed to load changes
    /// nothing. The certificate is also reloaded.
    pub(super) fn reload(&mut self, loaded: Result<Loaded, ConfigError>) {
        if let Some(certificate) = &self.certificate {
            certificate.renew();
        }
        match loaded {
            Ok(loaded) => self.apply(loaded),
            Err(error) => {
                self.state.counters.add(Counter::ConfigRefused);
                log::error!("configuration rejected: {}", error.summary());
                self.state.config.store(Arc::new(ConfigView {
                    refused: Some(error.to_string()),
                    ..self.view()
                }));
            }
        }
    }

    fn apply(&mut self, mut loaded: Loaded) {
        check_sandboxes(&mut loaded, &self.sandbox);
        let support = &self.sandbox.support();
        let plan = Plan::between(&self.config, &loaded.config);
        self.fingerprint = loaded.fingerprint;
        self.state.config.store(Arc::new(ConfigView {
            needs_restart: plan.needs_restart.clone(),
            ..config_view(loaded.path, loaded.warnings)
        }));
        // A server can change from one reason for not running to another.
        let are_same = configured_servers(&loaded.config, support) == **self.state.servers.load();
        if plan.is_empty() && are_same {
            log::info!("configuration is unchanged");
            return;
        }
        self.state.counters.add(Counter::ConfigApplied);
        for key in &plan.needs_restart {
            log::warn!("`{key}` changed; restart the gateway to apply it");
        }
        log::info!("configuration applied: {}", plan.words());
        key_uses::take_over(&mut loaded.config.front.auth, &self.config.front.auth);
        let config = loaded.config.with_fixed_of(&self.config);
        let before = std::mem::replace(&mut self.config, config);
        self.configure();
        if needs_arrangement(&plan, &before, &self.config) {
            self.state.publisher.configure(arrangement(&self.config));
        }
        self.state.downstreams.configure(ServerChange {
            start: owned(plan.start.into_iter().chain(plan.restart)),
            retune: owned(plan.retune),
            stop: plan.stop,
            known: Vec::new(),
        });
    }

    /// Passes the configuration to all parts except the catalog and the servers, which follow in
    /// this order: the catalog ignores the lists of servers that it does not know, and clients must
    /// see new servers only under the new policies. Parts find out themselves whether anything
    /// changed for them.
    fn configure(&mut self) {
        let (config, state) = (&self.config, &self.state);
        // First, because from here on, texts can contain the new secrets.
        add_secrets_of(config, state.log.secrets());
        let servers = configured_servers(config, &self.sandbox.support());
        state.configure(servers, &config.front.auth);
        self.front.configure(config.front.clone());
        let tree = config.catalog.tree_resource;
        let tree = tree.then(|| tree_source(state, self.listen.clone()));
        let session = config.session.clone();
        state.sessions.configure(session, policy(config), tree);
        state.history.configure(config.history.clone());
        self.sources.configure(&config.sources, state);
        self.grace.send_replace(config.shutdown_grace);
    }
}

/// Starts answering clients, as a replica only after it has joined: until then it cannot mint ids
/// that others recognize.
fn open_once_joined(server: &Rc<FrontServer>, front: Front, cluster: Option<Cluster>) {
    match cluster {
        Some(cluster) if !cluster.has_joined() => {
            let server = Rc::clone(server);
            actix_rt::spawn(async move {
                cluster.joined().await;
                server.open(front);
            });
        }
        _ => server.open(front),
    }
}

fn owned(servers: impl IntoIterator<Item = Arc<ServerSettings>>) -> Vec<ServerSettings> {
    servers.into_iter().map(Arc::unwrap_or_clone).collect()
}
