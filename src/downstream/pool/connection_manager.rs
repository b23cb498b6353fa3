//! The actor that starts and changes supervised connections.
//!
//! It owns no state: the servers, with the supervisors of their connections, belong to
//! [`crate::downstream::Downstreams`], and pending jobs wait in an inbox. If the actor dies, its
//! next incarnation continues, and connections are not affected.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use actix::{
    Actor, ActorContext, Addr, AsyncContext, Context, Handler, Message, MessageResult, SpawnHandle,
    StreamHandler,
};
use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::catalog::ServerPart;
use crate::downstream::connection::Connection;
use crate::downstream::connection::spec::{
    CallSenders, CalledLists, ConnectionCommand, ConnectionSpec, OwnSession,
};
use crate::downstream::connection_key::{ConnectionKey, ConnectionOwner};
use crate::downstream::era::ServerEra;
use crate::downstream::notification_budget::NotificationBudget;
use crate::downstream::parts::{PoolParts, ServerParts};
use crate::downstream::pool::closing::{close, close_if_refused, ended, stop};
use crate::downstream::pool::idle_sessions::IdleSession;
use crate::downstream::pool::own_connections::{OwnConnections, is_limited};
use crate::downstream::pool::phase_events::publish_phases;
use crate::downstream::pool::plain_process::settle_processes;
use crate::downstream::pool::retiring::{RetiringServers, Succession};
use crate::downstream::pool::server::Server;
use crate::downstream::pool::usage::Usage;
use crate::downstream::pool::{Servers, server_removed};
use crate::downstream::resilience::admission::{AdmissionGate, ConnectionLoad};
use crate::downstream::resilience::breakers::Breakers;
use crate::downstream::separation::Separation;
use crate::downstream::session_status::SessionStatus;
use crate::downstream::settings::{ServerSettings, StartMode};
use crate::id::{CredentialContext, ServerName, SessionId};
use crate::memory::{note_freed, note_passed};
use crate::protocol::Failure;
use crate::supervision::{
    ChildPhase, ChildRef, ChildSpec, Inbox, InboxItem, Shutdown, Start, Supervisor, SupervisorLink,
};
use crate::telemetry::{LogRing, LogRingSettings};
use crate::transport::Recorder;

/// Time between two sweeps that close unused connections.
pub(crate) const SWEEP_EVERY: Duration = Duration::from_secs(15);

/// Approximate bytes of an open session, which are freed when it becomes idle.
const OPEN_SIZE: usize = 24 << 10;

/// Time between two searches for idle sessions.
const IDLE_EVERY: Duration = Duration::from_secs(1);

/// Starts and changes supervised connections.
pub(crate) struct ConnectionManager {
    pub(crate) servers: Arc<ArcSwap<Servers>>,
    jobs: Inbox<ServerJob>,
    pub(super) retiring: RetiringServers,
    pub(crate) parts: PoolParts,
    /// Notified when the lists of a server have to be compared.
    comparison_due: Arc<Notify>,
    /// Timer of the next sweep that closes unused shared connections.
    pub(crate) sweep: Option<SpawnHandle>,
    birth: SupervisorLink<Addr<ConnectionManager>>,
}

/// A change to one server.
#[derive(Clone)]
pub(crate) enum ServerJob {
    /// Starts a new server, or replaces one that needs a new connection; with its items, if known.
    Start(Arc<ServerSettings>, Option<Arc<ServerPart>>),
    /// Applies settings that need no new connection.
    Retune(Arc<ServerSettings>),
    Stop(ServerName),
    /// Leaves the server's sessions, because the signed-in account can have changed.
    LeaveSessions(ServerName, CredentialContext),
    /// Notifies the sender that all earlier jobs are done.
    Notify(Arc<Notify>),
}

#[derive(Message, Clone)]
#[rtype(result = "Result<ChildRef<CallSenders>, Failure>")]
pub(crate) struct OpenConnection {
    pub(crate) server: ServerName,
    pub(crate) key: ConnectionKey,
    pub(crate) arbiter: usize,
    pub(crate) opener: Option<SessionId>,
}

impl ConnectionManager {
    pub(crate) fn new(
        servers: Arc<ArcSwap<Servers>>,
        jobs: Inbox<ServerJob>,
        retiring: RetiringServers,
        parts: PoolParts,
        comparison_due: Arc<Notify>,
        birth: SupervisorLink<Addr<Self>>,
    ) -> Self {
        Self {
            servers,
            jobs,
            retiring,
            parts,
            comparison_due,
            sweep: None,
            birth,
        }
    }

