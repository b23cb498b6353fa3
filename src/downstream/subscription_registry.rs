//! The subscriptions, watched tasks and log levels of all sessions, kept outside of the connections
//! so that a restarted connection can restore them.

use std::collections::{BTreeSet, HashMap, HashSet};

use parking_lot::Mutex;

use crate::bridge::seal::Digest;
use crate::downstream::connection_key::ConnectionKey;
use crate::id::{ServerName, SessionId};
use crate::protocol::LogLevel;

#[derive(Debug, Default)]
pub struct SubscriptionRegistry(Mutex<SubscriptionRegistryState>);

#[derive(Debug, Default)]
struct SubscriptionRegistryState {
    resources: WatcherTable,
    /// Watched tasks, with task ids in place of URIs, by the declaration of the server that created
    /// them: a different server with the same name can use the same ids.
    tasks: HashMap<Digest, WatcherTable>,
    levels: HashMap<SessionId, LogLevel>,
    /// Sessions whose clients opened a stream for messages outside of calls.
    listening: HashSet<SessionId>,
}

/// Sessions by watched URI; entries without a watcher are removed.
#[derive(Debug, Default)]
struct WatcherTable {
    servers: HashMap<ServerName, HashMap<ConnectionKey, WatchedUris>>,
    /// The same subscriptions by watcher, so that a session's end is cheap.
    by_watcher: HashMap<SessionId, HashSet<SubscriptionKey>>,
}

/// Watchers by URI, on one connection.
type WatchedUris = HashMap<String, BTreeSet<SessionId>>;

impl WatcherTable {
    fn add(&mut self, watched: SubscriptionKey, watcher: SessionId) -> SubscriptionChange {
        let of_server = self.servers.entry(watched.server.clone()).or_default();
        let uris = of_server.entry(watched.key.clone()).or_default();
        let watchers = uris.entry(watched.uri.clone()).or_default();
        let is_first = watchers.is_empty();
        watchers.insert(watcher);
        self.by_watcher.entry(watcher).or_default().insert(watched);
        SubscriptionChange::notify_if(is_first)
    }

    fn remove(&mut self, watched: &SubscriptionKey, watcher: SessionId) -> SubscriptionChange {
        if let Some(own) = self.by_watcher.get_mut(&watcher) {
            own.remove(watched);
            if own.is_empty() {
                self.by_watcher.remove(&watcher);
            }
        }
        let watchers = self.watchers_mut(watched);
        let is_last = watchers.is_some_and(|all| all.remove(&watcher) && all.is_empty());
        if is_last {
            self.drop_uri(watched);
        }
        SubscriptionChange::notify_if(is_last)
    }

    fn watchers_mut(&mut self, watched: &SubscriptionKey) -> Option<&mut BTreeSet<SessionId>> {
        let of_server = self.servers.get_mut(&watched.server)?;
        of_server.get_mut(&watched.key)?.get_mut(&watched.uri)
    }

    /// Removes a watched URI, and tables that become empty.
    fn drop_uri(&mut self, watched: &SubscriptionKey) -> Option<BTreeSet<SessionId>> {
        let of_server = self.servers.get_mut(&watched.server)?;
        let uris = of_server.get_mut(&watched.key)?;
        let watchers = uris.remove(&watched.uri);
        if uris.is_empty() {
            of_server.remove(&watched.key);
        }
        if of_server.is_empty() {
            self.servers.remove(&watched.server);
        }
        watchers
    }

    /// Ends a subscription for all watchers, and returns them.
    fn end(&mut self, watched: &SubscriptionKey) -> BTreeSet<SessionId> {
        let watchers = self.drop_uri(watched).unwrap_or_default();
        for watcher in &watchers {
            self.remove(watched, *watcher);
        }
        watchers
    }

    fn is_empty(&self) -> bool {
        self.servers.is_empty() && self.by_watcher.is_empty()
    }

    fn of(&self, server: &ServerName, key: &ConnectionKey) -> Option<&WatchedUris> {
        self.servers.get(server)?.get(key)
    }

    /// Subscriptions on one connection.
    fn on(&self, server: &ServerName, key: &ConnectionKey) -> impl Iterator<Item = &str> {
        let uris = self.of(server, key).into_iter().flatten();
        uris.map(|(uri, _)| uri.as_str())
    }

    /// Removes a watcher, and returns the subscriptions that have no other watcher.
    fn forget(&mut self, watcher: SessionId) -> Vec<SubscriptionKey> {
        let mut orphans = Vec::new();
        for watched in self.by_watcher.remove(&watcher).unwrap_or_default() {
            if let SubscriptionChange::Notify = self.remove(&watched, watcher) {
                orphans.push(watched);
            }
        }
        orphans
    }
}

