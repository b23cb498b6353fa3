//! The MCP endpoint: POST, GET, DELETE and OPTIONS of the revisions with a handshake.

use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};

use actix_web::body::BoxBody;
use actix_web::http::header::{self, HeaderValue};
use actix_web::http::{Method as HttpMethod, StatusCode};
use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::join_all;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::accept::{AcceptedTypes, is_json};
use super::body;
use super::guard;
use super::headers::{LAST_EVENT_ID, PROTOCOL_VERSION, SESSION_ID};
use super::incoming::{BATCH_MAX, RequestFailure, envelope_failure, is_array, request_id_of, text};
use super::settings::FrontSettings;
use super::state::{Front, FrontGate, WorkerIndex};
use super::{respond, sessionless};
use crate::bridge::meta::claims_modern;
use crate::calls::ClientReply;
use crate::id::{Principal, SessionId};
use crate::protocol::{
    Envelope, EnvelopeError, Era, ErrorKind, Failure, Method, Request, Revision,
};
use crate::sessions::{FoundSession, FromClient, OpenStream, UpgradeToStream};
use crate::telemetry::Counter;

const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE, OPTIONS");

/// Every request to the endpoint. A panic on the way is answered, too.
pub(super) async fn endpoint(
    request: HttpRequest,
    mut payload: web::Payload,
    gate: web::Data<FrontGate>,
) -> HttpResponse {
    let front = gate.front().await;
    let handling = pin!(handle(&request, &mut payload, front));
    run_handler(&request, front, METHODS, handling).await
}

/// What a handler says, or the refusal or panic that it ended with, as HTTP. `methods` are those
/// of its path. Takes the handler where it lies, since a future that is handed over is kept twice.
pub(super) async fn run_handler(
    request: &HttpRequest,
    front: &Front,
    methods: HeaderValue,
    handling: Pin<&mut impl Future<Output = Result<HttpResponse, RequestFailure>>>,
) -> HttpResponse {
    let _in_flight = front.in_flight.token();
    let handled = AssertUnwindSafe(handling).catch_unwind().await;
    match handled {
        Ok(Ok(response)) => response,
        Ok(Err(refusal)) => {
            front.counters.add(Counter::RequestsRefused);
            let mut response = respond::failure_response(&refusal.failure, refusal.id());
            match refusal.failure.kind {
                ErrorKind::TooLarge => response
                    .head_mut()
                    .set_connection_type(actix_web::http::ConnectionType::Close),
                ErrorKind::HttpMethodNotAllowed => {
                    response.headers_mut().insert(header::ALLOW, methods);
                }
                _ => {}
            }
            response
        }
        Err(_) => {
            front.counters.add(Counter::RequestsPanicked);
            log::error!(path = request.path(); "handling a request panicked");
            let message = "a bug of the gateway ended this request; it is in the gateway's log";
            respond::failure_response(&Failure::new(ErrorKind::Internal, message), "null")
        }
    }
}

async fn handle(
    request: &HttpRequest,
    payload: &mut web::Payload,
    front: &Front,
) -> Result<HttpResponse, RequestFailure> {
    let settings = front.settings.load_full();
    guard::check(
        &settings,
        text(request, &header::HOST),
        text(request, &header::ORIGIN),
    )?;
    let principal = front
        .authenticate
        .authenticate(text(request, &header::AUTHORIZATION))?;
    match *request.method() {
        HttpMethod::POST => post(request, payload, front, &settings, principal).await,
        HttpMethod::GET | HttpMethod::DELETE if settings.stateless => {
            let message = "there are no sessions here (`gateway.stateless`): MCP is POST only";
            Err(Failure::new(ErrorKind::HttpMethodNotAllowed, message).into())
        }
        HttpMethod::GET => {
            refuse_if_shutting_down(front.is_closing())?;
            get(request, front, &settings).await
        }
        HttpMethod::DELETE => delete(request, front).await,
        HttpMethod::OPTIONS => {
            let mut response = respond::empty(StatusCode::NO_CONTENT);
            response.headers_mut().insert(header::ALLOW, METHODS);
            Ok(response)
        }
        ref other => {
            let message =
                format!("HTTP method `{other}` is not used here; MCP is POST, GET and DELETE");
            Err(Failure::new(ErrorKind::HttpMethodNotAllowed, message).into())
        }
    }
}

