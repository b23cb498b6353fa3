//! The connections of one server that do not serve all clients: looked up, added, and removed when
//! unused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::time::Instant;

use crate::catalog::ItemKind;
use crate::credentials::Credential;
use crate::downstream::connection::spec::{
    CallSenders, CalledLists, ConnectionCommand, ConnectionSpec,
};
use crate::downstream::connection_key::{ConnectionKey, ConnectionOwner};
use crate::downstream::pool::idle_sessions::{IdleSession, IdleSessions};
use crate::downstream::pool::lease::Leases;
use crate::downstream::starting::StartStage;
use crate::id::{CredentialContext, QuickMap};
use crate::supervision::{ChildPhase, ChildRef};
use crate::telemetry::millis;

pub(crate) struct OwnConnections {
    by_key: RwLock<OwnConnectionTable>,
    /// Leases on connections that serve one call at a time.
    pub(crate) leases: Leases,
    /// Idle sessions of individual clients.
    pub(crate) idle: IdleSessions,
    /// How often a client needed its own connection and none was free.
    refused: AtomicU64,
    began: Instant,
}

/// Most keys are sessions, whose ids the gateway chooses; `entries_max` bounds the table.
type OwnConnectionTable = QuickMap<ConnectionKey, OwnConnection>;

struct OwnConnection {
    child: ChildRef<CallSenders>,
    spec: Arc<ConnectionSpec>,
    /// Milliseconds from `began` to the last use.
    last_used: AtomicU64,
}

/// A connection that was removed from the table and is still running.
pub(crate) struct OpenedConnection {
    pub(crate) key: ConnectionKey,
    pub(crate) child: ChildRef<CallSenders>,
    pub(crate) spec: Arc<ConnectionSpec>,
}

impl From<(ConnectionKey, OwnConnection)> for OpenedConnection {
    fn from((key, OwnConnection { child, spec, .. }): (ConnectionKey, OwnConnection)) -> Self {
        Self { key, child, spec }
    }
}

/// Time after which an unused session's connection is closed, if its client does not listen. A call
/// that found the connection can still be in transit.
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// Minimum time that a connection must be unused to make room for another, because a call that
/// found it can still be in transit.
pub(crate) const REST_MIN: Duration = Duration::from_secs(1);

/// Whether a connection cannot serve any client until a user has signed in.
fn awaits_sign_in(spec: &ConnectionSpec) -> bool {
    matches!(spec.progress.get(), Some(StartStage::SignIn(_)))
}

/// Whether the connection was opened, and therefore can have a session at the server.
pub(crate) fn is_opened(spec: &ConnectionSpec, child: &ChildRef<CallSenders>) -> bool {
    matches!(child.phase(), ChildPhase::Up | ChildPhase::Starting) && !awaits_sign_in(spec)
}

/// Whether `entries_max` counts the connection. The ones that clients with a handshake, or without
/// capabilities, share are kept like the one that all clients share.
pub(crate) fn is_limited(key: &ConnectionKey) -> bool {
    !matches!(key.owner, ConnectionOwner::Shared | ConnectionOwner::Plain)
}

impl OwnConnection {
    /// Whether clients' calls or tasks are running or queued.
    fn is_in_use(&self) -> bool {
        !self.spec.load.is_idle() || self.spec.client_tasks.any(Instant::now())
    }
}

impl OwnConnections {
    pub(crate) fn new() -> Self {
        Self {
            by_key: RwLock::default(),
            leases: Leases::default(),
            idle: IdleSessions::default(),
            refused: AtomicU64::new(0),
            began: Instant::now(),
        }
    }

    pub(crate) fn find(&self, key: &ConnectionKey) -> Option<ChildRef<CallSenders>> {
        let table = self.by_key.read();
        let found = table.get(key)?;
        // The thread ended, and the supervisor with it; the next call opens another.
        if found.child.phase() == ChildPhase::Stopped {
            return None;
        }
        let now = self.now();
        found.last_used.store(now, Ordering::Relaxed);
        Some(found.child.clone())
    }

    pub(crate) fn spec(&self, key: &ConnectionKey) -> Option<Arc<ConnectionSpec>> {
        self.by_key.read().get(key).map(|own| own.spec.clone())
    }

    /// Credential of the user that the connection belongs to, if any.
    pub(crate) fn credential(&self, key: &ConnectionKey) -> Option<Arc<Credential>> {
        key.credentials.user()?;
        let table = self.by_key.read();
        table
            .get(key)?
            .spec
            .of_server
            .connector
            .credential()
            .cloned()
    }

