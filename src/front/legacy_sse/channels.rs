//! The channels that are open.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::front::channel::Channel;
use crate::id::SessionId;

/// The open channels by the id that their addresses for messages hold. Each has a connection, and
/// of these there are at most `connections_max`.
#[derive(Default)]
pub(in crate::front) struct SseChannels(Mutex<HashMap<SessionId, Arc<Channel>>>);

impl SseChannels {
    pub(super) fn find(&self, id: SessionId) -> Option<Arc<Channel>> {
        self.all().get(&id).cloned()
    }

    pub(super) fn insert(&self, id: SessionId, channel: Arc<Channel>) {
        self.all().insert(id, channel);
    }

    pub(super) fn remove(&self, id: SessionId) {
        self.all().remove(&id);
    }

    fn all(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Channel>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
