//! Events on streams to clients, and their ids.

use bytes::Bytes;
use url::form_urlencoded;

use crate::memory::{ByteShare, HeldRoom};
use crate::protocol::RequestId;

/// Maximum length of a request id inside an event id, in bytes.
const REQUEST_ID_MAX: usize = 128;

/// One event of a stream to a client.
#[derive(Debug)]
pub struct StreamEvent {
    /// The id with which the client can resume after this event; `None` if the stream cannot be
    /// resumed.
    pub id: Option<EventId>,
    /// A JSON-RPC message; `None` in a stream's first event, which only carries the id.
    pub frame: Option<Bytes>,
    /// Whether the event is the answer to the stream's request.
    pub is_answer: bool,
    /// The event's bytes in the queue, released when the event is read.
    pub(crate) queued: Option<ByteShare>,
    /// The reserved memory of a large answer.
    pub(crate) room: Option<HeldRoom>,
}

impl StreamEvent {
    /// Creates a message on a stream that cannot be resumed.
    pub(crate) fn message(frame: Bytes) -> Self {
        Self {
            id: None,
            frame: Some(frame),
            is_answer: false,
            queued: None,
            room: None,
        }
    }

    /// Creates the answer on a stream that cannot be resumed.
    pub(crate) fn answer(frame: Bytes) -> Self {
        Self {
            is_answer: true,
            ..Self::message(frame)
        }
    }
}

/// Identifies an event, its stream and the stream's request, even for a later process that never
/// saw them. Clients receive it as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventId {
    pub(crate) epoch: u32,
    pub(crate) stream: u64,
    pub(crate) sequence: u64,
    pub(crate) request: Option<RequestId>,
}

impl EventId {
    /// Parses a `Last-Event-ID`; `None` for any text that the gateway does not write.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(4, '.');
        let epoch = u32::from_str_radix(parts.next()?, 16).ok()?;
        let stream = parts.next()?.parse().ok()?;
        let sequence = parts.next()?.parse().ok()?;
        let (request, _) = form_urlencoded::parse(parts.next()?.as_bytes())
            .next()
            .unwrap_or_default();
        let request = RequestId::try_new(Bytes::from(request.into_owned())).ok();
        let id = Self {
            epoch,
            stream,
            sequence,
            request,
        };
        (id.to_string() == text).then_some(id)
    }
}

impl std::fmt::Display for EventId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x}.{}.{}.", self.epoch, self.stream, self.sequence)?;
        let short = self
            .request
            .as_ref()
            .filter(|id| id.as_str().len() <= REQUEST_ID_MAX);
        for part in short
            .into_iter()
            .flat_map(|id| form_urlencoded::byte_serialize(id.as_bytes()))
        {
            f.write_str(part)?;
        }
        Ok(())
    }
}
