//! All servers and their connections: started, found, closed, changed.
//!
//! [`Downstreams`] is what sessions hold; the [`Keeper`] behind it is the actor that starts and
//! stops supervised connections, so that all of them are supervised from one thread.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use actix::{
    Actor, Addr, AsyncContext, Context, Handler, Message, MessageResult, Recipient, ResponseFuture,
    SpawnHandle,
};
use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::watch;
use tokio::time::Instant;

use super::admission::{Gate, Load};
use super::breaker::Breakers;
use super::connection::Connection;
use super::crash::CrashSink;
use super::desired::{Change, Desired, Watched};
use super::entry::{Callers, EntrySpec, FromServer, News, Wish};
use super::era::{self, ServerEra};
use super::key::{EntryKey, EntryOwner};
use super::lease::Leases;
use super::server::Server;
use super::settings::{ServerSettings, StartMode};
use super::usage::Usage;
use crate::catalog::ServerPart;
use crate::id::{CallNumbers, ServerName, SessionId};
use crate::protocol::LogLevel;
use crate::store::Store;
use crate::supervision::{Arbiters, ChildRef, ChildSpec, Random, Start, Supervisor};
use crate::telemetry::{Counters, LogRing, LogRingSettings};
use crate::transport::{Connector, Recorder};

/// How often connections are looked at that nobody uses any more.
pub(super) const SWEEP_EVERY: Duration = Duration::from_secs(15);

/// Makes the connector of a server: a seam, through which tests inject one in memory.
pub type MakeConnector = Arc<dyn Fn(&ServerSettings, &LogRing) -> Arc<dyn Connector> + Send + Sync>;

pub(super) type Servers = BTreeMap<ServerName, Arc<Server>>;

/// What the connections are built with.
#[derive(Clone)]
pub struct PoolParts {
    pub arbiters: Arbiters,
    pub numbers: CallNumbers,
    pub desired: Arc<Desired>,
    pub listener: Recipient<FromServer>,
    /// Where it is kept which era a server speaks.
    pub store: Arc<dyn Store>,
    pub random: Arc<dyn Random>,
    pub make_connector: MakeConnector,
    pub counters: Counters,
    pub crashes: CrashSink,
}

/// All servers, by name. Cheap to clone; usable from any thread.
#[derive(Clone)]
pub struct Downstreams {
    servers: Arc<ArcSwap<Servers>>,
    desired: Arc<Desired>,
    pub(super) keeper: Addr<Keeper>,
}

impl Downstreams {
    /// Starts the keeper on the calling arbiter; servers are added by [`Downstreams::apply`].
    pub fn start(parts: PoolParts) -> Self {
        let servers = Arc::new(ArcSwap::default());
        let desired = parts.desired.clone();
        let keeper = Keeper {
            servers: servers.clone(),
            parts,
            look: None,
        }
        .start();
        Self {
            servers,
            desired,
            keeper,
        }
    }

    pub fn get(&self, name: &ServerName) -> Option<Arc<Server>> {
        self.servers.load().get(name).cloned()
    }

    pub fn all(&self) -> Arc<Servers> {
        self.servers.load_full()
    }

    pub fn desired(&self) -> &Desired {
        &self.desired
    }

    /// The connection of a key, started on the arbiter of this index if there is none yet. Over the server's cap it is the
    /// shared one. `None` when the server is gone or the gateway is ending.
    pub async fn open(
        &self,
        server: ServerName,
        key: EntryKey,
        arbiter: usize,
    ) -> Option<ChildRef<Callers>> {
        let open = Open {
            server,
            key,
            arbiter,
        };
        self.keeper.send(open).await.ok().flatten()
    }

    /// Adds, replaces, retunes and removes servers; nothing else is touched.
    pub fn apply(&self, change: ServerChange) {
        self.keeper.do_send(change);
    }

    /// The same; ends once the servers are known to whoever calls them, connected or not.
    pub async fn applied(&self, change: ServerChange) {
        // An error means that nothing runs any more.
        let _ = self.keeper.send(change).await;
    }

    /// A session has ended: its connections are closed, its wishes withdrawn.
    pub fn forget(&self, session: SessionId) {
        for watched in self.desired.forget(session) {
            // One of its own ends with it.
            if watched.key.is_shared() {
                self.wish(&watched.server, Wish::Unsubscribe(watched.uri));
            }
        }
        // Most sessions have none of their own, and the keeper is on another thread.
        let servers = self.servers.load();
        if servers.values().any(|server| server.has_own(session)) {
            self.keeper.do_send(SessionEnded(session));
        }
    }

