//! What every session uses.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::calls::{CallContext, CallWorkers};
use crate::id::SessionId;
use crate::sessions::listen_stream::ListenStreams;
use crate::sessions::session_record::record_key;
use crate::sessions::session_registry::SessionRegistry;
use crate::sessions::tree_resource::TreeResource;
use crate::store::Store;
use crate::supervision::Random;

pub(crate) struct SessionContext {
    /// What the calls of sessions use, and those of clients without one.
    pub(crate) calls: Arc<CallContext>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) registry: SessionRegistry,
    /// Where calls without a session are worked on.
    pub(crate) workers: CallWorkers,
    pub(crate) listeners: ListenStreams,
    pub(crate) tree: TreeResource,
    pub(crate) random: Arc<dyn Random>,
}

impl SessionContext {
    /// How long a record is kept. It is written anew whenever a session in use is looked at,
    /// which is at least once in `idle_timeout`.
    pub(crate) fn record_ttl(&self) -> Duration {
        self.calls.settings.load().idle_timeout.saturating_mul(2)
    }

    /// A session is over: nothing of it is left. `done` is told when its record is gone. It is
    /// unknown only from then on, so that what a client was told once holds after a kill, too.
    pub(crate) fn forget(self: &Arc<Self>, id: SessionId, done: Option<oneshot::Sender<()>>) {
        self.calls.downstreams.forget(id);
        let parts = self.clone();
        // In a task, as every save is: one that is under way writes before the record goes.
        actix_rt::spawn(async move {
            if let Err(error) = parts.store.delete(&record_key(id)).await {
                log::warn!(error:%; "record of an ended session could not be deleted");
            }
            parts.registry.remove(id);
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
