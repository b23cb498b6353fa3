//! Parses and classifies client messages and sends them to their session. Shared by HTTP, HTTP+SSE
//! and stdio.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use crate::auth::{AuthSettings, GrantedScopes};
use crate::bridge::headers::ClientHeaders;
use crate::bridge::meta::claims_modern;
use crate::calls::ClientReply;
use crate::id::Principal;
use crate::protocol::{
    DEPTH_MAX, Envelope, EnvelopeError, Era, ErrorKind, Failure, Method, Notification, RawJson,
    Request, RequestId, Revision, is_too_deep, result_frame, without_bom,
};
use crate::sessions::{FoundSession, FromClient, OpenStream, Sessions};

/// Maximum number of messages in a batch (2025-03-26).
const BATCH_MAX: usize = 64;

/// A classified message of a client.
pub(super) enum Incoming {
    /// A self-contained request without a session (2026-07-28).
    Sessionless(Request),
    /// A request for a new session.
    Initialize(Request),
    /// A message for the client's session.
    InSession(Envelope),
    /// An array of messages for the client's session.
    Batch(Bytes),
}

impl Incoming {
    /// Refuses a message that requires credentials if the client has none.
    ///
    /// # Errors
    ///
    /// Returns the failure that the client reads.
    pub(super) fn checked(
        self,
        auth: &AuthSettings,
        principal: &Principal,
    ) -> Result<Self, RequestFailure> {
        let request = match &self {
            Self::Sessionless(request) | Self::Initialize(request) => request,
            Self::InSession(Envelope::Request(request)) => request,
            Self::InSession(_) => return Ok(self),
            Self::Batch(_) => {
                auth.check_known(principal, "a batch of messages")?;
                return Ok(self);
            }
        };
        match auth.check_method(principal, &request.method) {
            Ok(()) => Ok(self),
            Err(failure) => Err(RequestFailure {
                failure,
                id: Some(request.id.clone()),
            }),
        }
    }
}

/// Why a message is refused, with the id of the request to answer, if it has one.
pub(super) struct RequestFailure {
    pub(super) failure: Failure,
    pub(super) id: Option<RequestId>,
}

impl RequestFailure {
    /// Returns the JSON-RPC error that the client reads.
    pub(super) fn frame(&self) -> Bytes {
        let id = self.id.as_ref().map_or("null", RequestId::as_str);
        self.failure.answer(id).into()
    }
}

impl From<Failure> for RequestFailure {
    fn from(failure: Failure) -> Self {
        Self { failure, id: None }
    }
}

/// Parses and classifies a message. `announced` is the revision that the transport states outside
/// the message. During shutdown, requests are refused; answers to questions and cancellations are
/// still accepted, because they help calls in flight to complete.
///
/// # Errors
///
/// Returns the failure that the client reads.
pub(super) fn read(
    body: Bytes,
    announced: Option<Revision>,
    is_shutting_down: bool,
) -> Result<Incoming, RequestFailure> {
    if is_array(&body) {
        refuse_if_shutting_down(is_shutting_down)?;
        return Ok(Incoming::Batch(body));
    }
    let request = match envelope(body)? {
        Envelope::Request(request) => request,
        other => return Ok(Incoming::InSession(other)),
    };
    if let Err(failure) = refuse_if_shutting_down(is_shutting_down) {
        let id = Some(request.id);
        return Err(RequestFailure { failure, id });
    }
    // S-LIFE-21: each message decides for itself, by `_meta` or by the revision in its headers.
    let is_announced = announced.is_some_and(|revision| revision.era() == Era::Modern);
    Ok(if is_announced || claims_modern(&request) {
        Incoming::Sessionless(request)
    } else if request.method == Method::Initialize {
        Incoming::Initialize(request)
    } else {
        Incoming::InSession(Envelope::Request(request))
    })
}

/// Parses one message.
///
/// # Errors
///
/// Returns the failure that the client reads, with the id of the message if that can be parsed.
pub(super) fn envelope(body: Bytes) -> Result<Envelope, RequestFailure> {
    let parsed = Envelope::parse_of_client(body.clone());
    let envelope = parsed.map_err(|error| envelope_failure(&error, &body))?;
    // Deep nesting is refused here, because it could crash the server.
    if is_too_deep(&body) {
        let message =
            format!("arrays and objects are nested more than the maximum of {DEPTH_MAX} levels");
        let failure = Failure::new(ErrorKind::InvalidRequest, message);
        let id = request_id_of(&envelope);
        return Err(RequestFailure { failure, id });
    }
    Ok(envelope)
}