    /// Somebody wants to hear of updates of a resource on one of a server's connections, which is
    /// opened for that; if it is one of its own, on the arbiter of this index.
    pub fn watch(&self, watched: Watched, watcher: SessionId, arbiter: usize) {
        let Watched { server, key, uri } = watched.clone();
        if self.desired.watch(watched, watcher) == Change::Tell {
            self.tell(server, key, arbiter, Wish::Subscribe(uri));
        }
    }

    /// The same for a task of a sessionless server.
    pub fn watch_task(&self, task: Watched, watcher: SessionId, arbiter: usize) {
        let Watched { server, key, .. } = task.clone();
        if self.desired.watch_task(task, watcher) == Change::Tell {
            self.tell(server, key, arbiter, Wish::Tasks);
        }
    }

    fn tell(&self, server: ServerName, key: EntryKey, arbiter: usize, wish: Wish) {
        // One that is not there yet is asked when it is.
        match self.get(&server).and_then(|server| server.find(&key)) {
            Some(child) => match child.current() {
                Ok(up) => up.value.wish(wish),
                Err(_) => child.wake(),
            },
            None => {
                let downstreams = self.clone();
                actix_rt::spawn(async move { downstreams.open(server, key, arbiter).await });
            }
        }
    }

    /// The most verbose level that a session wants has changed.
    pub fn set_level(&self, level: LogLevel) {
        for server in self.servers.load().values() {
            server.tell_common(&Wish::Level(level));
        }
    }

    /// Tells a server's shared connection; one that is away hears it when it is back.
    pub fn wish(&self, server: &ServerName, wish: Wish) {
        if let Some(up) = self
            .get(server)
            .and_then(|server| server.shared.current().ok())
        {
            up.value.wish(wish);
        }
    }

    /// Stops every connection side by side, each within its own deadline.
    pub async fn stop_all(&self) {
        // The keeper is gone only when its thread is.
        let _ = self.keeper.send(StopAll).await;
    }
}

/// Starts and stops supervised connections.
pub(super) struct Keeper {
    pub(super) servers: Arc<ArcSwap<Servers>>,
    pub(super) parts: PoolParts,
    /// The next look for connections that may be closed as unused.
    pub(super) look: Option<SpawnHandle>,
}

#[derive(Message)]
#[rtype(result = "Option<ChildRef<Callers>>")]
struct Open {
    server: ServerName,
    key: EntryKey,
    arbiter: usize,
}

#[derive(Message)]
#[rtype(result = "()")]
struct SessionEnded(SessionId);

#[derive(Message)]
#[rtype(result = "()")]
struct StopAll;

/// The difference between two configurations, as far as servers go.
#[derive(Message, Default)]
#[rtype(result = "()")]
pub struct ServerChange {
    /// New ones, and those that need another connection.
    pub start: Vec<ServerSettings>,
    /// What these offered to the process before this one: it holds until they are listed.
    pub known: Vec<Arc<ServerPart>>,
    /// Those whose connection can stay.
    pub retune: Vec<ServerSettings>,
    pub stop: Vec<ServerName>,
}

