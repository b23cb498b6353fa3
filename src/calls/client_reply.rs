//! A request of a client, and the reply to it: its answer, or the stream on which that comes.

use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;
use tokio::sync::{mpsc, oneshot};

use crate::bridge::headers::ClientHeaders;
use crate::calls::call_telemetry::CallTelemetry;
use crate::calls::stream_event::StreamEvent;
use crate::history::CallEnding;
use crate::id::ServerName;
use crate::memory::HeldRoom;
use crate::protocol::{ErrorKind, RawJson, Request, RequestId, Response};

/// A request whose client waits for the reply.
pub(crate) struct ClientRequest {
    pub(crate) request: Request,
    /// Names it; the call that begins with it has the same number.
    pub(crate) number: u64,
    /// Whether the client accepts the answer as an event stream. One that does not cannot be
    /// asked anything, and receives no progress.
    pub(crate) accepts_stream: bool,
    pub(crate) reply: oneshot::Sender<ClientReply>,
    /// Headers that servers are to read.
    pub(crate) forwarded: Option<Arc<ClientHeaders>>,
    pub(crate) call_telemetry: Option<Box<CallTelemetry>>,
}

impl ClientRequest {
    /// Its telemetry, from now on that of a call of this item of a server.
    pub(crate) fn take_call_telemetry(
        &mut self,
        server: &ServerName,
        item: &ByteString,
    ) -> Option<Box<CallTelemetry>> {
        let mut call_telemetry = self.call_telemetry.take()?;
        call_telemetry.goes_to(server, item);
        Some(call_telemetry)
    }

    /// Answers a request of which no call was made.
    pub(crate) fn answer(self, reply: ClientReply, ending: CallEnding<'_>) {
        if let Some(call_telemetry) = self.call_telemetry {
            call_telemetry.end(ending, reply.size());
        }
        // A client that left does not need it.
        let _ = self.reply.send(reply);
    }
}

/// The outcome of a client's message.
#[derive(Debug)]
pub enum ClientReply {
    /// A JSON-RPC answer.
    Json(Bytes),
    /// The same in parts, so that a long one is not copied.
    Parts([Bytes; 3]),
    /// A JSON-RPC error of a request without a session, whose kind the transport may show, too.
    Error { error: ReplyError, frame: Bytes },
    /// The message has no answer.
    Accepted,
    /// Events; the stream ends when the channel does.
    Stream(mpsc::Receiver<StreamEvent>),
    /// The stream that was to be resumed is over and was read to its end.
    Over,
}

/// Whose error an answer tells.
#[derive(Debug)]
pub enum ReplyError {
    Gateway {
        kind: ErrorKind,
        /// When trying again can help, in milliseconds from now.
        retry_after_ms: Option<u64>,
    },
    /// An error object of a server.
    Server(RawJson),
}

/// An answer from this size on is sent in parts, in bytes.
const PARTS_MIN: usize = 16 * 1024;

impl ClientReply {
    /// The answer of a server as it wrote it, but for the id.
    pub(crate) fn passed_on(response: &Response, id: &RequestId) -> Self {
        if response.frame.as_bytes().len() < PARTS_MIN {
            Self::Json(response.with_id(id))
        } else {
            Self::Parts(response.parts_with_id(id))
        }
    }

    /// The same answer, whose bytes hold this room.
    pub(crate) fn holding(self, room: HeldRoom) -> Self {
        match self {
            Self::Json(frame) => Self::Json(room.hold(frame)),
            Self::Parts([head, body, tail]) => {
                Self::Parts([head, room.clone().hold(body), room.hold(tail)])
            }
            Self::Error { error, frame } => {
                let frame = room.hold(frame);
                Self::Error { error, frame }
            }
            other @ (Self::Accepted | Self::Stream(_) | Self::Over) => other,
        }
    }

    /// Bytes of an answer.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Json(frame) | Self::Error { frame, .. } => frame.len(),
            Self::Parts(parts) => parts.iter().map(Bytes::len).sum(),
            Self::Accepted | Self::Stream(_) | Self::Over => 0,
        }
    }

    /// The JSON-RPC message of an answer.
    pub(crate) fn into_frame(self) -> Option<Bytes> {
        match self {
            Self::Json(frame) | Self::Error { frame, .. } => Some(frame),
            Self::Parts(parts) => Some(Bytes::from(parts.concat())),
            Self::Accepted | Self::Stream(_) | Self::Over => None,
        }
    }
}
