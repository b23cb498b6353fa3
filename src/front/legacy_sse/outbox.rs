//! Messages to the client of a channel, sent over consecutive event streams: when a stream breaks,
//! the next one resumes after the last event that the client has read.

use std::fmt;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::front::channel::QueuedMessage;
use crate::front::encode::sse_event;
use crate::id::SessionId;
use crate::memory::{Ring, RingEntry, RingLimits};

/// Maximum number of written messages that are kept for the next stream.
const KEPT_MAX: usize = 64;

/// Maximum size of these messages, in bytes.
const KEPT_BYTES_MAX: usize = 256 * 1024;

const KEPT: RingLimits = RingLimits {
    entries: KEPT_MAX,
    bytes: KEPT_BYTES_MAX,
};

/// The id of an event: its channel, and the number of messages written so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SseEventId {
    pub(super) channel: SessionId,
    pub(super) number: u64,
}

impl SseEventId {
    /// Returns the id of the `endpoint` event, which precedes all messages.
    pub(super) fn before_first(channel: SessionId) -> Self {
        Self { channel, number: 0 }
    }

    /// Parses a `Last-Event-ID`; `None` for any text that the gateway does not write.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (channel, number) = text.split_once('.')?;
        let id = Self {
            channel: SessionId::parse(channel)?,
            number: number.parse().ok()?,
        };
        (id.to_string() == text).then_some(id)
    }
}

impl fmt::Display for SseEventId {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(text, "{}.{}", self.channel.expose(), self.number)
    }
}

impl RingEntry for Bytes {
    fn bytes(&self) -> usize {
        self.len()
    }
}

pub(super) struct Outbox {
    channel: SessionId,
    messages: mpsc::Receiver<QueuedMessage>,
    written: Ring<Bytes>,
    /// Number of the next message for the current stream.
    next: u64,
    /// Number of the current stream. Earlier streams end.
    reader: u64,
}

impl Outbox {
    pub(super) fn new(channel: SessionId, messages: mpsc::Receiver<QueuedMessage>) -> Self {
        Self {
            channel,
            messages,
            written: Ring::default(),
            next: 1,
            reader: 0,
        }
    }

    /// Starts a new stream after the message `read`, and returns the stream's number.
    pub(super) fn attach(&mut self, read: u64) -> u64 {
        let (first_kept, last) = (self.written.oldest(), self.written.newest());
        self.next = read.saturating_add(1).clamp(first_kept, last + 1);
        self.reader += 1;
        self.reader
    }

    pub(super) fn is_read_by(&self, reader: u64) -> bool {
        self.reader == reader
    }

    /// Returns the next event for this stream; `None` if the channel has ended or another stream
    /// has replaced this one.
    pub(super) fn poll(&mut self, reader: u64, task: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.reader != reader {
            return Poll::Ready(None);
        }
        let message = if let Some(written) = self.written.get(self.next) {
            written.clone()
        } else {
            let Some(message) = ready!(self.messages.poll_recv(task)) else {
                return Poll::Ready(None);
            };
            let message = Bytes::from(message);
            self.written.push(message.clone(), KEPT);
            message
        };
        let id = SseEventId {
            channel: self.channel,
            number: self.next,
        };
        self.next += 1;
        Poll::Ready(Some(sse_event(&id.to_string(), &message)))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use std::future::poll_fn;
    use uuid::Uuid;

    use super::*;

    fn outbox() -> (mpsc::Sender<QueuedMessage>, Outbox) {
        let (sender, messages) = mpsc::channel(KEPT_MAX * 2);
        (sender, Outbox::new(SessionId::new(Uuid::nil()), messages))
    }

    /// Returns the numbers of the events that a stream delivers now.
    fn read(outbox: &mut Outbox, reader: u64) -> Vec<u64> {
        let mut numbers = Vec::new();
        while let Some(Some(event)) = poll_fn(|task| outbox.poll(reader, task)).now_or_never() {
            let text = String::from_utf8(event.to_vec()).unwrap();
            let id = text.lines().find_map(|line| line.strip_prefix("id: "));
            numbers.push(SseEventId::parse(id.unwrap()).unwrap().number);
        }
        numbers
    }

    #[test]
    fn a_stream_goes_on_after_what_its_client_has_read() {
        let (sender, mut outbox) = outbox();
        for _ in 0..5 {
            sender.try_send(Bytes::from("{}").into()).ok().unwrap();
        }
        let first = outbox.attach(0);
        assert_eq!(read(&mut outbox, first), [1, 2, 3, 4, 5]);
        let second = outbox.attach(3);
        assert!(read(&mut outbox, first).is_empty());
        assert_eq!(read(&mut outbox, second), [4, 5]);
        // A number that was never written is an error of the client.
        let third = outbox.attach(u64::MAX);
        sender.try_send(Bytes::from("{}").into()).ok().unwrap();
        assert_eq!(read(&mut outbox, third), [6]);
    }

    #[test]
    fn only_the_last_messages_are_kept() {
        let (sender, mut outbox) = outbox();
        let reader = outbox.attach(0);
        for _ in 0..=KEPT_MAX {
            sender.try_send(Bytes::from("{}").into()).ok().unwrap();
        }
        read(&mut outbox, reader);
        let reader = outbox.attach(0);
        assert_eq!(read(&mut outbox, reader).first(), Some(&2));
        let large = Bytes::from(vec![b' '; KEPT_BYTES_MAX + 1]);
        sender.try_send(large.into()).ok().unwrap();
        read(&mut outbox, reader);
        assert_eq!((outbox.written.len(), outbox.written.bytes()), (0, 0));
        let reader = outbox.attach(0);
        assert!(read(&mut outbox, reader).is_empty());
    }

    #[test]
    fn an_event_id_is_read_as_it_was_written() {
        let id = SseEventId {
            channel: SessionId::new(Uuid::nil()),
            number: 7,
        };
        assert_eq!(SseEventId::parse(&id.to_string()), Some(id));
        for bad in ["", "7", ".7", "x.7", &id.channel.expose(), "é.é"] {
            assert_eq!(SseEventId::parse(bad), None, "{bad}");
        }
    }
}
