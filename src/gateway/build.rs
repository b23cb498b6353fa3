//! Builds the gateway's tree of components.

use std::io;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::time::Instant;

use super::cluster::{mint, replicas};
use super::configured::{arrangement, configured_servers, policy};
use super::credentials::{credentials, with_credential};
use super::saved_state::SavedState;
use super::tls::certificate_view;
use crate::admin::{CertificateSource, ConfigView, GatewayState};
use crate::cluster::Cluster;
use crate::config::Config;
use crate::credentials::Credentials;
use crate::downstream::{
    CrashSink, Downstreams, MakeConnector, PoolParts, ServerSettings, StartQueue,
    SubscriptionRegistry, TransportSettings,
};
use crate::front::FrontTls;
use crate::history::History;
use crate::id::CallNumbers;
use crate::metrics::Metrics;
use crate::publisher::{CatalogPublisher, CatalogView, PartStore, RestoredCatalog};
use crate::sandbox::SandboxHost;
use crate::sessions::{Sessions, SessionsSpec};
use crate::sources::SourceStates;
use crate::store::DurableStore;
use crate::supervision::{Arbiters, SystemRandom};
use crate::telemetry::{Counters, LogRecords, unix_millis};
use crate::traces::Traces;
use crate::transport::{
    Connector, HttpConnector, LargeAnswers, ServerSandbox, Spawner, StdioConnector, StdioSettings,
    Tls, TreeLimits,
};
#[cfg(feature = "faults")]
use crate::{
    telemetry::LogRing,
    transport::{FaultParts, FaultyConnector},
};

/// Components that are created before the tree.
pub(super) struct TreeInputs<'g> {
    pub(super) arbiters: &'g Arbiters,
    pub(super) spawner: &'g Spawner,
    pub(super) sandbox: &'g SandboxHost,
    pub(super) store: &'g Arc<DurableStore>,
    pub(super) counters: Counters,
    pub(super) crashes: CrashSink,
    pub(super) history: History,
    pub(super) traces: Traces,
    pub(super) log: LogRecords,
    pub(super) tls: Option<FrontTls>,
    pub(super) cluster: Option<Cluster>,
}

pub(super) fn build(
    config: &Config,
    inputs: TreeInputs<'_>,
    view: ConfigView,
    saved: &SavedState,
) -> io::Result<Arc<GatewayState>> {
    let credentials = credentials(
        config,
        inputs.counters.clone(),
        inputs.log.secrets().clone(),
    );
    let numbers = CallNumbers::random();
    let answers = LargeAnswers::new(config.answer_bytes_max, inputs.counters.clone());
    let metrics = metrics(config, inputs.arbiters);
    let restored = restored(config, &inputs, saved);
    let (publisher, catalog) = CatalogPublisher::start(inputs.counters.clone(), Some(restored))?;
    let downstreams = Downstreams::start(PoolParts {
        arbiters: inputs.arbiters.clone(),
        numbers: numbers.clone(),
        subscription_registry: Arc::new(SubscriptionRegistry::default()),
        list_changes: Default::default(),
        listener: publisher.listener(),
        store: inputs.store.clone(),
        random: Arc::new(SystemRandom::new()),
        starts: StartQueue::new(config.starts_at_once),
        make_connector: make_connector(&inputs, &credentials, &answers),
        counters: inputs.counters.clone(),
        metrics: metrics.clone(),
        crashes: inputs.crashes.clone(),
        secrets: inputs.log.secrets().clone(),
        events: inputs.log.events(),
    })?;
    let served = (downstreams.clone(), catalog.clone());
    let sessions = start_sessions(config, &inputs, served, (numbers, metrics.clone(), saved));
    publisher.attach(Arc::new(sessions.clone()));
    let state = GatewayState {
        started: Instant::now(),
        credentials,
        downstreams,
        sessions,
        publisher,
        catalog,
        counters: inputs.counters,
        metrics,
        traces: inputs.traces,
        answers,
        arbiters: inputs.arbiters.clone(),
        history: inputs.history,
        sources: SourceStates::default(),
        log: inputs.log,
        store: inputs.store.clone(),
        cluster: inputs.cluster,
        dismissed: saved.dismissed.clone(),
        certificate: inputs.tls.map(|tls| {
            let view = move || certificate_view(&tls, unix_millis());
            Arc::new(view) as CertificateSource
        }),
        servers: ArcSwap::from_pointee(configured_servers(config, &inputs.sandbox.support())),
        config: ArcSwap::from_pointee(view),
        keys: ArcSwap::default(),
        key_principals: ArcSwap::default(),
    };
    Ok(Arc::new(state))
}

