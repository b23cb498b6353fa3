//! The state of the running gateway, for operators and monitoring.

use std::sync::Arc;

use arc_swap::ArcSwap;
use serde_json::Value;
use tokio::time::Instant;

use super::Inoperable;
use crate::admin::notices::{DismissedNotices, Notice};
use crate::admin::status::{CertificateView, ConfigView, SandboxView, ServerStatus, Status};
use crate::auth::{ApiKey, AuthSettings};
use crate::catalog::ItemKind;
use crate::cluster::Cluster;
use crate::credentials::Credentials;
use crate::downstream::{Downstreams, Server, ServerStatusView};
use crate::history::History;
use crate::id::Principal;
use crate::metrics::Metrics;
use crate::protocol::Failure;
use crate::publisher::{CatalogPublisher, CatalogView};
use crate::sessions::{Sessions, TreeSource};
use crate::sources::SourceStates;
use crate::store::DurableStore;
use crate::supervision::Arbiters;
use crate::telemetry::{Counters, LogRecords, unix_millis};
use crate::traces::Traces;
use crate::transport::LargeAnswers;

/// A configured server.
#[derive(PartialEq, Eq)]
pub struct ConfiguredServer {
    pub id: String,
    pub name: String,
    pub state: ConfiguredState,
    /// The sandbox of its program.
    pub sandbox: Option<SandboxView>,
}

/// Whether the configuration allows a server to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfiguredState {
    Ready,
    Disabled,
    /// The text names the missing setting.
    Misconfigured(String),
}

/// The server with this id or name.
fn configured<'s>(
    servers: &'s [ConfiguredServer],
    wanted: &str,
) -> Result<&'s ConfiguredServer, Failure> {
    let by_id = servers.iter().find(|server| server.id == wanted);
    let found = by_id.or_else(|| servers.iter().find(|server| server.name == wanted));
    found.ok_or_else(|| {
        let known: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
        Inoperable::Unknown(&known).failure(wanted)
    })
}

/// Reads the state of the served certificate.
pub type CertificateSource = Arc<dyn Fn() -> CertificateView + Send + Sync>;

/// The sources of a status, shared by all threads.
pub struct GatewayState {
    pub started: Instant,
    pub downstreams: Downstreams,
    pub credentials: Credentials,
    pub sessions: Sessions,
    pub publisher: CatalogPublisher,
    pub catalog: CatalogView,
    pub counters: Counters,
    pub metrics: Metrics,
    pub traces: Traces,
    pub answers: LargeAnswers,
    pub arbiters: Arbiters,
    pub history: History,
    pub store: Arc<DurableStore>,
    pub dismissed: Arc<DismissedNotices>,
    /// `None` if the gateway is no replica.
    pub cluster: Option<Cluster>,
    pub sources: SourceStates,
    pub log: LogRecords,
    /// `None` if the gateway serves plain HTTP.
    pub certificate: Option<CertificateSource>,
    pub config: ArcSwap<ConfigView>,
    /// Every configured server, in order.
    pub servers: ArcSwap<Vec<ConfiguredServer>>,
    /// The API keys.
    pub keys: ArcSwap<Vec<ApiKey>>,
    /// The principals of the API keys.
    pub key_principals: ArcSwap<Vec<Principal>>,
}

/// Why a server's start takes long, for operators.
fn starting(view: &ServerStatusView) -> Option<String> {
    let stage = view.starting.as_ref()?;
    Some(match &view.sign_in {
        Some(page) => format!("{stage}: open {page}"),
        None => stage.clone(),
    })
}

/// The status for clients, without texts of servers, which can contain secrets.
pub fn tree_source(state: &Arc<GatewayState>, listen: String) -> TreeSource {
    // A strong reference would be a cycle: the sessions that hold it are part of the state.
    let state = Arc::downgrade(state);
    Arc::new(move || {
        let Some(mut status) = state.upgrade().map(|state| state.status(&listen)) else {
            return Value::Null;
        };
        for child in status.children_mut() {
            child.last_exit = child.last_exit_sentence.take();
        }
        status.cluster = None;
        for server in &mut status.servers {
            let Some(connection) = &mut server.connection else {
                continue;
            };
            connection.log_tail.clear();
            // Clients must not learn about each other.
            for own in connection.own.iter_mut().filter(|own| own.is_of_user) {
                own.owner = "a user".into();
            }
            if connection.sign_in.take().is_some() {
                server.reason.clone_from(&connection.starting);
            }
        }
        serde_json::to_value(status).unwrap_or_default()
    })
}

impl GatewayState {
    /// Sets the configured servers and API keys, and forgets sign-ins of users whose keys were
    /// removed. Called on an arbiter.
    pub fn configure(&self, servers: Vec<ConfiguredServer>, auth: &AuthSettings) {
        self.servers.store(Arc::new(servers));
        self.keys.store(Arc::new(auth.keys.clone()));
        self.key_principals.store(Arc::new(auth.principals()));
        let auth = auth.clone();
        // A later key with the same name belongs to a different user.
        let is_gone = move |principal: &_| auth.has_lost(principal);
        self.credentials.forget_users(Arc::new(is_gone));
    }

