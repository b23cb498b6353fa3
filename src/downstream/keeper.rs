//! The actor that starts and changes supervised connections.
//!
//! What it works on is not its own: the servers are found in [`super::Downstreams`], each with the
//! supervisors of its connections, and what is to be done waits in an inbox. Another incarnation
//! goes on where one died, and no connection notices.

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

use super::admission::{Gate, Load};
use super::breaker::Breakers;
use super::connection::Connection;
use super::entry::{Callers, EntrySpec, FromServer, Listener, News};
use super::era::{self, ServerEra};
use super::key::{EntryKey, EntryOwner};
use super::lease::Leases;
use super::pool::{PoolParts, Servers};
use super::server::Server;
use super::settings::{ServerSettings, StartMode};
use super::usage::Usage;
use crate::catalog::ServerPart;
use crate::id::ServerName;
use crate::supervision::{ChildRef, ChildSpec, Inbox, Link, Shutdown, Start, Supervisor, Taken};
use crate::telemetry::{LogRing, LogRingSettings};
use crate::transport::{Connector, Recorder};

/// How often connections are looked at that nobody uses any more.
pub(super) const SWEEP_EVERY: Duration = Duration::from_secs(15);

/// Starts and changes supervised connections.
pub(super) struct Keeper {
    pub(super) servers: Arc<ArcSwap<Servers>>,
    jobs: Inbox<Job>,
    pub(super) parts: PoolParts,
    /// The next look for connections that may be closed as unused.
    pub(super) look: Option<SpawnHandle>,
    birth: Link<Addr<Keeper>>,
}

/// A change of one server.
#[derive(Clone)]
pub(super) enum Job {
    /// A new one, or one that needs another connection; with what it is known to offer.
    Start(Arc<ServerSettings>, Option<Arc<ServerPart>>),
    /// The connection can stay.
    Retune(Arc<ServerSettings>),
    Stop(ServerName),
    /// Tell that everything before is done.
    Tell(Arc<Notify>),
}

#[derive(Message, Clone)]
#[rtype(result = "Option<ChildRef<Callers>>")]
pub(super) struct Open {
    pub(super) server: ServerName,
    pub(super) key: EntryKey,
    pub(super) arbiter: usize,
}

/// Tells connections that were taken out to leave.
pub(super) fn close(listener: &Listener, server: &Server, own: Vec<(EntryKey, ChildRef<Callers>)>) {
    for (key, child) in own {
        child.stop();
        listener(FromServer {
            server: server.name.clone(),
            key,
            news: News::Closed,
        });
    }
}

/// Tells a server's connections to leave; returns them, since they take a moment.
pub(super) fn stop(listener: &Listener, server: &Server) -> Vec<ChildRef<Callers>> {
    let own = server.take_out(|_, _| true);
    let mut children: Vec<_> = own.iter().map(|(_, child)| child.clone()).collect();
    close(listener, server, own);
    server.shared.stop();
    children.push(server.shared.clone());
    children
}

impl Keeper {
    pub(super) fn new(
        servers: Arc<ArcSwap<Servers>>,
        jobs: Inbox<Job>,
        parts: PoolParts,
        birth: Link<Addr<Self>>,
    ) -> Self {
        Self {
            servers,
            jobs,
            parts,
            look: None,
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

    /// One that died over a job has perhaps done a part of it: each can be done again.
    fn carry_out(&mut self, job: Job, ctx: &mut Context<Self>) {
        match job {
            Job::Start(settings, known) => self.put_in_place(&settings, known, ctx),
            Job::Retune(settings) => self.retune(&settings),
            Job::Stop(name) => {
                let mut servers = Servers::clone(&self.servers.load());
                if let Some(server) = servers.remove(&name) {
                    stop(&self.parts.listener, &server);
                    self.servers.store(Arc::new(servers));
                }
            }
            Job::Tell(done) => done.notify_one(),
        }
        if self.jobs.is_empty() {
            self.look(ctx);
        }
    }

    /// A server of this name that runs makes way.
    fn put_in_place(
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
        Self::look_when_listed(&server, ctx);
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
                let idle = server.take_idle(&keeper.parts.desired);
                close(&keeper.parts.listener, server, idle);
            }
        });
        // What an incarnation before this one looked after.
        for server in self.servers.load().values() {
            Self::look_when_listed(server, ctx);
        }
        self.look(ctx);
        ctx.add_stream(self.jobs.stream());
        self.birth.ready(ctx.address());
    }
}

impl StreamHandler<Taken<Job>> for Keeper {
    fn handle(&mut self, taken: Taken<Job>, ctx: &mut Self::Context) {
        match taken {
            Taken::Try(job) => self.carry_out(job, ctx),
            Taken::GivenUp(job) => {
                let server = match &job {
                    Job::Start(settings, _) | Job::Retune(settings) => Some(&settings.name),
                    Job::Stop(name) => Some(name),
                    Job::Tell(_) => None,
                };
                let server = server.map_or("-", ServerName::as_str);
                log::error!(server; "a change of a server is given up: the gateway panics over it");
            }
        }
        self.jobs.done();
    }
}

impl Handler<Open> for Keeper {
    type Result = MessageResult<Open>;

    fn handle(&mut self, open: Open, _: &mut Self::Context) -> Self::Result {
        MessageResult(self.open(open))
    }
}

impl Handler<Shutdown> for Keeper {
    type Result = ();

    fn handle(&mut self, _: Shutdown, ctx: &mut Self::Context) {
        ctx.stop();
    }
}
