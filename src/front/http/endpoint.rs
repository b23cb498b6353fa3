//! The MCP endpoint: POST, GET, DELETE and OPTIONS of the revisions with a handshake.

use std::mem::take;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use actix_web::body::BoxBody;
use actix_web::http::header::{self, HeaderValue};
use actix_web::http::{Method as HttpMethod, StatusCode};
use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;
use futures_util::future::Either;

use super::accept::AcceptedTypes;
use super::handler::{check_host_and_origin, peer, run_handler, worker};
use super::headers::{
    LAST_EVENT_ID, METHOD, PROTOCOL_VERSION, SESSION_ID, forwarded_headers, header_text, note_user,
    parse_revision, sole_text,
};
use super::{body, entrance, expiry, respond, session_credentials, sessionless};
use crate::auth::{GrantedScopes, Identity, Requester};
use crate::bridge::headers::ClientHeaders;
use crate::calls::ClientReply;
use crate::front::hop;
use crate::front::intake::{
    self, Incoming, RequestFailure, SentMessage, refuse_if_shutting_down, request_id_of,
};
use crate::front::settings::FrontSettings;
use crate::front::state::{Front, FrontGate};
use crate::id::{Holder, Principal, SessionId, SessionOwner};
use crate::protocol::{Envelope, Era, ErrorKind, Failure, Method, Request, Revision};
use crate::sessions::{FoundSession, UpgradeToStream};

const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE, OPTIONS");

/// How long a request waits for a replica that joins its cluster.
const JOIN_WAIT: Duration = Duration::from_secs(5);

/// Handles every request to the endpoint. Panics are answered as well.
pub(super) async fn endpoint(
    request: HttpRequest,
    mut payload: web::Payload,
    gate: web::Data<FrontGate>,
) -> HttpResponse {
    if gate.is_joining() && Box::pin(gate.opens_within(JOIN_WAIT)).await.is_err() {
        return respond::failure_response(&hop::not_joined());
    }
    let front = gate.front().await;
    let handling = pin!(handle(&request, &mut payload, front));
    let mut response = run_handler(&request, front, METHODS, handling).await;
    if !response.headers().contains_key(PROTOCOL_VERSION) {
        let value = HeaderValue::from_static(spoken_revision(&request).as_str());
        response.headers_mut().insert(PROTOCOL_VERSION, value);
    }
    expiry::ends_as_noted(response, &request)
}

/// Returns the revision for a response outside a session: the revision that the request names, or
/// else the newest one with a handshake.
fn spoken_revision(request: &HttpRequest) -> Revision {
    let named = header_text(request, &PROTOCOL_VERSION).and_then(|text| text.parse().ok());
    named.unwrap_or(Revision::NEWEST_LEGACY)
}

#[expect(
    clippy::manual_async_fn,
    reason = "what an async fn is given is kept twice, and each request pays for it"
)]
fn handle<'a>(
    request: &'a HttpRequest,
    payload: &'a mut web::Payload,
    front: &'a Front,
) -> impl Future<Output = Result<HttpResponse, RequestFailure>> + 'a {
    async move {
        let settings = front.settings.load_full();
        if *request.method() == HttpMethod::OPTIONS {
            check_host_and_origin(request, &settings)?;
            let mut response = respond::empty(StatusCode::NO_CONTENT);
            response.headers_mut().insert(header::ALLOW, METHODS);
            return Ok(response);
        }
        if let Some(known) = &front.known_sessions
            && let Some(routing) = hop::route(request, payload, front, &settings, known)
            && let Some(answer) = routing.await?
        {
            return Ok(answer);
        }
        let identifying = session_credentials::authenticate(request, front, &settings)?;
        let mut requester = requester(identifying.await?, request, front, &settings)?;
        match *request.method() {
            HttpMethod::POST => post(request, payload, front, &settings, &mut requester).await,
            HttpMethod::GET => get(request, front, &requester, &settings).await,
            HttpMethod::DELETE => {
                delete(request, front, &requester.owner, settings.stateless).await
            }
            ref other => {
                let message =
                    format!("HTTP method `{other}` is not used here; MCP is POST, GET and DELETE");
                Err(Failure::new(ErrorKind::HttpMethodNotAllowed, message).into())
            }
        }
    }
}

