//! Serves requests without a session: each request of 2026-07-28 describes its revision and client,
//! and with `gateway.stateless` clients with a handshake get no session either.

use std::sync::Arc;

use actix_web::body::BoxBody;
use actix_web::http::header::HeaderMap;
use actix_web::{HttpRequest, HttpResponse};
use futures_util::future::{Either, FutureExt as _, ready};

use super::caller_cache::{CallerCache, meta_key_of};
use super::handler::{panicked, peer, worker};
use super::headers::{
    METHOD, NAME, PROTOCOL_VERSION, forwarded_headers, parse_revision, sole_text,
};
use super::respond;
use crate::auth::Requester;
use crate::bridge::headers::{self, HttpHeaders, McpHeaders};
use crate::bridge::meta::RequestMeta;
use crate::calls::{ClientReply, RunningRequest};
use crate::downstream::{Caller, ClientInfo};
use crate::front::hop::{self, Outgoing};
use crate::front::intake::RequestFailure;
use crate::front::settings::FrontSettings;
use crate::front::state::Front;
use crate::protocol::{DeclaredCapabilities, Envelope, ErrorKind, Failure, Request, Revision};
use crate::sessions::{ServeOutcome, SessionlessRequest};

/// Serves one request and waits for its answer. The future fails with status 400 if `_meta` or a
/// header is invalid.
pub(super) fn serve<'a>(
    http: &'a HttpRequest,
    request: Request,
    requester: Requester,
    accepts_stream: bool,
    front: &'a Front,
    settings: &'a FrontSettings,
) -> impl Future<Output = Result<HttpResponse, RequestFailure>> + 'a {
    let headers = McpHeaders::of(http.headers());
    let caller = caller(http, &headers, &request, requester);
    let caller = caller.and_then(|caller| Ok((caller, forwarded_headers(http, settings)?)));
    let (caller, forwarded) = match caller {
        Ok(read) => read,
        Err(failure) => {
            let id = Some(request.id);
            return Either::Left(ready(Err(RequestFailure { failure, id })));
        }
    };
    let sessionless = SessionlessRequest {
        request,
        caller,
        peer: peer(http, settings),
        headers: Some(headers),
        forwarded,
        arbiter: worker(http),
        accepts_stream,
    };
    Either::Right(run(http, sessionless, front, settings))
}

/// Answers `initialize` of a client that gets no session (`gateway.stateless`).
///
/// # Errors
///
/// Returns the failure that the client reads.
pub(super) async fn initialize(
    http: &HttpRequest,
    front: &Front,
    request: &Request,
    requester: Requester,
) -> Result<HttpResponse, RequestFailure> {
    let sessions = &front.sessions;
    let listing = sessions.first_listing(request, &requester, worker(http));
    listing.await;
    let answered = sessions.answer_initialize(request, requester);
    let (revision, answer) = answered.map_err(|failure| RequestFailure {
        failure,
        id: Some(request.id.clone()),
    })?;
    Ok(respond::json(BoxBody::new(answer), revision))
}

/// Serves one message of a client that used a handshake but has no session (`gateway.stateless`),
/// or a notification of the newer era.
///
/// # Errors
///
/// Returns the failure that the client reads.
pub(super) async fn serve_legacy(
    http: &HttpRequest,
    envelope: Envelope,
    requester: Requester,
    accepts_stream: bool,
    front: &Front,
    settings: &FrontSettings,
) -> Result<HttpResponse, RequestFailure> {
    let revision = revision(http)?;
    let Envelope::Request(request) = envelope else {
        // No call of a client without a session waits for notifications or responses.
        return Ok(respond::accepted(revision));
    };
    let caller = Caller {
        principal: requester.owner.principal,
        scopes: requester.scopes,
        view: requester.owner.view,
        session: None,
        revision,
        // The client declared its capabilities in `initialize`, which was not stored.
        profile: DeclaredCapabilities::default(),
        level: None,
        client: None,
        info: ClientInfo::default(),
    };
    let sessionless = SessionlessRequest {
        request,
        caller: Arc::new(caller),
        peer: peer(http, settings),
        headers: None,
        forwarded: forwarded_headers(http, settings)?,
        arbiter: worker(http),
        accepts_stream,
    };
    run(http, sessionless, front, settings).await
}

