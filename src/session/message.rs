//! What the front and a session say to each other.

use actix::Message;
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::stream_event::StreamEvent;
use crate::protocol::{Envelope, ErrorKind, RawJson};

/// One message of the client.
#[derive(Message)]
#[rtype(result = "()")]
pub struct FromClient {
    pub envelope: Envelope,
    /// Names the exchange; if the message is a call, it is the call's number.
    pub number: u64,
    /// Whether the client accepts the answer as an event stream. One that does not cannot be
    /// asked anything, and hears no progress.
    pub accepts_stream: bool,
    pub reply: oneshot::Sender<ClientReply>,
}

/// What becomes of a message of the client.
#[derive(Debug)]
pub enum ClientReply {
    /// A JSON-RPC answer.
    Json(Bytes),
    /// The same in parts, of which the middle is shared with other answers.
    List([Bytes; 3]),
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
    Gateway(ErrorKind),
    /// An error object of a server.
    Server(RawJson),
}

/// The call has been silent for `sse_after`: answer it as a stream from now on.
#[derive(Message)]
#[rtype(result = "()")]
pub struct UpgradeToStream {
    pub number: u64,
}

/// GET: the client wants a stream, a new one or the rest of an old one.
#[derive(Message)]
#[rtype(result = "()")]
pub struct OpenStream {
    pub last_event_id: Option<String>,
    pub reply: oneshot::Sender<ClientReply>,
}

/// The session is over, or the gateway is.
#[derive(Message, Clone, Copy, Debug, PartialEq, Eq)]
#[rtype(result = "()")]
pub enum EndSession {
    /// Nothing was heard of the client for `idle_timeout`; a session that is in use stays.
    Idle,
    /// The gateway stops; the record stays.
    Draining,
}

/// The client ended the session: its record goes.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub(crate) struct DeleteSession {
    /// Told once the record is gone.
    pub(crate) done: oneshot::Sender<()>,
}

/// The session is in use: its record must not expire.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub(crate) struct SaveRecord;

/// The stream that belongs to no call ends now; calls go on.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct EndGeneralStream;
