//! The actor that starts and changes supervised connections.
//!
//! It owns none of its data: the servers are found in [`crate::downstream::Downstreams`], each with
//! the supervisors of its connections, and what is to be done waits in an inbox. Another
//! incarnation goes on where one died, and no connection notices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use actix::{
    Actor, ActorContext, Addr, AsyncContext, Context, Handler, Message, MessageResult, SpawnHandle,
    StreamHandler,
};
use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::catalog::ServerPart;
use crate::downstream::connection::Connection;
use crate::downstream::connection::spec::{
    CallSenders, ConnectionSpec, RoutedServerEvent, ServerEvent, ServerEventListener,
};
use crate::downstream::connection_key::{ConnectionKey, ConnectionOwner};
use crate::downstream::era::{self, ServerEra};
use crate::downstream::pool::lease::Leases;
use crate::downstream::pool::server::Server;
use crate::downstream::pool::usage::Usage;
use crate::downstream::pool::{PoolParts, Servers};
use crate::downstream::resilience::admission::{AdmissionGate, ConnectionLoad};
use crate::downstream::resilience::breakers::Breakers;
use crate::downstream::settings::{ServerSettings, StartMode};
use crate::id::ServerName;
use crate::supervision::{
    ChildRef, ChildSpec, Inbox, InboxItem, Shutdown, Start, Supervisor, SupervisorLink,
};
use crate::telemetry::{LogRing, LogRingSettings};
use crate::transport::{Connector, Recorder};

/// How often connections are looked at that nobody uses any more.
pub(crate) const SWEEP_EVERY: Duration = Duration::from_secs(15);

/// Starts and changes supervised connections.
pub(crate) struct ConnectionManager {
    pub(crate) servers: Arc<ArcSwap<Servers>>,
    jobs: Inbox<ServerJob>,
    pub(crate) parts: PoolParts,
    /// The next sweep for connections that may be closed as unused.
    pub(crate) sweep: Option<SpawnHandle>,
    birth: SupervisorLink<Addr<ConnectionManager>>,
}

/// A change of one server.
#[derive(Clone)]
pub(crate) enum ServerJob {
    /// A new one, or one that needs another connection; with what it is known to offer.
    Start(Arc<ServerSettings>, Option<Arc<ServerPart>>),
    /// The connection can stay.
    Retune(Arc<ServerSettings>),
    Stop(ServerName),
    /// Says that everything before is done.
    Notify(Arc<Notify>),
}

#[derive(Message, Clone)]
#[rtype(result = "Option<ChildRef<CallSenders>>")]
pub(crate) struct OpenConnection {
    pub(crate) server: ServerName,
    pub(crate) key: ConnectionKey,
    pub(crate) arbiter: usize,
}

/// Tells connections that were taken out to leave.
pub(crate) fn close(
    listener: &ServerEventListener,
    server: &Server,
    own: Vec<(ConnectionKey, ChildRef<CallSenders>)>,
) {
    for (key, child) in own {
        child.stop();
        listener(RoutedServerEvent {
            server: server.name.clone(),
            key,
            news: ServerEvent::Closed,
        });
    }
}

/// Tells a server's connections to leave; returns them, since they take a moment.
pub(crate) fn stop(listener: &ServerEventListener, server: &Server) -> Vec<ChildRef<CallSenders>> {
    let own = server.take_out(|_, _| true);
    let mut children: Vec<_> = own.iter().map(|(_, child)| child.clone()).collect();
    close(listener, server, own);
    server.shared.stop();
    children.push(server.shared.clone());
    children
}

impl ConnectionManager {
    pub(crate) fn new(
        servers: Arc<ArcSwap<Servers>>,
        jobs: Inbox<ServerJob>,
        parts: PoolParts,
        birth: SupervisorLink<Addr<Self>>,
    ) -> Self {
        Self {
            servers,
            jobs,
            parts,
            sweep: None,
            birth,
        }
    }

