//! The state of the running gateway, for operators and for monitoring.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use rustix::process::{Resource, getrlimit};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use url::Url;

use super::place::{callback_url, shown_address};
use super::state_place::read_files;
use super::tls::certificate_view;
use crate::admin::{
    ApiToken, ConfigOrders, ConfigRequest, ConfigView, Crashes, DatedReport, Inoperable, KeyUses,
    LimitView, LoginOrder, LoginVisit, Operator, OrderOutcome, RecordsError, ServerStatus, Status,
    ToolView, ViewAccess, answer_request, crash_reports, crashes, key_view, no_api, replay,
};
use crate::auth::ApiKey;
use crate::catalog::{ItemKind, PinKind, ViewSettings};
use crate::config::{Config, ServerState, limits_in_force};
use crate::credentials::{CredentialView, Credentials};
use crate::downstream::{Downstreams, Server, ServerOrder, ServerStatusView};
use crate::front::{FrontServer, FrontTls, LocalClients, clients_max};
use crate::history::History;
use crate::id::{Principal, ServerName, ViewId};
use crate::metrics::Metrics;
use crate::protocol::{ErrorKind, Failure, Request, Revision};
use crate::publisher::{CatalogPublisher, CatalogView};
use crate::sessions::{Sessions, TreeSource};
use crate::sources::SourceStates;
use crate::store::DurableStore;
use crate::supervision::Arbiters;
use crate::telemetry::{Counters, LogLine, LogRecords, unix_millis};
use crate::traces::Traces;
use crate::transport::LargeAnswers;

/// A server of the configuration.
pub(super) struct ConfiguredServer {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) state: ServerState,
}

/// The server of this id or name.
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

/// The parts that a status is read from; shared by all threads.
pub(super) struct GatewayState {
    pub(super) started: Instant,
    pub(super) downstreams: Downstreams,
    pub(super) credentials: Credentials,
    pub(super) sessions: Sessions,
    pub(super) publisher: CatalogPublisher,
    pub(super) catalog: CatalogView,
    pub(super) counters: Counters,
    pub(super) metrics: Metrics,
    pub(super) traces: Traces,
    pub(super) answers: LargeAnswers,
    pub(super) arbiters: Arbiters,
    pub(super) history: History,
    pub(super) store: Arc<DurableStore>,
    pub(super) sources: SourceStates,
    pub(super) log: LogRecords,
    /// The certificate that is served.
    pub(super) tls: Option<FrontTls>,
    /// Every configured server, in order.
    pub(super) servers: ArcSwap<Vec<ConfiguredServer>>,
    pub(super) config: ArcSwap<ConfigView>,
    /// The API keys.
    pub(super) keys: ArcSwap<Vec<ApiKey>>,
    /// Those of the API keys.
    pub(super) key_principals: ArcSwap<Vec<Principal>>,
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
                let own = connection.get_mut("own").and_then(Value::as_array_mut);
                let of_users = own.into_iter().flatten();
                let of_users = of_users.filter(|own| own["is_of_user"] == true);
                // Clients do not learn who the others are.
                of_users.for_each(|own| own["owner"] = "a user".into());
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
    pub(super) token: Option<Arc<ApiToken>>,
    /// Where browsers come back to after a login.
    pub(super) callback: Option<Url>,
    /// Where a browser on this machine finds the gateway.
    pub(super) own_url: Option<String>,
    pub(super) config_orders: ConfigOrders,
    pub(super) clients: LocalClients,
    /// Client connections that can be open at a time; `None` where nothing listens.
    pub(super) clients_max: Option<usize>,
}

impl GatewayOperator {
    /// Also where its requests to change the configuration arrive.
    pub(super) fn new(
        state: &Arc<GatewayState>,
        config: &Config,
        token: Option<Arc<ApiToken>>,
        server: &FrontServer,
    ) -> (Arc<Self>, mpsc::Receiver<ConfigRequest>) {
        let (config_orders, config_requests) = ConfigOrders::channel();
        let callback = callback_url(config, server.address);
        if let Some(callback) = &callback {
            state.credentials.set_callback(callback.clone());
        }
        let open_files = getrlimit(Resource::Nofile).current;
        let operator = Self {
            state: state.clone(),
            listen: shown_address(server.address),
            data_dir: config.data_dir.clone(),
            token,
            callback,
            own_url: server.address.map(|address| config.front.base_url(address)),
            config_orders,
            clients: server.local_clients(),
            clients_max: server
                .address
                .map(|_| clients_max(&config.front, open_files)),
        };
        (Arc::new(operator), config_requests)
    }
}

