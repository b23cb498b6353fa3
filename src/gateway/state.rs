//! The state of the running gateway, for operators and for monitoring.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::admin::{
    ConfigView, Health, HealthSource, Inoperable, Operator, OrderOutcome, ServerHealth,
    ServerStatus, Status, crashes,
};
use crate::catalog::ItemKind;
use crate::config::ServerState;
use crate::downstream::{Downstreams, Server, ServerOrder, ServerStatusView};
use crate::publisher::{CatalogPublisher, CatalogView};
use crate::sessions::{Sessions, TreeSource};
use crate::supervision::Arbiters;
use crate::telemetry::{Counters, LogLine};

/// The parts that a status is read from; shared by all threads.
pub(super) struct GatewayState {
    pub(super) started: Instant,
    pub(super) downstreams: Downstreams,
    pub(super) sessions: Sessions,
    pub(super) publisher: CatalogPublisher,
    pub(super) catalog: CatalogView,
    pub(super) counters: Counters,
    pub(super) arbiters: Arbiters,
    /// Name and state of every configured server, in order.
    pub(super) servers: ArcSwap<Vec<(String, ServerState)>>,
    pub(super) config: ArcSwap<ConfigView>,
}

pub(super) fn health_source(state: Arc<GatewayState>, closing: CancellationToken) -> HealthSource {
    Arc::new(move || {
        let servers = state.server_statuses();
        Health {
            listed: state.catalog.is_listed(),
            closing: closing.is_cancelled(),
            store_fails: state.sessions.store_fails(),
            uptime_seconds: state.started.elapsed().as_secs(),
            servers: servers
                .into_iter()
                .map(|server| ServerHealth {
                    reason: server
                        .connection
                        .as_ref()
                        .and_then(ServerStatusView::failing),
                    name: server.name,
                    state: server.state,
                })
                .collect(),
        }
    })
}

/// The reason why the start of a server takes long, for operators.
fn starting(view: &ServerStatusView) -> Option<String> {
    let stage = view.starting.as_ref()?;
    Some(match &view.sign_in {
        Some(page) => format!("{stage}: open {page}"),
        None => stage.clone(),
    })
}

/// The status for clients: without what servers wrote, which may hold anything.
pub(super) fn tree_source(state: &Arc<GatewayState>, listen: String) -> TreeSource {
    // The sessions that hold it are part of the state.
    let state = Arc::downgrade(state);
    Arc::new(move || {
        let mut status = state.upgrade().map(|state| state.status(&listen));
        for child in status.iter_mut().flat_map(Status::children_mut) {
            child.last_exit = child.last_exit_sentence.take();
        }
        let mut tree = serde_json::to_value(status).unwrap_or_default();
        for server in tree["servers"].as_array_mut().into_iter().flatten() {
            if let Some(connection) = server["connection"].as_object_mut() {
                connection.remove("log_tail");
                if connection.remove("sign_in").is_some() {
                    let starting = connection.get("starting").cloned();
                    server["reason"] = starting.unwrap_or_default();
                }
            }
        }
        tree
    })
}

/// The gateway in the hands of an operator.
pub(super) struct GatewayOperator {
    pub(super) state: Arc<GatewayState>,
    /// Where clients connect.
    pub(super) listen: String,
    pub(super) data_dir: PathBuf,
}

impl Operator for GatewayOperator {
    fn status(&self) -> Status {
        self.state.status(&self.listen)
    }

    fn order(
        &self,
        server: &str,
        order: ServerOrder,
    ) -> Pin<Box<dyn Future<Output = OrderOutcome>>> {
        let found = self.state.find_operable_server(server);
        let downstreams = self.state.downstreams.clone();
        Box::pin(async move {
            let ordered = downstreams.order(found?.name().clone(), order).await;
            ordered.map_err(|error| error.to_string())
        })
    }

    fn logs(&self, server: &str) -> Result<Vec<LogLine>, String> {
        let found = self.state.find_operable_server(server)?;
        Ok(found.log().after(0))
    }

    fn crashes(&self, server: Option<&str>) -> Result<serde_json::Value, String> {
        crashes(&self.data_dir, server).map_err(|error| error.to_string())
    }
}

impl GatewayState {
    /// The server of this name, if it is one that can be operated.
    fn find_operable_server(&self, name: &str) -> Result<Arc<Server>, String> {
        let servers = self.servers.load();
        let known: Vec<&str> = servers.iter().map(|(name, _)| name.as_str()).collect();
        let state = servers.iter().find(|(known, _)| known == name);
        let why = match state.map(|(_, state)| state) {
            None => Inoperable::Unknown(&known),
            Some(ServerState::Disabled) => Inoperable::Disabled,
            Some(ServerState::Misconfigured(why)) => Inoperable::Misconfigured(why),
            Some(ServerState::Ready(_)) => {
                let running = self.downstreams.all();
                let found = running.iter().find(|(running, _)| running.as_str() == name);
                match found {
                    Some((_, server)) => return Ok(server.clone()),
                    None => Inoperable::Absent,
                }
            }
        };
        Err(why.sentence(name))
    }

    fn status(&self, listen: &str) -> Status {
        Status {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            uptime_seconds: self.started.elapsed().as_secs(),
            listen: listen.to_string(),
            sessions: self.sessions.len(),
            arbiters_replaced: self.arbiters.replaced(),
            actors: vec![
                self.downstreams.connection_manager_view(),
                self.publisher.view(),
            ],
            config: ConfigView::clone(&self.config.load()),
            servers: self.server_statuses(),
            notices: self
                .catalog
                .snapshot()
                .notices()
                .iter()
                .map(ToString::to_string)
                .collect(),
            counters: self.counters.view(),
        }
    }

    fn server_statuses(&self) -> Vec<ServerStatus> {
        let running = self.downstreams.all();
        let catalog = self.catalog.snapshot();
        let servers = self.servers.load();
        let status = |(name, state): &(String, ServerState)| {
            let found = running.iter().find(|(running, _)| running.as_str() == name);
            let connection = found.map(|(_, server)| server.view());
            let (state, reason) = match (state, &connection) {
                (ServerState::Disabled, _) => ("disabled".to_owned(), None),
                (ServerState::Misconfigured(why), _) => {
                    ("misconfigured".to_owned(), Some(why.clone()))
                }
                (ServerState::Ready(_), Some(view)) => {
                    let halted = found.filter(|(_, server)| server.is_halted());
                    let reason = halted.map(|(_, server)| server.halted().message);
                    let reason = reason.or_else(|| starting(view));
                    (view.shared.phase.to_string(), reason)
                }
                (ServerState::Ready(_), None) => ("starting".to_owned(), None),
            };
            let count = |kind: ItemKind| {
                let owner = found.map(|(owner, _)| owner);
                (
                    kind.member(),
                    owner.map_or(0, |owner| catalog.count(owner, kind)),
                )
            };
            let items = ItemKind::ALL.into_iter().map(count).collect();
            ServerStatus {
                name: name.clone(),
                state,
                reason,
                connection,
                items,
            }
        };
        servers.iter().map(status).collect()
    }
}