fn envelope_failure(error: &EnvelopeError, body: &[u8]) -> RequestFailure {
    #[derive(Deserialize)]
    struct IdPeek<'a> {
        #[serde(borrow)]
        id: Option<&'a RawValue>,
    }
    let is_json = serde_json::from_slice::<IgnoredAny>(body).is_ok();
    let failure = match error {
        EnvelopeError::Json(why) if is_json => {
            let message = format!("not a JSON-RPC message: {why}");
            Failure::new(ErrorKind::InvalidRequest, message)
        }
        EnvelopeError::Json(_) => Failure::new(ErrorKind::ParseError, error.to_string()),
        EnvelopeError::NotAnObject
        | EnvelopeError::Version
        | EnvelopeError::Id
        | EnvelopeError::Shape
        | EnvelopeError::Misspelled(_) => {
            Failure::new(ErrorKind::InvalidRequest, error.to_string())
        }
    };
    let peek = serde_json::from_slice::<IdPeek<'_>>(body).ok();
    let id = peek.and_then(|peek| Some(Bytes::copy_from_slice(peek.id?.get().as_bytes())));
    let id = id.and_then(|id| RequestId::try_new(id).ok());
    RequestFailure { failure, id }
}

pub(super) fn is_array(body: &Bytes) -> bool {
    let text = without_bom(body.clone());
    text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[')
}

/// Splits a batch into its messages.
///
/// # Errors
///
/// Returns the failure that the client reads if the batch is not an array, is empty, or has too
/// many messages.
pub(super) fn members(body: &Bytes) -> Result<Vec<Bytes>, RequestFailure> {
    let body = without_bom(body.clone());
    let members: Vec<&RawValue> = serde_json::from_slice(&body)
        .map_err(|error| envelope_failure(&EnvelopeError::Json(error.to_string()), &body))?;
    if members.is_empty() || members.len() > BATCH_MAX {
        let message = format!("a batch must have 1 to {BATCH_MAX} messages");
        return Err(Failure::new(ErrorKind::InvalidRequest, message).into());
    }
    let frame = |member: &RawValue| body.slice_ref(member.get().as_bytes());
    Ok(members.into_iter().map(frame).collect())
}

pub(super) fn request_id_of(envelope: &Envelope) -> Option<RequestId> {
    match envelope {
        Envelope::Request(request) => Some(request.id.clone()),
        Envelope::Notification(_) | Envelope::Response(_) => None,
    }
}

/// Answers a request of a client that has no session yet. Only `ping` is allowed (S-LIFE-01).
///
/// # Errors
///
/// Returns the failure that the client reads.
pub(super) fn before_initialize(request: &Request) -> Result<Bytes, Failure> {
    if request.method == Method::Ping {
        return Ok(result_frame(&request.id, &RawJson::from_value(&json!({}))));
    }
    let message = format!("`{}` was sent before `initialize`", request.method);
    Err(Failure::new(ErrorKind::SessionRequired, message))
}

/// A message that was sent to its session.
pub(super) struct SentMessage {
    /// Identifies the message to the session.
    pub(super) number: u64,
    pub(super) answer: oneshot::Receiver<ClientReply>,
}

/// Sends a message to its session. A client that does not accept a stream cannot be asked questions
/// while it waits.
pub(super) fn send(
    sessions: &Sessions,
    session: &FoundSession,
    envelope: Envelope,
    accepts_stream: bool,
    forwarded: Option<Arc<ClientHeaders>>,
    scopes: GrantedScopes,
) -> SentMessage {
    let number = sessions.numbers().next();
    let (reply, answer) = oneshot::channel();
    session.address.do_send(FromClient {
        envelope,
        number,
        accepts_stream,
        forwarded,
        scopes,
        reply,
    });
    SentMessage { number, answer }
}

/// Cancels a request whose client has disconnected.
pub(super) fn cancel(sessions: &Sessions, session: &FoundSession, request: &RequestId) {
    let params = format!(r#"{{"requestId":{}}}"#, request.as_str());
    let cancelled = Notification::new(Method::Cancelled, &RawJson::from_valid_parts(params));
    let envelope = Envelope::Notification(cancelled);
    drop(send(sessions, session, envelope, false, None, None));
}

/// Opens a stream of a session: the general stream, or the remainder of the stream that contains
/// `last_event_id`. `scopes` are the scopes of the request that opens it.
///
/// # Errors
///
/// Returns the failure that the client reads if the session has ended.
pub(super) async fn open_stream(
    session: &FoundSession,
    last_event_id: Option<String>,
    scopes: Option<GrantedScopes>,
) -> Result<ClientReply, Failure> {
    let (reply, answer) = oneshot::channel();
    session.address.do_send(OpenStream {
        last_event_id,
        scopes,
        reply,
    });
    answer.await.map_err(|_| {
        let message = "the session ended before its stream was opened";
        Failure::new(ErrorKind::SessionNotFound, message)
    })
}

/// Sends the messages of a batch to their session, in 2025-03-26 only (S-HTTP-10, S-HTTP-11). The
/// future returns the array of answers; `None` if no message has an answer.
///
/// # Errors
///
/// Returns the failure that the client reads.
pub(super) fn send_batch(
    sessions: &Sessions,
    session: &FoundSession,
    body: &Bytes,
    (forwarded, scopes): (Option<&Arc<ClientHeaders>>, &GrantedScopes),
) -> Result<impl Future<Output = Option<Bytes>> + use<>, RequestFailure> {
    if !session.revision.has_batches() {
        let message = format!(
            "revision {} does not support batches: send one message at a time",
            session.revision
        );
        return Err(Failure::new(ErrorKind::InvalidRequest, message).into());
    }
    let members = members(body)?.into_iter();
    let sent: Vec<BatchMember> = members
        .map(|frame| match batch_member(frame) {
            Ok(envelope) => {
                let (forwarded, scopes) = (forwarded.cloned(), scopes.clone());
                BatchMember::Sent(
                    request_id_of(&envelope),
                    send(sessions, session, envelope, false, forwarded, scopes).answer,
                )
            }
            Err(failure) => BatchMember::Refused(failure),
        })
        .collect();
    Ok(async {
        let answers = join_all(sent.into_iter().map(BatchMember::answer)).await;
        array(answers.into_iter().flatten())
    })
}

/// Parses one message of a batch, which must not be `initialize` (S-LIFE-07).
fn batch_member(frame: Bytes) -> Result<Envelope, RequestFailure> {
    match envelope(frame)? {
        Envelope::Request(request) if request.method == Method::Initialize => {
            let message = "`initialize` is not allowed in a batch";
            Err(RequestFailure {
                failure: Failure::new(ErrorKind::InvalidRequest, message),
                id: Some(request.id),
            })
        }
        other => Ok(other),
    }
}

/// One message of a batch: refused, or sent to the session that answers it.
enum BatchMember {
    Refused(RequestFailure),
    Sent(Option<RequestId>, oneshot::Receiver<ClientReply>),
}

impl BatchMember {
    async fn answer(self) -> Option<Bytes> {
        match self {
            Self::Refused(failure) => Some(failure.frame()),
            Self::Sent(id, answer) => match answer.await {
                Ok(reply) => answer_frame(reply),
                Err(_) => id.map(|id| {
                    let id = Some(id);
                    let failure = session_ended();
                    RequestFailure { failure, id }.frame()
                }),
            },
        }
    }
}

/// Returns the frame of a reply that consists of one message; `None` for other replies.
fn answer_frame(reply: ClientReply) -> Option<Bytes> {
    match reply {
        ClientReply::Json(frame) | ClientReply::Error { frame, .. } => Some(frame),
        ClientReply::Parts(parts) => Some(parts.concat().into()),
        ClientReply::Accepted | ClientReply::Stream(_) | ClientReply::Over => None,
    }
}

fn array(messages: impl Iterator<Item = Bytes>) -> Option<Bytes> {
    let messages: Vec<Bytes> = messages.collect();
    if messages.is_empty() {
        return None;
    }
    let joined = messages.join(&b","[..]);
    Some([&b"["[..], &joined, &b"]"[..]].concat().into())
}

/// Returns the failure for a request whose session ended before it was answered.
pub(super) fn session_ended() -> Failure {
    let message = "the session ended while processing this request";
    Failure::new(ErrorKind::SessionNotFound, message)
}

/// Refuses a request during shutdown.
///
/// # Errors
///
/// Returns the failure that the client reads.
pub(super) fn refuse_if_shutting_down(is_shutting_down: bool) -> Result<(), Failure> {
    if !is_shutting_down {
        return Ok(());
    }
    let message = "the gateway is shutting down";
    Err(Failure::new(ErrorKind::ShuttingDown, message).retry_after_ms(1000))
}
