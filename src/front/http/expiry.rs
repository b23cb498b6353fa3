//! Streams that end when the credentials of their reader expire: who may not ask may not read on.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse};
use bytes::Bytes;
use futures_util::future::{FutureExt as _, LocalBoxFuture};
use tokio::time::sleep;

use crate::auth::Identity;
use crate::telemetry::unix_millis;

/// How often the clock is looked at: it may be set meanwhile.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// When the stream of a request ends: beside the request and not in its future, which every request
/// would pay for.
struct StreamEnd(u64);

/// Notes when the answer ends, if it is a stream of no call.
pub(super) fn note(
    identity: &Identity,
    request: &HttpRequest,
    opens_stream: impl FnOnce(&HttpRequest) -> bool,
) {
    if let Some(expires_at) = identity.expires_at
        && opens_stream(request)
    {
        request.extensions_mut().insert(StreamEnd(expires_at));
    }
}

/// Ends the answer when [`note`] has noted it to.
pub(super) fn ends_as_noted(response: HttpResponse, request: &HttpRequest) -> HttpResponse {
    let noted = request.extensions().get().map(|StreamEnd(at)| *at);
    match noted {
        Some(expires_at) if response.status().is_success() => ends_at(response, expires_at),
        _ => response,
    }
}

/// Ends the body of a response at this time, in milliseconds since 1970.
pub(in crate::front) fn ends_at(response: HttpResponse, expires_at: u64) -> HttpResponse {
    response.map_body(|_, body| {
        BoxBody::new(ExpiringBody {
            body,
            expired: expiry(expires_at).boxed_local(),
        })
    })
}

async fn expiry(expires_at: u64) {
    loop {
        match expires_at.saturating_sub(unix_millis()) {
            0 => return,
            left => sleep(Duration::from_millis(left).min(LOOK_EVERY)).await,
        }
    }
}

struct ExpiringBody {
    body: BoxBody,
    expired: LocalBoxFuture<'static, ()>,
}

impl MessageBody for ExpiringBody {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let this = self.get_mut();
        match this.expired.poll_unpin(task) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => Pin::new(&mut this.body).poll_next(task),
        }
    }
}