    fn start_server(
        &self,
        settings: ServerSettings,
        known: Option<Arc<ServerPart>>,
    ) -> Arc<Server> {
        let lines_max = settings.limits.log_lines;
        let kept = LogRingSettings {
            lines_max,
            ..Default::default()
        };
        let log = LogRing::new(kept, self.parts.secrets.clone());
        let connector = (self.parts.make_connector)(&settings, &log, &CredentialContext::Shared);
        let queue = settings.resilience.queue;
        let gate = Arc::new(AdmissionGate::new(settings.limits.calls_max, queue));
        let is_lazy = settings.start == StartMode::Lazy;
        let breakers = Arc::new(Breakers::new(
            settings.name.clone(),
            settings.resilience.breaker,
            log.clone(),
            self.parts.counters.clone(),
        ));
        let spread = settings.name.as_str().bytes().fold(0_u64, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(u64::from(byte))
        });
        let declaration = settings.declaration();
        let settings = Arc::new(ArcSwap::from_pointee(settings));
        let store = &self.parts.store;
        let starts_process = connector.starts_process();
        let era = ServerEra::new(settings.clone(), store.clone(), starts_process);
        let era = Arc::new(era);
        let due = self.comparison_due.clone();
        let separation = Separation::new(settings.clone(), store.clone(), log.clone(), due);
        let separation = Arc::new(separation);
        let notification_budget =
            NotificationBudget::new(settings.clone(), self.parts.counters.clone());
        let parts = ServerParts {
            settings,
            declaration,
            connector,
            gate,
            breakers,
            notification_budget: Arc::new(notification_budget),
            era: era.clone(),
            separation: separation.clone(),
            log,
            retiring: self.retiring.clone(),
        };
        let (shared, spec) =
            self.supervise(&parts, ConnectionKey::shared(), spread, known, None, None);
        actix_rt::spawn(async move { tokio::join!(era.load(), separation.load()) });
        let server = Arc::new(Server {
            parts,
            shared,
            spec,
            usage: Arc::new(Usage::new(is_lazy)),
            own: OwnConnections::new(),
            halted: AtomicBool::new(false),
            retries: Default::default(),
        });
        let checked = Arc::downgrade(&server);
        server.parts.breakers.when_opened(move || {
            if let Some(server) = checked.upgrade() {
                server.check();
            }
        });
        server
    }

    /// Starts a permanent child for a connection; `spread` selects its arbiter. Until the server
    /// answers, its lists are taken from `known`.
    fn supervise(
        &self,
        of_server: &ServerParts,
        key: ConnectionKey,
        spread: u64,
        known: Option<Arc<ServerPart>>,
        opener: Option<SessionId>,
        idle: Option<IdleSession>,
    ) -> (ChildRef<CallSenders>, Arc<ConnectionSpec>) {
        let settings = of_server.settings.load();
        let server = &settings.name;
        let mut of_server = of_server.clone();
        if key.credentials != CredentialContext::Shared {
            of_server.connector =
                (self.parts.make_connector)(&settings, &of_server.log, &key.credentials);
        }
        let is_known = known.is_some() && key.is_shared();
        let is_listed = is_known || idle.as_ref().is_some_and(|idle| idle.is_listed);
        let child = child_name(server, &key);
        let arbiters = &self.parts.arbiters;
        let load = Arc::new(ConnectionLoad::new(of_server.gate.clone()));
        let spec = Arc::new(ConnectionSpec {
            server: server.clone(),
            of_server,
            of_all: self.parts.clone(),
            key,
            opener,
            home: arbiters.index(spread),
            load,
            client_tasks: Default::default(),
            progress: Default::default(),
            recorder: ArcSwap::from_pointee(Recorder::new(settings.recorder)),
            param_headers: ArcSwap::default(),
            session: SessionStatus::default(),
            called: CalledLists::new(idle.as_ref().map_or(0, |idle| idle.called)),
            own_session: OwnSession::new(idle.map(|it| (it.session, it.negotiated))),
            last_part: ArcSwapOption::new(known),
            first_lists: ArcSwapOption::default(),
            listed: watch::Sender::new(is_listed),
        });
        let of_child = spec.clone();
        let start = Start::new(move |ctx, birth| {
            Connection::new(of_child.clone(), birth, Context::address(ctx))
        });
        let mut child = ChildSpec::new(child, arbiters, start);
        child.settings = settings.supervision.clone();
        child.key = spread;
        // A lazy server whose items are known need not be started to be listed.
        child.lazy = settings.start == StartMode::Lazy && is_known;
        // Only the session's own thread uses its connection.
        let child = match spec.is_own_session() {
            true => Supervisor::supervise_beside_child(child),
            false => Supervisor::supervise(child),
        };
        if spec.key.is_shared() {
            let (servers, name) = (self.servers.clone(), server.clone());
            let on_up = move || {
                if let Some(server) = servers.load().get(&name) {
                    server.own.retry();
                }
            };
            let (events, phases) = (self.parts.events.clone(), child.subscribe());
            actix_rt::spawn(publish_phases(events, server.clone(), phases, on_up));
        }
        (child, spec)
    }

    fn open(&self, open: OpenConnection) -> Result<ChildRef<CallSenders>, Failure> {
        let server = self.servers.load().get(&open.server).cloned();
        let server = server.ok_or_else(|| server_removed(&open.server))?;
        if let Some(child) = server.find(&open.key) {
            return Ok(child);
        }
        if server.is_halted() && open.key.credentials != CredentialContext::Shared {
            return Err(server.halted());
        }
        // The caller learns from the held connection that the server is stopped.
        if server.is_halted() {
            return Ok(server.shared.clone());
        }
        let idle = server.own.idle.take(&open.key);
        let has_place = idle.is_some() || !is_limited(&open.key);
        if !has_place && !self.make_room(&server) {
            server.use_shared_instead()?;
            return Ok(server.shared.clone());
        }
        let spread = open.arbiter as u64;
        let key = open.key.clone();
        let known = server.spec.last_part.load_full();
        let (child, spec) = self.supervise(&server.parts, key, spread, known, open.opener, idle);
        server.own.insert(open.key, child.clone(), spec.clone());
        if spec.key.era.is_some() && server.parts.era.speaks_older() != Some(true) {
            let listener = self.parts.listener.clone();
            actix_rt::spawn(close_if_refused(listener, server, spec, child.clone()));
        }
        Ok(child)
    }

    /// Makes room for one more connection of a client's own, by closing an unused one if necessary.
    /// Returns whether there is room.
    fn make_room(&self, server: &Server) -> bool {
        if server.own.len() < server.settings().entries_max() {
            return true;
        }
        let registry = &self.parts.subscription_registry;
        if let Some(oldest) = server.own.idle.take_oldest() {
            actix_rt::spawn(ended(&self.parts.listener, server, vec![oldest]));
            return true;
        }
        let unused = (server.own).take_least_recent(|key| server.has_subscriptions(registry, key));
        let has_unused = unused.is_some();
        close(&self.parts.listener, server, unused.into_iter().collect());
        has_unused
    }

    /// Closes the connections of idle sessions; the sessions stay open at their servers. Ends
    /// processes that serve no client any more.
    fn set_sessions_idle(&self) {
        let registry = &self.parts.subscription_registry;
        for server in self.servers.load().values() {
            settle_processes(&self.parts.listener, registry, server);
            if server.own.is_empty() {
                continue;
            }
            // The shared connection can have lost its session as well without having noticed.
            if server.own.has_lost_session()
                && let Ok(up) = server.shared.current()
            {
                up.value.command(ConnectionCommand::Check);
            }
            let idle_max = server.settings().limits.entry_idle;
            let is_awaited = |key: &ConnectionKey| server.has_subscriptions(registry, key);
            let listens = |key: &ConnectionKey| {
                let session = key.session();
                session.is_some_and(|session| registry.listens(session))
            };
            let idle = server.own.set_idle(idle_max, is_awaited, listens);
            if !idle.is_empty() {
                note_passed(idle.len() * OPEN_SIZE);
            }
            idle.iter().for_each(|idle| idle.child.stop());
        }
    }

    /// Carries out a job. Every job can be repeated, because an incarnation that died can have done
    /// part of it.
    fn execute(&mut self, job: ServerJob, ctx: &mut Context<Self>) {
        match job {
            ServerJob::Start(settings, known) => {
                self.start_or_replace(&settings, known, Succession::After, ctx);
            }
            ServerJob::Retune(settings) => self.retune(&settings),
            ServerJob::Stop(name) => {
                let mut servers = Servers::clone(&self.servers.load());
                if let Some(server) = servers.remove(&name) {
                    self.servers.store(Arc::new(servers));
                    self.retire(server, Succession::After);
                }
            }
            ServerJob::LeaveSessions(name, whose) => self.leave_sessions(&name, &whose, ctx),
            ServerJob::Notify(done) => done.notify_one(),
        }
        if self.jobs.is_empty() {
            self.sweep(ctx);
        }
    }

    /// Starts a server, and retires a running one of the same name.
    pub(super) fn start_or_replace(
        &self,
        settings: &ServerSettings,
        known: Option<Arc<ServerPart>>,
        succession: Succession,
        ctx: &mut Context<Self>,
    ) {
        let before = self.servers.load().get(&settings.name).cloned();
        let known_before = || before.as_ref()?.known_for(settings);
        let known = known.or_else(known_before);
        if let Some(before) = before {
            self.retire(before, succession);
        }
        let server = self.start_server(settings.clone(), known);
        Self::sweep_when_listed(&server, ctx);
        let mut servers = Servers::clone(&self.servers.load());
        servers.insert(server.name().clone(), server);
        self.servers.store(Arc::new(servers));
    }

    /// Retires a server that was removed from the table: its calls get `shutdown_timeout` to
    /// finish, then its connections are closed.
    fn retire(&self, server: Arc<Server>, succession: Succession) {
        let retirement = self.retiring.enter(server.name().clone(), succession);
        let listener = self.parts.listener.clone();
        actix_rt::spawn(async move {
            let drain = server.settings().supervision.shutdown_timeout;
            if timeout(drain, server.has_no_calls()).await.is_err() {
                log::warn!(
                    server = server.name().as_str();
                    "calls did not finish in time before the changed or removed server was closed"
                );
            }
            stop(&listener, &server).await;
            drop(retirement);
            note_freed();
        });
    }

    fn retune(&self, settings: &ServerSettings) {
        let Some(server) = self.servers.load().get(&settings.name).cloned() else {
            return;
        };
        let becomes_eager =
            settings.start == StartMode::Eager && server.settings().start == StartMode::Lazy;
        server.retune(settings.clone());
        if becomes_eager {
            server.usage.wanted();
            server.shared.wake();
        }
    }
}