async fn post(
    request: &HttpRequest,
    payload: &mut web::Payload,
    front: &Front,
    settings: &FrontSettings,
    principal: Principal,
) -> Result<HttpResponse, RequestFailure> {
    if !is_json(text(request, &header::CONTENT_TYPE)) {
        let message = "`Content-Type` must be application/json";
        return Err(Failure::new(ErrorKind::UnsupportedMediaType, message).into());
    }
    let AcceptedTypes { json, events } = AcceptedTypes::of(text(request, &header::ACCEPT));
    if !json && !events {
        let message = "`Accept` must allow application/json or text/event-stream";
        return Err(Failure::new(ErrorKind::NotAcceptable, message).into());
    }
    let announced = text(request, &header::CONTENT_LENGTH).and_then(|length| length.parse().ok());
    let mut permit = front.bytes.permit();
    let body = body::read(payload, announced, settings, &mut permit).await?;
    // The rarer ways are boxed: every call pays for the size of the longest of them otherwise.
    if is_array(&body) {
        refuse_if_draining(front)?;
        return Box::pin(batch(request, front, body, settings)).await;
    }
    let envelope =
        Envelope::parse(body.clone()).map_err(|error| envelope_failure(&error, &body))?;
    drop(body);
    // Answers to questions and cancellations help the calls under way to their end.
    if let Envelope::Request(message) = &envelope
        && let Err(failure) = refuse_if_draining(front)
    {
        let id = Some(message.id.clone());
        return Err(RequestFailure { failure, id });
    }
    match envelope {
        Envelope::Request(message) if is_modern(request, &message) => {
            sessionless::serve(request, message, principal, events, front, settings).await
        }
        other if settings.stateless => {
            let answer =
                sessionless::serve_legacy(request, other, principal, events, front, settings);
            Box::pin(answer).await
        }
        Envelope::Request(initialize) if initialize.method == Method::Initialize => {
            Box::pin(open(request, front, initialize, principal)).await
        }
        other => serve_in_session(request, front, other, events, settings).await,
    }
}

/// A message of a client that has a session.
#[expect(
    clippy::manual_async_fn,
    reason = "what an async fn is given is kept twice, and each request pays for it"
)]
fn serve_in_session<'a>(
    request: &'a HttpRequest,
    front: &'a Front,
    envelope: Envelope,
    accepts_stream: bool,
    settings: &'a FrontSettings,
) -> impl Future<Output = Result<HttpResponse, RequestFailure>> + 'a {
    async move {
        let found = find(request, front).await;
        let session = found.map_err(|failure| RequestFailure {
            failure,
            id: request_id_of(&envelope),
        })?;
        let answer = send_to_session(front, &session, envelope, accepts_stream, settings).await?;
        let revision = session.revision;
        Ok(respond::http_response(
            answer, revision, None, front, settings,
        ))
    }
}

/// The body decides; a header that names the sessionless revision wants it there, too.
fn is_modern(request: &HttpRequest, message: &Request) -> bool {
    let revision = text(request, &PROTOCOL_VERSION).and_then(|text| text.parse().ok());
    let announced = revision.is_some_and(|revision: Revision| revision.era() == Era::Modern);
    announced || claims_modern(message)
}

pub(super) fn refuse_if_draining(front: &Front) -> Result<(), Failure> {
    refuse_if_shutting_down(front.is_draining())
}

