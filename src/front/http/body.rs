//! Reads request bodies within limits on size, time and total memory.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use actix_web::error::PayloadError;
use actix_web::http::header;
use actix_web::{HttpRequest, web};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use tokio::time::{Instant, timeout_at};

use super::accept::is_json;
use super::headers::header_text;
use crate::calls::QuotaShare;
use crate::front::settings::FrontSettings;
use crate::protocol::{ErrorKind, Failure};

/// How much of an oversized body is read before the refusal, and for how long: a client that is
/// still sending would not see an earlier answer.
const DRAIN_MAX: usize = 64 * 1024 * 1024;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the announced length of a JSON body.
///
/// # Errors
///
/// Returns the 415 that the client reads if the body is not JSON.
pub(in crate::front) fn json_length(request: &HttpRequest) -> Result<Option<usize>, Failure> {
    if !is_json(header_text(request, &header::CONTENT_TYPE)) {
        let message = "`Content-Type` must be application/json";
        return Err(Failure::new(ErrorKind::UnsupportedMediaType, message));
    }
    let length = header_text(request, &header::CONTENT_LENGTH);
    Ok(length.and_then(|length| length.parse().ok()))
}

/// Reads a complete body. A body that arrives in one piece is not copied.
///
/// # Errors
///
/// Returns the 413, 408, 400 or 503 that the client reads. The rest of the body is drained within
/// limits, because the client would not see the answer if the connection closed earlier.
pub(in crate::front) async fn read(
    payload: &mut web::Payload,
    announced: Option<usize>,
    settings: &FrontSettings,
    taken: &mut QuotaShare,
) -> Result<Bytes, Failure> {
    let max = settings.body_max;
    if announced.is_some_and(|length| length > max) {
        return Box::pin(drain_and_refuse(payload, max)).await;
    }
    let mut until = None;
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    loop {
        let next = match next_if_ready(payload).await {
            Some(next) => next,
            None => {
                let until = until.get_or_insert_with(|| Instant::now() + settings.body_timeout);
                // Boxed, because it is rare and would enlarge the future of every request.
                let next = Box::pin(timeout_at(*until, payload.next())).await;
                next.map_err(|_| too_slow(settings))?
            }
        };
        let Some(chunk) = next else { break };
        let chunk = chunk.map_err(|error| {
            let message = format!("request body could not be read: {error}");
            Failure::new(ErrorKind::InvalidRequest, message)
        })?;
        if first.len() + rest.len() + chunk.len() > max {
            drop((first, rest));
            return Box::pin(drain_and_refuse(payload, max)).await;
        }
        let limit = settings.body_bytes(taken.holder());
        let grown = taken.grow(chunk.len(), &limit);
        grown.map_err(|why| limit.failure(why))?;
        if first.is_empty() && rest.is_empty() {
            first = chunk;
        } else {
            if rest.is_empty() {
                rest.reserve(
                    announced
                        .unwrap_or(0)
                        .min(max)
                        .max(first.len() + chunk.len()),
                );
                rest.extend_from_slice(&first);
                first = Bytes::new();
            }
            rest.extend_from_slice(&chunk);
        }
    }
    Ok(if rest.is_empty() {
        first
    } else {
        rest.freeze()
    })
}

/// Returns the next part of a body if it has already arrived, at the latest by the second poll;
/// `None` if it has to be waited for. Most bodies arrive with the head and therefore need no timer.
async fn next_if_ready(payload: &mut web::Payload) -> Option<Option<Result<Bytes, PayloadError>>> {
    let mut looked = false;
    let looking = poll_fn(|cx| match payload.poll_next_unpin(cx) {
        Poll::Ready(next) => Poll::Ready(Some(next)),
        Poll::Pending if looked => Poll::Ready(None),
        Poll::Pending => {
            looked = true;
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    });
    looking.await
}

fn too_slow(settings: &FrontSettings) -> Failure {
    let message = format!(
        "request body did not arrive within {} (`gateway.body_timeout`)",
        humantime::format_duration(settings.body_timeout)
    );
    Failure::new(ErrorKind::BodyTimeout, message)
}

/// Refuses an oversized body, after reading the rest of it within limits.
async fn drain_and_refuse(payload: &mut web::Payload, max: usize) -> Result<Bytes, Failure> {
    let until = Instant::now() + DRAIN_TIMEOUT;
    let mut drained = 0;
    while let Ok(Some(Ok(chunk))) = timeout_at(until, payload.next()).await {
        drained += chunk.len();
        if drained > DRAIN_MAX {
            break;
        }
    }
    let message = format!("request body is larger than {max} bytes (`limits.body`)");
    Err(Failure::new(ErrorKind::TooLarge, message))
}
