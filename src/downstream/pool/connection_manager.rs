//! The actor that starts and changes supervised connections.
//!
//! It owns no state: the servers, with the supervisors of their connections, belong to
//! [`crate::downstream::Downstreams`], and pending jobs wait in an inbox. If the actor dies, its
//! next incarnation continues, and connections are not affected.

use std::sync::Arc;
use std::time::Duration;

use actix::{
    Actor, ActorContext, Addr, AsyncContext, Context, Handler, Message, MessageResult, SpawnHandle,
    StreamHandler,
};
use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::catalog::ServerPart;
use crate::downstream::connection::spec::{CallSenders, ConnectionCommand};
use crate::downstream::connection_key::ConnectionKey;
use crate::downstream::parts::PoolParts;
use crate::downstream::pool::closing::{close, close_if_refused, ended, stop};
use crate::downstream::pool::dependencies::DependentServers;
use crate::downstream::pool::own_connections::{REST_MIN, is_limited};
use crate::downstream::pool::plain_process::settle_processes;
use crate::downstream::pool::recycling::recycle_due;
use crate::downstream::pool::retiring::{RetiringServers, Succession};
use crate::downstream::pool::rollout::{Promotion, RolloutOrigin, begin, promote};
use crate::downstream::pool::server::Server;
use crate::downstream::pool::server_builder::ServerBuilder;
use crate::downstream::pool::trial::BeginTrial;
use crate::downstream::pool::{Servers, server_removed};
use crate::downstream::settings::{ServerSettings, StartMode};
use crate::id::{CredentialContext, ServerName, SessionId};
use crate::memory::{note_freed, note_passed};
use crate::protocol::Failure;
use crate::supervision::{ChildPhase, ChildRef, Inbox, InboxItem, Shutdown, SupervisorLink, Timer};

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
    pub(super) builder: ServerBuilder,
    pub(super) retiring: RetiringServers,
    pub(super) dependencies: DependentServers,
    pub(super) dependency_timer: Timer,
    pub(crate) parts: PoolParts,
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
    /// Lets a new version of a server take the place of the old one.
    Promote(Promotion),
    /// Looks at the servers with dependencies, because one of them changed.
    LookAtTies,
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
        (retiring, dependencies): (RetiringServers, DependentServers),
        parts: PoolParts,
        comparison_due: Arc<Notify>,
        birth: SupervisorLink<Addr<Self>>,
    ) -> Self {
        let of_look = jobs.clone();
        let ask_to_look = move || of_look.put(ServerJob::LookAtTies);
        let builder = ServerBuilder {
            servers: servers.clone(),
            ask_to_look: Arc::new(ask_to_look),
            retiring: retiring.clone(),
            dependencies: dependencies.clone(),
            parts: parts.clone(),
            comparison_due,
        };
        Self {
            servers,
            jobs,
            builder,
            retiring,
            dependencies,
            dependency_timer: Timer::default(),
            parts,
            sweep: None,
            birth,
        }
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
        let (child, spec) =
            self.builder
                .supervise(&server.parts, key, spread, known, open.opener, idle);
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
                if !self.rolls_out(&settings) {
                    self.start_or_replace(&settings, known, Succession::After, ctx);
                }
            }
            ServerJob::Promote(promotion) => {
                if let Some(old) = promote(&self.builder, &promotion) {
                    self.retire(old, Succession::Promoted);
                }
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
            ServerJob::LookAtTies => return self.look_at_dependencies(ctx),
            ServerJob::Notify(done) => done.notify_one(),
        }
        if self.jobs.is_empty() {
            self.learn_dependencies(ctx);
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
        let server = self.builder.start_server(settings.clone(), known);
        self.builder.announce(&server);
        Self::sweep_when_listed(&server, ctx);
        let mut servers = Servers::clone(&self.servers.load());
        servers.insert(server.name().clone(), server);
        self.servers.store(Arc::new(servers));
    }

    /// Handles a server that needs a new connection without replacing it: if the new version is
    /// tried beside the old one, or runs already. Returns whether it does.
    fn rolls_out(&self, settings: &ServerSettings) -> bool {
        let Some(old) = self.servers.load().get(&settings.name).cloned() else {
            return false;
        };
        if settings.rollout.is_none() && old.rollout.view().is_none() {
            return false;
        }
        if settings.runs_alike(&old.settings()) {
            old.rollout
                .abandon("the configuration names the old version again");
            old.rollout.forget_failure();
            self.retune(settings);
            return true;
        }
        let is_new = settings.declaration() != old.parts.declaration;
        if !is_new || settings.rollout.is_none() {
            return false;
        }
        old.rollout
            .abandon("the configuration names another version");
        let begun = self.begin_rollout(&old, settings, RolloutOrigin::File);
        if begun.is_ok() {
            // Settings that need no new connection apply to the old version.
            self.retune(settings);
        }
        begun.is_ok()
    }

    /// Starts a new version of a server beside the old one.
    ///
    /// # Errors
    ///
    /// Returns why there is nothing that it could be compared with.
    pub(super) fn begin_rollout(
        &self,
        old: &Arc<Server>,
        settings: &ServerSettings,
        origin: RolloutOrigin,
    ) -> Result<(), String> {
        let jobs = self.jobs.clone();
        let promote = move |promotion| jobs.put(ServerJob::Promote(promotion));
        begin(&self.builder, old, settings, origin, Box::new(promote))
    }

    /// Retires a server that was removed from the table: its calls get `shutdown_timeout` to
    /// finish, then its connections are closed.
    fn retire(&self, server: Arc<Server>, succession: Succession) {
        let retirement = self.retiring.enter(server.name().clone(), succession);
        let listener = self.parts.listener.clone();
        server.rollout.abandon("the server is changed or removed");
        actix_rt::spawn(async move {
            let settings = server.settings();
            let is_promoted = succession == Succession::Promoted;
            let drain = match is_promoted {
                true => settings.limits.request_timeout_max + REST_MIN,
                false => settings.supervision.shutdown_timeout,
            };
            let is_unused = async {
                if is_promoted {
                    // A call that found this server can still be in transit to its connection.
                    sleep(REST_MIN).await;
                }
                server.has_no_calls().await;
            };
            if timeout(drain, is_unused).await.is_err() {
                log::warn!(
                    server = server.name().as_str();
                    "calls did not finish in time before the changed or removed server was closed"
                );
            }
            if !is_promoted {
                // A dependant that does not stop in time must not keep the server.
                let alone = server.parts.dependencies.has_no_dependants(server.name());
                drop(timeout(drain * 2, alone).await);
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
        let mut settings = settings.clone();
        if settings.declaration() != server.parts.declaration {
            // The new version was rolled back, or is still tried.
            settings = settings.over(&server.settings());
        }
        server.retune(settings);
        if becomes_eager {
            server.usage.wanted();
            server.shared.wake();
        }
    }
}

impl Actor for ConnectionManager {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.run_interval(IDLE_EVERY, |manager, _| manager.set_sessions_idle());
        ctx.run_interval(SWEEP_EVERY, |manager, _| {
            recycle_due(manager.servers.load_full(), manager.parts.random.clone());
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
        self.learn_dependencies(ctx);
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
                    ServerJob::Promote(promotion) => Some(promotion.server()),
                    ServerJob::LookAtTies | ServerJob::Notify(_) => None,
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

impl Handler<BeginTrial> for ConnectionManager {
    type Result = MessageResult<BeginTrial>;

    fn handle(&mut self, trial: BeginTrial, _: &mut Self::Context) -> Self::Result {
        MessageResult(trial.begin(&self.builder))
    }
}

impl Handler<Shutdown> for ConnectionManager {
    type Result = ();

    fn handle(&mut self, _: Shutdown, ctx: &mut Self::Context) {
        ctx.stop();
    }
}
