//! The bytes that may wait in a queue to a client.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The bytes that may wait in one queue. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct QueueRoom {
    free: Arc<Semaphore>,
    max: u32,
}

/// The bytes of one message in a queue; given back when dropped.
#[derive(Debug)]
pub(crate) struct QueuedBytes(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit);

impl QueueRoom {
    pub(crate) fn new(bytes: usize) -> Self {
        let max = u32::try_from(bytes).unwrap_or(u32::MAX);
        let free = usize::try_from(max)
            .unwrap_or(bytes)
            .min(Semaphore::MAX_PERMITS);
        Self {
            free: Arc::new(Semaphore::new(free)),
            max,
        }
    }

    /// One message may be larger than all the room: it waits alone.
    fn needed(&self, bytes: usize) -> u32 {
        u32::try_from(bytes).unwrap_or(u32::MAX).min(self.max)
    }

    /// `None` when there is no room now.
    pub(crate) fn try_take(&self, bytes: usize) -> Option<QueuedBytes> {
        let taken = Arc::clone(&self.free).try_acquire_many_owned(self.needed(bytes));
        taken.ok().map(QueuedBytes)
    }

    /// Waits for room.
    pub(crate) async fn take(&self, bytes: usize) -> Option<QueuedBytes> {
        let taken = Arc::clone(&self.free).acquire_many_owned(self.needed(bytes));
        // It is never closed.
        taken.await.ok().map(QueuedBytes)
    }

    pub(crate) fn free(&self) -> usize {
        self.free.available_permits()
    }
}