    pub(crate) fn each_spec(&self, mut visit: impl FnMut(&ConnectionSpec, &ChildRef<CallSenders>)) {
        for own in self.by_key.read().values() {
            visit(&own.spec, &own.child);
        }
    }

    pub(crate) fn each(&self, mut visit: impl FnMut(&ConnectionKey, &ChildRef<CallSenders>)) {
        for (key, own) in &*self.by_key.read() {
            visit(key, &own.child);
        }
    }

    /// Retries failed connections now, because the server answers again.
    pub(crate) fn retry(&self) {
        self.each(|_, child| {
            if matches!(child.phase(), ChildPhase::Backoff | ChildPhase::Broken) {
                child.wake();
            }
        });
    }

    /// Number of connections that serve only some clients, including idle sessions.
    pub(crate) fn len(&self) -> usize {
        let limited = {
            let table = self.by_key.read();
            table.keys().filter(|key| is_limited(key)).count()
        };
        limited + self.idle.len()
    }

    /// Whether the connection of a client's session, with the shared credentials, was lost.
    pub(crate) fn has_lost_session(&self) -> bool {
        let table = self.by_key.read();
        table.iter().any(|(key, own)| {
            let is_lost = matches!(own.child.phase(), ChildPhase::Backoff | ChildPhase::Broken);
            key.session().is_some()
                && key.credentials == CredentialContext::Shared
                && (is_lost || awaits_sign_in(&own.spec))
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_key.read().is_empty() && self.idle.len() == 0
    }

    /// Whether the connection has listed its items since it was opened.
    pub(crate) fn is_listed(&self, key: &ConnectionKey) -> bool {
        self.spec(key).is_some_and(|spec| *spec.listed.borrow())
    }

    /// Whether the connection's lists can differ from what other clients see.
    pub(crate) fn has_lists(&self, key: &ConnectionKey) -> bool {
        if let Some(own) = self.by_key.read().get(key) {
            return own.spec.called.any() || *own.spec.listed.borrow();
        }
        let idle = self.idle.look(key, |it| it.called != 0 || it.is_listed);
        idle.unwrap_or(false)
    }

    /// Whether a client's calls could have changed this list since the connection read it. An open
    /// connection then reads the list again.
    pub(crate) fn relist(&self, key: &ConnectionKey, kind: ItemKind) -> bool {
        if let Some(own) = self.by_key.read().get(key) {
            let Ok(up) = own.child.current() else {
                return own.spec.called.is_set(kind);
            };
            let is_called = own.spec.called.take(kind);
            if is_called {
                up.value.command(ConnectionCommand::Relist(kind));
            }
            return is_called;
        }
        let called = self.idle.look(key, |it| CalledLists::new(it.called));
        called.is_some_and(|called| called.is_set(kind))
    }

    /// Removes the connections of idle sessions and keeps the sessions, sooner for clients that do
    /// not listen. `is_awaited` returns whether a client awaits events on a connection.
    pub(crate) fn set_idle(
        &self,
        entry_idle: Duration,
        is_awaited: impl Fn(&ConnectionKey) -> bool,
        listens: impl Fn(&ConnectionKey) -> bool,
    ) -> Vec<OpenedConnection> {
        let now = self.now();
        let is_idle = |own: &OwnConnection, idle: Duration| {
            own.last_used
                .load(Ordering::Relaxed)
                .saturating_add(millis(idle))
                < now
        };
        let mut table = self.by_key.write();
        let idle = table.extract_if(|key, own| {
            // The call that opened the connection counts from its arrival there, which can be late.
            let was_up = own.child.up_for().is_some_and(|up| up > IDLE_AFTER);
            let can_idle = was_up && own.spec.own_session.is_open();
            if !can_idle || !is_idle(own, IDLE_AFTER) {
                return false;
            }
            if own.is_in_use() || is_awaited(key) {
                own.last_used.store(now, Ordering::Relaxed);
                return false;
            }
            !listens(key) || is_idle(own, entry_idle)
        });
        let idle: Vec<_> = idle.collect();
        for (key, own) in &idle {
            if let Some((session, negotiated)) = own.spec.own_session.leave_open() {
                let session = IdleSession {
                    session,
                    negotiated,
                    connector: own.spec.of_server.connector.clone(),
                    called: own.spec.called.bits(),
                    is_listed: *own.spec.listed.borrow(),
                    last_used: own.last_used.load(Ordering::Relaxed),
                };
                self.idle.add(key.clone(), session);
            }
        }
        drop(table);
        idle.into_iter().map(OpenedConnection::from).collect()
    }

    pub(crate) fn any(&self, is_meant: impl Fn(&ConnectionKey) -> bool) -> bool {
        self.by_key.read().keys().any(is_meant)
    }

    pub(crate) fn count_refusal(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(crate) fn insert(
        &self,
        key: ConnectionKey,
        child: ChildRef<CallSenders>,
        spec: Arc<ConnectionSpec>,
    ) {
        let own = OwnConnection {
            child,
            spec,
            last_used: AtomicU64::new(self.now()),
        };
        let mut table = self.by_key.write();
        table.insert(key, own);
    }

    /// Removes the connections that `leaves` selects; they are still running.
    pub(crate) fn take_out(
        &self,
        leaves: impl Fn(&ConnectionKey) -> bool,
    ) -> Vec<OpenedConnection> {
        self.extract(|key, _| leaves(key))
    }

    /// Removes the connection for clients without capabilities, if it has no calls, was unused for
    /// this time, and `is_needless`.
    pub(crate) fn take_plain(
        &self,
        unused_for: Duration,
        is_needless: impl Fn() -> bool,
    ) -> Vec<OpenedConnection> {
        let used_before = self.now().saturating_sub(millis(unused_for));
        self.extract(|key, own| {
            key.is_plain()
                && own.last_used.load(Ordering::Relaxed) <= used_before
                && !own.is_in_use()
                && is_needless()
        })
    }

    /// Removes the connections without calls and subscriptions for longer than `idle`; for those that
    /// are kept like the shared one, `idle_stop` applies unless it is zero.
    pub(crate) fn take_idle(
        &self,
        idle: Duration,
        idle_stop: Duration,
        is_watched: impl Fn(&ConnectionKey) -> bool,
    ) -> Vec<OpenedConnection> {
        let now = self.now();
        let idle = millis(idle);
        self.extract(|key, own| {
            let is_kept = own.spec.keeps_session();
            let idle = match is_limited(key) {
                true => idle,
                false if idle_stop.is_zero() => return false,
                false => millis(idle_stop),
            };
            if is_kept {
                return false;
            }
            if own.is_in_use() || is_watched(key) {
                own.last_used.store(now, Ordering::Relaxed);
            }
            own.last_used.load(Ordering::Relaxed).saturating_add(idle) < now
        })
    }

    /// Removes the least recently used connection, if it is idle.
    pub(crate) fn take_least_recent(
        &self,
        is_watched: impl Fn(&ConnectionKey) -> bool,
    ) -> Option<OpenedConnection> {
        let mut table = self.by_key.write();
        let used_before = self.now().saturating_sub(millis(REST_MIN));
        let unused = table.iter().filter(|(key, _)| is_limited(key));
        let unused = unused.filter(|(key, own)| {
            // A connection that is starting can have a first call that is held elsewhere.
            let has_started = own.child.current().is_ok() || awaits_sign_in(&own.spec);
            let is_recent = own.last_used.load(Ordering::Relaxed) > used_before;
            has_started && !is_recent && !own.is_in_use() && !is_watched(key)
        });
        let (key, _) = unused.min_by_key(|(_, own)| own.last_used.load(Ordering::Relaxed))?;
        let key = key.clone();
        table.remove_entry(&key).map(OpenedConnection::from)
    }

    /// Removes the opened connections with these credentials; they are still running.
    pub(crate) fn take_opened(&self, credentials: &CredentialContext) -> Vec<OpenedConnection> {
        let mut table = self.by_key.write();
        let out = table.extract_if(|key, own| {
            key.credentials == *credentials && is_opened(&own.spec, &own.child)
        });
        out.map(OpenedConnection::from).collect()
    }

    fn extract(
        &self,
        leaves: impl Fn(&ConnectionKey, &OwnConnection) -> bool,
    ) -> Vec<OpenedConnection> {
        let mut table = self.by_key.write();
        let out = table.extract_if(|key, own| leaves(key, own));
        out.map(OpenedConnection::from).collect()
    }

    fn now(&self) -> u64 {
        millis(self.began.elapsed())
    }
}
