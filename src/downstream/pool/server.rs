//! One configured server: its shared connection, and the connections of individual clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep};

use crate::catalog::{ItemKind, ServerPart};
use crate::credentials::Credential;
use crate::downstream::caller::Caller;
use crate::downstream::connection::spec::{CallSenders, ConnectionCommand, ConnectionSpec};
use crate::downstream::connection_key::{Audience, ConnectionKey, ConnectionOwner};
use crate::downstream::parts::ServerParts;
use crate::downstream::pool::away::{detail, failure_while_away};
use crate::downstream::pool::canary::ServerRollout;
use crate::downstream::pool::connection_choice::ServerFacts;
use crate::downstream::pool::dependencies::DependentServer;
use crate::downstream::pool::lease::Reservation;
use crate::downstream::pool::own_connections::OwnConnections;
use crate::downstream::pool::usage::{Usage, UseGuard};
use crate::downstream::resilience::RetryBudget;
use crate::downstream::resilience::breakers::BreakerPermit;
use crate::downstream::settings::{CredentialsChoice, EraChoice, ServerSettings, Sharing};
use crate::downstream::starting::StartStage;
use crate::downstream::subscription_registry::SubscriptionRegistry;
use crate::id::{CredentialContext, Principal, ServerName, SessionId};
use crate::protocol::{Era, ErrorKind, Failure, RawJson};
use crate::supervision::{ChildRef, ChildUnavailable, Sighting};
use crate::telemetry::{LogRing, LogSource};
use crate::transport::SignInPlace;

/// Interval at which the gateway checks whether a server's calls have ended.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A server as sessions see it. Shared by all threads.
pub struct Server {
    pub(crate) parts: ServerParts,
    pub(crate) shared: ChildRef<CallSenders>,
    /// The spec of the shared connection.
    pub(crate) spec: Arc<ConnectionSpec>,
    /// Use of the shared connection.
    pub(crate) usage: Arc<Usage>,
    pub(crate) own: OwnConnections,
    /// Whether an operator took the server out of service.
    pub(crate) halted: AtomicBool,
    pub(crate) retries: Mutex<RetryBudget>,
    pub(crate) rollout: ServerRollout,
}

impl Server {
    pub fn name(&self) -> &ServerName {
        &self.spec.server
    }

    pub fn settings(&self) -> Arc<ServerSettings> {
        self.parts.settings.load_full()
    }

    /// Whether any client watches a resource or a task on one of the server's connections.
    pub(crate) fn has_subscriptions(
        &self,
        registry: &SubscriptionRegistry,
        key: &ConnectionKey,
    ) -> bool {
        registry.has_subscriptions(self.name(), self.parts.declaration, key)
    }

    /// The connection that serves this caller.
    pub fn connection_key_for(&self, caller: &Caller) -> ConnectionKey {
        let older = self.older_key_for(caller);
        let older = older.filter(|_| self.parts.era.speaks_older() == Some(true));
        older.unwrap_or_else(|| self.preferred_key_for(caller))
    }

    /// The connection that must be opened to serve this caller, if any: the caller's own, or one in
    /// the older era that was never tried.
    pub(crate) fn unopened_key_for(&self, caller: &Caller) -> Option<ConnectionKey> {
        let older = self.older_key_for(caller);
        let untried = older.filter(|_| self.parts.era.speaks_older().is_none());
        let own = Some(self.connection_key_for(caller)).filter(|key| key.session().is_some());
        untried.or_else(|| own.filter(|key| self.find(key).is_none()))
    }

    /// The connection in the server's preferred era that serves this caller.
    pub fn preferred_key_for(&self, caller: &Caller) -> ConnectionKey {
        self.preferred_key(&self.facts(), caller)
    }

    fn preferred_key(&self, facts: &ServerFacts, caller: &Caller) -> ConnectionKey {
        match self.is_newer(facts) {
            true => ConnectionKey::shared(),
            false => self.key_of(facts.owner_for(caller), caller),
        }
    }

    /// Whether one connection serves all clients because every request identifies its client.
    fn is_newer(&self, facts: &ServerFacts) -> bool {
        facts.sharing == Sharing::Auto && facts.known.era == Some(Era::Modern)
    }

    /// Key of a caller's connection. A session that kept the connection of its audience is served
    /// there.
    fn key_of(&self, owner: ConnectionOwner, caller: &Caller) -> ConnectionKey {
        let owner = match owner {
            ConnectionOwner::Session(session, audience) => {
                let shared = ConnectionOwner::Audience(audience.clone());
                match self.parts.separation.claimant(&shared) == Some(session) {
                    true => shared,
                    false => ConnectionOwner::Session(session, audience),
                }
            }
            owner => owner,
        };
        ConnectionKey {
            credentials: self.parts.settings.load().credentials_of(caller),
            owner,
            era: None,
        }
    }

