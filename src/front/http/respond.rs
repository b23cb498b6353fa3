//! Builds HTTP responses. Every body is JSON-RPC, even for errors that HTTP alone could express.

use std::task::{Context, Poll};

use actix_web::HttpResponse;
use actix_web::body::BoxBody;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::poll_fn;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::event_body::EventBody;
use super::headers::{self, ACCEL_BUFFERING, PROTOCOL_VERSION, SESSION_ID};
use super::parts_body::PartsBody;
use crate::calls::{ClientReply, ReplyError, RequestGuard, StreamEvent};
use crate::front::encode;
use crate::front::intake::RequestFailure;
use crate::front::settings::FrontSettings;
use crate::front::state::Front;
use crate::id::SessionId;
use crate::protocol::{Revision, retry_after_seconds};

/// Size in bytes up to which queued events are combined into one chunk; the last event can exceed
/// it.
const TOGETHER_MAX: usize = 16 * 1024;

/// Waits for the reply to a request; `None` if its session or call ended without one. After
/// `sse_after`, `upgrade` requests a stream if it is given.
pub(in crate::front) fn wait_for_answer<F: FnOnce()>(
    mut answer: oneshot::Receiver<ClientReply>,
    upgrade: Option<F>,
    settings: &FrontSettings,
) -> impl Future<Output = Option<ClientReply>> + use<F> {
    let sse_after = settings.sse_after;
    async move {
        if let Some(upgrade) = upgrade {
            match timeout(sse_after, &mut answer).await {
                Ok(answer) => return answer.ok(),
                Err(_) => upgrade(),
            }
        }
        answer.await.ok()
    }
}

/// Returns the response for a reply. `waiting` is held until the client has read the response.
pub(in crate::front) fn http_response(
    answer: ClientReply,
    revision: Revision,
    waiting: Option<RequestGuard>,
    front: &Front,
    settings: &FrontSettings,
) -> HttpResponse {
    match answer {
        ClientReply::Json(body) => json(BoxBody::new(body), revision),
        ClientReply::Parts(parts) => json(BoxBody::new(PartsBody::new(parts)), revision),
        ClientReply::Error { error, frame } => {
            let mut response = json(BoxBody::new(frame), revision);
            *response.status_mut() = encode::error_status(&error);
            if let ReplyError::Gateway { retry_after_ms, .. } = error {
                add_retry_after(&mut response, retry_after_ms);
            }
            response
        }
        ClientReply::Accepted => accepted(revision),
        ClientReply::Over => no_content(revision),
        ClientReply::Stream(mut stream) => {
            let frames = poll_fn(move |task| poll_events(&mut stream, task));
            let in_flight = front.in_flight.token();
            let comment_every = settings.sse_comment_every;
            let body = EventBody::new(frames, comment_every, in_flight, waiting);
            events(body, revision)
        }
    }
}

/// Returns all queued events in one chunk.
fn poll_events(
    stream: &mut mpsc::Receiver<StreamEvent>,
    task: &mut Context<'_>,
) -> Poll<Option<Bytes>> {
    let mut text = Vec::new();
    let mut room = None;
    while text.len() < TOGETHER_MAX {
        match stream.poll_recv(task) {
            Poll::Ready(Some(event)) => {
                encode::stream_event(&event, &mut text);
                room = room.or(event.room);
            }
            Poll::Ready(None) if text.is_empty() => return Poll::Ready(None),
            Poll::Pending if text.is_empty() => return Poll::Pending,
            Poll::Ready(None) | Poll::Pending => break,
        }
    }
    let text = Bytes::from(text);
    Poll::Ready(Some(match room {
        Some(room) => room.hold(text),
        None => text,
    }))
}

/// Returns a response with a JSON-RPC message and status 200.
pub(in crate::front) fn json(body: BoxBody, revision: Revision) -> HttpResponse {
    let mut response = HttpResponse::with_body(StatusCode::OK, body);
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    with_revision(response, revision)
}

/// Returns the response to `initialize`.
pub(in crate::front) fn initialize_response(
    body: Bytes,
    revision: Revision,
    id: SessionId,
) -> HttpResponse {
    let mut response = json(BoxBody::new(body), revision);
    response
        .headers_mut()
        .insert(SESSION_ID, headers::value(&id.expose()));
    response
}

/// Returns a response without a body.
pub(in crate::front) fn empty(status: StatusCode) -> HttpResponse {
    with_title_case_headers(HttpResponse::with_body(status, BoxBody::new(())))
}

pub(in crate::front) fn accepted(revision: Revision) -> HttpResponse {
    with_revision(empty(StatusCode::ACCEPTED), revision)
}

pub(in crate::front) fn no_content(revision: Revision) -> HttpResponse {
    with_revision(empty(StatusCode::NO_CONTENT), revision)
}

pub(in crate::front) fn events(
    stream: impl Stream<Item = Result<Bytes, std::convert::Infallible>> + 'static,
    revision: Revision,
) -> HttpResponse {
    with_revision(event_stream(stream), revision)
}

/// Returns an event stream for a client that has not negotiated a revision yet.
pub(in crate::front) fn event_stream(
    stream: impl Stream<Item = Result<Bytes, std::convert::Infallible>> + 'static,
) -> HttpResponse {
    let response = HttpResponse::Ok()
        .insert_header((
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/event-stream"),
        ))
        .insert_header((header::CACHE_CONTROL, HeaderValue::from_static("no-cache")))
        .insert_header((ACCEL_BUFFERING, HeaderValue::from_static("no")))
        .streaming(stream);
    with_title_case_headers(response)
}

/// Returns the response for a failure outside a session: a JSON-RPC error with the HTTP status of
/// its kind.
pub(in crate::front) fn failure_response(refused: &RequestFailure) -> HttpResponse {
    let failure = &refused.failure;
    let status = StatusCode::from_u16(failure.kind.http_status())
        .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = refused.frame();
    let mut response = HttpResponse::with_body(status, BoxBody::new(body));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    add_retry_after(&mut response, failure.retry_after_ms);
    with_title_case_headers(response)
}

fn add_retry_after(response: &mut HttpResponse, milliseconds: Option<u64>) {
    if let Some(milliseconds) = milliseconds {
        let seconds = HeaderValue::from(retry_after_seconds(milliseconds));
        response.headers_mut().insert(header::RETRY_AFTER, seconds);
    }
}

fn with_revision(mut response: HttpResponse, revision: Revision) -> HttpResponse {
    let value = HeaderValue::from_static(revision.as_str());
    response.headers_mut().insert(PROTOCOL_VERSION, value);
    with_title_case_headers(response)
}

/// Writes header names in title case: some clients look for `Mcp-Session-Id` with that spelling.
pub(in crate::front) fn with_title_case_headers(mut response: HttpResponse) -> HttpResponse {
    response.head_mut().set_camel_case_headers(true);
    response
}