impl Operator for GatewayOperator {
    fn status(&self) -> Status {
        Status {
            clients_max: self.clients_max,
            ..self.state.status(&self.listen)
        }
    }

    fn server_names(&self) -> Vec<String> {
        let servers = self.state.servers.load();
        servers.iter().map(|server| server.name.clone()).collect()
    }

    fn tools(&self, view: &ViewId) -> Vec<ToolView> {
        self.state.tools(view)
    }

    fn views(&self) -> Vec<(ViewId, ViewSettings)> {
        self.state.catalog.views()
    }

    fn view_access(&self, view: &ViewId) -> Option<ViewAccess> {
        self.state.view_access(view)
    }

    fn tools_cost(&self, view: &ViewId) -> (usize, usize) {
        self.state.tools_cost(view)
    }

    fn serve_client(
        &self,
        view: ViewId,
        socket: UnixStream,
    ) -> io::Result<LocalBoxFuture<'static, ()>> {
        Ok(Box::pin(self.clients.serve_socket(view, socket)?))
    }

    fn metrics(&self) -> &Metrics {
        &self.state.metrics
    }

    fn counters(&self) -> &Counters {
        &self.state.counters
    }

    fn arbiters(&self) -> &Arbiters {
        &self.state.arbiters
    }

    fn sessions(&self) -> &Sessions {
        &self.state.sessions
    }

    fn config_orders(&self) -> &ConfigOrders {
        &self.config_orders
    }

    fn token(&self) -> Option<&ApiToken> {
        self.token.as_deref()
    }

    fn login_link(&self) -> Result<String, Failure> {
        let (Some(token), Some(url)) = (&self.token, &self.own_url) else {
            return Err(no_api("dashboard"));
        };
        let code = token.mint_code().map_err(|error| {
            Failure::new(ErrorKind::Internal, format!("no randomness: {error}"))
        })?;
        Ok(format!("{url}/ui/login?code={code}"))
    }

    fn order(&self, server: &str, order: ServerOrder) -> LocalBoxFuture<'static, OrderOutcome> {
        let found = self.state.find_operable_server(server);
        let downstreams = self.state.downstreams.clone();
        Box::pin(async move {
            let ordered = downstreams.order(found?.name().clone(), order).await;
            ordered.map_err(Failure::from)
        })
    }

    fn login(
        &self,
        server: &str,
        principal: Option<String>,
        order: LoginOrder,
    ) -> LocalBoxFuture<'static, Result<Value, Failure>> {
        self.carry_out(server, principal, order)
    }

    fn visit_login(&self, visit: LoginVisit) -> LocalBoxFuture<'static, Result<Value, Failure>> {
        self.visit(visit)
    }

    fn keys(&self) -> Vec<Value> {
        let (keys, now) = (self.state.keys.load(), unix_millis());
        let views = keys.iter();
        views
            .map(|key| key_view(key, &KeyUses::default(), now))
            .collect()
    }

    fn logins(&self) -> LocalBoxFuture<'static, Vec<CredentialView>> {
        let credentials = self.state.credentials.clone();
        Box::pin(async move { credentials.views().await })
    }

    fn logs(&self, server: &str) -> Result<Vec<LogLine>, Failure> {
        let found = self.state.find_operable_server(server)?;
        Ok(found.log().after(0))
    }

    fn crashes(&self, server: Option<&str>) -> LocalBoxFuture<'static, Result<Crashes, Failure>> {
        let (data_dir, server) = (self.data_dir.clone(), server.map(str::to_owned));
        Box::pin(read_files(move || crashes(&data_dir, server.as_deref())))
    }

    fn crash_reports(
        &self,
        server: &str,
        most: usize,
    ) -> LocalBoxFuture<'static, Result<Vec<DatedReport>, Failure>> {
        let (data_dir, server) = (self.data_dir.clone(), server.to_owned());
        Box::pin(read_files(move || crash_reports(&data_dir, &server, most)))
    }

    fn limits(&self, server: &str) -> Result<Vec<LimitView>, Failure> {
        let found = self.state.find_operable_server(server)?;
        Ok(limits_in_force(&found.settings()))
    }

    fn pins(&self) -> Vec<Value> {
        let pins = self.state.publisher.pins().into_iter();
        pins.map(|pin| self.state.masked(pin)).collect()
    }

    fn pin(&self, server: &str, of: (PinKind, &str)) -> Result<Value, Failure> {
        let servers = self.state.servers.load();
        // Pins outlive that a server is switched off.
        let name = &configured(&servers, server)?.name;
        let name = ServerName::try_new(name)
            .map_err(|error| Failure::new(ErrorKind::ServerNotFound, error.to_string()))?;
        let pin = self.state.publisher.pin(&name, of);
        pin.map(|pin| self.state.masked(pin))
    }

    fn approve_pins(
        &self,
        server: &str,
        of: Option<(PinKind, String)>,
        digest: Option<String>,
    ) -> LocalBoxFuture<'static, Result<Value, Failure>> {
        let found = self.state.find_operable_server(server);
        let publisher = self.state.publisher.clone();
        Box::pin(async move {
            let server = found?.name().clone();
            let of = of.as_ref().map(|(kind, name)| (*kind, name.as_str()));
            let approved = publisher.approve(&server, of, digest.as_deref());
            Ok(json!({ "approved": approved.await? }))
        })
    }

    fn history(&self) -> History {
        self.state.history.clone()
    }

    fn log_records(&self) -> LogRecords {
        self.state.log.clone()
    }

    fn replay(&self, id: &str) -> LocalBoxFuture<'static, Result<Value, RecordsError>> {
        let (state, id) = (self.state.clone(), id.to_owned());
        Box::pin(async move {
            let site = state.arbiters.at(0);
            let place = (site.index, &site.arbiter);
            let answer = replay(&state.history, &state.sessions, place, &id).await;
            answer.map(|answer| state.masked(answer))
        })
    }

    fn ask(
        &self,
        server: &str,
        request: Request,
    ) -> LocalBoxFuture<'static, Result<Bytes, Failure>> {
        let found = self.state.find_operable_server(server);
        let state = self.state.clone();
        Box::pin(async move {
            let view = ViewId::Server(found?.name().clone());
            state.answer(request, view).await
        })
    }
}