    fn start_server(
        &self,
        settings: ServerSettings,
        known: Option<Arc<ServerPart>>,
    ) -> Arc<Server> {
        let name = settings.name.clone();
        let lines_max = settings.limits.log_lines;
        let log = LogRing::new(LogRingSettings {
            lines_max,
            ..Default::default()
        });
        let connector = (self.parts.make_connector)(&settings, &log);
        let queue = settings.resilience.queue;
        let gate = Arc::new(AdmissionGate::new(settings.limits.calls_max, queue));
        let is_lazy = settings.start == StartMode::Lazy;
        let breakers = Breakers::of_server(&settings, &log, &self.parts.counters);
        let settings = Arc::new(ArcSwap::from_pointee(settings));
        let spread = name.as_str().bytes().fold(0_u64, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(u64::from(byte))
        });
        let era = Arc::<ServerEra>::default();
        let seed = SharedServerParts {
            settings: &settings,
            connector: &connector,
            gate: &gate,
            breakers: &breakers,
            era: &era,
            log: &log,
            known,
        };
        let (shared, spec) = self.supervise(&name, ConnectionKey::shared(), spread, &seed);
        let of_server = spec.clone();
        actix_rt::spawn(async move { era::preload(&of_server).await });
        Arc::new(Server {
            name,
            settings,
            connector,
            shared,
            spec,
            usage: Arc::new(Usage::new(is_lazy)),
            halted: AtomicBool::new(false),
            own: Default::default(),
            breakers,
            gate,
            own_connections_refused: AtomicU64::new(0),
            era,
            leases: Leases::default(),
            retries: Default::default(),
            log,
            started: Instant::now(),
        })
    }

    /// Starts a permanent child for an entry.
    fn supervise(
        &self,
        server: &ServerName,
        key: ConnectionKey,
        spread: u64,
        seed: &SharedServerParts<'_>,
    ) -> (ChildRef<CallSenders>, Arc<ConnectionSpec>) {
        let child = match &key.owner {
            ConnectionOwner::Shared => format!("server/{server}"),
            ConnectionOwner::Audience(_) => format!("server/{server}/profile"),
            ConnectionOwner::Session(session, _) => format!("server/{server}/session/{session}"),
            ConnectionOwner::Lease(_, place) => format!("server/{server}/call/{place}"),
        };
        let arbiters = &self.parts.arbiters;
        let load = Arc::new(ConnectionLoad::new(seed.gate.clone()));
        let spec = Arc::new(ConnectionSpec {
            server: server.clone(),
            settings: seed.settings.clone(),
            key,
            connector: seed.connector.clone(),
            arbiters: arbiters.clone(),
            home: arbiters.index(spread),
            numbers: self.parts.numbers.clone(),
            load,
            breakers: seed.breakers.clone(),
            client_tasks: Default::default(),
            subscription_registry: self.parts.subscription_registry.clone(),
            listener: self.parts.listener.clone(),
            store: self.parts.store.clone(),
            random: self.parts.random.clone(),
            era: seed.era.clone(),
            param_headers: ArcSwap::default(),
            counters: self.parts.counters.clone(),
            log: seed.log.clone(),
            recorder: ArcSwap::from_pointee(Recorder::new(seed.settings.load().recorder)),
            crashes: self.parts.crashes.clone(),
            last_part: ArcSwapOption::new(seed.known.clone()),
            listed: watch::Sender::new(seed.known.is_some()),
        });
        let of_child = spec.clone();
        let start = Start::new(move |_, birth| Connection::new(of_child.clone(), birth));
        let mut child = ChildSpec::new(child, arbiters, start);
        let settings = seed.settings.load();
        child.settings = settings.supervision.clone();
        child.key = spread;
        // Its known items are shown: it need not be started to be listed.
        child.lazy = settings.start == StartMode::Lazy && seed.known.is_some();
        (Supervisor::supervise(child), spec)
    }

    fn open(&self, open: OpenConnection) -> Option<ChildRef<CallSenders>> {
        let server = self.servers.load().get(&open.server).cloned()?;
        if let Some(child) = server.find(&open.key) {
            return Some(child);
        }
        // Its caller finds out.
        if server.is_halted() {
            return Some(server.shared.clone());
        }
        let entries_max = server.settings.load().limits.entries_max;
        if server.own_count() >= entries_max {
            server
                .own_connections_refused
                .fetch_add(1, Ordering::Relaxed);
            log::warn!(
                server = server.name.as_str(), entries_max;
                "no connection of its own is free for a client (`entries_max`): the shared one serves, and the client is not asked"
            );
            return Some(server.shared.clone());
        }
        let seed = SharedServerParts {
            settings: &server.settings,
            connector: &server.connector,
            gate: &server.gate,
            breakers: &server.breakers,
            era: &server.era,
            log: &server.log,
            known: None,
        };
        let place = open.arbiter as u64;
        let (child, spec) = self.supervise(&server.name, open.key.clone(), place, &seed);
        server.insert(open.key, child.clone(), spec.load.clone());
        Some(child)
    }

    /// One that died over a job has perhaps done a part of it: each can be done again.
    fn execute(&mut self, job: ServerJob, ctx: &mut Context<Self>) {
        match job {
            ServerJob::Start(settings, known) => self.start_or_replace(&settings, known, ctx),
            ServerJob::Retune(settings) => self.retune(&settings),
            ServerJob::Stop(name) => {
                let mut servers = Servers::clone(&self.servers.load());
                if let Some(server) = servers.remove(&name) {
                    stop(&self.parts.listener, &server);
                    self.servers.store(Arc::new(servers));
                }
            }
            ServerJob::Notify(done) => done.notify_one(),
        }
        if self.jobs.is_empty() {
            self.sweep(ctx);
        }
    }

    /// A server of this name that runs makes way.
    fn start_or_replace(
        &self,
        settings: &ServerSettings,
        known: Option<Arc<ServerPart>>,
        ctx: &mut Context<Self>,
    ) {
        let before = self.servers.load().get(&settings.name).cloned();
        if let Some(before) = &before {
            stop(&self.parts.listener, before);
        }
        let known = known.or_else(|| before?.known_for(settings));
        let server = self.start_server(settings.clone(), known);
        Self::sweep_when_listed(&server, ctx);
        let mut servers = Servers::clone(&self.servers.load());
        servers.insert(server.name.clone(), server);
        self.servers.store(Arc::new(servers));
    }

    fn retune(&self, settings: &ServerSettings) {
        let Some(server) = self.servers.load().get(&settings.name).cloned() else {
            return;
        };
        let becomes_eager =
            settings.start == StartMode::Eager && server.settings.load().start == StartMode::Lazy;
        server.retune(settings.clone());
        if becomes_eager {
            server.usage.wanted();
            server.shared.wake();
        }
    }
}

/// The parts that all connections of a server share.
struct SharedServerParts<'a> {
    settings: &'a Arc<ArcSwap<ServerSettings>>,
    connector: &'a Arc<dyn Connector>,
    gate: &'a Arc<AdmissionGate>,
    breakers: &'a Arc<Breakers>,
    era: &'a Arc<ServerEra>,
    log: &'a LogRing,
    known: Option<Arc<ServerPart>>,
}

impl Actor for ConnectionManager {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.run_interval(SWEEP_EVERY, |manager, _| {
            for server in manager.servers.load().values() {
                let idle = server.take_idle(&manager.parts.subscription_registry);
                close(&manager.parts.listener, server, idle);
            }
        });
        // The servers of the incarnation before this one.
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
                    ServerJob::Stop(name) => Some(name),
                    ServerJob::Notify(_) => None,
                };
                let server = server.map_or("-", ServerName::as_str);
                log::error!(server; "a change of a server is given up: the gateway panics over it");
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