/// A watched URI on one connection; separate processes have separate resources.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SubscriptionKey {
    pub server: ServerName,
    pub key: ConnectionKey,
    /// The server's native URI.
    pub uri: String,
}

impl SubscriptionKey {
    pub fn new(server: &ServerName, key: &ConnectionKey, uri: &str) -> Self {
        Self {
            server: server.clone(),
            key: key.clone(),
            uri: uri.to_owned(),
        }
    }
}

/// A task of a sessionless server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskKey {
    /// Location of the task, with its id at the server in place of a URI.
    pub at: SubscriptionKey,
    /// Declaration of the server that created the task.
    pub declaration: Digest,
}

/// Effect of a session's change on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscriptionChange {
    /// The server must be notified.
    Notify,
    /// Other sessions already watch, or still watch, the same.
    Nothing,
}

impl SubscriptionChange {
    const fn notify_if(is_change: bool) -> Self {
        if is_change {
            Self::Notify
        } else {
            Self::Nothing
        }
    }
}

impl SubscriptionRegistry {
    /// Records that a session's client listens. Returns whether it did not before.
    pub fn set_listening(&self, session: SessionId) -> bool {
        self.0.lock().listening.insert(session)
    }

    pub(crate) fn listens(&self, session: SessionId) -> bool {
        self.0.lock().listening.contains(&session)
    }

    /// Subscribes a session to `resources/updated` of a URI.
    pub fn watch(&self, watched: SubscriptionKey, session: SessionId) -> SubscriptionChange {
        self.0.lock().resources.add(watched, session)
    }

    pub fn unwatch(&self, watched: &SubscriptionKey, session: SessionId) -> SubscriptionChange {
        self.0.lock().resources.remove(watched, session)
    }

    /// The resources that a session watches.
    pub fn watched_by(&self, watcher: SessionId) -> Vec<SubscriptionKey> {
        let state = self.0.lock();
        let watched = state.resources.by_watcher.get(&watcher);
        watched.into_iter().flatten().cloned().collect()
    }

    /// Sessions to notify of an update: all that watch its URI, or a URI above it, because a server
    /// may report a part of a subscribed resource. Updates on the shared connection go to all
    /// watchers, because it also serves clients that got no connection of their own.
    pub fn watchers(&self, updated: &SubscriptionKey) -> Vec<(String, SessionId)> {
        let state = self.0.lock();
        let Some(of_server) = state.resources.servers.get(&updated.server) else {
            return Vec::new();
        };
        let own = of_server.get(&updated.key).into_iter();
        let connections: Vec<&WatchedUris> = match updated.key.is_shared() {
            true => of_server.values().collect(),
            false => own.collect(),
        };
        let mut found = Vec::new();
        for above in self_and_above(&updated.uri) {
            for watchers in connections.iter().filter_map(|uris| uris.get(above)) {
                let pair = |session: &SessionId| (above.to_owned(), *session);
                found.extend(watchers.iter().map(pair));
            }
        }
        found
    }

    /// URIs that a new connection must subscribe to.
    pub fn subscriptions(&self, server: &ServerName, key: &ConnectionKey) -> Vec<String> {
        let state = self.0.lock();
        state.resources.on(server, key).map(str::to_owned).collect()
    }

    /// Subscribes a session to a task of a sessionless server.
    pub fn watch_task(&self, task: TaskKey, watcher: SessionId) -> SubscriptionChange {
        let mut state = self.0.lock();
        let of_server = state.tasks.entry(task.declaration).or_default();
        of_server.add(task.at, watcher)
    }

    /// Ends the subscriptions of a task that has ended. Returns its watchers.
    pub fn end_task(&self, task: &TaskKey) -> BTreeSet<SessionId> {
        let mut state = self.0.lock();
        let Some(of_server) = state.tasks.get_mut(&task.declaration) else {
            return BTreeSet::new();
        };
        let watchers = of_server.end(&task.at);
        if of_server.is_empty() {
            state.tasks.remove(&task.declaration);
        }
        watchers
    }

    pub fn task_watchers(&self, task: &TaskKey) -> BTreeSet<SessionId> {
        let mut state = self.0.lock();
        let of_server = state.tasks.get_mut(&task.declaration);
        let watchers = of_server.and_then(|of_server| of_server.watchers_mut(&task.at));
        watchers.map(|all| all.clone()).unwrap_or_default()
    }

