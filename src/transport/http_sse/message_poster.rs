//! Messages to the server: each is a POST of its own, whose answer only says that it was taken.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use actix_rt::task::JoinHandle;
use awc::http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use awc::http::{Method, StatusCode};
use awc::{Client, ClientResponse, FrozenClientRequest};
use bytes::Bytes;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use url::Url;

use crate::protocol::Envelope;
use crate::transport::streamable_http::body;
use crate::transport::streamable_http::post::{
    BodyKind, EXCERPT_MAX, INITIALIZED_MAX, NOTE_MAX, REFUSAL_MAX, body_kind, is_initialized,
    is_lost, link_error, may_repeat,
};
use crate::transport::streamable_http::requests::{client, freeze, parts, uri_of};
use crate::transport::{
    EventSink, HttpSettings, LinkError, LinkEvent, LinkOpenError, SendError, Tls, messages,
};

/// Notifications and answers under way at once; more are refused.
const NOTES_MAX: usize = 256;

/// The state that a link's tasks share. Lives on one arbiter; nothing is borrowed while events go
/// out.
pub(super) struct MessagePoster {
    call: FrozenClientRequest,
    note: FrozenClientRequest,
    sink: EventSink,
    is_muted: Cell<bool>,
    calls: RefCell<HashMap<u64, JoinHandle<()>>>,
    notes: TaskTracker,
    ended: CancellationToken,
    /// Calls wait for it while `notifications/initialized` is under way: separate POSTs may
    /// overtake each other.
    initialized: RefCell<Option<CancellationToken>>,
}

/// Why a message was not taken.
enum PostError {
    /// The server knows no such session: the stream is of no use any more.
    SessionGone,
    Other(LinkError),
}

impl MessagePoster {
    /// # Errors
    ///
    /// Returns [`LinkOpenError::Other`] when the settings or the address hold what HTTP cannot
    /// carry.
    pub(super) fn new(
        settings: &HttpSettings,
        tls: &Tls,
        endpoint: &Url,
        sink: EventSink,
    ) -> Result<Rc<Self>, LinkOpenError> {
        let uri = uri_of(endpoint).map_err(LinkOpenError::Other)?;
        let (_, headers) = parts(settings)?;
        let request = |client: Client| {
            let mut request = client
                .request(Method::POST, uri.clone())
                .camel_case()
                .no_decompress()
                .insert_header((ACCEPT, HeaderValue::from_static("*/*")))
                .insert_header((CONTENT_TYPE, HeaderValue::from_static("application/json")));
            for (name, value) in &headers {
                request.headers_mut().append(name.clone(), value.clone());
            }
            freeze(request)
        };
        Ok(Rc::new(Self {
            call: request(client(settings, tls, settings.connections_max.max(1)))?,
            // Of their own, because a call may wait for one of them.
            note: request(client(settings, tls, 0))?,
            sink,
            is_muted: Cell::new(false),
            calls: RefCell::default(),
            notes: TaskTracker::new(),
            ended: CancellationToken::new(),
            initialized: RefCell::default(),
        }))
    }

    pub(super) fn received(&self, envelope: Envelope) {
        let call = None;
        self.emit(LinkEvent::Received { call, envelope });
    }

    /// The stream is over: nothing that is asked from now on can be answered.
    pub(super) fn closed(&self, reason: String) {
        self.end();
        self.emit(LinkEvent::Closed(reason.into()));
        self.mute();
    }

    fn emit(&self, event: LinkEvent) {
        if !self.is_muted.get() {
            (self.sink)(event);
        }
    }

    pub(super) fn mute(&self) {
        self.is_muted.set(true);
    }

