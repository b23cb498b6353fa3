//! Messages of clients, read once for HTTP, HTTP+SSE and stdio: what a message asks for, and how it
//! reaches its session.

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

/// Messages in one batch (2025-03-26).
const BATCH_MAX: usize = 64;

/// A message of a client, by what it asks for.
pub(super) enum Incoming {
    /// A request that says of itself all that is to be known (2026-07-28).
    Sessionless(Request),
    /// Asks for a session.
    Initialize(Request),
    /// For the session of the client.
    InSession(Envelope),
    /// An array of messages for the session of the client.
    Batch(Bytes),
}

impl Incoming {
    /// Refuses what needs credentials from a client that has none.
    ///
    /// # Errors
    ///
    /// Returns the failure that the client is to read.
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

/// Why a message is not served, with the id of the request that is answered so, if there is one.
pub(super) struct RequestFailure {
    pub(super) failure: Failure,
    pub(super) id: Option<RequestId>,
}

impl RequestFailure {
    /// The JSON-RPC error that the client reads.
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

/// Reads what a client sent. `announced` is the revision that the transport names beside the
/// message. While the gateway shuts down, requests are refused; answers to questions and
/// cancellations help the calls in flight to their end.
///
/// # Errors
///
/// Returns the failure that the client is to read.
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
    // S-LIFE-21: each message decides for itself. A transport that names the sessionless revision
    // wants it there, too.
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
/// Says what is wrong with it, with its id if that can be read.
pub(super) fn envelope(body: Bytes) -> Result<Envelope, RequestFailure> {
    let parsed = Envelope::parse_of_client(body.clone());
    let envelope = parsed.map_err(|error| envelope_failure(&error, &body))?;
    // Here and not at the server, which might end over it.
    if is_too_deep(&body) {
        let message =
            format!("arrays and objects are nested more than {DEPTH_MAX} levels deep, the limit");
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

/// The messages of an array.
///
/// # Errors
///
/// Refuses what is no array, an empty one, and one with too many messages.
pub(super) fn members(body: &Bytes) -> Result<Vec<Bytes>, RequestFailure> {
    let body = without_bom(body.clone());
    let members: Vec<&RawValue> = serde_json::from_slice(&body)
        .map_err(|error| envelope_failure(&EnvelopeError::Json(error.to_string()), &body))?;
    if members.is_empty() || members.len() > BATCH_MAX {
        let message = format!("a batch holds 1 to {BATCH_MAX} messages");
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

/// Answers a request of a client that has no session yet: there is nothing but `ping`
/// (S-LIFE-01).
///
/// # Errors
///
/// Returns the failure that the client is to read.
pub(super) fn before_initialize(request: &Request) -> Result<Bytes, Failure> {
    if request.method == Method::Ping {
        return Ok(result_frame(&request.id, &RawJson::from_value(&json!({}))));
    }
    let message = format!("`{}` came before `initialize`", request.method);
    Err(Failure::new(ErrorKind::SessionRequired, message))
}

/// A message on its way to its session.
pub(super) struct SentMessage {
    /// Names it to the session.
    pub(super) number: u64,
    pub(super) answer: oneshot::Receiver<ClientReply>,
}

/// Hands a message to its session. A client that does not accept a stream cannot be asked anything
/// meanwhile.
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

/// Takes back a request whose client is gone.
pub(super) fn cancel(sessions: &Sessions, session: &FoundSession, request: &RequestId) {
    let params = format!(r#"{{"requestId":{}}}"#, request.as_str());
    let cancelled = Notification::new(Method::Cancelled, &RawJson::from_valid_parts(params));
    let envelope = Envelope::Notification(cancelled);
    drop(send(sessions, session, envelope, false, None, None));
}

/// Opens a stream of a session, with the scopes of the request for it: the general one, or the rest of the one that the client read up
/// to this event.
///
/// # Errors
///
/// Returns the failure that the client is to read when the session has ended.
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
        let message = "the session ended before its stream was open";
        Failure::new(ErrorKind::SessionNotFound, message)
    })
}

/// Hands the messages of an array to their session: only in 2025-03-26 (S-HTTP-10, S-HTTP-11).
/// The future waits for their answers, which are one array; `None` if no message has one.
///
/// # Errors
///
/// Returns the failure that the client is to read.
pub(super) fn send_batch(
    sessions: &Sessions,
    session: &FoundSession,
    body: &Bytes,
    (forwarded, scopes): (Option<&Arc<ClientHeaders>>, &GrantedScopes),
) -> Result<impl Future<Output = Option<Bytes>> + use<>, RequestFailure> {
    if !session.revision.has_batches() {
        let message = format!(
            "revision {} has no batches: send one message at a time",
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

/// A session does not begin inside of an array (S-LIFE-07).
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

/// One message of a batch, and who answers it.
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

/// The one message that a reply consists of; `None` for no answer, and for a stream.
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

/// A request whose session ended before its answer.
pub(super) fn session_ended() -> Failure {
    let message = "the session ended while it worked on this request";
    Failure::new(ErrorKind::SessionNotFound, message)
}

/// # Errors
///
/// Returns the failure that the client is to read.
pub(super) fn refuse_if_shutting_down(is_shutting_down: bool) -> Result<(), Failure> {
    if !is_shutting_down {
        return Ok(());
    }
    let message = "the gateway is shutting down";
    Err(Failure::new(ErrorKind::ShuttingDown, message).retry_after_ms(1000))
}
