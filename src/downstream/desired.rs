//! What the sessions want of the servers, kept outside of the connections, so that it is asked
//! for again after a restart: subscriptions and the log level.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::id::{ServerName, SessionId};
use crate::protocol::LogLevel;

#[derive(Debug, Default)]
pub struct Desired(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    watchers: HashMap<(ServerName, String), BTreeSet<SessionId>>,
    levels: HashMap<SessionId, LogLevel>,
}

/// What a change of a session's wishes means for the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The server must be told.
    Tell,
    /// Other sessions want the same already, or still.
    Nothing,
}

impl Desired {
    /// A session wants `resources/updated` for a URI of a server (its native URI).
    pub fn watch(&self, server: &ServerName, uri: &str, session: SessionId) -> Change {
        let mut state = self.state();
        let watchers = state
            .watchers
            .entry((server.clone(), uri.to_owned()))
            .or_default();
        let first = watchers.is_empty();
        watchers.insert(session);
        if first { Change::Tell } else { Change::Nothing }
    }

    pub fn unwatch(&self, server: &ServerName, uri: &str, session: SessionId) -> Change {
        let mut state = self.state();
        let key = (server.clone(), uri.to_owned());
        let Some(watchers) = state.watchers.get_mut(&key) else {
            return Change::Nothing;
        };
        let was_in = watchers.remove(&session);
        if !watchers.is_empty() {
            return Change::Nothing;
        }
        state.watchers.remove(&key);
        if was_in {
            Change::Tell
        } else {
            Change::Nothing
        }
    }

    /// Who wants to hear of `uri`: its watchers, and those of a URI above it, since a server may
    /// report a part of what was subscribed to.
    pub fn watchers(&self, server: &ServerName, uri: &str) -> Vec<(String, SessionId)> {
        let state = self.state();
        let mut found = Vec::new();
        for ((owner, watched), watchers) in &state.watchers {
            let below = || uri.strip_prefix(watched.as_str()).is_some_and(is_below);
            if owner == server && (uri == watched || below()) {
                found.extend(watchers.iter().map(|session| (watched.clone(), *session)));
            }
        }
        found
    }

    /// The URIs that a fresh connection to this server must subscribe to.
    pub fn subscriptions(&self, server: &ServerName) -> Vec<String> {
        let state = self.state();
        let watched = state.watchers.keys().filter(|(owner, _)| owner == server);
        watched.map(|(_, uri)| uri.clone()).collect()
    }

    /// Sets a session's log level and returns the most verbose one of all, if that changed.
    pub fn set_level(&self, session: SessionId, level: LogLevel) -> Option<LogLevel> {
        let mut state = self.state();
        let before = state.levels.values().min().copied();
        state.levels.insert(session, level);
        let now = state.levels.values().min().copied();
        now.filter(|_| now != before)
    }

    /// The most verbose level that a session asked for.
    pub fn level(&self) -> Option<LogLevel> {
        self.state().levels.values().min().copied()
    }

    /// A session has ended; returns what no other session watches any more.
    pub fn forget(&self, session: SessionId) -> Vec<(ServerName, String)> {
        let mut state = self.state();
        state.levels.remove(&session);
        let mut orphans = Vec::new();
        state.watchers.retain(|key, watchers| {
            if watchers.remove(&session) && watchers.is_empty() {
                orphans.push(key.clone());
            }
            !watchers.is_empty()
        });
        orphans
    }

    fn state(&self) -> MutexGuard<'_, State> {
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

    #[test]
    fn a_server_is_told_of_the_first_and_the_last_watcher_only() {
        let desired = Desired::default();
        let server = ServerName::try_new("docs").unwrap();
        let [a, b] = [1, 2].map(|n| SessionId::new(Uuid::from_u128(n)));
        assert_eq!(desired.watch(&server, "x://1", a), Change::Tell);
        assert_eq!(desired.watch(&server, "x://1", b), Change::Nothing);
        assert_eq!(desired.unwatch(&server, "x://1", a), Change::Nothing);
        assert_eq!(desired.unwatch(&server, "x://1", a), Change::Nothing);
        assert_eq!(
            desired.watchers(&server, "x://1"),
            [("x://1".to_owned(), b)]
        );
        assert_eq!(
            desired.watchers(&server, "x://1/part"),
            [("x://1".to_owned(), b)]
        );
        assert_eq!(desired.watchers(&server, "x://12"), []);
        assert_eq!(desired.forget(b), [(server.clone(), "x://1".to_owned())]);
        assert!(desired.subscriptions(&server).is_empty());
    }

    #[test]
    fn the_most_verbose_session_sets_the_level() {
        let desired = Desired::default();
        let [a, b] = [1, 2].map(|n| SessionId::new(Uuid::from_u128(n)));
        assert_eq!(
            desired.set_level(a, LogLevel::Warning),
            Some(LogLevel::Warning)
        );
        assert_eq!(desired.set_level(b, LogLevel::Debug), Some(LogLevel::Debug));
        assert_eq!(desired.set_level(a, LogLevel::Info), None);
        desired.forget(b);
        assert_eq!(desired.level(), Some(LogLevel::Info));
    }
}