fn start_sessions(
    config: &Config,
    inputs: &TreeInputs<'_>,
    (downstreams, catalog): (Downstreams, CatalogView),
    (numbers, metrics, saved): (CallNumbers, Metrics, &SavedState),
) -> Sessions {
    Sessions::start(SessionsSpec {
        settings: config.session.clone(),
        arbiters: inputs.arbiters.clone(),
        downstreams,
        catalog,
        store: inputs.store.clone(),
        replicas: replicas(config, inputs.cluster.as_ref()),
        policy: policy(config),
        numbers,
        random: Arc::new(SystemRandom::new()),
        mint: mint(inputs.cluster.as_ref()),
        clock: unix_millis,
        sealing: saved.sealing.clone(),
        counters: inputs.counters.clone(),
        history: inputs.history.clone(),
        metrics,
        traces: inputs.traces.clone(),
    })
}

/// Metrics, which are recorded only if something reads them.
fn metrics(config: &Config, arbiters: &Arbiters) -> Metrics {
    match config.metrics_listen.is_some() || config.metrics_export.is_some() {
        true => Metrics::on(arbiters.count().get()),
        false => Metrics::default(),
    }
}

/// Restores the state of servers from the previous process.
fn restored(config: &Config, inputs: &TreeInputs<'_>, saved: &SavedState) -> RestoredCatalog {
    RestoredCatalog {
        arrangement: arrangement(config),
        parts: saved.parts.clone(),
        part_store: PartStore::new(inputs.store.clone(), unix_millis)
            .without(inputs.log.secrets().clone()),
        start_times: saved.start_times.clone(),
        pins: saved.pins.clone(),
    }
}

fn make_connector(
    inputs: &TreeInputs<'_>,
    credentials: &Credentials,
    answers: &LargeAnswers,
) -> MakeConnector {
    let (spawner, tls) = (inputs.spawner.clone(), Tls::system());
    let (sandbox, counters) = (inputs.sandbox.clone(), &inputs.counters);
    let (counters, credentials, answers) = (counters.clone(), credentials.clone(), answers.clone());
    Arc::new(move |server, log, context| -> Arc<dyn Connector> {
        let connector: Arc<dyn Connector> = match &server.transport {
            TransportSettings::Stdio(stdio) => {
                warn_of_unenforced_limits(server, stdio, &spawner);
                let connector = StdioConnector::new(stdio.clone(), spawner.clone(), log.clone());
                let connector = connector.with_sandbox(ServerSandbox {
                    host: sandbox.clone(),
                    server: server.name.to_string(),
                    roots: server.roots.clone(),
                });
                Arc::new(connector.with_answers(answers.clone()))
            }
            TransportSettings::Http(http) => {
                let tls = tls.with_files(&http.tls_files);
                let http = with_credential(server, http, &tls, &credentials, context);
                let connector = HttpConnector::new(http, tls);
                let connector = connector.with_counters(counters.clone());
                Arc::new(connector.with_answers(answers.clone()))
            }
        };
        #[cfg(feature = "faults")]
        let connector = with_faults(server, connector, log, &counters);
        connector
    })
}

fn warn_of_unenforced_limits(server: &ServerSettings, stdio: &StdioSettings, spawner: &Spawner) {
    if stdio.limits.tree == TreeLimits::default() {
        return;
    }
    if let Some(why) = spawner.missing_cgroups() {
        let name = server.name.as_str();
        log::warn!(server = name, why; "`memory`, `cpu` and `pids` in its `limits` are NOT enforced");
    }
}

#[cfg(feature = "faults")]
fn with_faults(
    server: &ServerSettings,
    connector: Arc<dyn Connector>,
    log: &LogRing,
    counters: &Counters,
) -> Arc<dyn Connector> {
    let Some(faults) = server.faults.clone() else {
        return connector;
    };
    let name = server.name.as_str();
    log::warn!(server = name, faults:%; "FAULTS ARE INJECTED into its connections (`faults`)");
    let parts = FaultParts {
        random: Arc::new(SystemRandom::new()),
        log: log.clone(),
        counters: counters.clone(),
    };
    Arc::new(FaultyConnector::new(connector, faults, parts))
}
