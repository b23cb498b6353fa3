//! The pool of all servers and their connections: starts, finds and closes connections, and decides
//! which connection serves which client.
//!
//! Sessions and the gateway hold [`Downstreams`] and look servers up in it without a message. The
//! [`ConnectionManager`](connection_manager::ConnectionManager) behind it is the only actor that
//! starts and stops supervised connections. The manager is itself supervised: servers and pending
//! jobs are kept outside it, so that its next incarnation continues with them.
//!
//! - `server`: one configured server: its shared connection, and which connection serves whom
//! - `canary`: the calls that a new version of a server gets as well
//! - `connection_choice`: which clients share a connection, as a pure function
//! - `away`: the failures of calls that a server cannot take now
//! - `own_connections`: connections of single clients or audiences
//! - `idle_sessions`: sessions of single clients at a server, without a connection
//! - `connection_manager`: starts, replaces and closes supervised connections
//! - `plain_process`: compares a program's lists, in its process for clients without capabilities
//! - `closing`: closes the connections of a server
//! - `recycling`: planned restarts by age, calls or memory
//! - `retiring`: servers that were changed or removed and have not ended yet
//! - `server_builder`: builds servers and starts their connections
//! - `rollout`: runs a new version of a server beside the old one until its gates decide
//! - `trial`: tries out the settings of a server that is not among the servers
//! - `server_order`: operators' orders for a server, and the idle stop of unused servers
//! - `dependencies`, `dependent`: servers that depend on each other, and groups
//! - `usage`: which calls use a shared connection, and since when it has been unused
//! - `former_sessions`: leaves the sessions from before a new sign-in
//! - `lease`: connections that serve one call at a time
//! - `server_view`: a server as status and logs show it
//! - `clock_watch`: checks every connection after the machine slept
//!
//! The pool does not handle frames or calls: it hands out [`CallSenders`] and starts the
//! connections that receive from them.

mod away;
pub(crate) mod canary;
pub(crate) mod clock_watch;
mod closing;
pub(crate) mod connection_choice;
pub(crate) mod connection_manager;
pub(crate) mod dependencies;
mod dependent;
mod former_sessions;
pub(crate) mod idle_sessions;
pub(crate) mod lease;
pub(crate) mod own_connections;
mod phase_events;
mod plain_process;
mod recycling;
pub(crate) mod retiring;
pub(crate) mod rollout;
pub(crate) mod server;
mod server_builder;
pub(crate) mod server_order;
pub(crate) mod server_view;
pub(crate) mod trial;
pub(crate) mod usage;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use actix::{Addr, Handler, Message};
use arc_swap::ArcSwap;
use futures_util::future::join_all;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::catalog::ServerPart;
use crate::downstream::connection::spec::{CallSenders, ConnectionCommand, Pending};
use crate::downstream::connection_key::ConnectionKey;
use crate::downstream::list_changes::ListChanges;
use crate::downstream::parts::PoolParts;
use crate::downstream::pool::closing::{close, end_idle, stop};
use crate::downstream::pool::connection_manager::{ConnectionManager, OpenConnection, ServerJob};
use crate::downstream::pool::dependencies::{DependentServers, GroupView};
use crate::downstream::pool::dependent::{dependencies_of, stop_steps};
use crate::downstream::pool::retiring::RetiringServers;
use crate::downstream::pool::server::Server;
use crate::downstream::pool::trial::TRIALS_MAX;
use crate::downstream::server_event::ServerEventListener;
use crate::downstream::settings::ServerSettings;
use crate::downstream::subscription_registry::{
    SubscriptionChange, SubscriptionKey, SubscriptionRegistry, TaskKey,
};
use crate::id::{CredentialContext, ServerName, SessionId};
use crate::protocol::{ErrorKind, Failure, LogLevel};
use crate::supervision::{
    Arbiters, ChildPhase, ChildRef, ChildSpec, ChildStatus, ChildView, Inbox, Settings, Start,
    Supervisor,
};
use crate::telemetry::Counters;

