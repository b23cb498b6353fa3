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

/// The queue is full, or nobody reads it any more.
#[derive(Debug)]
pub(crate) struct NotQueued;

/// A queue of so many events and bytes.
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
    /// Fails when there is no room, or nobody reads any more.
    pub(crate) fn try_send(&self, mut event: StreamEvent) -> Result<(), NotQueued> {
        let size = event.frame.as_ref().map_or(0, bytes::Bytes::len);
        // A message that exceeds the whole limit waits alone.
        let counted = size.min(self.bytes_max);
        let taken = self.bytes.take_within(counted, self.bytes_max);
        event.queued = Some(taken.ok_or(NotQueued)?);
        self.events.try_send(event).map_err(|_| NotQueued)
    }

    /// Sends what is held elsewhere within a limit, or the one answer: its bytes do not count.
    ///
    /// # Errors
    ///
    /// Fails when there is no place, or nobody reads any more.
    pub(crate) fn try_send_uncounted(&self, event: StreamEvent) -> Result<(), NotQueued> {
        self.events.try_send(event).map_err(|_| NotQueued)
    }

    /// Whether a quarter of the queue is free beside a message of so many bytes, for what must not
    /// be left out.
    pub(crate) fn has_room_to_spare(&self, bytes: usize) -> bool {
        let free = self.bytes_max.saturating_sub(self.bytes.all());
        self.events.capacity() > self.events_max / 4
            && (free == self.bytes_max || free.saturating_sub(bytes) >= self.bytes_max / 4)
    }

    /// Events that fit in now.
    pub(crate) fn capacity(&self) -> usize {
        self.events.capacity()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.events.is_closed()
    }

    /// Ends when nobody reads any more.
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
