//! HTTP+SSE of revision 2024-11-05: GET `/sse`, or `/sse/NAME` for a view, opens a stream with all
//! messages to the client, and POST `/messages` receives the client's messages (S-SSE-01, S-SSE-02,
//! S-SSE-05).
//!
//! A client whose stream breaks can continue by opening another stream with its `Last-Event-ID`.
//! Meanwhile, the calls continue for `gateway.sse_reconnect_within`, and the session until the
//! usual timeout. A client that was initialized but does not identify its session gets a new one.

mod outbox;
pub(super) mod sse_channel;

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

use super::channel::ChannelParts;
use super::hop::{self, Outgoing};
use super::http::accept::AcceptedTypes;
use super::http::client_address::client_address;
use super::http::entrance;
use super::http::event_body::EventBody;
use super::http::expiry::ends_at;
use super::http::handler::{answers_only, authenticate, peer, run_handler, worker};
use super::http::headers::{
    LAST_EVENT_ID, PROTOCOL_VERSION, forwarded_headers, header_text, note_user,
};
use super::http::{body, respond};
use super::intake::{self, RequestFailure, refuse_if_shutting_down};
use super::state::{Front, FrontGate};
use crate::id::{Holder, Principal, SessionId, SessionOwner};
use crate::protocol::{Era, ErrorKind, Failure, Revision};
use crate::telemetry::Denial;

use outbox::SseEventId;
use sse_channel::SseChannel;

pub(super) const STREAM: &str = "/sse";
pub(super) const MESSAGES: &str = "/messages";

/// How long a stream may stay open without `initialize`.
const INITIALIZE_MAX: Duration = Duration::from_secs(60);

/// How long a client may read nothing before it is disconnected.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Handles requests to `/sse`.
pub(super) async fn stream(
    request: HttpRequest,
    mut payload: web::Payload,
    gate: web::Data<FrontGate>,
) -> HttpResponse {
    let front = gate.front().await;
    let opening = pin!(open(&request, &mut payload, front, &gate));
    run_handler(&request, front, HeaderValue::from_static("GET"), opening).await
}

/// Handles requests to `/messages`.
pub(super) async fn messages(
    request: HttpRequest,
    payload: web::Payload,
    gate: web::Data<FrontGate>,
) -> HttpResponse {
    let front = gate.front().await;
    let taking = pin!(receive(&request, payload, front));
    run_handler(&request, front, HeaderValue::from_static("POST"), taking).await
}

async fn open(
    request: &HttpRequest,
    payload: &mut web::Payload,
    front: &Front,
    gate: &web::Data<FrontGate>,
) -> Result<HttpResponse, RequestFailure> {
    let settings = front.settings.load_full();
    let last_event_id = header_text(request, &LAST_EVENT_ID).and_then(SseEventId::parse);
    let last_channel = last_event_id.map(|last| last.channel);
    let outgoing = Outgoing::new(request, front, &settings);
    if let Some(answer) = hop::route_channel(outgoing, payload, last_channel).await? {
        return Ok(answer);
    }
    let identity = authenticate(request, front, &settings)?.await?;
    let owner = SessionOwner {
        principal: identity.principal,
        view: entrance::view(request, front)?,
    };
    if !settings.legacy_sse {
        return Err(legacy_sse_disabled().into());
    }
    if *request.method() != Method::GET {
        return Err(answers_only(request, "GET").into());
    }
    refuse_if_shutting_down(front.is_closing())?;
    if !AcceptedTypes::of(header_text(request, &header::ACCEPT)).events {
        let message = "`Accept` must allow text/event-stream: GET opens an event stream";
        return Err(Failure::new(ErrorKind::NotAcceptable, message).into());
    }
    let known = match last_event_id {
        Some(last) => find_known(request, front, &owner, last.channel).await?,
        None => None,
    };
    let is_known = known.is_some();
    let (channel, read_up_to) = match (known, last_event_id) {
        (Some(channel), Some(last)) => (channel, last),
        _ => {
            let id = front.sessions.mint();
            let sse = new_channel(request, front, &owner, id);
            if let Some(revision) = negotiated_before(request) {
                sse.channel.open_session(revision).await?;
            }
            (sse, SseEventId::before_first(id))
        }
    };
    // There must be no `await` below: a registered channel needs its stream and its closing task.
    let (channel, is_new) = front.channels.find_or_insert(read_up_to.channel, channel);
    if is_new {
        if is_known {
            channel.channel.resume();
        }
        let closing = close_when_unused(gate.clone(), read_up_to.channel, Arc::clone(&channel));
        actix_rt::spawn(closing);
    }
    let address = read_up_to.channel.expose();
    let first =
        format!("event: endpoint\nid: {read_up_to}\ndata: {MESSAGES}?sessionId={address}\n\n");
    let first = stream::once(async { Ok(Bytes::from(first)) });
    let in_flight = front.in_flight.token();
    let comment_every = settings.sse_comment_every;
    let events = EventBody::new(
        channel.attach(read_up_to.number),
        comment_every,
        in_flight,
        None,
    );
    let response = respond::event_stream(first.chain(events));
    Ok(match identity.expires_at {
        Some(expires_at) => ends_at(response, expires_at),
        None => response,
    })
}