impl Keeper {
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
        let gate = Arc::new(Gate::new(settings.limits.calls_max, queue));
        let is_lazy = settings.start == StartMode::Lazy;
        let breakers = Breakers::of_server(&settings, &log, &self.parts.counters);
        let settings = Arc::new(ArcSwap::from_pointee(settings));
        let spread = name.as_str().bytes().fold(0_u64, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(u64::from(byte))
        });
        let era = Arc::<ServerEra>::default();
        let seed = EntrySeed {
            settings: &settings,
            connector: &connector,
            gate: &gate,
            breakers: &breakers,
            era: &era,
            log: &log,
            known,
        };
        let (shared, spec) = self.supervise(&name, EntryKey::shared(), spread, &seed);
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
            entries_refused: AtomicU64::new(0),
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
        key: EntryKey,
        spread: u64,
        seed: &EntrySeed<'_>,
    ) -> (ChildRef<Callers>, Arc<EntrySpec>) {
        let child = match &key.owner {
            EntryOwner::Shared => format!("server/{server}"),
            EntryOwner::Audience(_) => format!("server/{server}/profile"),
            EntryOwner::Session(session, _) => format!("server/{server}/session/{session}"),
            EntryOwner::Lease(_, place) => format!("server/{server}/call/{place}"),
        };
        let arbiters = &self.parts.arbiters;
        let load = Arc::new(Load::new(seed.gate.clone()));
        let spec = Arc::new(EntrySpec {
            server: server.clone(),
            settings: seed.settings.clone(),
            key,
            connector: seed.connector.clone(),
            arbiters: arbiters.clone(),
            home: arbiters.index(spread),
            numbers: self.parts.numbers.clone(),
            load,
            breakers: seed.breakers.clone(),
            passed: Default::default(),
            desired: self.parts.desired.clone(),
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
        // What is known of it is shown: it need not be started to be listed.
        child.lazy = settings.start == StartMode::Lazy && seed.known.is_some();
        (Supervisor::supervise(child), spec)
    }

    fn open(&self, open: Open) -> Option<ChildRef<Callers>> {
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
            server.entries_refused.fetch_add(1, Ordering::Relaxed);
            log::warn!(
                server = server.name.as_str(), entries_max;
                "no connection of its own is free for a client (`entries_max`): the shared one serves, and the client is not asked"
            );
            return Some(server.shared.clone());
        }
        let seed = EntrySeed {
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

    /// Tells connections that were taken out to leave.
    pub(super) fn close(&self, server: &Server, own: Vec<(EntryKey, ChildRef<Callers>)>) {
        for (key, child) in own {
            child.stop();
            self.parts.listener.do_send(FromServer {
                server: server.name.clone(),
                key,
                news: News::Closed,
            });
        }
    }

    /// Tells a server's connections to leave; returns them, since they take a moment.
    fn stop(&self, server: &Server) -> Vec<ChildRef<Callers>> {
        let own = server.take_out(|_, _| true);
        let mut children: Vec<_> = own.iter().map(|(_, child)| child.clone()).collect();
        self.close(server, own);
        server.shared.stop();
        children.push(server.shared.clone());
        children
    }

    fn change(&mut self, change: ServerChange, ctx: &mut Context<Self>) {
        let mut servers = Servers::clone(&self.servers.load());
        let stopped = change
            .stop
            .iter()
            .chain(change.start.iter().map(|settings| &settings.name));
        let mut replaced = Servers::new();
        for name in stopped {
            if let Some(server) = servers.remove(name) {
                self.stop(&server);
                replaced.insert(name.clone(), server);
            }
        }
        for settings in change.start {
            let mut known = change.known.iter();
            let known = known.find(|part| *part.server() == settings.name).cloned();
            let before = replaced.get(&settings.name);
            let known = known.or_else(|| before?.known_for(&settings));
            let server = self.start_server(settings, known);
            Self::look_when_listed(&server, ctx);
            servers.insert(server.name.clone(), server);
        }
        for settings in change.retune {
            let Some(server) = servers.get(&settings.name) else {
                continue;
            };
            let becomes_eager = settings.start == StartMode::Eager
                && server.settings.load().start == StartMode::Lazy;
            server.retune(settings);
            if becomes_eager {
                server.usage.wanted();
                server.shared.wake();
            }
        }
        self.servers.store(Arc::new(servers));
        self.look(ctx);
    }
}

/// What all entries of a server have in common.
struct EntrySeed<'a> {
    settings: &'a Arc<ArcSwap<ServerSettings>>,
    connector: &'a Arc<dyn Connector>,
    gate: &'a Arc<Gate>,
    breakers: &'a Arc<Breakers>,
    era: &'a Arc<ServerEra>,
    log: &'a LogRing,
    known: Option<Arc<ServerPart>>,
}

impl Actor for Keeper {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.run_interval(SWEEP_EVERY, |keeper, _| {
            for server in keeper.servers.load().values() {
                keeper.close(server, server.take_idle(&keeper.parts.desired));
            }
        });
    }
}

impl Handler<Open> for Keeper {
    type Result = MessageResult<Open>;

    fn handle(&mut self, open: Open, _: &mut Self::Context) -> Self::Result {
        MessageResult(self.open(open))
    }
}

impl Handler<ServerChange> for Keeper {
    type Result = ();

    fn handle(&mut self, change: ServerChange, ctx: &mut Self::Context) {
        self.change(change, ctx);
    }
}

impl Handler<SessionEnded> for Keeper {
    type Result = ();

    fn handle(&mut self, ended: SessionEnded, _: &mut Self::Context) {
        for server in self.servers.load().values() {
            let of_session = server.take_out(|key, _| key.session() == Some(ended.0));
            self.close(server, of_session);
        }
    }
}

impl Handler<StopAll> for Keeper {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: StopAll, _: &mut Self::Context) -> Self::Result {
        let servers = self.servers.swap(Arc::default());
        let children: Vec<_> = servers
            .values()
            .flat_map(|server| self.stop(server))
            .collect();
        Box::pin(async move {
            for child in children {
                child.stopped().await;
            }
        })
    }
}