    fn facts(&self) -> ServerFacts {
        ServerFacts {
            sharing: self.parts.settings.load().sharing,
            known: self.parts.era.facts(),
            knows_call_of_requests: self.parts.connector.knows_call_of_requests(),
            starts_process: self.parts.connector.starts_process(),
            reasons: self.parts.separation.reasons(),
            is_plain_apart: self.parts.separation.is_plain_apart(),
            claimant: self.parts.separation.claimant(&ConnectionOwner::Shared),
        }
    }

    /// Whether this caller's connection depends on the server's era, which is unknown before the
    /// first handshake.
    pub(crate) fn awaits_era(&self, caller: &Caller) -> bool {
        let depends = caller.session.is_some() && caller.revision.era() == Era::Legacy;
        depends && self.era().is_none() && self.settings().sharing != Sharing::Shared
    }

    /// Whether a connection serves only this session.
    pub fn is_own(&self, key: &ConnectionKey, session: SessionId) -> bool {
        match &key.owner {
            ConnectionOwner::Session(owner, _) => *owner == session,
            ConnectionOwner::Shared | ConnectionOwner::Audience(_) => {
                self.parts.separation.claimant(&key.owner) == Some(session)
            }
            ConnectionOwner::Lease(..) | ConnectionOwner::Plain => false,
        }
    }

    /// The older-era connection that serves this caller, if available: for a client of an older
    /// revision and a server that prefers the newer era (B-ERA-02).
    pub fn older_key_for(&self, caller: &Caller) -> Option<ConnectionKey> {
        self.older_key(&self.facts(), caller)
    }

    fn older_key(&self, facts: &ServerFacts, caller: &Caller) -> Option<ConnectionKey> {
        if caller.revision.era() == Era::Modern || self.parts.settings.load().era != EraChoice::Auto
        {
            return None;
        }
        let owner = facts.older_owner_for(caller)?;
        let era = Some(Era::Legacy);
        Some(ConnectionKey {
            era,
            ..self.key_of(owner, caller)
        })
    }

    /// Whether the server is known to refuse a connection in this other era.
    pub(crate) fn refuses(&self, key: &ConnectionKey) -> bool {
        key.era.is_some() && self.parts.era.speaks_older() == Some(false)
    }

    /// Era that is spoken with the server, if known.
    pub fn era(&self) -> Option<Era> {
        self.parts.era.current()
    }

    /// The connection whose events concern a client without a session: the one that serves its
    /// calls, or the first one if each serves one call at a time.
    pub fn listen_key_for(&self, caller: &Caller) -> ConnectionKey {
        self.leased_first(self.connection_key_for(caller), caller)
    }

    fn leased_first(&self, key: ConnectionKey, caller: &Caller) -> ConnectionKey {
        match &key.owner {
            ConnectionOwner::Audience(audience) if self.needs_lease(caller, audience) => {
                ConnectionKey {
                    owner: ConnectionOwner::Lease(audience.clone(), 0),
                    ..key
                }
            }
            _ => key,
        }
    }

    /// The connection whose lists this caller sees, whether or not it is open. A client without
    /// capabilities sees the lists of the shared connection unless it is served apart, and so does
    /// each client that shares its process. A client's own session shows the audience's lists until
    /// the client has called something in it.
    pub(crate) fn list_key_for(&self, caller: &Caller) -> ConnectionKey {
        if let Some(key) = self.own_list_key_for(caller) {
            return key;
        }
        let credentials = self.parts.settings.load().credentials;
        let has_own = match credentials {
            CredentialsChoice::Shared => {
                !caller.profile.is_plain() || self.parts.separation.is_plain_apart()
            }
            CredentialsChoice::User => caller.principal != Principal::Anonymous,
        };
        if !has_own {
            return ConnectionKey::shared();
        }
        let facts = match self.settings().sharing {
            Sharing::Auto => self.facts().without_sessions(),
            _ => self.facts(),
        };
        let older = self.older_key(&facts, caller);
        let preferred = || match self.is_newer(&facts) {
            true => ConnectionKey::shared(),
            false => self.leased_first(self.key_of(facts.list_owner_for(caller), caller), caller),
        };
        older.unwrap_or_else(preferred)
    }

    /// The connection that serves this caller, if its lists can differ from what other clients see
    /// because the client's calls could have changed them or the connection has read them.
    fn own_list_key_for(&self, caller: &Caller) -> Option<ConnectionKey> {
        if self.own.is_empty() || caller.session.is_none() {
            return None;
        }
        let key = self.connection_key_for(caller);
        // The plain process can exist for its requests alone; then its lists equal the shared ones.
        (!key.is_plain() && self.own.has_lists(&key)).then_some(key)
    }

