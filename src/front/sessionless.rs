//! Requests without a session (2026-07-28): each says of itself all that is to be known.

use std::sync::Arc;

use actix_web::body::BoxBody;
use actix_web::http::header::HeaderMap;
use actix_web::{HttpRequest, HttpResponse};
use futures_util::future::{Either, ready};

use super::caller_cache::{CallerCache, meta_key_of};
use super::headers::{METHOD, NAME, PROTOCOL_VERSION};
use super::incoming::{RequestFailure, text};
use super::respond;
use super::settings::FrontSettings;
use super::state::{Front, WorkerIndex};
use crate::bridge::headers::{self, HttpHeaders, McpHeaders};
use crate::bridge::meta::RequestMeta;
use crate::calls::RunningRequest;
use crate::downstream::Caller;
use crate::id::{Principal, ViewId};
use crate::protocol::{
    DeclaredCapabilities, Envelope, ErrorKind, Failure, Method, Request, RequestId, Revision,
};
use crate::sessions::{ServeOutcome, SessionlessRequest};

/// Serves one request; the future waits for what becomes of it, or is the refusal that the client is
/// to read: 400 for a claim or a header that is wrong.
pub(super) fn serve<'a>(
    http: &'a HttpRequest,
    request: Request,
    principal: Principal,
    accepts_stream: bool,
    front: &'a Front,
    settings: &'a FrontSettings,
) -> impl Future<Output = Result<HttpResponse, RequestFailure>> + 'a {
    let headers = McpHeaders::of(http.headers());
    let caller = match caller(http, &headers, &request, principal) {
        Ok(caller) => caller,
        Err(failure) => {
            let id = Some(request.id);
            return Either::Left(ready(Err(RequestFailure { failure, id })));
        }
    };
    let sessionless = SessionlessRequest {
        request,
        caller,
        headers: Some(headers),
        arbiter: worker(http),
        accepts_stream,
    };
    Either::Right(run(sessionless, front, settings))
}

/// Serves one message of a client with a handshake that gets no session (`gateway.stateless`).
///
/// # Errors
///
/// Returns the refusal that the client is to read.
pub(super) async fn serve_legacy(
    http: &HttpRequest,
    envelope: Envelope,
    principal: Principal,
    accepts_stream: bool,
    front: &Front,
    settings: &FrontSettings,
) -> Result<HttpResponse, RequestFailure> {
    let revision = revision(http)?;
    let Envelope::Request(request) = envelope else {
        // Nobody waits for it here.
        return Ok(respond::accepted(revision));
    };
    let id = Some(request.id.clone());
    if request.method == Method::Initialize {
        let greeted = front.sessions.answer_initialize(&request, principal);
        let (revision, answer) = greeted.map_err(|failure| RequestFailure { failure, id })?;
        return Ok(respond::json(BoxBody::new(answer), revision));
    }
    let caller = Caller {
        principal,
        view: ViewId,
        session: None,
        revision,
        // What it declared was said in another request.
        profile: DeclaredCapabilities::default(),
        level: None,
    };
    let sessionless = SessionlessRequest {
        request,
        caller: Arc::new(caller),
        headers: None,
        arbiter: worker(http),
        accepts_stream,
    };
    run(sessionless, front, settings).await
}

/// The revision in the header: refused when unknown (S-HDR-01), 2025-03-26 when missing (S-HDR-02).
fn revision(http: &HttpRequest) -> Result<Revision, Failure> {
    let Some(version) = text(http, &PROTOCOL_VERSION) else {
        return Ok(Revision::V2025_03_26);
    };
    version.parse::<Revision>().map_err(|error| {
        let message = format!("`MCP-Protocol-Version`: {error}");
        Failure::new(ErrorKind::UnsupportedRevision, message)
    })
}

fn worker(http: &HttpRequest) -> usize {
    http.app_data::<WorkerIndex>().map_or(0, |index| index.0)
}

fn run<'a>(
    sessionless: SessionlessRequest<'a>,
    front: &'a Front,
    settings: &'a FrontSettings,
) -> impl Future<Output = Result<HttpResponse, RequestFailure>> + 'a {
    let (id, revision) = (sessionless.request.id.clone(), sessionless.caller.revision);
    let accepts_stream = sessionless.accepts_stream;
    let started = front.sessions.serve(sessionless);
    async move {
        let RunningRequest { answer, waiting } = match started.await {
            ServeOutcome::Done(answer) => {
                return Ok(respond::http_response(
                    answer, revision, None, front, settings,
                ));
            }
            ServeOutcome::Running(running) => running,
        };
        let upgrade = accepts_stream.then_some(|| waiting.upgrade());
        let answer = respond::wait_for_answer(answer, upgrade, settings).await;
        let answer = answer.ok_or_else(|| ended(id))?;
        let waiting = waiting.for_rest_of(&answer);
        Ok(respond::http_response(
            answer, revision, waiting, front, settings,
        ))
    }
}

fn ended(id: RequestId) -> RequestFailure {
    let message = "a bug of the gateway ended this request; it is in the gateway's log";
    RequestFailure {
        failure: Failure::new(ErrorKind::Internal, message),
        id: Some(id),
    }
}

impl HttpHeaders for HeaderMap {
    fn first(&self, name: &str) -> Option<(&[u8], bool)> {
        let mut values = match name {
            headers::METHOD => self.get_all(METHOD),
            headers::NAME => self.get_all(NAME),
            headers::PROTOCOL_VERSION => self.get_all(PROTOCOL_VERSION),
            // To be read as a name first, which takes longer.
            other => self.get_all(other),
        };
        let first = values.next()?;
        Some((first.as_bytes(), values.next().is_some()))
    }
}

/// Reads who asks, and checks that headers and body say the same (S-LIFE-14, S-HDR-04).
fn caller(
    http: &HttpRequest,
    headers: &McpHeaders<'_>,
    request: &Request,
    principal: Principal,
) -> Result<Arc<Caller>, Failure> {
    let known = http.app_data::<CallerCache>().zip(meta_key_of(request));
    if let Some((known, words)) = &known
        && let Some(caller) = known.find(words, &principal)
    {
        headers.check(request, caller.revision.as_str())?;
        return Ok(caller);
    }
    let claim = RequestMeta::read(request)?;
    headers.check(request, &claim.revision)?;
    let caller = Arc::new(Caller::sessionless(&claim, principal)?);
    if let Some((known, words)) = known {
        known.insert(&words, &caller);
    }
    Ok(caller)
}
