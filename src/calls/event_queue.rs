//! The queue of a stream to a client, bounded in events and in bytes.

use tokio::sync::mpsc::{self, Receiver, Sender};

use crate::calls::stream_event::StreamEvent;
use crate::memory::ByteGauge;

/// The sender of a stream's events.
#[derive(Clone, Debug)]
pub(crate) struct EventSender {
    events: Sender<StreamEvent>,
    events_max: usize,
    bytes: ByteGauge,
    bytes_max: usize,
}

/// The queue is full, or its reader has disconnected.
#[derive(Debug)]
pub(crate) struct NotQueued;

/// Creates a queue with these limits on events and bytes.
pub(crate) fn event_queue(
    events_max: usize,
    bytes_max: usize,
) -> (EventSender, Receiver<StreamEvent>) {
    let (events, receiver) = mpsc::channel(events_max);
    let sender = EventSender {
        events,
        events_max,
        bytes: ByteGauge::default(),
        bytes_max,
    };
    (sender, receiver)
}

impl EventSender {
    /// # Errors
    ///
    /// Fails if the queue is full or its reader has disconnected.
    pub(crate) fn try_send(&self, mut event: StreamEvent) -> Result<(), NotQueued> {
        let size = event.frame.as_ref().map_or(0, bytes::Bytes::len);
        // A message above the byte limit is queued only while no other message waits.
        let counted = size.min(self.bytes_max);
        let taken = self.bytes.take_within(counted, self.bytes_max);
        event.queued = Some(taken.ok_or(NotQueued)?);
        self.events.try_send(event).map_err(|_| NotQueued)
    }

    /// Sends an answer, or an event that is already counted against another limit. Its bytes do not
    /// count.
    ///
    /// # Errors
    ///
    /// Fails if the queue has no free slot or its reader has disconnected.
    pub(crate) fn try_send_uncounted(&self, event: StreamEvent) -> Result<(), NotQueued> {
        self.events.try_send(event).map_err(|_| NotQueued)
    }

    /// Returns whether a quarter of the queue would stay free after a message of this size.
    /// Optional messages leave that much for required ones.
    pub(crate) fn has_room_to_spare(&self, bytes: usize) -> bool {
        let free = self.bytes_max.saturating_sub(self.bytes.all());
        self.events.capacity() > self.events_max / 4
            && (free == self.bytes_max || free.saturating_sub(bytes) >= self.bytes_max / 4)
    }

    /// Returns the number of free slots.
    pub(crate) fn capacity(&self) -> usize {
        self.events.capacity()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.events.is_closed()
    }

    /// Completes when the reader has disconnected.
    pub(crate) async fn closed(&self) {
        self.events.closed().await;
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn message(bytes: usize) -> StreamEvent {
        StreamEvent::message(Bytes::from(vec![b'x'; bytes]))
    }

    #[tokio::test]
    async fn a_queue_is_bounded_in_bytes_and_takes_one_large_message() {
        let (sender, mut events) = event_queue(100, 1000);
        for _ in 0..4 {
            sender.try_send(message(250)).unwrap();
        }
        assert!(sender.try_send(message(1)).is_err());
        sender.try_send_uncounted(message(5000)).unwrap();
        for _ in 0..5 {
            drop(events.recv().await);
        }
        sender.try_send(message(5000)).unwrap();
        assert!(sender.try_send(message(1)).is_err());
        drop(events.recv().await);
        assert!(sender.has_room_to_spare(5000));
        sender.try_send(message(600)).unwrap();
        assert!(!sender.has_room_to_spare(200));
        assert!(sender.has_room_to_spare(100));
    }
}