    /// This caller's connection, if the caller's calls could have changed this list since the
    /// connection read it. An open connection then reads the list again.
    pub(crate) fn relist(&self, caller: &Caller, kind: ItemKind) -> Option<ConnectionKey> {
        if self.own.is_empty() || caller.session.is_none() {
            return None;
        }
        let key = self.connection_key_for(caller);
        self.own.relist(&key, kind).then_some(key)
    }

    /// Whether each call of this caller needs its own connection of this audience.
    fn needs_lease(&self, caller: &Caller, audience: &Audience) -> bool {
        let knows_call_of_requests = self.parts.connector.knows_call_of_requests();
        caller.session.is_none()
            && !knows_call_of_requests
            && caller.profile.can_be_asked()
            && *audience == caller.audience()
    }

    /// The connections that can serve one call of this caller, and a lease that reserves the
    /// preferred one. If the transport cannot attribute questions, a client without a session can
    /// be asked only on a connection that serves no other client meanwhile.
    ///
    /// # Errors
    ///
    /// Returns a failure if all leases are taken and clients are configured to share nothing.
    pub(crate) fn reserve(&self, caller: &Caller) -> Result<Reservation, Failure> {
        let facts = self.facts();
        let mut reserved = Reservation {
            key: self.preferred_key(&facts, caller),
            lease: None,
            better: self.older_key(&facts, caller),
        };
        // The shared process may still ask something for a cancelled call.
        let is_uncertain = facts.sharing == Sharing::Auto && self.spec.load.only().is_none();
        if is_uncertain && !self.is_newer(&facts) && reserved.key.is_shared() {
            let audience = caller.audience();
            if self.needs_lease(caller, &audience) {
                reserved.key.owner = ConnectionOwner::Audience(audience);
            }
        }
        let was_up = |key: &ConnectionKey| self.own.is_listed(key);
        let ConnectionOwner::Audience(audience) = &reserved.key.owner else {
            return Ok(reserved.or_shared(&facts, caller, was_up));
        };
        if !self.needs_lease(caller, audience) {
            return Ok(reserved.or_shared(&facts, caller, was_up));
        }
        let places = self.settings().entries_max();
        match self.own.leases.take(audience, places) {
            Some(lease) => {
                reserved.key.owner = ConnectionOwner::Lease(audience.clone(), lease.place());
                reserved.lease = Some(lease);
            }
            None => {
                self.use_shared_instead()?;
                reserved.key = ConnectionKey::shared();
            }
        }
        Ok(reserved)
    }

    /// Falls back to the shared connection because all clients' own connections are in use; the
    /// client is then not asked anything.
    ///
    /// # Errors
    ///
    /// Returns a failure if clients are configured to share nothing.
    pub(crate) fn use_shared_instead(&self) -> Result<(), Failure> {
        self.own.count_refusal();
        let (settings, server) = (self.settings(), self.name().as_str());
        let entries_max = settings.entries_max();
        let is_claimed = (self.parts.separation)
            .claimant(&ConnectionOwner::Shared)
            .is_some();
        if settings.sharing == Sharing::Auto && !is_claimed {
            log::warn!(server, entries_max;
                "no per-client connection is free (`entries_max`); using the shared connection, on which the client may not be asked and has no state of its own");
            return Ok(());
        }
        let message = format!(
            "server `{server}` already has {entries_max} per-client connections, its limit (`entries_max`), and each is busy; try again later"
        );
        Err(Failure::new(ErrorKind::Overloaded, message)
            .server(server)
            .retry_after_ms(1000))
    }

    /// The connection of a key, if it exists; the shared connection always does.
    pub fn find(&self, key: &ConnectionKey) -> Option<ChildRef<CallSenders>> {
        if key.is_shared() {
            return Some(self.shared.clone());
        }
        self.own.find(key)
    }

    /// Credential of the user that the connection was opened for.
    pub fn user_credential(&self, key: &ConnectionKey) -> Option<Arc<Credential>> {
        self.own.credential(key)
    }

    /// The gateway's credential, for a connection that uses it.
    pub(crate) fn gateway_credential(&self, key: &ConnectionKey) -> Option<&Arc<Credential>> {
        let uses_it = key.credentials == CredentialContext::Shared;
        self.parts.connector.credential().filter(|_| uses_it)
    }

    /// The failure of a call that requires an operator to log the gateway in.
    pub(crate) fn needs_login(&self, key: &ConnectionKey) -> Option<Failure> {
        let credential = self.gateway_credential(key);
        credential.filter(|credential| credential.refusals().needs_login())?;
        let name = self.name();
        let stage = StartStage::SignIn(SignInPlace::Gateway).summary(name);
        let message = format!("server `{name}` {stage}");
        Some(Failure::new(ErrorKind::ServerUnavailable, message).server(name.as_str()))
    }

