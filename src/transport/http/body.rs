//! Classifies the bodies of answers, and reads them up to a limit.

use std::time::Duration;

use awc::ClientResponse;
use awc::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};
use bytes::{Bytes, BytesMut};
use futures_util::future::LocalBoxFuture;
use futures_util::{FutureExt as _, StreamExt as _};
use serde::de::IgnoredAny;
use tokio::time::timeout;

use crate::memory::HeldRoom;
use crate::protocol::EnvelopeError;
use crate::transport::large_answers::{CALL_WAIT_MAX, MessageRoom};
use crate::transport::{LargeAnswers, LinkError, messages};

/// The kind of an answer's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transport) enum BodyKind {
    Json,
    Events,
    Missing,
    Other,
}

pub(in crate::transport) fn body_kind(response: &ClientResponse) -> BodyKind {
    let Some(value) = response.headers().get(CONTENT_TYPE) else {
        return BodyKind::Missing;
    };
    let value = value.as_bytes();
    let end = memchr::memchr(b';', value).unwrap_or(value.len());
    let essence = value.get(..end).unwrap_or_default().trim_ascii();
    if essence.eq_ignore_ascii_case(b"application/json") {
        BodyKind::Json
    } else if essence.eq_ignore_ascii_case(b"text/event-stream") {
        BodyKind::Events
    } else {
        BodyKind::Other
    }
}

/// The next part of a body; `None` at its end.
///
/// # Errors
///
/// Returns the text for [`LinkError::Lost`] if the connection broke or was silent for too long.
pub(in crate::transport) async fn next_chunk(
    response: &mut ClientResponse,
    idle_max: Duration,
) -> Result<Option<Bytes>, String> {
    // Most parts have already arrived and need no timer.
    let next = match response.next().now_or_never() {
        Some(next) => Ok(next),
        None => timeout(idle_max, response.next()).await,
    };
    match next {
        Ok(Some(Ok(chunk))) => Ok(Some(chunk)),
        Ok(None) => Ok(None),
        Ok(Some(Err(error))) => Err(format!("{BROKE_OFF}: {error}")),
        Err(_) => Err(format!(
            "the answer stood still for {} s",
            idle_max.as_secs()
        )),
    }
}

/// Reads the whole body. A body that arrived in one piece is not copied.
///
/// # Errors
///
/// Returns [`LinkError::TooLarge`] once the limit is exceeded, and [`LinkError::Lost`] if the body
/// is incomplete.
pub(in crate::transport) async fn read(
    response: &mut ClientResponse,
    length_max: usize,
    idle_max: Duration,
) -> Result<Bytes, LinkError> {
    let mut reader = BodyReader::new(length_max, idle_max, None);
    reader.read(response).await
}

/// Reads one body.
pub(in crate::transport) struct BodyReader<'a> {
    length_max: usize,
    idle_max: Duration,
    /// Budget for large answers; a large body is read only while the budget has room.
    answers: Option<&'a LargeAnswers>,
    room: MessageRoom,
}

impl<'a> BodyReader<'a> {
    pub(in crate::transport) fn new(
        length_max: usize,
        idle_max: Duration,
        answers: Option<&'a LargeAnswers>,
    ) -> Self {
        Self {
            length_max,
            idle_max,
            answers,
            room: MessageRoom::default(),
        }
    }

    /// The reservation for the body that was read, if it is large.
    pub(in crate::transport) fn room(&mut self, body: &Bytes) -> Option<HeldRoom> {
        self.room.take().settle(body.len())
    }

    const fn too_large(&self) -> LinkError {
        LinkError::TooLarge {
            name: "limits.body",
            limit: self.length_max,
        }
    }

    /// The wait for the room of a body of this size; `None` if the body can be read now.
    fn lacks_room(&mut self, bytes: usize) -> Option<LocalBoxFuture<'_, Result<(), LinkError>>> {
        let answers = self.answers?;
        match self.room.try_grow(answers, bytes) {
            true => None,
            false => Some(self.room.grow(answers, bytes, CALL_WAIT_MAX)),
        }
    }

    /// Reads the whole body.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`read`], and [`LinkError::NoRoom`].
    pub(in crate::transport) async fn read(
        &mut self,
        response: &mut ClientResponse,
    ) -> Result<Bytes, LinkError> {
        let announced = announced_length(response.headers());
        if announced.is_some_and(|length| length > self.length_max) {
            return Err(self.too_large());
        }
        if let Some(length) = announced
            && let Some(room) = self.lacks_room(length)
        {
            room.await?;
        }
        let mut first = Bytes::new();
        let mut all: Option<BytesMut> = None;
        while let Some(chunk) = next_chunk(response, self.idle_max)
            .await
            .map_err(LinkError::Lost)?
        {
            let length = all.as_ref().map_or(first.len(), BytesMut::len);
            if length + chunk.len() > self.length_max {
                return Err(self.too_large());
            }
            if let Some(room) = self.lacks_room(length + chunk.len()) {
                room.await?;
            }
            if length == 0 {
                first = chunk;
                continue;
            }
            let all = all.get_or_insert_with(|| {
                let mut all = BytesMut::with_capacity(announced.unwrap_or(2 * first.len()));
                all.extend_from_slice(&first);
                all
            });
            all.extend_from_slice(&chunk);
        }
        let body = all.map_or(first, BytesMut::freeze);
        // The HTTP client treats the end of the connection as the end of the body.
        if announced.is_some_and(|length| body.len() < length) {
            return Err(LinkError::Lost(BROKE_OFF.to_owned()));
        }
        Ok(body)
    }
}

/// Why `body` contains no message; a truncated chunked body shows only in its JSON.
pub(in crate::transport) fn malformed_body(
    headers: &HeaderMap,
    body: &[u8],
    error: &EnvelopeError,
) -> LinkError {
    if headers.contains_key(CONTENT_ENCODING) {
        return LinkError::Protocol("the body is compressed, which was not asked for".into());
    }
    let parsed = serde_json::from_slice::<IgnoredAny>(body);
    match parsed {
        Err(fault) if fault.is_eof() => LinkError::Lost(BROKE_OFF.to_owned()),
        _ => LinkError::Protocol(messages::fault(error)),
    }
}

const BROKE_OFF: &str = "the answer broke off";

fn announced_length(headers: &HeaderMap) -> Option<usize> {
    let length = headers.get(CONTENT_LENGTH)?.to_str().ok()?;
    length.parse().ok()
}
