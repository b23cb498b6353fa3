//! A channel of HTTP+SSE: it outlives its event stream for a while, so that a client whose
//! connection broke goes on.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, stream};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;

use super::outbox::Outbox;
use crate::front::channel::{Channel, ChannelParts};
use crate::id::SessionId;

pub(in crate::front) struct SseChannel {
    pub(super) channel: Arc<Channel>,
    outbox: Mutex<Outbox>,
    /// Whether an event stream reads.
    is_attached: watch::Sender<bool>,
}

impl SseChannel {
    pub(super) fn new(parts: ChannelParts) -> Arc<Self> {
        let id = parts.id;
        let (channel, messages) = Channel::open(parts);
        Arc::new(Self {
            channel,
            outbox: Mutex::new(Outbox::new(id, messages)),
            is_attached: watch::Sender::new(false),
        })
    }

    /// The events after the one with this number, for a new stream. An earlier stream ends.
    pub(super) fn attach(self: &Arc<Self>, read: u64) -> impl Stream<Item = Bytes> + use<> {
        let reader = self.outbox.lock().attach(read);
        self.is_attached.send_replace(true);
        let reader = SseReader {
            channel: Arc::clone(self),
            reader,
        };
        stream::poll_fn(move |task| reader.poll(task))
    }

    pub(super) fn is_attached(&self) -> bool {
        *self.is_attached.borrow()
    }

    /// Ends when no stream has read for so long; at once before there is a session to come back to.
    pub(super) async fn abandoned(&self, reconnect_within: Duration) {
        let mut attached = self.is_attached.subscribe();
        loop {
            // An error would mean that the sender is gone, which `self` holds.
            let _ = attached.wait_for(|is_attached| !is_attached).await;
            let is_initialized = self.channel.is_initialized();
            let within = if is_initialized {
                reconnect_within
            } else {
                Duration::ZERO
            };
            let returned = attached.wait_for(|is_attached| *is_attached);
            if timeout(within, returned).await.is_err() {
                return;
            }
        }
    }
}

/// The end of a stream that reads from a channel.
struct SseReader {
    channel: Arc<SseChannel>,
    reader: u64,
}

impl SseReader {
    fn poll(&self, task: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.channel.outbox.lock().poll(self.reader, task)
    }
}

impl Drop for SseReader {
    fn drop(&mut self) {
        let outbox = self.channel.outbox.lock();
        if outbox.is_read_by(self.reader) {
            self.channel.is_attached.send_replace(false);
        }
    }
}

/// The channels by the id that their addresses for messages hold, which is the id of the session.
/// At most one for each connection, and those whose stream broke a moment ago.
#[derive(Default)]
pub(in crate::front) struct SseChannels(Mutex<HashMap<SessionId, Arc<SseChannel>>>);

impl SseChannels {
    pub(super) fn find(&self, id: SessionId) -> Option<Arc<SseChannel>> {
        self.0.lock().get(&id).cloned()
    }

    /// The channel of this id, which is this one if there is no other, and whether it is.
    pub(super) fn find_or_insert(
        &self,
        id: SessionId,
        channel: Arc<SseChannel>,
    ) -> (Arc<SseChannel>, bool) {
        match self.0.lock().entry(id) {
            Entry::Occupied(found) => (Arc::clone(found.get()), false),
            Entry::Vacant(place) => (Arc::clone(place.insert(channel)), true),
        }
    }

    pub(super) fn remove(&self, id: SessionId) {
        self.0.lock().remove(&id);
    }

    /// Closes every channel; a client that may come back opens another stream.
    pub(in crate::front) fn close_all(&self) {
        for sse in self.0.lock().values() {
            sse.channel.close();
        }
    }
}