    /// Calls `visit` with every connection.
    pub(crate) fn each_connection(
        &self,
        mut visit: impl FnMut(&ConnectionKey, &ChildRef<CallSenders>),
    ) {
        visit(&self.spec.key, &self.shared);
        self.own.each(visit);
    }

    pub(crate) fn retries(&self) -> MutexGuard<'_, RetryBudget> {
        self.retries.lock()
    }

    pub fn shared(&self) -> &ChildRef<CallSenders> {
        &self.shared
    }

    /// Whether the server's shared lists are known, possibly from an earlier process.
    pub(crate) fn was_listed(&self) -> bool {
        *self.spec.listed.borrow()
    }

    /// Waits until the server has no calls.
    pub(crate) async fn has_no_calls(&self) {
        while self.parts.gate.running() + self.parts.gate.waiting() > 0 {
            sleep(LOOK_EVERY).await;
        }
    }

    /// Applies other settings without ending connections.
    pub(crate) fn retune(&self, settings: ServerSettings) {
        let (limits, supervision) = (&settings.limits, settings.supervision.clone());
        let queue = settings.resilience.queue;
        self.parts.gate.configure(limits.calls_max, queue);
        self.parts.breakers.configure(settings.resilience.breaker);
        self.parts.settings.store(Arc::new(settings));
        self.each_connection(|_, child| {
            child.configure(supervision.clone(), None);
            if let Ok(up) = child.current() {
                up.value.command(ConnectionCommand::Retune);
            }
        });
    }

    /// The items that the server last listed, if these settings describe the same server.
    pub(crate) fn known_for(&self, settings: &ServerSettings) -> Option<Arc<ServerPart>> {
        let is_same = self.parts.settings.load().identity() == settings.identity();
        is_same.then(|| self.spec.last_part.load_full()).flatten()
    }

    /// Counts a use, which keeps the shared connection; must precede the connection's lookup.
    pub fn enter(&self) -> UseGuard {
        self.usage.enter()
    }

    /// Asks the breakers whether a request can be sent; `tool` is the native name of the tool that
    /// it calls, if any.
    ///
    /// # Errors
    ///
    /// Returns `breaker_open` with the time of the next attempt.
    pub fn permit(&self, tool: Option<&RawJson>) -> Result<BreakerPermit, Failure> {
        self.parts.breakers.ask(tool)
    }

    /// Whether a call can be retried; counts the retry against the budget.
    pub fn may_retry(&self) -> bool {
        let settings = self.parts.settings.load().resilience.retry;
        settings.is_allowed && self.retries().take(settings.per_minute, Instant::now())
    }

    /// Whether an operator took the server out of service.
    pub fn is_halted(&self) -> bool {
        self.halted.load(Ordering::SeqCst)
    }

    /// The last log lines of the server, and the gateway's remarks about it.
    pub fn log(&self) -> &LogRing {
        &self.parts.log
    }

    /// The failure of calls to a server that an operator stopped.
    pub fn halted(&self) -> Failure {
        let name = self.name();
        let message = format!(
            "server `{name}` was stopped by an operator; `mcpvisor servers start {name}` starts it"
        );
        Failure::new(ErrorKind::ServerUnavailable, message).server(name.as_str())
    }

    /// The failure of calls that the server cannot take now.
    pub fn away(&self, away: &ChildUnavailable) -> Failure {
        self.failure(away, away.why.as_ref().map(ToString::to_string))
    }

    /// Like [`Self::away`], for operators, who can read the server's own text.
    pub(crate) fn away_in_full(&self, away: &ChildUnavailable) -> Failure {
        let why = away.why.as_ref().map(|why| format!("{why:#}"));
        self.failure(away, why)
    }

    fn failure(&self, away: &ChildUnavailable, why: Option<String>) -> Failure {
        if self.is_halted() {
            return self.halted();
        }
        let is_shared = self.settings().credentials == CredentialsChoice::Shared;
        let stage = self.spec.progress.get().filter(|_| is_shared);
        let detail = detail(self.name(), stage, why);
        let awaited = self.parts.dependencies.awaited(self.name());
        failure_while_away(self.name(), away, detail, awaited)
    }
}

impl DependentServer for Server {
    fn sighting(&self) -> Sighting {
        self.shared.sighting()
    }

    fn retry_after(&self) -> Option<Duration> {
        self.shared.current().err()?.retry_after
    }

    fn has_calls(&self) -> bool {
        Self::has_calls(self)
    }

    fn block(&self, reason: &'static str, why: Option<&str>) {
        if let Some(why) = why {
            log::info!(server = self.name().as_str(); "{why}");
            self.parts.log.push(LogSource::Gateway, why);
        }
        self.shared.block(reason);
    }

    fn unblock(&self) {
        self.shared.unblock();
    }

    fn wake(&self) {
        self.shared.wake();
    }
}