impl GatewayState {
    /// The answer to a request of an operator in the place of a client of this view.
    async fn answer(&self, request: Request, view: ViewId) -> Result<Bytes, Failure> {
        let site = self.arbiters.at(0);
        let place = (site.index, &site.arbiter);
        // As those read it that send no revision.
        let as_client = (view, Revision::NEWEST_LEGACY);
        let answer = answer_request(&self.sessions, place, request, as_client).await;
        answer.ok_or_else(|| {
            Failure::new(
                ErrorKind::ShuttingDown,
                "the gateway stops; try again later",
            )
        })
    }

    /// The server of this id or name, if it is one that can be operated.
    pub(super) fn find_operable_server(&self, name: &str) -> Result<Arc<Server>, Failure> {
        let servers = self.servers.load();
        let ConfiguredServer { name, state, .. } = configured(&servers, name)?;
        let why = match state {
            ServerState::Disabled => Inoperable::Disabled,
            ServerState::Misconfigured(why) => Inoperable::Misconfigured(why),
            ServerState::Ready(_) => {
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

    fn status(&self, listen: &str) -> Status {
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
            config: ConfigView::clone(&self.config.load()),
            tls: self
                .tls
                .as_ref()
                .map(|tls| certificate_view(tls, unix_millis())),
            servers: self.server_statuses(),
            notices: self.notices(),
            counters: self.counters.view(),
            history_failure: self.history.failure(),
            state_failure: self.store.summary().failure,
        }
    }

    /// Notices to operators about sources and merged lists.
    fn notices(&self) -> Vec<String> {
        let (catalog, secrets) = (self.catalog.snapshot(), self.log.secrets());
        let merged = catalog.notices().iter().map(ToString::to_string);
        let own = self.store.summary().notice.into_iter();
        let all = own.chain(self.sources.notices()).chain(merged);
        all.map(|notice| secrets.masked(&notice)).collect()
    }

    pub(super) fn server_statuses(&self) -> Vec<ServerStatus> {
        let running = self.downstreams.all();
        let catalog = self.catalog.snapshot();
        let servers = self.servers.load();
        let status = |server: &ConfiguredServer| {
            let ConfiguredServer { id, name, state } = server;
            let found = running.get_key_value(name.as_str());
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
                    view.state(reason)
                }
                (ServerState::Ready(_), None) => ("starting".to_owned(), None),
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
                connection,
                items,
                suspended,
            }
        };
        servers.iter().map(status).collect()
    }
}