/// A separate function, so that the request's future does not hold the identity.
fn requester(
    identity: Identity,
    request: &HttpRequest,
    front: &Front,
    settings: &FrontSettings,
) -> Result<Requester, Failure> {
    note_user(&identity, request, settings);
    expiry::note(&identity, request, opens_stream);
    session_credentials::note(&identity, request, front, settings);
    Ok(Requester {
        owner: SessionOwner {
            principal: identity.principal,
            view: entrance::view(request, front)?,
        },
        scopes: identity.scopes,
    })
}

/// Returns whether the request opens a stream that belongs to no call. The method header suffices,
/// because a request whose body names another method is refused (S-HDR-04).
fn opens_stream(request: &HttpRequest) -> bool {
    let listens = |method: &HeaderValue| method == Method::Listen.as_str();
    match *request.method() {
        HttpMethod::GET => true,
        HttpMethod::POST => request.headers().get(METHOD).is_some_and(listens),
        _ => false,
    }
}

async fn post(
    request: &HttpRequest,
    payload: &mut web::Payload,
    front: &Front,
    settings: &FrontSettings,
    requester: &mut Requester,
) -> Result<HttpResponse, RequestFailure> {
    let announced = body::json_length(request)?;
    let AcceptedTypes { json, events } = AcceptedTypes::of(header_text(request, &header::ACCEPT));
    if !json && !events {
        let message = "`Accept` must allow application/json or text/event-stream";
        return Err(Failure::new(ErrorKind::NotAcceptable, message).into());
    }
    let holder = Holder::of(&requester.owner.principal, peer(request, settings));
    let mut taken = front.bytes.none(holder);
    let body = body::read(payload, announced, settings, &mut taken).await?;
    let revision = header_text(request, &PROTOCOL_VERSION).and_then(|text| text.parse().ok());
    let incoming = intake::read(body, revision, front.is_draining());
    let checked = incoming.and_then(|it| it.checked(&settings.auth, &requester.owner.principal));
    let checked = checked.and_then(|it| session_credentials::checked(it, request, settings));
    let serving = match checked? {
        Incoming::Sessionless(message) => Either::Left(sessionless::serve(
            request,
            message,
            take(requester),
            events,
            front,
            settings,
        )),
        Incoming::InSession(message)
            if !is_without_session(request, settings)
                && !is_sessionless_notification(request, &message, revision) =>
        {
            Either::Right(Either::Left(serve_in_session(
                request, front, requester, message, events, settings,
            )))
        }
        // Boxed, because otherwise every call would pay for the size of these rarer futures.
        other => Either::Right(Either::Right(Box::pin(serve_rarer(
            request,
            front,
            other,
            take(requester),
            events,
            settings,
        )))),
    };
    serving.await
}

/// Serves requests that open a session, batches, and messages without a session.
async fn serve_rarer(
    request: &HttpRequest,
    front: &Front,
    incoming: Incoming,
    requester: Requester,
    accepts_stream: bool,
    settings: &FrontSettings,
) -> Result<HttpResponse, RequestFailure> {
    match incoming {
        Incoming::Batch(body) => batch(request, front, &requester, body).await,
        Incoming::Initialize(initialize) if settings.stateless => {
            sessionless::initialize(request, front, &initialize, requester).await
        }
        Incoming::Initialize(initialize) => {
            open(request, front, settings, initialize, requester).await
        }
        Incoming::InSession(message) => {
            let served = sessionless::serve_legacy(
                request,
                message,
                requester,
                accepts_stream,
                front,
                settings,
            );
            served.await
        }
        Incoming::Sessionless(message) => {
            sessionless::serve(request, message, requester, accepts_stream, front, settings).await
        }
    }
}

