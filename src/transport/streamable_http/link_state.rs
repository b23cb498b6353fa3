//! The session of one link, and the requests of that session.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use awc::FrozenClientRequest;
use awc::error::FreezeRequestError;
use awc::http::header::{HeaderMap, HeaderValue};
use bytes::Bytes;
use serde::Deserialize;
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::CommonParts;
use super::requests::{SessionHeaders, SessionRequests};
use super::sessionless_request_cache::SessionlessRequestCache;
use crate::bridge::headers::StandardHeaders;
use crate::credentials::Credential;
use crate::masking::public_url;
use crate::memory::HeldRoom;
use crate::protocol::{Envelope, EnvelopeError, Outcome, RequestId, Revision, code};
use crate::telemetry::Counters;
use crate::transport::http::authorized::AuthorizedRequest;
use crate::transport::http::link_tasks::LinkTasks;
use crate::transport::http::refusals::names_session;
use crate::transport::http::request_factory::RequestFactory;
use crate::transport::{
    CookieJar, EventSink, HttpSession, HttpSettings, LargeAnswers, LinkError, LinkEvent,
    LinkOpenError, SessionRefusal, messages,
};

/// How long the first calls wait for the stream for messages that belong to no call, because some
/// servers answer its request only with their first message.
const STREAM_OPENS_WITHIN: Duration = Duration::from_millis(500);

/// Longest session id that is accepted, in bytes; every request repeats it.
const SESSION_ID_MAX: usize = 4096;

pub(super) struct HttpLinkState {
    pub(super) settings: Arc<HttpSettings>,
    pub(super) tasks: LinkTasks,
    pub(super) counters: Counters,
    pub(super) answers: LargeAnswers,
    server: Rc<RequestFactory>,
    requests: RefCell<Rc<SessionRequests>>,
    sessionless_request_cache: SessionlessRequestCache,
    /// Task of the stream for messages that belong to no call.
    listening: RefCell<Option<AbortOnDropHandle<()>>>,
    /// Whether the first request for that stream is unanswered.
    is_stream_opening: Cell<bool>,
    stream_opened: Notify,
}

impl HttpLinkState {
    pub(super) fn new(
        common: CommonParts<'_>,
        sink: EventSink,
        session: SessionHeaders,
    ) -> Result<Rc<Self>, LinkOpenError> {
        let settings = Arc::clone(common.settings);
        let mut server = RequestFactory::new(&settings, common.tls)?;
        server.cookies = session.cookies.clone();
        let server = Rc::new(server);
        let requests = SessionRequests::new(&server, session);
        Ok(Rc::new(Self {
            settings,
            tasks: LinkTasks::new(sink),
            counters: common.counters.clone(),
            answers: common.answers.clone(),
            server,
            requests: RefCell::new(Rc::new(requests)),
            sessionless_request_cache: SessionlessRequestCache::default(),
            listening: RefCell::default(),
            is_stream_opening: Cell::new(false),
            stream_opened: Notify::new(),
        }))
    }

    pub(super) fn requests(&self) -> Rc<SessionRequests> {
        Rc::clone(&self.requests.borrow())
    }

    /// A request that belongs to no session.
    ///
    /// # Errors
    ///
    /// Returns [`FreezeRequestError`] if the HTTP client rejects the request.
    pub(super) fn sessionless(
        &self,
        headers: &StandardHeaders,
    ) -> Result<FrozenClientRequest, FreezeRequestError> {
        self.sessionless_request_cache.of(headers, &self.server)
    }