pub(super) fn refuse_if_shutting_down(shutting_down: bool) -> Result<(), Failure> {
    if !shutting_down {
        return Ok(());
    }
    let message = "the gateway is shutting down";
    Err(Failure::new(ErrorKind::ShuttingDown, message).retry_after_ms(1000))
}

async fn open(
    request: &HttpRequest,
    front: &Front,
    initialize: Request,
    principal: Principal,
) -> Result<HttpResponse, RequestFailure> {
    // A session lives where its client is connected, so that its calls stay on one thread.
    let worker = request.app_data::<WorkerIndex>().map_or(0, |index| index.0);
    let opened = front.sessions.open(&initialize, principal, worker).await;
    let (id, revision, answer) = opened.map_err(|failure| RequestFailure {
        failure,
        id: Some(initialize.id.clone()),
    })?;
    Ok(respond::initialize_response(answer, revision, id))
}

/// Hands a message to its session; the future waits for what becomes of it, if it is a request.
fn send_to_session<'a>(
    front: &Front,
    session: &'a FoundSession,
    envelope: Envelope,
    accepts_stream: bool,
    settings: &'a FrontSettings,
) -> impl Future<Output = Result<ClientReply, RequestFailure>> + use<'a> {
    let id = request_id_of(&envelope);
    let number = front.sessions.numbers().next();
    let (reply, answer) = oneshot::channel();
    let is_accepted = !matches!(envelope, Envelope::Request(_)) && session.address.connected();
    session.address.do_send(FromClient {
        envelope,
        number,
        accepts_stream,
        reply,
    });
    async move {
        if is_accepted {
            return Ok(ClientReply::Accepted);
        }
        let upgrade = || session.address.do_send(UpgradeToStream { number });
        let answer =
            respond::wait_for_answer(answer, accepts_stream.then_some(upgrade), settings).await;
        answer.ok_or_else(|| {
            let message = "the session ended while it worked on this request";
            RequestFailure {
                failure: Failure::new(ErrorKind::SessionNotFound, message),
                id,
            }
        })
    }
}

/// An array of messages: 2025-03-26 only (S-HTTP-10, S-HTTP-11). Its answers are one array, in
/// JSON: a client in a batch cannot be asked.
async fn batch(
    request: &HttpRequest,
    front: &Front,
    body: Bytes,
    settings: &FrontSettings,
) -> Result<HttpResponse, RequestFailure> {
    let session = find(request, front).await?;
    if !session.revision.has_batches() {
        let message = format!(
            "revision {} has no batches: send one message per request",
            session.revision
        );
        return Err(Failure::new(ErrorKind::InvalidRequest, message).into());
    }
    let messages: Vec<&RawValue> = serde_json::from_slice(&body)
        .map_err(|error| envelope_failure(&EnvelopeError::Json(error.to_string()), &body))?;
    if messages.is_empty() || messages.len() > BATCH_MAX {
        let message = format!("a batch holds 1 to {BATCH_MAX} messages");
        return Err(Failure::new(ErrorKind::InvalidRequest, message).into());
    }
    let answers = messages.into_iter().map(async |message| {
        let frame = body.slice_ref(message.get().as_bytes());
        match Envelope::parse(frame.clone()) {
            // A session does not begin inside of an array (S-LIFE-07).
            Ok(Envelope::Request(request)) if request.method == Method::Initialize => {
                let message = "`initialize` is not allowed in a batch";
                let failure = Failure::new(ErrorKind::InvalidRequest, message);
                Some(Bytes::from(failure.answer(request.id.as_str())))
            }
            Ok(envelope) => match send_to_session(front, &session, envelope, false, settings).await
            {
                Ok(ClientReply::Json(answer) | ClientReply::Error { frame: answer, .. }) => {
                    Some(answer)
                }
                Ok(ClientReply::List(list)) => Some(Bytes::from(list.concat())),
                Ok(ClientReply::Accepted | ClientReply::Stream(_) | ClientReply::Over) => None,
                Err(refusal) => Some(Bytes::from(refusal.failure.answer(refusal.id()))),
            },
            Err(error) => {
                let refusal = envelope_failure(&error, &frame);
                Some(Bytes::from(refusal.failure.answer(refusal.id())))
            }
        }
    });
    let answers: Vec<Bytes> = join_all(answers).await.into_iter().flatten().collect();
    if answers.is_empty() {
        return Ok(respond::accepted(session.revision));
    }
    let mut joined = vec![b'['];
    for (index, answer) in answers.iter().enumerate() {
        if index > 0 {
            joined.push(b',');
        }
        joined.extend_from_slice(answer);
    }
    joined.push(b']');
    Ok(respond::json(
        BoxBody::new(Bytes::from(joined)),
        session.revision,
    ))
}

