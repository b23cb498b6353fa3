//! A channel of HTTP+SSE. It outlives its event stream for a while, so that a disconnected client
//! can resume.

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
    /// Whether an event stream is connected.
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

    /// Starts a new stream after the event with this number. An earlier stream ends.
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

    /// Completes when no stream was connected for this long, or immediately if no session was
    /// opened.
    pub(super) async fn abandoned(&self, reconnect_within: Duration) {
        let mut attached = self.is_attached.subscribe();
        loop {
            // Waiting fails only if the sender was dropped, but `self` holds it.
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

/// Marks the channel as detached when the stream that holds it is dropped.
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

/// The channels by session id, which is also part of their message URLs. Each has a connection, or
/// had one until recently.
#[derive(Default)]
pub(in crate::front) struct SseChannels(Mutex<HashMap<SessionId, Arc<SseChannel>>>);

impl SseChannels {
    pub(in crate::front) fn find(&self, id: SessionId) -> Option<Arc<SseChannel>> {
        self.0.lock().get(&id).cloned()
    }

    /// Returns the channel with this id, inserting `channel` if none exists, and whether it was
    /// inserted.
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

    /// Closes all channels. Clients can reconnect with a new stream.
    pub(in crate::front) fn close_all(&self) {
        for sse in self.0.lock().values() {
            sse.channel.close();
        }
    }
}
