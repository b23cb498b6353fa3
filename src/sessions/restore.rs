//! Restores sessions from their records: registers all of them when the gateway starts, and starts
//! the actor of each when its client returns.

use std::collections::HashMap;
use std::sync::Arc;

use crate::downstream::{SeparationReasons, ServerSettings, SubscriptionKey, separated_servers};
use crate::id::{ServerName, SessionId};
use crate::protocol::{ErrorKind, Failure};
use crate::sessions::all_sessions::{FoundSession, Sessions, is_ending};
use crate::sessions::seconds;
use crate::sessions::session_record::{RECORDS, StoredSession, stored_sessions};
use crate::sessions::session_registry::SessionLookup;
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
        let context = self.context();
        let (id, record) = (stored.id, &stored.record);
        // The record does not say when the session was last used. Its expiry is the latest time
        // until which the client can rely on the session.
        let idle = seconds(context.calls.settings.load().idle_timeout);
        let left = stored.expires_in.map_or(idle, seconds).min(idle);
        let registry = &context.registry;
        registry.insert_dormant(id, record, left, idle);
        let subscription_registry = context.calls.downstreams.subscription_registry();
        if let Some(level) = record.level {
            subscription_registry.set_level(id, level);
        }
        for subscription in &record.subscriptions {
            let mut servers = servers.iter();
            if let Some(server) = servers.find(|server| server.name == subscription.server) {
                let reasons = separated.get(&server.name).copied().unwrap_or_default();
                let key = server.connection_key_for(&record.caller(id), reasons);
                let watched = SubscriptionKey::new(&server.name, &key, &subscription.native);
                if let Err(failure) = context.calls.watch(watched, id, &record.caller(id)) {
                    log::debug!(session:% = id; "subscription not restored: {}", failure.message);
                }
            }
        }
    }
}