/// Maximum jobs that wait for the manager; each concerns one server.
const JOBS_MAX: usize = 1_000_000;

/// Maximum wait for the manager, which is absent only while it restarts.
const MANAGER_WAIT: Duration = Duration::from_secs(5);

/// Attempts to open a connection, in case the manager dies meanwhile.
const OPEN_TRIES: usize = 2;

pub(crate) type Servers = BTreeMap<ServerName, Arc<Server>>;

/// All servers, by name. Cheap to clone; usable from any thread.
#[derive(Clone)]
pub struct Downstreams {
    servers: Arc<ArcSwap<Servers>>,
    subscription_registry: Arc<SubscriptionRegistry>,
    list_changes: ListChanges,
    listener: ServerEventListener,
    counters: Counters,
    jobs: Inbox<ServerJob>,
    retiring: RetiringServers,
    dependencies: DependentServers,
    manager: ChildRef<Addr<ConnectionManager>>,
    /// A place for each server that can be tried out at the same time.
    trials: Arc<Semaphore>,
}

impl Downstreams {
    /// Starts the manager on the calling arbiter; servers are added by [`Downstreams::configure`].
    ///
    /// # Errors
    ///
    /// Returns an error if the calling thread is not an arbiter.
    pub fn start(parts: PoolParts) -> io::Result<Self> {
        let servers = Arc::new(ArcSwap::default());
        let dependencies = dependencies_of(&servers);
        let (subscription_registry, listener) =
            (parts.subscription_registry.clone(), parts.listener.clone());
        let (counters, list_changes) = (parts.counters.clone(), parts.list_changes.clone());
        let jobs = Inbox::new(JOBS_MAX);
        let retiring = RetiringServers::default();
        let comparison_due = Arc::new(Notify::new());
        let awaited = (retiring.clone(), dependencies.clone());
        let of_manager = (servers.clone(), jobs.clone(), awaited);
        let due = comparison_due.clone();
        let start = Start::new(move |_, birth| {
            let (servers, jobs, awaited) = of_manager.clone();
            ConnectionManager::new(servers, jobs, awaited, parts.clone(), due.clone(), birth)
        });
        let mut child = ChildSpec::new("connection-manager", &Arbiters::current()?, start);
        child.settings = Settings::prompt();
        let downstreams = Self {
            servers,
            subscription_registry,
            list_changes,
            listener,
            counters,
            jobs,
            retiring,
            dependencies,
            manager: Supervisor::supervise(child),
            trials: Arc::new(Semaphore::new(TRIALS_MAX)),
        };
        actix_rt::spawn(downstreams.clone().compare_lists(comparison_due));
        Ok(downstreams)
    }

    /// Supervision state of the connection manager, with the number of waiting jobs.
    pub fn connection_manager_view(&self) -> ChildView {
        ChildView {
            waiting: self.jobs.len(),
            ..self.manager.view()
        }
    }

    /// The groups of servers, by their first server.
    pub fn groups(&self) -> Vec<GroupView> {
        self.dependencies.views()
    }