/// Returns the revision of a request. Without the header it is 2025-03-26, the last revision before
/// the header was introduced (S-HDR-02).
fn revision(http: &HttpRequest) -> Result<Revision, Failure> {
    let version = sole_text(http, &PROTOCOL_VERSION)?;
    version.map_or(Ok(Revision::V2025_03_26), parse_revision)
}

/// Serves a request here, or at the replica that its state or task id names.
fn run<'a>(
    http: &'a HttpRequest,
    sessionless: SessionlessRequest<'a>,
    front: &'a Front,
    settings: &'a FrontSettings,
) -> impl Future<Output = Result<HttpResponse, RequestFailure>> + 'a {
    let outgoing = Outgoing::new(http, front, settings);
    let Some(routing) = hop::route_sealed(outgoing, &sessionless) else {
        return Either::Left(run_here(sessionless, front, settings));
    };
    let id = sessionless.request.id.clone();
    let routed = async move {
        let routed = routing.await.map_err(|refused| RequestFailure {
            id: Some(id),
            ..refused
        });
        match routed? {
            Some(answer) => Ok(answer),
            None => run_here(sessionless, front, settings).await,
        }
    };
    Either::Right(routed.boxed_local())
}

fn run_here<'a>(
    sessionless: SessionlessRequest<'a>,
    front: &'a Front,
    settings: &'a FrontSettings,
) -> impl Future<Output = Result<HttpResponse, RequestFailure>> + 'a {
    let (id, revision) = (sessionless.request.id.clone(), sessionless.caller.revision);
    let accepts_stream = sessionless.accepts_stream;
    let started = front.sessions.serve(sessionless);
    async move {
        let RunningRequest { answer, waiting } = match started.await {
            ServeOutcome::Done(ClientReply::Stream(_)) if !accepts_stream => {
                let message = "`Accept` must allow text/event-stream: the answer is a stream";
                let failure = Failure::new(ErrorKind::NotAcceptable, message);
                return Err(RequestFailure {
                    failure,
                    id: Some(id),
                });
            }
            ServeOutcome::Done(answer) => {
                return Ok(respond::http_response(
                    answer, revision, None, front, settings,
                ));
            }
            ServeOutcome::Running(running) => running,
        };
        let upgrade = accepts_stream.then_some(|| waiting.upgrade());
        let answer = respond::wait_for_answer(answer, upgrade, settings).await;
        let answer = answer.ok_or_else(|| RequestFailure {
            failure: panicked(),
            id: Some(id),
        })?;
        let waiting = waiting.for_rest_of(&answer);
        Ok(respond::http_response(
            answer, revision, waiting, front, settings,
        ))
    }
}

impl HttpHeaders for HeaderMap {
    fn first(&self, name: &str) -> Option<(&[u8], bool)> {
        let mut values = match name {
            headers::METHOD => self.get_all(METHOD),
            headers::NAME => self.get_all(NAME),
            headers::PROTOCOL_VERSION => self.get_all(PROTOCOL_VERSION),
            // Looking up a name that is not a constant is slower.
            other => self.get_all(other),
        };
        let first = values.next()?;
        Some((first.as_bytes(), values.next().is_some()))
    }

    fn params(&self) -> Vec<(&str, &[u8])> {
        let named = self.iter().map(|(name, value)| (name.as_str(), value));
        let params = named.filter(|(name, _)| name.starts_with(headers::PARAM_PREFIX));
        params
            .map(|(name, value)| (name, value.as_bytes()))
            .collect()
    }
}

/// Returns the caller of a request, and checks that headers and body agree (S-LIFE-14, S-HDR-04).
fn caller(
    http: &HttpRequest,
    headers: &McpHeaders<'_>,
    request: &Request,
    requester: Requester,
) -> Result<Arc<Caller>, Failure> {
    let cached = http.app_data::<CallerCache>().zip(meta_key_of(request));
    if let Some((cache, key)) = &cached
        && let Some(caller) = cache.find(key, &requester)
    {
        headers.check(request, caller.revision.as_str())?;
        return Ok(caller);
    }
    let claim = RequestMeta::read(request)?;
    headers.check(request, &claim.revision)?;
    let caller = Arc::new(Caller::sessionless(&claim, requester)?);
    if let Some((cache, key)) = cached {
        cache.insert(&key, &caller);
    }
    Ok(caller)
}