/// Serves a message of a client with a session.
#[expect(
    clippy::manual_async_fn,
    reason = "what an async fn is given is kept twice, and each request pays for it"
)]
fn serve_in_session<'a>(
    request: &'a HttpRequest,
    front: &'a Front,
    requester: &'a mut Requester,
    envelope: Envelope,
    accepts_stream: bool,
    settings: &'a FrontSettings,
) -> impl Future<Output = Result<HttpResponse, RequestFailure>> + 'a {
    async move {
        let found = find(request, front, &requester.owner).await;
        let session = found.map_err(|failure| RequestFailure {
            failure,
            id: request_id_of(&envelope),
        })?;
        let forwarded = forwarded_headers(request, settings)?;
        let sent = (
            envelope,
            accepts_stream,
            forwarded,
            take(&mut requester.scopes),
        );
        let answer = send_to_session(front, &session, sent, settings).await?;
        let revision = session.revision;
        Ok(respond::http_response(
            answer, revision, None, front, settings,
        ))
    }
}

async fn open(
    request: &HttpRequest,
    front: &Front,
    settings: &FrontSettings,
    initialize: Request,
    requester: Requester,
) -> Result<HttpResponse, RequestFailure> {
    let id = front.sessions.mint();
    let peer = peer(request, settings);
    let listing = (front.sessions).first_listing(&initialize, &requester, worker(request));
    listing.await;
    let opened = (front.sessions).open(id, &initialize, requester, peer, worker(request));
    let opened = opened.await;
    let (revision, answer) = opened.map_err(|failure| RequestFailure {
        failure,
        id: Some(initialize.id.clone()),
    })?;
    session_credentials::keep(request, front, id);
    Ok(respond::initialize_response(answer, revision, id))
}

/// Sends a message to its session. For a request, the future waits for the reply.
fn send_to_session<'a>(
    front: &Front,
    session: &'a FoundSession,
    sent: (Envelope, bool, Option<Arc<ClientHeaders>>, GrantedScopes),
    settings: &'a FrontSettings,
) -> impl Future<Output = Result<ClientReply, RequestFailure>> + use<'a> {
    let (envelope, accepts_stream, forwarded, scopes) = sent;
    let id = request_id_of(&envelope);
    let is_accepted = !matches!(envelope, Envelope::Request(_)) && session.address.connected();
    let sent = intake::send(
        &front.sessions,
        session,
        envelope,
        accepts_stream,
        forwarded,
        scopes,
    );
    async move {
        if is_accepted {
            return Ok(ClientReply::Accepted);
        }
        let SentMessage { number, answer } = sent;
        let upgrade = || session.address.do_send(UpgradeToStream { number });
        let answer =
            respond::wait_for_answer(answer, accepts_stream.then_some(upgrade), settings).await;
        answer.ok_or_else(|| RequestFailure {
            failure: intake::session_ended(),
            id,
        })
    }
}

/// Serves an array of messages. The answers are JSON, because a client cannot be asked for input
/// during a batch.
async fn batch(
    request: &HttpRequest,
    front: &Front,
    requester: &Requester,
    body: Bytes,
) -> Result<HttpResponse, RequestFailure> {
    let session = find(request, front, &requester.owner).await?;
    let forwarded = forwarded_headers(request, &front.settings.load())?;
    let answers = intake::send_batch(
        &front.sessions,
        &session,
        &body,
        (forwarded.as_ref(), &requester.scopes),
    )?
    .await;
    Ok(match answers {
        Some(answers) => respond::json(BoxBody::new(answers), session.revision),
        None => respond::accepted(session.revision),
    })
}

async fn get(
    request: &HttpRequest,
    front: &Front,
    requester: &Requester,
    settings: &FrontSettings,
) -> Result<HttpResponse, RequestFailure> {
    if is_without_session(request, settings) {
        let message = "there is no session whose stream could be opened: MCP is POST only \
                       without (`gateway.stateless`, `sessions.require_id`)";
        return Err(Failure::new(ErrorKind::HttpMethodNotAllowed, message).into());
    }
    refuse_if_shutting_down(front.is_closing())?;
    if !AcceptedTypes::of(header_text(request, &header::ACCEPT)).events {
        let message = "`Accept` must allow text/event-stream: GET opens an event stream";
        return Err(Failure::new(ErrorKind::NotAcceptable, message).into());
    }
    let session = find(request, front, &requester.owner).await?;
    let last_event_id = sole_text(request, &LAST_EVENT_ID)?.map(str::to_owned);
    let scopes = Some(requester.scopes.clone());
    let answer = intake::open_stream(&session, last_event_id, scopes).await?;
    Ok(respond::http_response(
        answer,
        session.revision,
        None,
        front,
        settings,
    ))
}

