//! Restores sessions from their records: registers all of them when the gateway starts, and starts
//! the actor of each when its client returns.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::downstream::{
    Caller, ConnectionKey, SeparationReasons, ServerSettings, SubscriptionKey, separated_servers,
};
use crate::id::{ServerName, SessionId};
use crate::protocol::{ErrorKind, Failure};
use crate::sessions::all_sessions::{FoundSession, Sessions, is_ending};
use crate::sessions::session_record::{RECORDS, SessionRecord, StoredSession, stored_sessions};
use crate::sessions::session_registry::SessionLookup;
use crate::sessions::{SessionContext, seconds};
use crate::store::StoreError;
use crate::telemetry::Counter;

impl Sessions {
    /// Starts the actor of a session that has none, on the given arbiter or on any. Returns `None`
    /// if the session has ended.
    ///
    /// # Errors
    ///
    /// Returns a failure if the record cannot be read at the moment; the session might still exist.
    pub(super) async fn rebuild(
        &self,
        id: SessionId,
        arbiter: Option<usize>,
    ) -> Result<Option<FoundSession>, Failure> {
        let context = self.context();
        let stored = match context.read_record(id).await {
            Ok(stored) => stored,
            Err(error) => {
                log::warn!(session:% = id, error:%; "could not read the session's record");
                let message = "the gateway cannot read the session from its store; try again later";
                return Err(Failure::new(ErrorKind::Overloaded, message).retry_after_ms(1000));
            }
        };
        let Some(mut record) = stored else {
            match context.replicas {
                None => context.forget(id, None),
                Some(_) => context.lose(id),
            }
            return Ok(None);
        };
        let _one_at_a_time = context.rebuilding.lock();
        // Another request can have rebuilt or ended the session in the meantime.
        match context.registry.find_any(id) {
            SessionLookup::Live(address, revision) => {
                return Ok(Some(FoundSession { address, revision }));
            }
            SessionLookup::Unknown => return Ok(None),
            SessionLookup::Ending => return Err(is_ending()),
            SessionLookup::Dormant => {}
        }
        // The record can predate the session's adoption by its owner.
        if let Some((owner, is_adopted)) = context.registry.owner(id) {
            (record.principal, record.is_adopted) = (owner.principal, is_adopted);
        }
        let revision = record.revision;
        let arbiter = arbiter.unwrap_or_else(|| context.arbiters.index(id.placement_hash()));
        let address = self.spawn(id, record, arbiter, true);
        if !context.registry.revive(id, address.clone()) {
            return Ok(None);
        }
        context.calls.counters.add(Counter::SessionsRebuilt);
        log::debug!(session:% = id; "session rebuilt from its record");
        Ok(Some(FoundSession { address, revision }))
    }

    /// Registers the sessions of the previous process; each gets an actor when its client sends a
    /// request. Their subscriptions and log levels are restored at once, because a client that only
    /// listens might not send any request. Called before the first request is handled.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read.
    pub async fn restore(&self, servers: &[Arc<ServerSettings>]) -> Result<(), StoreError> {
        let context = self.context();
        // Each session of a cluster is taken over when its client returns.
        if context.replicas.is_some() {
            return Ok(());
        }
        let separated = separated_servers(&*context.store, servers).await;
        let (sessions, useless) = stored_sessions(context.store.scan(RECORDS).await?);
        for session in &sessions {
            self.restore_one(session, servers, &separated);
        }
        if !useless.is_empty() {
            let entries = useless.len();
            log::warn!(entries; "dropping unreadable or orphaned session records");
        }
        for key in &useless {
            context.store.delete(key).await?;
        }
        if !self.is_empty() {
            log::info!(sessions = self.len(); "sessions restored");
        }
        Ok(())
    }

    fn restore_one(
        &self,
        stored: &StoredSession,
        servers: &[Arc<ServerSettings>],
        separated: &HashMap<&ServerName, SeparationReasons>,
    ) {
        let key_of = |name: &ServerName, caller: &Caller| {
            let server = servers.iter().find(|server| server.name == *name)?;
            let reasons = separated.get(name).copied().unwrap_or_default();
            Some(server.connection_key_for(caller, reasons))
        };
        // The record does not say when the session was last used. Its expiry is the latest time
        // until which the client can rely on the session.
        let context = self.context();
        context.register_dormant(stored.id, &stored.record, stored.expires_in, key_of);
    }
}

impl SessionContext {
    /// Registers a session without an actor, with its log level and subscriptions. It ends after
    /// `left` if its client does not return, at most after `idle_timeout`. `key_of` chooses the
    /// connection to a server; a subscription without one is dropped.
    pub(super) fn register_dormant(
        &self,
        id: SessionId,
        record: &SessionRecord,
        left: Option<Duration>,
        key_of: impl Fn(&ServerName, &Caller) -> Option<ConnectionKey>,
    ) {
        let idle = seconds(self.calls.settings.load().idle_timeout);
        let left = left.map_or(idle, seconds).min(idle);
        self.registry.insert_dormant(id, record, left, idle);
        if let Some(level) = record.level {
            let levels = self.calls.downstreams.subscription_registry();
            levels.set_level(id, level);
        }
        let caller = record.caller(id);
        for subscription in &record.subscriptions {
            let server = &subscription.server;
            if let Some(key) = key_of(server, &caller) {
                let watched = SubscriptionKey::new(server, &key, &subscription.native);
                if let Err(failure) = self.calls.watch(watched, id, &caller) {
                    log::debug!(session:% = id; "subscription not restored: {}", failure.message);
                }
            }
        }
    }
}