    /// Tasks that a connection to the server with this declaration must report.
    pub fn tasks(
        &self,
        server: &ServerName,
        declaration: Digest,
        key: &ConnectionKey,
    ) -> Vec<String> {
        let state = self.0.lock();
        let of_server = state.tasks.get(&declaration).into_iter();
        let tasks = of_server.flat_map(|tasks| tasks.on(server, key));
        tasks.map(str::to_owned).collect()
    }

    /// Whether any session watches a resource or a task on a connection.
    pub fn has_subscriptions(
        &self,
        server: &ServerName,
        declaration: Digest,
        key: &ConnectionKey,
    ) -> bool {
        let state = self.0.lock();
        let tasks = state.tasks.get(&declaration).into_iter();
        let mut tables = tasks.chain([&state.resources]);
        tables.any(|table| table.of(server, key).is_some())
    }

    /// Whether the registry has no subscriptions.
    pub fn is_empty(&self) -> bool {
        let state = self.0.lock();
        state.resources.is_empty() && state.tasks.is_empty() && state.levels.is_empty()
    }

    /// Sets a session's log level. Returns the most verbose level of all sessions if it changed.
    pub fn set_level(&self, session: SessionId, level: LogLevel) -> Option<LogLevel> {
        let mut state = self.0.lock();
        let before = state.levels.values().min().copied();
        state.levels.insert(session, level);
        let now = state.levels.values().min().copied();
        now.filter(|_| now != before)
    }

    /// Log level that one session requested.
    pub fn level_of(&self, session: SessionId) -> Option<LogLevel> {
        self.0.lock().levels.get(&session).copied()
    }

    /// The most verbose log level that any session requested.
    pub fn level(&self) -> Option<LogLevel> {
        self.0.lock().levels.values().min().copied()
    }

    /// Removes a session that ended. Returns the subscriptions that have no other watcher.
    pub fn forget(&self, session: SessionId) -> Vec<SubscriptionKey> {
        let mut state = self.0.lock();
        state.levels.remove(&session);
        state.listening.remove(&session);
        state.tasks.retain(|_, of_server| {
            of_server.forget(session);
            !of_server.is_empty()
        });
        state.resources.forget(session)
    }
}

/// Maximum number of parent URIs that are looked up for an update, whatever its URI.
const LEVELS_MAX: usize = 256;