    /// The name of the server with this id or name.
    pub(super) fn configured_name(&self, wanted: &str) -> Result<String, Failure> {
        let servers = self.servers.load();
        configured(&servers, wanted).map(|server| server.name.clone())
    }

    /// The server with this id or name, if it can be operated.
    pub(super) fn find_operable_server(&self, name: &str) -> Result<Arc<Server>, Failure> {
        let servers = self.servers.load();
        let ConfiguredServer { name, state, .. } = configured(&servers, name)?;
        let why = match state {
            ConfiguredState::Disabled => Inoperable::Disabled,
            ConfiguredState::Misconfigured(why) => Inoperable::Misconfigured(why),
            ConfiguredState::Ready => {
                let running = self.downstreams.all();
                let found = running.iter().find(|(running, _)| running.as_str() == name);
                match found {
                    Some((_, server)) => return Ok(server.clone()),
                    None => Inoperable::Absent,
                }
            }
        };
        Err(why.failure(name))
    }

    pub(super) fn status(&self, listen: &str) -> Status {
        let uptime = self.started.elapsed();
        let uptime_millis = u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX);
        Status {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            uptime_seconds: uptime.as_secs(),
            started_at: unix_millis().saturating_sub(uptime_millis),
            listen: listen.to_string(),
            sessions: self.sessions.len(),
            clients_max: None,
            event_bytes: self.sessions.event_bytes(),
            answer_bytes: self.answers.bytes(),
            arbiters_replaced: self.arbiters.replaced(),
            actors: vec![
                self.downstreams.connection_manager_view(),
                self.publisher.view(),
            ],
            config: self.config_view(),
            tls: self.certificate.as_ref().map(|certificate| certificate()),
            servers: self.server_statuses(),
            groups: self.downstreams.groups(),
            notices: self.undismissed(self.remarks()),
            counters: self.counters.view(),
            cluster: self.cluster.as_ref().map(Cluster::status),
            history_failure: self.history.failure(),
            state_failure: self.store.summary().failure,
        }
    }

    /// Warnings about the configuration, and remarks on sources and merged lists.
    pub(super) fn notices(&self) -> Vec<Notice> {
        let warnings = self.config.load().warnings.clone().into_iter();
        let all = warnings.chain(self.remarks());
        all.map(|text| self.dismissed.notice(text)).collect()
    }

    fn config_view(&self) -> ConfigView {
        let mut view = ConfigView::clone(&self.config.load());
        view.warnings = self.undismissed(view.warnings);
        view
    }

    fn undismissed(&self, mut notices: Vec<String>) -> Vec<String> {
        notices.retain(|notice| !self.dismissed.is_dismissed(notice));
        notices
    }

    /// Remarks on sources and merged lists.
    fn remarks(&self) -> Vec<String> {
        let (catalog, secrets) = (self.catalog.snapshot(), self.log.secrets());
        let merged = catalog.notices().iter().map(ToString::to_string);
        let own = self.store.summary().notice.into_iter();
        let servers = self.downstreams.all();
        let held = servers.iter().filter_map(|(name, server)| {
            let rollout = server.rollout.notice()?;
            Some(format!("server `{name}`: {rollout}"))
        });
        let all = own.chain(self.sources.notices()).chain(merged).chain(held);
        all.map(|notice| secrets.masked(&notice)).collect()
    }

    pub fn server_statuses(&self) -> Vec<ServerStatus> {
        let running = self.downstreams.all();
        let catalog = self.catalog.snapshot();
        let servers = self.servers.load();
        let status = |server: &ConfiguredServer| {
            let ConfiguredServer {
                id,
                name,
                state,
                sandbox,
            } = server;
            let found = running.get_key_value(name.as_str());
            let connection = found.map(|(_, server)| server.view());
            let (state, reason) = match (state, &connection) {
                (ConfiguredState::Disabled, _) => ("disabled".to_owned(), None),
                (ConfiguredState::Misconfigured(why), _) => {
                    ("misconfigured".to_owned(), Some(why.clone()))
                }
                (ConfiguredState::Ready, Some(view)) => {
                    let halted = found.filter(|(_, server)| server.is_halted());
                    let reason = halted.map(|(_, server)| server.halted().message);
                    let reason = reason.or_else(|| view.waits.clone());
                    let reason = reason.or_else(|| starting(view));
                    view.state(reason)
                }
                (ConfiguredState::Ready, None) => ("starting".to_owned(), None),
            };
            let owner = found.map(|(owner, _)| owner);
            let count = |kind| owner.map_or(0, |owner| catalog.count(owner, kind));
            let items = ItemKind::ALL.map(|kind| (kind.member().into(), count(kind)));
            let items = items.into_iter().collect();
            let credential = owner.and_then(|owner| self.credentials.get(owner));
            let suspended = owner.map_or(0, |owner| catalog.suspended_count(owner));
            ServerStatus {
                lists_age: owner.and_then(|owner| self.catalog.lists_age(owner)),
                token_expires_at: credential.and_then(|it| it.expires_at()),
                id: id.clone(),
                name: name.clone(),
                state,
                reason,
                sandbox: sandbox.clone(),
                connection,
                items,
                suspended,
            }
        };
        servers.iter().map(status).collect()
    }
}
