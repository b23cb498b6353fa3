//! One actor for each client session, what they share, and requests of clients without one.
//!
//! The front speaks to [`Sessions`]: it opens a session, finds it, and sends it what the client
//! says. A session makes [`calls`](crate::calls), and receives from the
//! [`publisher`](crate::publisher) what happens outside of calls.

mod all_sessions;
mod dispatch;
mod followed_tasks;
mod handshake;
mod linked_uris;
mod listen_stream;
mod message;
mod restore;
mod session;
mod session_activity;
mod session_credentials;
mod session_list;
mod session_record;
mod session_registry;
mod sessionless;
mod subscribers;
mod tree_resource;
mod unused_sessions;

pub use all_sessions::{FoundSession, Sessions, SessionsSpec};
pub use message::{FromClient, OpenStream, UpgradeToStream};
pub use session::Session;
pub use session_activity::{OpenCall, SessionActivity};
pub use session_list::{ClientView, SessionDetail, SessionView};
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
use session_record::{Subscription, record_key, subscription_key};
use session_registry::SessionRegistry;
use tree_resource::TreeResource;

/// The shared parts of all sessions.
pub(crate) struct SessionContext {
    /// The shared parts of all calls, also of clients without a session.
    pub(crate) calls: Arc<CallContext>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) registry: SessionRegistry,
    /// Where calls without a session are worked on.
    pub(crate) workers: CallWorkers,
    pub(crate) listeners: ListenStreams,
    /// Of the events that sessions keep for clients that come back.
    pub(crate) kept_events: ByteGauge,
    pub(crate) tree: TreeResource,
    pub(crate) random: Arc<dyn Random>,
    /// Tells the milliseconds since 1970.
    clock: fn() -> u64,
    arbiters: Arbiters,
    /// A session has one actor, however many requests find it without one.
    rebuilding: Mutex<()>,
}

impl SessionContext {
    /// How long a record is kept. It is written anew whenever a session in use is looked at,
    /// which is at least once in `idle_timeout`.
    pub(crate) fn record_ttl(&self) -> Duration {
        self.calls.settings.load().idle_timeout.saturating_mul(2)
    }

    /// Writes the durable part of a session.
    ///
    /// # Errors
    ///
    /// Returns the failure of the store, which is counted and shown as health.
    pub(crate) async fn write_record(
        &self,
        id: SessionId,
        record: Bytes,
    ) -> Result<(), StoreError> {
        let ttl = Some(self.record_ttl());
        let written = self.store.put(&record_key(id), record, ttl).await;
        self.note_written(id, &written);
        written
    }

    /// Writes a subscription of a session, or deletes the one to this URI. It ends with the record
    /// that it is below.
    pub(crate) async fn write_subscription(
        &self,
        id: SessionId,
        public: &str,
        subscription: Option<Subscription>,
    ) {
        let key = subscription_key(id, public);
        let written = match subscription {
            Some(subscription) => self.store.put(&key, subscription.to_bytes(), None).await,
            None => self.store.delete(&key).await,
        };
        self.note_written(id, &written);
    }

    fn note_written(&self, id: SessionId, written: &Result<(), StoreError>) {
        if let Err(error) = written {
            self.calls.counters.add(Counter::SessionsUnsaved);
            log::warn!(session:% = id, error:%; "the state of a session could not be written");
        }
    }

    /// A session is over: nothing of it is left. `done` is sent when its record is gone. It is
    /// unknown only from then on, so that what a client was told once holds after a kill, too.
    pub(crate) fn forget(self: &Arc<Self>, id: SessionId, done: Option<oneshot::Sender<()>>) {
        self.registry.set_ending(id);
        self.calls.downstreams.forget(id);
        let context = self.clone();
        // In a task, as every save is: one that is under way writes before the record goes.
        actix_rt::spawn(async move {
            if let Err(error) = context.store.delete(&record_key(id)).await {
                log::warn!(error:%; "record of an ended session could not be deleted");
            }
            context.registry.remove(id);
            if let Some(done) = done {
                // Its client may have left.
                let _ = done.send(());
            }
        });
    }

    /// A number that tells the event ids of one actor from those of another.
    pub(crate) fn epoch(&self) -> u32 {
        // Truncation is what is wanted: 32 random bits.
        (self.random.chance() * f64::from(u32::MAX)) as u32
    }
}

/// The notifications for these changes.
fn changed_lists(changes: Changes) -> impl Iterator<Item = Method> {
    let lists = [
        (changes.tools, Method::ToolsListChanged),
        (changes.prompts, Method::PromptsListChanged),
        (changes.resources, Method::ResourcesListChanged),
    ];
    let changed = lists.into_iter().filter(|(changed, _)| *changed);
    changed.map(|(_, method)| method)
}
