//! Passes the answer of another replica on to the client.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use actix_web::HttpResponse;
use actix_web::body::{BodyStream, BoxBody, SizedStream};
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderMap};
use bytes::{Bytes, BytesMut};
use futures_util::future::{FutureExt as _, LocalBoxFuture};
use futures_util::stream::LocalBoxStream;
use futures_util::{Stream, StreamExt as _};
use tokio_util::sync::WaitForCancellationFutureOwned;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::headers;
use crate::front::http::respond;
use crate::transport::PeerAnswer;

/// Bodies up to this size, in bytes, are read before the answer begins, so that an answer that
/// breaks off can still be replaced by a failure.
const WHOLE_MAX: u64 = 256 * 1024;

/// The ways in which a streamed answer ends, besides its last part.
pub(super) struct Streaming {
    /// The event that ends an event stream that broke off.
    pub(super) last_event: Option<Bytes>,
    /// Completes when the replica is gone: a frozen one keeps its connections open.
    pub(super) gone: LocalBoxFuture<'static, ()>,
    /// Ends the stream when the gateway stops.
    pub(super) closing: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    pub(super) _in_flight: TaskTrackerToken,
}

/// Returns whether an answer is an event stream.
pub(super) fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

/// Returns the response for an answer.
///
/// # Errors
///
/// Fails if the connection breaks within a short body.
pub(super) async fn response(
    answer: PeerAnswer,
    streaming: impl FnOnce() -> Streaming,
) -> Result<HttpResponse, String> {
    let PeerAnswer {
        status,
        headers: received,
        body,
    } = answer;
    let length = received.get(header::CONTENT_LENGTH);
    let length: Option<u64> = length.and_then(|text| text.to_str().ok()?.parse().ok());
    let body = match length {
        Some(length) if length <= WHOLE_MAX => BoxBody::new(whole(body).await?),
        Some(length) => BoxBody::new(SizedStream::new(length, Relayed::new(body, streaming()))),
        None if status == StatusCode::NO_CONTENT => BoxBody::new(()),
        None => BoxBody::new(BodyStream::new(Relayed::new(body, streaming()))),
    };
    let mut response = HttpResponse::with_body(status, body);
    *response.headers_mut() = headers::of_answer(&received);
    Ok(respond::with_title_case_headers(response))
}

async fn whole(mut body: LocalBoxStream<'static, Result<Bytes, String>>) -> Result<Bytes, String> {
    let Some(first) = body.next().await else {
        return Ok(Bytes::new());
    };
    let first = first?;
    let Some(next) = body.next().await else {
        return Ok(first);
    };
    let mut all = BytesMut::from(&*first);
    all.extend_from_slice(&next?);
    while let Some(part) = body.next().await {
        all.extend_from_slice(&part?);
    }
    Ok(all.freeze())
}

/// A body on its way from another replica to the client.
struct Relayed {
    body: LocalBoxStream<'static, Result<Bytes, String>>,
    streaming: Streaming,
    /// Whether the last part ended between two events.
    is_between_events: bool,
    is_over: bool,
}

impl Relayed {
    fn new(body: LocalBoxStream<'static, Result<Bytes, String>>, streaming: Streaming) -> Self {
        Self {
            body,
            streaming,
            is_between_events: true,
            is_over: false,
        }
    }
}

impl Stream for Relayed {
    type Item = io::Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let body = self.get_mut();
        if body.is_over {
            return Poll::Ready(None);
        }
        let closing = body.streaming.closing.as_mut();
        if closing.is_some_and(|closing| closing.as_mut().poll(task).is_ready()) {
            body.is_over = true;
            return Poll::Ready(None);
        }
        let next = match body.streaming.gone.poll_unpin(task) {
            Poll::Ready(()) => Some(Err("the replica is gone".to_owned())),
            Poll::Pending => ready!(body.body.poll_next_unpin(task)),
        };
        Poll::Ready(match next {
            Some(Ok(part)) => {
                body.is_between_events = part.ends_with(b"\n\n");
                Some(Ok(part))
            }
            None => None,
            Some(Err(why)) => {
                body.is_over = true;
                let last = body.streaming.last_event.take();
                let last = last.filter(|_| body.is_between_events);
                Some(last.ok_or_else(|| io::Error::other(why)))
            }
        })
    }
}