/// The name of a connection in the supervision tree.
fn child_name(server: &ServerName, key: &ConnectionKey) -> String {
    match &key.owner {
        ConnectionOwner::Shared if key.era.is_some() => format!("server/{server}/older"),
        ConnectionOwner::Shared => format!("server/{server}"),
        ConnectionOwner::Audience(_) => format!("server/{server}/profile"),
        ConnectionOwner::Session(session, _) => format!("server/{server}/session/{session}"),
        ConnectionOwner::Lease(_, place) => format!("server/{server}/call/{place}"),
        ConnectionOwner::Plain => format!("server/{server}/plain"),
    }
}

impl Actor for ConnectionManager {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.run_interval(IDLE_EVERY, |manager, _| manager.set_sessions_idle());
        ctx.run_interval(SWEEP_EVERY, |manager, _| {
            for server in manager.servers.load().values() {
                let registry = &manager.parts.subscription_registry;
                let limits = &server.settings().limits;
                let is_watched = |key: &ConnectionKey| server.has_subscriptions(registry, key);
                let idle = (server.own).take_idle(limits.entry_idle, limits.idle_stop, is_watched);
                // The shared process starts with the next call, and is declared nothing.
                if idle.iter().any(|own| own.key.is_plain())
                    && server.shared.phase() == ChildPhase::Idle
                {
                    server.parts.separation.rejoin_plain();
                }
                close(&manager.parts.listener, server, idle);
            }
        });
        // These servers were started by the previous incarnation.
        for server in self.servers.load().values() {
            Self::sweep_when_listed(server, ctx);
        }
        self.sweep(ctx);
        ctx.add_stream(self.jobs.stream());
        self.birth.ready(ctx.address());
    }
}

impl StreamHandler<InboxItem<ServerJob>> for ConnectionManager {
    fn handle(&mut self, taken: InboxItem<ServerJob>, ctx: &mut Self::Context) {
        match taken {
            InboxItem::Try(job) => self.execute(job, ctx),
            InboxItem::GivenUp(job) => {
                let server = match &job {
                    ServerJob::Start(settings, _) | ServerJob::Retune(settings) => {
                        Some(&settings.name)
                    }
                    ServerJob::Stop(name) | ServerJob::LeaveSessions(name, _) => Some(name),
                    ServerJob::Notify(_) => None,
                };
                let server = server.map_or("-", ServerName::as_str);
                log::error!(server; "giving up this server change: applying it panicked twice");
            }
        }
        self.jobs.done();
    }
}

impl Handler<OpenConnection> for ConnectionManager {
    type Result = MessageResult<OpenConnection>;

    fn handle(&mut self, open: OpenConnection, _: &mut Self::Context) -> Self::Result {
        MessageResult(self.open(open))
    }
}

impl Handler<Shutdown> for ConnectionManager {
    type Result = ();

    fn handle(&mut self, _: Shutdown, ctx: &mut Self::Context) {
        ctx.stop();
    }
}