    /// Sends a request; its answer comes on the stream.
    pub(super) fn call(self: &Rc<Self>, call: u64, frame: Bytes) -> Result<(), SendError> {
        if self.ended.is_cancelled() {
            return Err(SendError::Closed);
        }
        let message_poster = Rc::clone(self);
        let task = actix_rt::spawn(async move {
            if let Some(pending_initialized) = message_poster.pending_initialized() {
                let _ = timeout(INITIALIZED_MAX, pending_initialized.cancelled()).await;
            }
            let outcome = timeout(
                NOTE_MAX,
                message_poster.post(&message_poster.call, frame, may_repeat),
            )
            .await;
            message_poster.calls.borrow_mut().remove(&call);
            match outcome {
                // A server that holds its answer to the POST may answer on the stream.
                Ok(Ok(())) | Err(_) => {}
                Ok(Err(PostError::Other(error))) => {
                    message_poster.emit(LinkEvent::Failed { call, error })
                }
                Ok(Err(PostError::SessionGone)) => {
                    let error = LinkError::NotSent(SESSION_GONE.to_owned());
                    message_poster.emit(LinkEvent::Failed { call, error });
                    message_poster.closed(SESSION_GONE.to_owned());
                }
            }
        });
        if let Some(older) = self.calls.borrow_mut().insert(call, task) {
            older.abort();
        }
        Ok(())
    }

    /// Sends a notification or an answer.
    pub(super) fn note(self: &Rc<Self>, frame: Bytes) -> Result<(), SendError> {
        if self.ended.is_cancelled() || self.notes.is_closed() {
            return Err(SendError::Closed);
        }
        if self.notes.len() >= NOTES_MAX {
            return Err(SendError::Full);
        }
        let release = is_initialized(&frame).then(|| self.delay_calls().drop_guard());
        let (message_poster, ended) = (Rc::clone(self), self.ended.clone());
        let task = async move {
            let _release = release;
            // Twice the same notification or answer says the same.
            let sent = timeout(
                NOTE_MAX,
                message_poster.post(&message_poster.note, frame, |_| true),
            )
            .await;
            match sent {
                Ok(Ok(())) => {}
                Ok(Err(PostError::SessionGone)) => message_poster.closed(SESSION_GONE.to_owned()),
                Ok(Err(PostError::Other(error))) => {
                    log::debug!(error:%; "a message was not delivered");
                }
                Err(_) => log::debug!("a message was not taken in time"),
            }
        };
        actix_rt::spawn(self.notes.track_future(async move {
            ended.run_until_cancelled(task).await;
        }));
        Ok(())
    }

    async fn post(
        &self,
        request: &FrozenClientRequest,
        frame: Bytes,
        may_repeat: impl Fn(&Bytes) -> bool,
    ) -> Result<(), PostError> {
        let sent = match request.send_body(frame.clone()).await {
            Err(error) if is_lost(&error) && may_repeat(&frame) => request.send_body(frame).await,
            sent => sent,
        };
        let mut response = sent.map_err(|error| PostError::Other(link_error(&error)))?;
        if body_kind(&response) == BodyKind::Events && response.status().is_success() {
            return Ok(());
        }
        // Read, so that the connection can be used again.
        let body = body::read(&mut response, REFUSAL_MAX, NOTE_MAX).await;
        if response.status().is_success() {
            return Ok(());
        }
        Err(refusal(&response, &body.unwrap_or_default()))
    }

    /// Nobody waits for this call; one that is not sent yet is not sent any more.
    pub(super) fn forget(&self, call: u64) {
        if let Some(task) = self.calls.borrow_mut().remove(&call) {
            task.abort();
        }
    }

    /// Takes no more notes and waits for those under way.
    pub(super) async fn drain_notes(&self) {
        self.notes.close();
        self.notes.wait().await;
    }

    /// Ends what is under way.
    pub(super) fn end(&self) {
        self.ended.cancel();
        self.notes.close();
        for (_, task) in self.calls.borrow_mut().drain() {
            task.abort();
        }
    }

    fn delay_calls(&self) -> CancellationToken {
        let token = CancellationToken::new();
        self.initialized.borrow_mut().replace(token.clone());
        token
    }

    fn pending_initialized(&self) -> Option<CancellationToken> {
        let pending_initialized = self.initialized.borrow();
        pending_initialized
            .as_ref()
            .filter(|token| !token.is_cancelled())
            .cloned()
    }
}

const SESSION_GONE: &str = "the server does not know the session of the event stream any more";

fn refusal(response: &ClientResponse, body: &[u8]) -> PostError {
    let status = response.status();
    let text = messages::excerpt(body, EXCERPT_MAX);
    if is_session_gone(status, &text) {
        return PostError::SessionGone;
    }
    let status = status.as_u16();
    PostError::Other(LinkError::Status { status, text })
}

/// Whether a refusal is about the session: 404, or what servers after the examples of the SDKs
/// say with 400 ("No transport found for sessionId", "Invalid session ID").
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