    /// Waits until a broken group escalates to the gateway; returns its name.
    pub async fn escalated(&self) -> Arc<str> {
        self.dependencies.escalated().await
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub fn get(&self, name: &ServerName) -> Option<Arc<Server>> {
        self.servers.load().get(name).cloned()
    }

    pub fn all(&self) -> Arc<Servers> {
        self.servers.load_full()
    }

    /// List changes that clients do not see yet.
    pub(crate) fn list_changes(&self) -> &ListChanges {
        &self.list_changes
    }

    pub fn subscription_registry(&self) -> &SubscriptionRegistry {
        &self.subscription_registry
    }

    /// The connection of a key, started on the arbiter of this index if it does not exist yet.
    /// Questions that the server asks on it before the first call go to the session `opener`.
    ///
    /// # Errors
    ///
    /// Returns a failure if the server was removed, the gateway is stopping, or the limit of
    /// clients' own connections is reached.
    pub async fn open(
        &self,
        server: ServerName,
        key: ConnectionKey,
        arbiter: usize,
        opener: Option<SessionId>,
    ) -> Result<ChildRef<CallSenders>, Failure> {
        let open = OpenConnection {
            server: server.clone(),
            key,
            arbiter,
            opener,
        };
        let answer = self.ask(open, OPEN_TRIES).await;
        answer.unwrap_or_else(|| Err(server_removed(&server)))
    }

    /// Sends a question to the manager. If the manager dies meanwhile, its next incarnation is
    /// asked, up to `tries` attempts in total.
    pub(crate) async fn ask<M>(&self, question: M, tries: usize) -> Option<M::Result>
    where
        M: Message<Result: Send> + Clone + Send + 'static,
        ConnectionManager: Handler<M>,
    {
        let deadline = Instant::now() + MANAGER_WAIT;
        let mut changes = self.manager.subscribe();
        let mut asked = 0;
        for _ in 0..tries {
            let settled = changes.wait_for(|snapshot| match &snapshot.status {
                ChildStatus::Up { generation, .. } => *generation > asked,
                ChildStatus::Stopping | ChildStatus::Stopped => true,
                ChildStatus::Idle
                | ChildStatus::Waiting
                | ChildStatus::Starting
                | ChildStatus::Backoff { .. }
                | ChildStatus::Broken { .. } => false,
            });
            let status = timeout_at(deadline, settled).await.ok()?.ok()?;
            let ChildStatus::Up { value, generation } = status.status.clone() else {
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

    /// Adds, replaces, retunes and removes servers; other servers are not affected.
    pub fn configure(&self, change: ServerChange) {
        let ServerChange {
            start,
            known,
            retune,
            stop,
        } = change;
        let stop = stop.into_iter().map(ServerJob::Stop);
        let start = start.into_iter().map(|settings| {
            let mut known = known.iter();
            let known = known.find(|part| *part.server() == settings.name);
            ServerJob::Start(Arc::new(settings), known.cloned())
        });
        let retune = retune.into_iter().map(Arc::new).map(ServerJob::Retune);
        stop.chain(start)
            .chain(retune)
            .for_each(|job| self.put(job));
    }

    /// Leaves the sessions that a server opened for the previous sign-in. Resolves when later calls
    /// use new connections; calls in flight get `shutdown_timeout` to finish.
    pub async fn leave_sessions(&self, server: ServerName, whose: CredentialContext) {
        self.put(ServerJob::LeaveSessions(server, whose));
        self.configured().await;
    }

    /// Resolves when callers can find the servers of earlier changes, connected or not.
    pub async fn configured(&self) {
        let done = Arc::new(Notify::new());
        self.put(ServerJob::Notify(done.clone()));
        tokio::select! {
            () = done.notified() => {}
            // The gateway is stopping: no job runs any more.
            () = self.manager.stopped() => {}
        }
    }

    fn put(&self, job: ServerJob) {
        if !self.jobs.put(job) {
            log::error!("server change dropped: too many changes are waiting");
        }
    }

    /// Closes the connections and removes the subscriptions of a session that ended.
    pub fn forget(&self, session: SessionId) {
        for watched in self.subscription_registry.forget(session) {
            // The session's own connections are closed below.
            if watched.key.session().is_none() {
                self.unsubscribe(&watched);
            }
        }
        self.close_own(session);
    }

    /// Ends a watch that is no longer allowed.
    pub fn unwatch(&self, watched: &SubscriptionKey, watcher: SessionId) {
        let change = self.subscription_registry.unwatch(watched, watcher);
        if change == SubscriptionChange::Notify {
            self.unsubscribe(watched);
        }
    }

    fn unsubscribe(&self, watched: &SubscriptionKey) {
        if let Some(server) = self.get(&watched.server)
            && let Some(child) = server.find(&watched.key)
            && let Ok(up) = child.current()
        {
            let uri = watched.uri.clone();
            up.value.command(ConnectionCommand::Unsubscribe(uri));
        }
    }

    /// Closes a session's own connections; its next call opens them again.
    pub fn close_own(&self, session: SessionId) {
        for server in self.servers.load().values() {
            // Most sessions have no connections of their own.
            let is_own = |key: &ConnectionKey| server.is_own(key, session);
            if server.own.any(is_own) {
                close(&self.listener, server, server.own.take_out(is_own));
            }
            end_idle(&self.listener, server, is_own);
            // The process has the session's roots and state, so the next client gets another one.
            if server.is_own(&ConnectionKey::shared(), session) {
                server.shared.reconnect_now("its session ended");
            }
            server.parts.separation.release(session);
        }
    }

    /// Subscribes to a resource on one of the server's connections, opening it if necessary; a
    /// client's own connection is opened on the arbiter of this index. `pending` is dropped once the
    /// server has answered, or if it is not ready; it subscribes when it is.
    pub fn subscribe(&self, watched: SubscriptionKey, arbiter: usize, pending: Option<Pending>) {
        let SubscriptionKey { server, key, uri } = watched;
        self.send_command(
            server,
            key,
            arbiter,
            ConnectionCommand::Subscribe(uri, pending),
        );
    }

    /// Watches a task of a sessionless server. Its connection is chosen and opened as by
    /// [`Downstreams::subscribe`].
    pub fn watch_task(&self, task: TaskKey, watcher: SessionId, arbiter: usize) {
        let SubscriptionKey { server, key, .. } = task.at.clone();
        if self.subscription_registry.watch_task(task, watcher) == SubscriptionChange::Notify {
            self.send_command(server, key, arbiter, ConnectionCommand::Tasks);
        }
    }

    fn send_command(
        &self,
        server: ServerName,
        key: ConnectionKey,
        arbiter: usize,
        command: ConnectionCommand,
    ) {
        // A connection that is opened later subscribes on its own.
        match self.get(&server).and_then(|server| server.find(&key)) {
            Some(child) => match child.current() {
                Ok(up) => up.value.command(command),
                // A connection that waits for its next attempt subscribes when it is up.
                Err(away) if away.phase == ChildPhase::Idle => child.wake(),
                Err(_) => {}
            },
            None => {
                let downstreams = self.clone();
                actix_rt::spawn(async move { downstreams.open(server, key, arbiter, None).await });
            }
        }
    }

    /// Changes the log level of shared connections to the most verbose level that a session
    /// requested.
    pub fn set_level(&self, level: LogLevel) {
        for server in self.servers.load().values() {
            server.each_connection(|key, child| {
                if key.session().is_none()
                    && let Ok(up) = child.current()
                {
                    up.value.command(ConnectionCommand::Level(level));
                }
            });
        }
    }

    /// Sends a command to a server's shared connection if it is up; otherwise the connection
    /// catches up when it is ready.
    pub fn command(&self, server: &ServerName, command: ConnectionCommand) {
        if let Some(up) = self
            .get(server)
            .and_then(|server| server.shared.current().ok())
        {
            up.value.command(command);
        }
    }

    /// Stops all connections concurrently, each within its own deadline; servers only after those
    /// that depend on them. Nothing is started afterwards.
    pub async fn stop_all(&self) {
        self.manager.stop();
        self.manager.stopped().await;
        let servers = self.servers.swap(Arc::default());
        for step in stop_steps(&servers, &self.dependencies) {
            let step = step.iter();
            join_all(step.map(|server| stop(&self.listener, server))).await;
        }
        self.retiring.all_gone().await;
    }
}

/// The difference between the servers of two configurations.
#[derive(Default)]
pub struct ServerChange {
    /// New servers, and servers that need a new connection.
    pub start: Vec<ServerSettings>,
    /// Items that the started servers offered in an earlier process, used until the servers are
    /// listed.
    pub known: Vec<Arc<ServerPart>>,
    /// Servers that can keep their connection.
    pub retune: Vec<ServerSettings>,
    pub stop: Vec<ServerName>,
}

/// Failure of a call to a server that is no longer configured.
pub(crate) fn server_removed(name: &ServerName) -> Failure {
    let message = format!("server `{name}` was removed");
    Failure::new(ErrorKind::ServerUnavailable, message).server(name.as_str())
}