    /// Combines a prepared request with headers and a body; an empty body is not sent.
    pub(super) fn authorized<'a>(
        &'a self,
        request: &'a FrozenClientRequest,
        extra: &'a HeaderMap,
        body: Bytes,
    ) -> AuthorizedRequest<'a> {
        self.server.authorized(request, extra, body)
    }

    /// The server's token, if requests carry one.
    pub(super) fn credential(&self) -> Option<&Arc<Credential>> {
        self.server.credential()
    }

    pub(super) fn cookies(&self) -> &CookieJar {
        &self.server.cookies
    }

    pub(super) fn http_session(&self) -> Option<HttpSession> {
        let requests = self.requests.borrow();
        let session = requests.session();
        let id = session.id.as_ref();
        let id = id.and_then(|id| id.to_str().ok()).map(str::to_owned);
        let revision = session.revision?;
        let cookies = self.server.cookies.clone();
        Some(HttpSession {
            id,
            revision,
            cookies,
        })
    }

    pub(super) fn set_revision(&self, revision: Revision) {
        self.change_session(|session| session.revision = Some(revision));
    }

    /// Sends later requests in this session.
    pub(super) fn set_session(&self, new: HttpSession) {
        if new.id.is_none() {
            self.server.cookies.clear();
        }
        self.change_session(|session| {
            session.id = new.id.and_then(|id| id.parse().ok());
            session.revision = Some(new.revision);
        });
    }

    /// Adopts the id from the server's answer to `initialize` (C-HTTP-14).
    pub(super) fn adopt_session(&self, id: &HeaderValue) {
        if id.len() > SESSION_ID_MAX || id.to_str().is_err() {
            let url = public_url(&self.settings.url);
            log::warn!(url, length = id.len(); "ignoring an unusable session id");
            return;
        }
        let mut id = id.clone();
        id.set_sensitive(true);
        self.change_session(|session| session.id = Some(id));
    }

    /// Reports that the server refused a request's session (C-HTTP-15). The id is kept until a new
    /// handshake starts ([`HttpLinkState::set_session`]), because calls without an id would be
    /// refused as invalid.
    pub(super) fn session_gone(&self, call: Option<u64>, refusal: SessionRefusal) {
        let refusal = Box::new(refusal);
        self.tasks.emit(LinkEvent::SessionGone { call, refusal });
    }

    /// Whether the session was replaced since `requests` were prepared.
    pub(super) fn is_stale(&self, requests: &SessionRequests) -> bool {
        !std::ptr::eq(requests, &**self.requests.borrow())
    }

    fn change_session(&self, change: impl FnOnce(&mut SessionHeaders)) {
        let mut session = self.requests.borrow().session().clone();
        change(&mut session);
        let requests = SessionRequests::new(&self.server, session);
        *self.requests.borrow_mut() = Rc::new(requests);
    }

    /// Delivers the messages received for `call`. Returns whether the answer was among them. `room`
    /// is the reservation for the bytes.
    ///
    /// # Errors
    ///
    /// Returns the fault of the first invalid message.
    pub(super) fn receive(
        &self,
        call: Option<u64>,
        bytes: Bytes,
        is_whole_answer: bool,
        mut room: Option<HeldRoom>,
    ) -> Result<bool, EnvelopeError> {
        let mut answered = false;
        messages::for_each_message(bytes, |envelope| {
            let mut envelope = envelope;
            envelope.take_room(&mut room);
            if let (Some(number), Envelope::Response(response)) = (call, &envelope) {
                let id = response.id.as_ref();
                if id.and_then(RequestId::as_number) == Some(number) {
                    answered = true;
                    if let Some(refusal) = self.refused_session(&envelope) {
                        return self.session_gone(call, refusal);
                    }
                } else if id.is_none() && is_whole_answer && is_error(&response.outcome) {
                    // The server could not read the id, and only one request is possible.
                    let own = response.with_id(&RequestId::from(number));
                    if let Ok(with_id) = Envelope::parse(own) {
                        envelope = with_id;
                        answered = true;
                    }
                }
            }
            self.tasks.emit(LinkEvent::Received { call, envelope });
        })?;
        Ok(answered)
    }

    /// The refusal that an answer contains, if it denies knowing the session.
    fn refused_session(&self, envelope: &Envelope) -> Option<SessionRefusal> {
        let Envelope::Response(response) = envelope else {
            return None;
        };
        if !self.requests.borrow().has_session() {
            return None;
        }
        let text = session_error(&response.outcome)?;
        Some(SessionRefusal {
            answer: Some(envelope.clone()),
            ..SessionRefusal::new(LinkError::status(200, text))
        })
    }

    pub(super) fn start_listening(&self, task: impl Future<Output = ()> + 'static) {
        self.is_stream_opening.set(true);
        let task = AbortOnDropHandle::new(actix_rt::spawn(task));
        self.listening.borrow_mut().replace(task);
    }

    pub(super) fn is_stream_opening(&self) -> bool {
        self.is_stream_opening.get()
    }

    /// Records that the server answered the request for the stream, with any status.
    pub(super) fn stream_answered(&self) {
        self.is_stream_opening.set(false);
        self.stream_opened.notify_waiters();
    }

    /// Waits briefly for that answer, because some servers lose requests that they send before the
    /// stream is open.
    pub(super) async fn stream_opened(&self) {
        let _ = timeout(STREAM_OPENS_WITHIN, self.stream_opened.notified()).await;
        self.is_stream_opening.set(false);
    }

    pub(super) fn stop_listening(&self) {
        self.stream_answered();
        self.listening.borrow_mut().take();
    }
}

/// Text of an error about the session, from servers that answer every request with status 200.
fn session_error(outcome: &Outcome) -> Option<String> {
    #[derive(Deserialize)]
    struct ErrorFields {
        code: i64,
        message: String,
    }
    const CODES: [i64; 3] = [code::SESSION, code::UNAUTHORIZED, code::INVALID_REQUEST];

    let Outcome::Error(error) = outcome else {
        return None;
    };
    let error = error.parse::<ErrorFields>().ok()?;
    let is_about_it = CODES.contains(&error.code) && names_session(error.message.as_bytes());
    is_about_it.then_some(error.message)
}

fn is_error(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Error(_))
}