async fn get(
    request: &HttpRequest,
    front: &Front,
    settings: &FrontSettings,
) -> Result<HttpResponse, RequestFailure> {
    if !AcceptedTypes::of(text(request, &header::ACCEPT)).events {
        let message = "`Accept` must allow text/event-stream: GET opens an event stream";
        return Err(Failure::new(ErrorKind::NotAcceptable, message).into());
    }
    let session = find(request, front).await?;
    let (reply, answer) = oneshot::channel();
    let last_event_id = text(request, &LAST_EVENT_ID).map(str::to_owned);
    session.address.do_send(OpenStream {
        last_event_id,
        reply,
    });
    let answer = answer.await.map_err(|_| {
        Failure::new(
            ErrorKind::SessionNotFound,
            "the session ended before its stream was open",
        )
    })?;
    Ok(respond::http_response(
        answer,
        session.revision,
        None,
        front,
        settings,
    ))
}

/// Without a session there is nothing to end, which is fine.
async fn delete(request: &HttpRequest, front: &Front) -> Result<HttpResponse, RequestFailure> {
    if text(request, &SESSION_ID).is_none() {
        return Ok(respond::empty(StatusCode::OK));
    }
    let id = session_id(request)?;
    if !front.sessions.end(id).await {
        return Err(unknown_session().into());
    }
    Ok(respond::empty(StatusCode::OK))
}

/// The session that a request names, in a revision that we speak.
async fn find(request: &HttpRequest, front: &Front) -> Result<FoundSession, Failure> {
    let id = session_id(request)?;
    let session = front.sessions.find(id).await?.ok_or_else(unknown_session)?;
    if let Some(version) = text(request, &PROTOCOL_VERSION) {
        version.parse::<Revision>().map_err(|error| {
            let message = format!("`MCP-Protocol-Version`: {error}");
            Failure::new(ErrorKind::UnsupportedRevision, message)
        })?;
    }
    Ok(session)
}

fn session_id(request: &HttpRequest) -> Result<SessionId, Failure> {
    let Some(text) = text(request, &SESSION_ID) else {
        let message =
            "`Mcp-Session-Id` is missing: send `initialize` first, then the id that it answers";
        return Err(Failure::new(ErrorKind::SessionRequired, message));
    };
    // What was never minted here never existed.
    SessionId::parse(text).ok_or_else(unknown_session)
}

fn unknown_session() -> Failure {
    let message = "this session does not exist (any more): send `initialize` to start another";
    Failure::new(ErrorKind::SessionNotFound, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It is allocated and copied for each request; a future that is handed to a function, or a
    /// rare way that is not boxed, made it 11 KB. With the 120 bytes that actix-web puts around it,
    /// glibc's malloc takes several times as long for more than 1,032.
    #[test]
    fn what_a_request_becomes_stays_small() {
        fn size_of_future<A, B, C, F>(_: impl Fn(A, B, C) -> F) -> usize {
            size_of::<F>()
        }
        let size = size_of_future(endpoint);
        assert!(size <= 912, "{size} bytes");
    }
}