/// Ends the session of a client. Succeeds if sessions are not used.
async fn delete(
    request: &HttpRequest,
    front: &Front,
    owner: &SessionOwner,
    is_stateless: bool,
) -> Result<HttpResponse, RequestFailure> {
    check_revision(request)?;
    if is_stateless || sole_text(request, &SESSION_ID)?.is_none() {
        return Ok(respond::empty(StatusCode::OK));
    }
    let id = session_id(request)?;
    if !front.sessions.end(id, owner).await {
        return Err(unknown_session().into());
    }
    Ok(respond::empty(StatusCode::OK))
}

/// Finds the session that a request names, after checking the revision.
async fn find(
    request: &HttpRequest,
    front: &Front,
    owner: &SessionOwner,
) -> Result<FoundSession, Failure> {
    check_revision(request)?;
    let id = session_id(request)?;
    let found = match front.sessions.find(id, owner).await? {
        Some(session) => session,
        None => Box::pin(find_free(front, id, owner, worker(request))).await?,
    };
    session_credentials::keep(request, front, id);
    Ok(found)
}

/// Gives a session that was opened without credentials to the first client that uses it with
/// credentials.
async fn find_free(
    front: &Front,
    id: SessionId,
    owner: &SessionOwner,
    arbiter: usize,
) -> Result<FoundSession, Failure> {
    if !front.settings.load().auth.lazy {
        return Err(unknown_session());
    }
    if owner.principal == Principal::Anonymous && front.sessions.is_owned(id) {
        let auth = &front.settings.load().auth;
        auth.check_known(&owner.principal, "this session")?;
    }
    let session = front.sessions.adopt(id, owner, arbiter).await?;
    session.ok_or_else(unknown_session)
}

/// Refuses unsupported revisions (S-HDR-01).
fn check_revision(request: &HttpRequest) -> Result<(), Failure> {
    let version = sole_text(request, &PROTOCOL_VERSION)?;
    version.map_or(Ok(()), |version| parse_revision(version).map(drop))
}

/// Returns whether a message of a client with a handshake is served without a session.
fn is_without_session(request: &HttpRequest, settings: &FrontSettings) -> bool {
    settings.stateless
        || (!settings.requires_session && !request.headers().contains_key(&SESSION_ID))
}

/// Returns whether this is a notification of the era without sessions, which is accepted
/// (S-HTTP-07). Only the header tells, because notifications have no `_meta` for it.
fn is_sessionless_notification(
    request: &HttpRequest,
    message: &Envelope,
    revision: Option<Revision>,
) -> bool {
    matches!(message, Envelope::Notification(_))
        && revision.is_some_and(|revision| revision.era() == Era::Modern)
        && !request.headers().contains_key(&SESSION_ID)
}

fn session_id(request: &HttpRequest) -> Result<SessionId, Failure> {
    let Some(text) = sole_text(request, &SESSION_ID)? else {
        let message =
            "`Mcp-Session-Id` is missing: send `initialize` first, then the id that it answers";
        return Err(Failure::new(ErrorKind::SessionRequired, message));
    };
    // An id in any other format was not minted by the gateway.
    SessionId::parse(text).ok_or_else(unknown_session)
}

fn unknown_session() -> Failure {
    let message = "this session does not exist (any more): send `initialize` to start another";
    Failure::new(ErrorKind::SessionNotFound, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The future is allocated and moved for each request. It grew to 11 KB when futures were
    /// passed to functions or rare branches were not boxed. actix-web adds 120 bytes, and above
    /// 1,032 bytes glibc's malloc is several times slower.
    #[test]
    fn the_future_of_a_request_stays_small() {
        fn size_of_future<A, B, C, F>(_: impl Fn(A, B, C) -> F) -> usize {
            size_of::<F>()
        }
        let size = size_of_future(endpoint);
        assert!(size <= 912, "{size} bytes");
    }
}