/// Returns the revision of a client that was initialized on an earlier stream. The TypeScript SDK
/// reconnects without `Last-Event-ID`, so only this header distinguishes it from a new client.
fn negotiated_before(request: &HttpRequest) -> Option<Revision> {
    let version = header_text(request, &PROTOCOL_VERSION)?;
    let revision = version.parse::<Revision>().ok()?;
    (revision.era() == Era::Legacy).then_some(revision)
}

fn new_channel(
    request: &HttpRequest,
    front: &Front,
    owner: &SessionOwner,
    id: SessionId,
) -> Arc<SseChannel> {
    SseChannel::new(ChannelParts {
        id,
        sessions: front.sessions.clone(),
        owner: owner.clone(),
        peer: peer(request, &front.settings.load()),
        arbiter: worker(request),
        write_timeout: Some(WRITE_TIMEOUT),
        closing: front.closing.clone(),
    })
}

/// Returns the channel of a reconnecting client: the channel of its broken stream, or a new one for
/// its session. `None` if neither channel nor session exists.
async fn find_known(
    request: &HttpRequest,
    front: &Front,
    owner: &SessionOwner,
    id: SessionId,
) -> Result<Option<Arc<SseChannel>>, Failure> {
    if let Some(found) = front.channels.find(id) {
        let is_theirs = found.channel.owner() == owner;
        return Ok(is_theirs.then_some(found));
    }
    let exists = front.sessions.find(id, owner).await?.is_some();
    Ok(exists.then(|| new_channel(request, front, owner, id)))
}

/// Closes the channel when its client does not reconnect, when it is never initialized, and during
/// shutdown, in that case after the calls in flight. Its session survives, as with Streamable HTTP.
async fn close_when_unused(gate: web::Data<FrontGate>, id: SessionId, sse: Arc<SseChannel>) {
    let front = gate.front().await;
    let channel = &sse.channel;
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
    let reconnect_within = front.settings.load().sse_reconnect_within;
    tokio::select! {
        () = sse.abandoned(reconnect_within) => {}
        () = channel.ended() => {}
        () = unused => {}
        () = drained => {}
    }
    front.channels.remove(id);
    channel.close();
    front.sessions.client_left(id, channel.owner());
}

async fn receive(
    request: &HttpRequest,
    mut payload: web::Payload,
    front: &Front,
) -> Result<HttpResponse, RequestFailure> {
    let settings = front.settings.load_full();
    let id = session_id(request);
    let outgoing = Outgoing::new(request, front, &settings);
    if let Some(answer) = hop::route_channel(outgoing, &mut payload, id).await? {
        return Ok(answer);
    }
    let identity = authenticate(request, front, &settings)?.await?;
    note_user(&identity, request, &settings);
    let principal = identity.principal;
    let channel = id.and_then(|id| front.channels.find(id));
    let channel = channel.filter(|sse| is_owner(request, sse.channel.owner(), &principal, front));
    if channel.is_none() && !settings.legacy_sse {
        return Err(legacy_sse_disabled().into());
    }
    if *request.method() != Method::POST {
        return Err(answers_only(request, "POST").into());
    }
    // While no stream is open, the client would never receive an answer.
    let channel = channel.filter(|sse| sse.is_attached()).ok_or_else(|| {
        let message = format!("no event stream is open for this `sessionId`: GET {STREAM} first");
        Failure::new(ErrorKind::SessionNotFound, message)
    })?;
    let announced = body::json_length(request)?;
    let holder = Holder::of(&principal, peer(request, &settings));
    let mut taken = front.bytes.none(holder);
    let body = body::read(&mut payload, announced, &settings, &mut taken).await?;
    if settings.auth.lazy {
        intake::read(body.clone(), None, false)?.checked(&settings.auth, &principal)?;
    }
    let forwarded = forwarded_headers(request, &settings)?;
    channel
        .channel
        .receive(body, forwarded, identity.scopes)
        .await?;
    Ok(respond::empty(StatusCode::ACCEPTED))
}

/// Returns whether a channel belongs to this principal, and records a denial if it does not. To
/// other principals the channel is unknown.
fn is_owner(
    request: &HttpRequest,
    owner: &SessionOwner,
    principal: &Principal,
    front: &Front,
) -> bool {
    let is_owner = owner.principal == *principal;
    if !is_owner {
        Denial {
            code: ErrorKind::SessionNotFound.as_str(),
            action: &format!("POST {MESSAGES}"),
            principal: principal.as_str(),
            from: client_address(request),
            reason: "the channel belongs to another principal",
        }
        .record(&front.counters);
    }
    is_owner
}

fn legacy_sse_disabled() -> Failure {
    let message = "HTTP+SSE is disabled (`gateway.legacy_sse`); use Streamable HTTP";
    Failure::new(ErrorKind::NotFound, message)
}

fn session_id(request: &HttpRequest) -> Option<SessionId> {
    let mut query = form_urlencoded::parse(request.query_string().as_bytes());
    let (_, id) = query.find(|(name, _)| name == "sessionId")?;
    SessionId::parse(&id)
}