/// A URI, followed by the URIs above it.
fn self_and_above(uri: &str) -> impl Iterator<Item = &str> {
    let ends = uri.match_indices(['/', '?', '#']).take(LEVELS_MAX);
    let above = ends.map(|(end, _)| uri.split_at(end).0);
    std::iter::once(uri).chain(above)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::downstream::connection_key::{Audience, ConnectionOwner};

    #[test]
    fn a_server_hears_only_of_the_first_and_the_last_subscriber() {
        let subscription_registry = SubscriptionRegistry::default();
        let server = ServerName::try_new("docs").unwrap();
        let [a, b] = [1, 2].map(|n| SessionId::new(Uuid::from_u128(n)));
        let shared = ConnectionKey::shared();
        let at = |uri| SubscriptionKey::new(&server, &shared, uri);
        assert_eq!(
            subscription_registry.watch(at("x://1"), a),
            SubscriptionChange::Notify
        );
        assert_eq!(
            subscription_registry.watch(at("x://1"), b),
            SubscriptionChange::Nothing
        );
        assert_eq!(
            subscription_registry.unwatch(&at("x://1"), a),
            SubscriptionChange::Nothing
        );
        assert_eq!(
            subscription_registry.unwatch(&at("x://1"), a),
            SubscriptionChange::Nothing
        );
        let found = [("x://1".to_owned(), b)];
        assert_eq!(subscription_registry.watchers(&at("x://1")), found);
        assert_eq!(subscription_registry.watchers(&at("x://1/part")), found);
        assert_eq!(subscription_registry.watchers(&at("x://12")), []);
        assert_eq!(subscription_registry.forget(b), [at("x://1")]);
        assert!(
            subscription_registry
                .subscriptions(&server, &shared)
                .is_empty()
        );
    }

    #[test]
    fn an_update_is_looked_up_by_the_uris_above_it() {
        let at = |uri| self_and_above(uri).collect::<Vec<_>>();
        assert_eq!(at("x"), ["x"]);
        let above = ["x://a/b?c#d", "x:", "x:/", "x://a", "x://a/b", "x://a/b?c"];
        assert_eq!(at("x://a/b?c#d"), above);
        assert_eq!(at(&"/".repeat(1_000_000)).len(), LEVELS_MAX + 1);
    }

    #[test]
    fn nothing_is_left_of_what_nobody_watches() {
        let registry = SubscriptionRegistry::default();
        let server = ServerName::try_new("docs").unwrap();
        let [a, b] = [1, 2].map(|n| SessionId::new(Uuid::from_u128(n)));
        let at = |uri| SubscriptionKey::new(&server, &ConnectionKey::shared(), uri);
        let task = |id| TaskKey {
            at: at(id),
            declaration: Digest::of_declaration(&["docs"]),
        };
        for session in [a, b] {
            registry.watch(at("x://1"), session);
            registry.watch(at("x://2"), session);
            registry.watch_task(task("t-1"), session);
            registry.watch_task(task("t-2"), session);
        }
        registry.end_task(&task("t-1"));
        registry.unwatch(&at("x://1"), a);
        registry.forget(a);
        assert_eq!(registry.forget(b).len(), 2);
        assert!(registry.is_empty());
    }

    #[test]
    fn each_connection_of_a_server_has_a_row_of_its_own() {
        let subscription_registry = SubscriptionRegistry::default();
        let server = ServerName::try_new("docs").unwrap();
        let [a, b] = [1, 2].map(|n| SessionId::new(Uuid::from_u128(n)));
        let own = ConnectionKey {
            owner: ConnectionOwner::Session(a, Audience::default()),
            ..ConnectionKey::shared()
        };
        let of_a = SubscriptionKey::new(&server, &own, "x://1");
        let of_all = SubscriptionKey::new(&server, &ConnectionKey::shared(), "x://1");
        assert_eq!(
            subscription_registry.watch(of_a.clone(), a),
            SubscriptionChange::Notify
        );
        assert_eq!(
            subscription_registry.watch(of_all.clone(), b),
            SubscriptionChange::Notify
        );
        assert_eq!(
            subscription_registry.subscriptions(&server, &own),
            ["x://1"]
        );
        assert_eq!(
            subscription_registry.watchers(&of_a),
            [("x://1".to_owned(), a)]
        );
        assert_eq!(subscription_registry.watchers(&of_all).len(), 2);
    }

    #[test]
    fn task_updates_reach_their_subscribers_until_the_end() {
        let subscription_registry = SubscriptionRegistry::default();
        let server = ServerName::try_new("docs").unwrap();
        let [a, b] = [1, 2].map(|n| SessionId::new(Uuid::from_u128(n)));
        let shared = ConnectionKey::shared();
        let [ours, other] = ["ours", "other"].map(|text| Digest::of_declaration(&[text]));
        let task = |id| TaskKey {
            at: SubscriptionKey::new(&server, &shared, id),
            declaration: ours,
        };
        assert_eq!(
            subscription_registry.watch_task(task("t-1"), a),
            SubscriptionChange::Notify
        );
        assert_eq!(
            subscription_registry.watch_task(task("t-1"), b),
            SubscriptionChange::Nothing
        );
        assert_eq!(
            subscription_registry.watch_task(task("t-2"), b),
            SubscriptionChange::Notify
        );
        assert_eq!(
            subscription_registry.task_watchers(&task("t-1")),
            [a, b].into()
        );
        assert!(subscription_registry.task_watchers(&task("t-3")).is_empty());
        // A different server with the same name can have a task with the same id.
        let of_other = TaskKey {
            declaration: other,
            ..task("t-1")
        };
        assert!(subscription_registry.task_watchers(&of_other).is_empty());
        assert!(subscription_registry.end_task(&of_other).is_empty());
        assert!(!subscription_registry.has_subscriptions(&server, other, &shared));
        assert!(subscription_registry.has_subscriptions(&server, ours, &shared));
        // A task is not a resource.
        assert!(
            subscription_registry
                .subscriptions(&server, &shared)
                .is_empty()
        );
        subscription_registry.forget(b);
        let tasks = || subscription_registry.tasks(&server, ours, &shared);
        assert_eq!(tasks(), ["t-1"]);
        assert_eq!(subscription_registry.end_task(&task("t-1")), [a].into());
        assert!(tasks().is_empty());
    }

    #[test]
    fn the_most_verbose_session_sets_the_level() {
        let subscription_registry = SubscriptionRegistry::default();
        let [a, b] = [1, 2].map(|n| SessionId::new(Uuid::from_u128(n)));
        assert_eq!(
            subscription_registry.set_level(a, LogLevel::Warning),
            Some(LogLevel::Warning)
        );
        assert_eq!(
            subscription_registry.set_level(b, LogLevel::Debug),
            Some(LogLevel::Debug)
        );
        assert_eq!(subscription_registry.set_level(a, LogLevel::Info), None);
        subscription_registry.forget(b);
        assert_eq!(subscription_registry.level(), Some(LogLevel::Info));
    }
}
