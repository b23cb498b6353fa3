//! Subscriptions and log levels of all sessions, kept outside of the connections, so that they are
//! asked for again after a restart: subscriptions, status of tasks, and the log level.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::downstream::connection_key::ConnectionKey;
use crate::id::{ServerName, SessionId};
use crate::protocol::LogLevel;

#[derive(Debug, Default)]
pub struct SubscriptionRegistry(Mutex<SubscriptionRegistryState>);

#[derive(Debug, Default)]
struct SubscriptionRegistryState {
    resources: WatcherTable,
    /// With their ids in place of URIs.
    tasks: WatcherTable,
    levels: HashMap<SessionId, LogLevel>,
}

/// Who wants to hear of what; nothing is here that nobody wants.
#[derive(Debug, Default)]
struct WatcherTable(HashMap<SubscriptionKey, BTreeSet<SessionId>>);

impl WatcherTable {
    fn add(&mut self, watched: SubscriptionKey, watcher: SessionId) -> SubscriptionChange {
        let watchers = self.0.entry(watched).or_default();
        let is_first = watchers.is_empty();
        watchers.insert(watcher);
        SubscriptionChange::notify_if(is_first)
    }

    fn remove(&mut self, watched: &SubscriptionKey, watcher: SessionId) -> SubscriptionChange {
        let watchers = self.0.get_mut(watched);
        let is_last = watchers.is_some_and(|all| all.remove(&watcher) && all.is_empty());
        if is_last {
            self.0.remove(watched);
        }
        SubscriptionChange::notify_if(is_last)
    }

    /// The subscriptions of one connection.
    fn on<'a>(
        &'a self,
        server: &'a ServerName,
        key: &'a ConnectionKey,
    ) -> impl Iterator<Item = &'a str> {
        let watched = self.0.keys();
        let here = watched.filter(|watched| watched.server == *server && watched.key == *key);
        here.map(|watched| watched.uri.as_str())
    }

    /// Returns what nobody else wants.
    fn forget(&mut self, watcher: SessionId) -> Vec<SubscriptionKey> {
        let mut orphans = Vec::new();
        self.0.retain(|watched, watchers| {
            if watchers.remove(&watcher) && watchers.is_empty() {
                orphans.push(watched.clone());
            }
            !watchers.is_empty()
        });
        orphans
    }
}

/// Each connection is sent its own: a process of its own has resources of its own.
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

/// The effect of a session's change on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscriptionChange {
    /// The server must be notified.
    Notify,
    /// Other sessions want the same already, or still.
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
    /// A session wants `resources/updated` for a URI.
    pub fn watch(&self, watched: SubscriptionKey, session: SessionId) -> SubscriptionChange {
        self.state().resources.add(watched, session)
    }

    pub fn unwatch(&self, watched: &SubscriptionKey, session: SessionId) -> SubscriptionChange {
        self.state().resources.remove(watched, session)
    }

    /// Who wants to hear of an update on a connection: those who watch its URI, or a URI above
    /// it, since a server may report a part of what was subscribed to. What the shared connection
    /// says is for all: it also serves those for whom no connection of their own was free.
    pub fn watchers(&self, updated: &SubscriptionKey) -> Vec<(String, SessionId)> {
        let state = self.state();
        let mut found = Vec::new();
        for (watched, watchers) in &state.resources.0 {
            let below = || {
                let rest = updated.uri.strip_prefix(watched.uri.as_str());
                rest.is_some_and(is_below)
            };
            let here = watched.server == updated.server
                && (updated.key.is_shared() || watched.key == updated.key);
            if here && (updated.uri == watched.uri || below()) {
                let uri = || watched.uri.clone();
                found.extend(watchers.iter().map(|session| (uri(), *session)));
            }
        }
        found
    }

    /// The URIs that a fresh connection must subscribe to.
    pub fn subscriptions(&self, server: &ServerName, key: &ConnectionKey) -> Vec<String> {
        let state = self.state();
        state.resources.on(server, key).map(str::to_owned).collect()
    }

    /// Somebody wants to hear of a task of a sessionless server, by the server's own id of it.
    pub fn watch_task(&self, task: SubscriptionKey, watcher: SessionId) -> SubscriptionChange {
        self.state().tasks.add(task, watcher)
    }

    /// A task has ended: nobody receives its status any more. Returns who did until now.
    pub fn end_task(&self, task: &SubscriptionKey) -> BTreeSet<SessionId> {
        self.state().tasks.0.remove(task).unwrap_or_default()
    }

    pub fn task_watchers(&self, task: &SubscriptionKey) -> BTreeSet<SessionId> {
        self.state().tasks.0.get(task).cloned().unwrap_or_default()
    }

    /// The tasks that a connection must tell of.
    pub fn tasks(&self, server: &ServerName, key: &ConnectionKey) -> Vec<String> {
        let state = self.state();
        state.tasks.on(server, key).map(str::to_owned).collect()
    }

    /// Whether somebody wants to hear of a resource or a task on a connection.
    pub fn has_subscriptions(&self, server: &ServerName, key: &ConnectionKey) -> bool {
        let state = self.state();
        let mut watched = (state.resources.on(server, key)).chain(state.tasks.on(server, key));
        watched.next().is_some()
    }

    /// Sets a session's log level and returns the most verbose one of all, if that changed.
    pub fn set_level(&self, session: SessionId, level: LogLevel) -> Option<LogLevel> {
        let mut state = self.state();
        let before = state.levels.values().min().copied();
        state.levels.insert(session, level);
        let now = state.levels.values().min().copied();
        now.filter(|_| now != before)
    }

    /// The level that one session asked for.
    pub fn level_of(&self, session: SessionId) -> Option<LogLevel> {
        self.state().levels.get(&session).copied()
    }

    /// The most verbose level that a session asked for.
    pub fn level(&self) -> Option<LogLevel> {
        self.state().levels.values().min().copied()
    }

    /// A session has ended; returns what no other session watches any more.
    pub fn forget(&self, session: SessionId) -> Vec<SubscriptionKey> {
        let mut state = self.state();
        state.levels.remove(&session);
        state.tasks.forget(session);
        state.resources.forget(session)
    }

    fn state(&self) -> MutexGuard<'_, SubscriptionRegistryState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_below(rest: &str) -> bool {
    rest.starts_with(['/', '?', '#'])
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::downstream::connection_key::{Audience, ConnectionOwner};
    use crate::id::{Principal, ViewId};
    use crate::protocol::DeclaredCapabilities;

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
    fn each_connection_of_a_server_has_a_row_of_its_own() {
        let subscription_registry = SubscriptionRegistry::default();
        let server = ServerName::try_new("docs").unwrap();
        let [a, b] = [1, 2].map(|n| SessionId::new(Uuid::from_u128(n)));
        let audience = Audience {
            principal: Principal::Anonymous,
            view: ViewId,
            profile: DeclaredCapabilities::default(),
        };
        let own = ConnectionKey {
            owner: ConnectionOwner::Session(a, audience),
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
        let task = |id| SubscriptionKey::new(&server, &shared, id);
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
        // A task is no resource.
        assert!(
            subscription_registry
                .subscriptions(&server, &shared)
                .is_empty()
        );
        subscription_registry.forget(b);
        assert_eq!(subscription_registry.tasks(&server, &shared), ["t-1"]);
        assert_eq!(subscription_registry.end_task(&task("t-1")), [a].into());
        assert!(subscription_registry.tasks(&server, &shared).is_empty());
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
