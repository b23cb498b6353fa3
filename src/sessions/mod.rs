//! Sessions of clients: one actor for each, the parts that they share, and requests without a
//! session.
//!
//! The front opens and finds sessions through [`Sessions`], and sends them the messages of clients.
//! A session makes [`calls`](crate::calls), and receives events outside of calls from the
//! [`publisher`](crate::publisher).

mod all_sessions;
mod dispatch;
mod followed_tasks;
mod handshake;
mod linked_uris;
mod listen_stream;
mod message;
mod moves;
mod replicas;
mod restore;
mod session;
mod session_activity;
mod session_list;
mod session_record;
mod session_registry;
mod sessionless;
mod subscribers;
mod tree_resource;
mod unused_sessions;

pub use all_sessions::{FoundSession, Sessions, SessionsSpec};
pub use message::{FromClient, OpenStream, UpgradeToStream};
pub use moves::Moves;
pub use replicas::{ReplicaSettings, Replicas};
pub use session::Session;
pub use session_activity::{OpenCall, SessionActivity};
pub use session_list::{ClientView, SessionDetail, SessionList, SessionView};
pub use session_record::SessionRecord;
pub use sessionless::{ServeOutcome, SessionlessRequest};
pub use tree_resource::TreeSource;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::calls::{CallContext, CallWorkers};
use crate::catalog::Changes;
use crate::id::SessionId;
use crate::memory::ByteGauge;
use crate::protocol::Method;
use crate::store::{Store, StoreError};
use crate::supervision::{Arbiters, Random};
use crate::telemetry::Counter;
use listen_stream::ListenStreams;
use session_record::{Subscription, record_key, stored_sessions, subscription_key};
use session_registry::SessionRegistry;
use tree_resource::TreeResource;

/// The shared parts of all sessions.
pub(crate) struct SessionContext {
    /// The shared parts of all calls, with or without a session.
    pub(crate) calls: Arc<CallContext>,
    pub(crate) store: Arc<dyn Store>,
    /// Replaces the store for records and subscriptions if the gateway is one of several replicas.
    pub(crate) replicas: Option<Box<Replicas>>,
    pub(crate) registry: SessionRegistry,
    /// The workers that handle sessionless calls.
    pub(crate) workers: CallWorkers,
    pub(crate) listeners: ListenStreams,
    /// The size of the events that sessions keep for clients that resume.
    pub(crate) kept_events: ByteGauge,
    pub(crate) tree: TreeResource,
    pub(crate) random: Arc<dyn Random>,
    /// Returns the current time in milliseconds since 1970.
    clock: fn() -> u64,
    arbiters: Arbiters,
    /// Held while a session is rebuilt, so that concurrent requests create only one actor.
    rebuilding: Mutex<()>,
}

impl SessionContext {
    /// Returns how long a record is kept. A session in use renews its record at every idle check,
    /// at least once per `idle_timeout`.
    pub(crate) fn record_ttl(&self) -> Duration {
        self.calls.settings.load().idle_timeout.saturating_mul(2)
    }

    /// Stores the persistent part of a session. In a cluster, the subscriptions are stored again as
    /// well, because the engine can have lost them.
    ///
    /// # Errors
    ///
    /// Returns the store's failure, which is also counted and shown as health.
    pub(crate) async fn write_record(
        &self,
        id: SessionId,
        record: Bytes,
        subscriptions: &[Subscription],
    ) -> Result<(), StoreError> {
        let ttl = self.record_ttl();
        let written = match &self.replicas {
            None => self.store.put(&record_key(id), record, Some(ttl)).await,
            Some(replicas) => {
                let saved = replicas.save(id, record, subscriptions, ttl).await;
                self.noted(id, saved)
            }
        };
        self.note_written(id, &written);
        written
    }

    /// Stores the record of a new session.
    ///
    /// # Errors
    ///
    /// Fails as [`Self::write_record`] does.
    pub(crate) async fn open_record(&self, id: SessionId, record: Bytes) -> Result<(), StoreError> {
        let Some(replicas) = &self.replicas else {
            return self.write_record(id, record, &[]).await;
        };
        let opened = replicas.open(id, record, self.record_ttl()).await;
        let opened = opened.map_err(|error| StoreError::Unavailable(error.to_string()));
        self.note_written(id, &opened);
        opened
    }

    /// Reads the record of a session with its subscriptions; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Fails if the store or the engine cannot be read.
    pub(crate) async fn read_record(
        &self,
        id: SessionId,
    ) -> Result<Option<SessionRecord>, StoreError> {
        if let Some(replicas) = &self.replicas {
            let read = replicas.read_own(id).await;
            return read.map_err(|error| StoreError::Unavailable(error.to_string()));
        }
        let stored = self.store.scan(&record_key(id)).await?;
        let stored = stored_sessions(stored).0.pop();
        Ok(stored.map(|stored| stored.record))
    }

    /// Stores a subscription of a session, or deletes the subscription to this URI. It expires with
    /// the session's record.
    pub(crate) async fn write_subscription(
        &self,
        id: SessionId,
        public: &str,
        subscription: Option<Subscription>,
    ) {
        let value = subscription.map(|subscription| subscription.to_bytes());
        let key = subscription_key(id, public);
        let written = match (&self.replicas, value) {
            (Some(replicas), value) => {
                let saved = replicas.save_subscription(id, public, value).await;
                self.noted(id, saved)
            }
            (None, Some(value)) => self.store.put(&key, value, None).await,
            (None, None) => self.store.delete(&key).await,
        };
        self.note_written(id, &written);
    }

    fn note_written(&self, id: SessionId, written: &Result<(), StoreError>) {
        if let Err(error) = written {
            self.calls.counters.add(Counter::SessionsUnsaved);
            log::warn!(session:% = id, error:%; "could not persist the state of a session");
        }
    }

    /// Removes all traces of an ended session, then notifies `done`. The session stays known until
    /// its record is deleted, so that a confirmed end also survives a kill of the gateway.
    pub(crate) fn forget(self: &Arc<Self>, id: SessionId, done: Option<oneshot::Sender<()>>) {
        self.registry.set_ending(id);
        self.calls.downstreams.forget(id);
        self.calls.kept_results.forget(id);
        let context = self.clone();
        // Runs in a task like every save, so that a save in progress finishes before the record is
        // deleted.
        actix_rt::spawn(async move {
            let deleted = match &context.replicas {
                None => context.store.delete(&record_key(id)).await,
                Some(replicas) => {
                    let ended = replicas.end(id).await;
                    ended.map_err(|error| StoreError::Unavailable(error.to_string()))
                }
            };
            if let Err(error) = deleted {
                log::warn!(error:%; "could not delete the record of an ended session");
            }
            context.registry.remove(id);
            if let Some(done) = done {
                // The client can have disconnected.
                let _ = done.send(());
            }
        });
    }

    /// Returns a random number that distinguishes event ids of different actors.
    pub(crate) fn epoch(&self) -> u32 {
        // Truncation is intended: only 32 random bits are needed.
        (self.random.chance() * f64::from(u32::MAX)) as u32
    }
}

fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs().max(1)).unwrap_or(u32::MAX)
}

/// Returns the notifications for these list changes.
fn changed_lists(changes: Changes) -> impl Iterator<Item = Method> {
    let lists = [
        (changes.tools, Method::ToolsListChanged),
        (changes.prompts, Method::PromptsListChanged),
        (changes.resources, Method::ResourcesListChanged),
    ];
    let changed = lists.into_iter().filter(|(changed, _)| *changed);
    changed.map(|(_, method)| method)
}
