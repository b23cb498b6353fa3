//! All servers and their connections: started, found, closed, changed.
//!
//! [`Downstreams`] is what sessions hold; the [`Keeper`] behind it is the actor that starts
//! supervised connections, so that all of them are supervised from one thread. It is supervised
//! itself: the servers, and what is to be changed of them, are kept here and outlive it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use actix::{Addr, Handler, Message};
use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::crash::CrashSink;
use super::desired::{Change, Desired, Watched};
use super::entry::{Callers, Listener, Wish};
use super::keeper::{Job, Keeper, Open, close, stop};
use super::key::EntryKey;
use super::server::Server;
use super::settings::ServerSettings;
use crate::catalog::ServerPart;
use crate::id::{CallNumbers, ServerName, SessionId};
use crate::protocol::LogLevel;
use crate::store::Store;
use crate::supervision::{
    Arbiters, ChildRef, ChildSpec, ChildView, Inbox, Random, Settings, Start, Status, Supervisor,
};
use crate::telemetry::{Counters, LogRing};
use crate::transport::Connector;

/// Changes that wait for the keeper; each concerns one server.
const JOBS_MAX: usize = 1_000_000;

/// How long the keeper is waited for: it is away only for moments.
const KEEPER_WAIT: Duration = Duration::from_secs(5);

/// How often a connection is asked for whose keeper dies meanwhile.
const OPEN_TRIES: usize = 2;

/// Makes the connector of a server: a seam, through which tests inject one in memory.
pub type MakeConnector = Arc<dyn Fn(&ServerSettings, &LogRing) -> Arc<dyn Connector> + Send + Sync>;

pub(super) type Servers = BTreeMap<ServerName, Arc<Server>>;

/// What the connections are built with.
#[derive(Clone)]
pub struct PoolParts {
    pub arbiters: Arbiters,
    pub numbers: CallNumbers,
    pub desired: Arc<Desired>,
    pub listener: Listener,
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
    listener: Listener,
    jobs: Inbox<Job>,
    keeper: ChildRef<Addr<Keeper>>,
}

impl Downstreams {
    /// Starts the keeper on the calling arbiter, and keeps it; servers are added by
    /// [`Downstreams::apply`].
    ///
    /// # Errors
    ///
    /// Fails when the calling thread is no arbiter.
    pub fn start(parts: PoolParts) -> io::Result<Self> {
        let servers = Arc::new(ArcSwap::default());
        let (desired, listener) = (parts.desired.clone(), parts.listener.clone());
        let jobs = Inbox::new(JOBS_MAX);
        let of_keeper = (servers.clone(), jobs.clone());
        let start = Start::new(move |_, birth| {
            let (servers, jobs) = of_keeper.clone();
            Keeper::new(servers, jobs, parts.clone(), birth)
        });
        let mut child = ChildSpec::new("keeper", &Arbiters::current()?, start);
        child.settings = Settings::prompt();
        Ok(Self {
            servers,
            desired,
            listener,
            jobs,
            keeper: Supervisor::supervise(child),
        })
    }

    /// The actor that starts connections, as one sees it.
    pub fn keeper_view(&self) -> ChildView {
        self.keeper.view()
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
        self.ask(open, OPEN_TRIES).await.flatten()
    }

    /// Asks the keeper. If it dies meanwhile its successor is asked, `tries` times in all.
    pub(super) async fn ask<M>(&self, question: M, tries: usize) -> Option<M::Result>
    where
        M: Message<Result: Send> + Clone + Send + 'static,
        Keeper: Handler<M>,
    {
        let deadline = Instant::now() + KEEPER_WAIT;
        let mut changes = self.keeper.subscribe();
        let mut asked = 0;
        for _ in 0..tries {
            let settled = changes.wait_for(|snapshot| match &snapshot.status {
                Status::Up { generation, .. } => *generation > asked,
                Status::Stopping | Status::Stopped => true,
                Status::Idle
                | Status::Starting
                | Status::Backoff { .. }
                | Status::Broken { .. } => false,
            });
            let status = timeout_at(deadline, settled).await.ok()?.ok()?;
            let Status::Up { value, generation } = status.status.clone() else {
                return None;
            };
            drop(status);
            asked = generation;
            if let Ok(answer) = value.send(question.clone()).await {
                return Some(answer);
            }
        }
        None
    }

    /// Adds, replaces, retunes and removes servers; nothing else is touched.
    pub fn apply(&self, change: ServerChange) {
        let ServerChange {
            start,
            known,
            retune,
            stop,
        } = change;
        let stop = stop.into_iter().map(Job::Stop);
        let start = start.into_iter().map(|settings| {
            let mut known = known.iter();
            let known = known.find(|part| *part.server() == settings.name);
            Job::Start(Arc::new(settings), known.cloned())
        });
        let retune = retune.into_iter().map(Arc::new).map(Job::Retune);
        stop.chain(start)
            .chain(retune)
            .for_each(|job| self.put(job));
    }

    /// The same; ends once the servers are known to whoever calls them, connected or not.
    pub async fn applied(&self, change: ServerChange) {
        self.apply(change);
        let done = Arc::new(Notify::new());
        self.put(Job::Tell(done.clone()));
        tokio::select! {
            () = done.notified() => {}
            // Nothing runs any more.
            () = self.keeper.stopped() => {}
        }
    }

    fn put(&self, job: Job) {
        if !self.jobs.put(job) {
            log::error!("a change of the servers is lost: too many wait");
        }
    }

    /// A session has ended: its connections are closed, its wishes withdrawn.
    pub fn forget(&self, session: SessionId) {
        for watched in self.desired.forget(session) {
            // One of its own ends with it.
            if watched.key.is_shared() {
                self.wish(&watched.server, Wish::Unsubscribe(watched.uri));
            }
        }
        for server in self.servers.load().values() {
            // Most sessions have none of their own.
            if server.has_own(session) {
                let of_session = server.take_out(|key, _| key.session() == Some(session));
                close(&self.listener, server, of_session);
            }
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

    /// Stops every connection side by side, each within its own deadline. Nothing is started
    /// afterwards.
    pub async fn stop_all(&self) {
        self.keeper.stop();
        self.keeper.stopped().await;
        let servers = self.servers.swap(Arc::default());
        let children: Vec<_> = servers
            .values()
            .flat_map(|server| stop(&self.listener, server))
            .collect();
        for child in children {
            child.stopped().await;
        }
    }
}

/// The difference between two configurations, as far as servers go.
#[derive(Default)]
pub struct ServerChange {
    /// New ones, and those that need another connection.
    pub start: Vec<ServerSettings>,
    /// What these offered to the process before this one: it holds until they are listed.
    pub known: Vec<Arc<ServerPart>>,
    /// Those whose connection can stay.
    pub retune: Vec<ServerSettings>,
    pub stop: Vec<ServerName>,
}
