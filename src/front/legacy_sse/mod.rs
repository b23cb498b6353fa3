//! HTTP+SSE of revision 2024-11-05: GET `/sse` opens a stream that carries everything to the
//! client, POST `/messages` brings what the client says (S-SSE-01, S-SSE-02, S-SSE-05).
//!
//! The session lives as long as the stream: when that ends, calls in flight are cancelled.

pub(super) mod channels;

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use actix_web::http::header::{self, HeaderValue};
use actix_web::http::{Method, StatusCode};
use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use tokio::time::sleep;
use url::form_urlencoded;

use super::channel::{Channel, ChannelParts};
use super::encode::as_event;
use super::http::accept::AcceptedTypes;
use super::http::event_body::EventBody;
use super::http::handler::{answers_only, authenticate, run_handler, worker};
use super::http::headers::header_text;
use super::http::{body, respond};
use super::intake::{RequestFailure, refuse_if_shutting_down};
use super::state::{Front, FrontGate};
use crate::id::SessionId;
use crate::protocol::{ErrorKind, Failure};

pub(super) const STREAM: &str = "/sse";
pub(super) const MESSAGES: &str = "/messages";

/// A stream without `initialize` for so long is closed.
const INITIALIZE_MAX: Duration = Duration::from_secs(60);

/// A client that reads nothing for so long is disconnected.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// `/sse`.
pub(super) async fn stream(request: HttpRequest, gate: web::Data<FrontGate>) -> HttpResponse {
    let front = gate.front().await;
    let opening = pin!(async { open(&request, front, &gate).map_err(RequestFailure::from) });
    run_handler(&request, front, HeaderValue::from_static("GET"), opening).await
}

/// `/messages`.
pub(super) async fn messages(
    request: HttpRequest,
    payload: web::Payload,
    gate: web::Data<FrontGate>,
) -> HttpResponse {
    let front = gate.front().await;
    let taking = pin!(receive(&request, payload, front));
    run_handler(&request, front, HeaderValue::from_static("POST"), taking).await
}

fn open(
    request: &HttpRequest,
    front: &Front,
    gate: &web::Data<FrontGate>,
) -> Result<HttpResponse, Failure> {
    let settings = front.settings.load_full();
    let principal = authenticate(request, front, &settings)?;
    if !settings.legacy_sse {
        return Err(legacy_sse_disabled());
    }
    if *request.method() != Method::GET {
        return Err(answers_only(request, "GET"));
    }
    refuse_if_shutting_down(front.is_closing())?;
    if !AcceptedTypes::of(header_text(request, &header::ACCEPT)).events {
        let message = "`Accept` must allow text/event-stream: GET opens an event stream";
        return Err(Failure::new(ErrorKind::NotAcceptable, message));
    }
    let (channel, written) = Channel::open(ChannelParts {
        sessions: front.sessions.clone(),
        principal,
        arbiter: worker(request),
        write_timeout: Some(WRITE_TIMEOUT),
        closing: front.closing.clone(),
    });
    let id = front.sessions.mint();
    front.channels.insert(id, Arc::clone(&channel));
    actix_rt::spawn(end_when_unused(gate.clone(), id, channel));
    let first = format!(
        "event: endpoint\ndata: {MESSAGES}?sessionId={}\n\n",
        id.expose()
    );
    let in_flight = front.in_flight.token();
    let comment_every = settings.sse_comment_every;
    let events = EventBody::new(written, as_event, comment_every, in_flight, None);
    let first = stream::once(async { Ok(Bytes::from(first)) });
    Ok(respond::event_stream(first.chain(events)))
}

/// Ends the channel when its client left, when it was never initialized, and when the gateway
/// stops: then after the calls in flight.
async fn end_when_unused(gate: web::Data<FrontGate>, id: SessionId, channel: Arc<Channel>) {
    let front = gate.front().await;
    let unused = async {
        sleep(INITIALIZE_MAX).await;
        if channel.is_initialized() {
            pending::<()>().await;
        }
    };
    let drained = async {
        front.closing.cancelled().await;
        channel.drained().await;
    };
    tokio::select! {
        () = channel.client_left() => {}
        () = channel.ended() => {}
        () = unused => {}
        () = drained => {}
    }
    front.channels.remove(id);
    channel.end().await;
}

async fn receive(
    request: &HttpRequest,
    mut payload: web::Payload,
    front: &Front,
) -> Result<HttpResponse, RequestFailure> {
    let settings = front.settings.load_full();
    let principal = authenticate(request, front, &settings)?;
    let channel = session_id(request).and_then(|id| front.channels.find(id));
    let channel = channel.filter(|channel| *channel.principal() == principal);
    if channel.is_none() && !settings.legacy_sse {
        return Err(legacy_sse_disabled().into());
    }
    if *request.method() != Method::POST {
        return Err(answers_only(request, "POST").into());
    }
    let channel = channel.ok_or_else(|| {
        let message =
            format!("no event stream has this `sessionId` (any more): GET {STREAM} first");
        Failure::new(ErrorKind::SessionNotFound, message)
    })?;
    let announced = body::json_length(request)?;
    let mut permit = front.bytes.permit();
    let body = body::read(&mut payload, announced, &settings, &mut permit).await?;
    channel.receive(body).await?;
    Ok(respond::empty(StatusCode::ACCEPTED))
}

fn legacy_sse_disabled() -> Failure {
    let message = "HTTP+SSE is switched off here (`gateway.legacy_sse`); use Streamable HTTP";
    Failure::new(ErrorKind::NotFound, message)
}

fn session_id(request: &HttpRequest) -> Option<SessionId> {
    let mut query = form_urlencoded::parse(request.query_string().as_bytes());
    let (_, id) = query.find(|(name, _)| name == "sessionId")?;
    SessionId::parse(&id)
}
