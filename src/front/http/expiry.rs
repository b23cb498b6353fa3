//! Ends event streams when the credentials of their client expire, so that they cannot be read any
//! longer than requests can be sent.

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

/// Maximum time between two looks at the clock, which can be set in the meantime.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// The time at which the stream of a request ends, in milliseconds since 1970. Stored in the
/// request's extensions, because a field in the handler's future would enlarge it for every
/// request.
struct StreamEnd(u64);

/// Records when the stream of a request must end, if the request opens a stream and its credentials
/// expire.
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

/// Ends the answer at the time recorded by [`note`], if any.
pub(super) fn ends_as_noted(response: HttpResponse, request: &HttpRequest) -> HttpResponse {
    let noted = request.extensions().get().map(|StreamEnd(at)| *at);
    match noted {
        Some(expires_at) if response.status().is_success() => ends_at(response, expires_at),
        _ => response,
    }
}

/// Ends the body of a response at `expires_at`, in milliseconds since 1970.
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
