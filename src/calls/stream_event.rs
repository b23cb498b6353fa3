//! Events of streams to clients, and how they are named.

use bytes::Bytes;
use url::form_urlencoded;

use crate::memory::{ByteShare, HeldRoom};
use crate::protocol::RequestId;

/// Longest request id that is written into an event id, in bytes.
const REQUEST_ID_MAX: usize = 128;

/// One event of a stream to a client.
#[derive(Debug)]
pub struct StreamEvent {
    /// After which the client can resume the stream; `None` on a stream that cannot be resumed.
    pub id: Option<EventId>,
    /// A JSON-RPC message. `None` in the first event of a stream, which only tells its id.
    pub frame: Option<Bytes>,
    /// Whether it is the answer to the request that the stream belongs to.
    pub is_answer: bool,
    /// Its bytes in the queue, until it is read.
    pub(crate) queued: Option<ByteShare>,
    /// The room of a large answer.
    pub(crate) room: Option<HeldRoom>,
}

impl StreamEvent {
    /// A message on a stream that cannot be resumed.
    pub(crate) fn message(frame: Bytes) -> Self {
        Self {
            id: None,
            frame: Some(frame),
            is_answer: false,
            queued: None,
            room: None,
        }
    }

    /// The answer on a stream that cannot be resumed.
    pub(crate) fn answer(frame: Bytes) -> Self {
        Self {
            is_answer: true,
            ..Self::message(frame)
        }
    }
}

/// Names an event within the gateway: it tells the stream and the request that it belongs to,
/// also to a process that never saw them. Clients get it as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventId {
    pub(crate) epoch: u32,
    pub(crate) stream: u64,
    pub(crate) sequence: u64,
    pub(crate) request: Option<RequestId>,
}

impl EventId {
    /// Reads a `Last-Event-ID`; `None` when it is not exactly of the form that we write.
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
