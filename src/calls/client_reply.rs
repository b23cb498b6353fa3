//! Requests of clients and their replies: a complete answer, or the stream that will carry it.

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
    /// The request's number. A call that the request starts has the same number.
    pub(crate) number: u64,
    /// Whether the client accepts an event stream as the reply. Without a stream, the client cannot
    /// be asked for input and receives no progress.
    pub(crate) accepts_stream: bool,
    pub(crate) reply: oneshot::Sender<ClientReply>,
    /// Headers that servers are allowed to read.
    pub(crate) forwarded: Option<Arc<ClientHeaders>>,
    pub(crate) call_telemetry: Option<Box<CallTelemetry>>,
}

impl ClientRequest {
    /// Takes the telemetry and turns it into the telemetry of a call of this item.
    pub(crate) fn take_call_telemetry(
        &mut self,
        server: &ServerName,
        item: &ByteString,
    ) -> Option<Box<CallTelemetry>> {
        let mut call_telemetry = self.call_telemetry.take()?;
        call_telemetry.goes_to(server, item);
        Some(call_telemetry)
    }

    /// Answers a request that did not become a call.
    pub(crate) fn answer(self, reply: ClientReply, ending: CallEnding<'_>) {
        if let Some(call_telemetry) = self.call_telemetry {
            call_telemetry.end(ending, reply.size());
        }
        // Sending fails only if the client has disconnected.
        let _ = self.reply.send(reply);
    }
}

/// The outcome of a client's message.
#[derive(Debug)]
pub enum ClientReply {
    /// A JSON-RPC answer.
    Json(Bytes),
    /// A JSON-RPC answer in parts, which saves copying a long result.
    Parts([Bytes; 3]),
    /// A JSON-RPC error for a request without a session. The transport also maps its kind to an
    /// HTTP status.
    Error { error: ReplyError, frame: Bytes },
    /// The message has no answer.
    Accepted,
    /// Events; the stream ends when the channel does.
    Stream(mpsc::Receiver<StreamEvent>),
    /// The stream to resume has ended, and the client has read all of it.
    Over,
}

/// The origin of an error in an answer.
#[derive(Debug)]
pub enum ReplyError {
    Gateway {
        kind: ErrorKind,
        /// When the client should retry, in milliseconds from now; `None` if a retry cannot help.
        retry_after_ms: Option<u64>,
    },
    /// An error object from the server.
    Server(RawJson),
}

/// Minimum size of an answer that is sent in parts, in bytes.
const PARTS_MIN: usize = 16 * 1024;

impl ClientReply {
    /// Returns a server's answer unchanged except for its id.
    pub(crate) fn passed_on(response: &Response, id: &RequestId) -> Self {
        if response.frame.as_bytes().len() < PARTS_MIN {
            Self::Json(response.with_id(id))
        } else {
            Self::Parts(response.parts_with_id(id))
        }
    }

    /// Returns the same answer, which holds this reserved memory until its bytes are dropped.
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

    /// Returns the size of the answer in bytes.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Json(frame) | Self::Error { frame, .. } => frame.len(),
            Self::Parts(parts) => parts.iter().map(Bytes::len).sum(),
            Self::Accepted | Self::Stream(_) | Self::Over => 0,
        }
    }

    /// Returns the JSON-RPC message of the answer; `None` for a stream or no answer.
    pub(crate) fn into_frame(self) -> Option<Bytes> {
        match self {
            Self::Json(frame) | Self::Error { frame, .. } => Some(frame),
            Self::Parts(parts) => Some(Bytes::from(parts.concat())),
            Self::Accepted | Self::Stream(_) | Self::Over => None,
        }
    }
}
