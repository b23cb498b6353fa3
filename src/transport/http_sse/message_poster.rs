//! Sends messages to an HTTP+SSE server: each is a POST of its own, which the server only
//! acknowledges.

use std::rc::Rc;

use awc::http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use awc::http::{Method, StatusCode};
use awc::{Client, ClientResponse, FrozenClientRequest};
use bytes::Bytes;
use tokio::time::timeout;

use crate::telemetry::unix_millis;
use crate::transport::http::body::{self, BodyKind, body_kind};
use crate::transport::http::link_tasks::{LinkTasks, NOTE_MAX};
use crate::transport::http::request_factory::{RequestFactory, freeze};
use crate::transport::http::sending::{
    EXCERPT_MAX, REFUSAL_MAX, is_repeatable, link_error, send_or_repeat,
};
use crate::transport::http::{redirect, refusals};
use crate::transport::{EventSink, LinkError, LinkEvent, LinkOpenError, SendError, messages};

pub(super) struct MessagePoster {
    pub(super) tasks: LinkTasks,
    call: FrozenClientRequest,
    note: FrozenClientRequest,
    server: RequestFactory,
}

/// Why the server did not accept a message.
enum PostError {
    /// The server does not know the session, so the stream is useless.
    SessionGone,
    Other(LinkError),
}

impl MessagePoster {
    /// `factory` must create requests to the message address.
    ///
    /// # Errors
    ///
    /// Returns [`LinkOpenError::Other`] if the HTTP client rejects a request.
    pub(super) fn new(factory: RequestFactory, sink: EventSink) -> Result<Self, LinkOpenError> {
        let request = |client: &Client| {
            let request = factory.request(client, Method::POST);
            let request = request.insert_header((ACCEPT, HeaderValue::from_static("*/*")));
            let json = HeaderValue::from_static("application/json");
            freeze(request.insert_header((CONTENT_TYPE, json)))
        };
        Ok(Self {
            tasks: LinkTasks::new(sink),
            call: request(factory.for_calls())?,
            note: request(factory.for_streams())?,
            server: factory,
        })
    }

    /// Ends all tasks and reports the end of the stream, after which no request can be answered.
    pub(super) fn closed(&self, reason: String) {
        self.tasks.end_all();
        self.tasks.emit(LinkEvent::Closed(reason.into()));
        self.tasks.mute();
    }

    /// Sends a request, whose answer arrives on the stream.
    pub(super) fn call(self: &Rc<Self>, call: u64, frame: Bytes) -> Result<(), SendError> {
        if self.tasks.has_ended() {
            return Err(SendError::Closed);
        }
        let poster = Rc::clone(self);
        self.tasks.start_call(call, async move {
            poster.tasks.wait_for_initialized().await;
            let may_repeat = || is_repeatable(&frame);
            let sent = timeout(NOTE_MAX, poster.post(&poster.call, &frame, may_repeat)).await;
            poster.tasks.finish(call);
            match sent {
                // A server that delays its response to the POST can still answer on the stream.
                Ok(Ok(())) | Err(_) => {}
                Ok(Err(PostError::Other(error))) => poster.tasks.fail(Some(call), error),
                Ok(Err(PostError::SessionGone)) => {
                    let error = LinkError::NotSent(SESSION_GONE.into());
                    poster.tasks.fail(Some(call), error);
                    poster.closed(SESSION_GONE.to_owned());
                }
            }
        });
        Ok(())
    }

    /// Sends a notification or an answer.
    pub(super) fn note(self: &Rc<Self>, frame: Bytes) -> Result<(), SendError> {
        let (poster, of_task) = (Rc::clone(self), frame.clone());
        self.tasks.start_note(&frame, async move {
            // Notifications and answers can be repeated without harm.
            match poster.post(&poster.note, &of_task, || true).await {
                Ok(()) => {}
                Err(PostError::SessionGone) => poster.closed(SESSION_GONE.to_owned()),
                Err(PostError::Other(error)) => poster.tasks.fail(None, error),
            }
        })
    }

    async fn post(
        &self,
        request: &FrozenClientRequest,
        frame: &Bytes,
        may_repeat: impl FnOnce() -> bool,
    ) -> Result<(), PostError> {
        let none = HeaderMap::new();
        let send = || async {
            let (response, _) = self
                .server
                .authorized(request, &none, frame.clone())
                .send()
                .await?;
            Ok(response)
        };
        let sent = send_or_repeat(send, may_repeat).await;
        let mut response = sent.map_err(|error| PostError::Other(link_error(&error)))?;
        let is_taken = response.status().is_success();
        if is_taken && body_kind(&response) == BodyKind::Events {
            return Ok(());
        }
        // The body is read so that the connection can be reused.
        let body = body::read(&mut response, REFUSAL_MAX, NOTE_MAX).await;
        if is_taken {
            return Ok(());
        }
        Err(refusal(&response, &body.unwrap_or_default()))
    }
}

const SESSION_GONE: &str = "the server no longer knows the session of the event stream";

fn refusal(response: &ClientResponse, body: &[u8]) -> PostError {
    let status = response.status();
    let text = redirect::refusal(response);
    let text = text.unwrap_or_else(|| messages::excerpt(body, EXCERPT_MAX));
    if is_session_gone(status, &text) {
        return PostError::SessionGone;
    }
    let status = status.as_u16();
    let retry_after = refusals::retry_after(response.headers(), unix_millis());
    PostError::Other(LinkError::Status {
        status,
        text,
        retry_after,
    })
}

/// Whether a refusal is about the session: 404, or the text that servers based on the SDKs'
/// examples send with 400 ("No transport found for sessionId", "Invalid session ID").
fn is_session_gone(status: StatusCode, text: &str) -> bool {
    match status {
        StatusCode::NOT_FOUND | StatusCode::GONE => true,
        StatusCode::BAD_REQUEST => text.to_lowercase().contains("session"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_session_is_distinguished_from_a_bad_message() {
        let cases = [
            (404, "", true),
            (410, "", true),
            (400, "No transport found for sessionId", true),
            (400, "Invalid session ID", true),
            (400, "Could not parse message", false),
            (500, "session store is down", false),
            (413, "", false),
        ];
        for (status, text, expected) in cases {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(is_session_gone(status, text), expected, "{status} {text}");
        }
    }
}
