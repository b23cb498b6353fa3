//! The state that the tasks of one link share. Lives on one arbiter; nothing is borrowed while
//! events go out, since their receiver may call the link.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use actix_rt::task::JoinHandle;
use awc::FrozenClientRequest;
use awc::error::FreezeRequestError;
use awc::http::header::HeaderValue;
use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::requests::{RequestFactory, SessionHeaders, SessionRequests};
use super::sessionless_request_cache::SessionlessRequestCache;
use crate::bridge::headers::StandardHeaders;
use crate::id::QuickMap;
use crate::protocol::{Envelope, EnvelopeError, Outcome, RequestId, Revision};
use crate::transport::{
    EventSink, HttpSession, HttpSettings, LinkError, LinkEvent, LinkOpenError, SendError, Tls,
    messages,
};

/// Longest session id that we send back with each request, in bytes.
const SESSION_ID_MAX: usize = 4096;

/// Notifications and answers under way at once; more are refused.
const NOTES_MAX: usize = 256;

pub(super) struct HttpLinkState {
    pub(super) settings: Arc<HttpSettings>,
    server: RequestFactory,
    session: RefCell<SessionHeaders>,
    requests: RefCell<Rc<SessionRequests>>,
    sessionless_request_cache: SessionlessRequestCache,
    sink: EventSink,
    is_muted: Cell<bool>,
    calls: RefCell<QuickMap<u64, JoinHandle<()>>>,
    /// Notifications and answers under way.
    notes: TaskTracker,
    notes_ended: CancellationToken,
    /// The stream for messages that belong to no call.
    listening: RefCell<Option<AbortOnDropHandle<()>>>,
    /// Calls wait for it while `notifications/initialized` is under way: separate POSTs may
    /// overtake each other, and servers refuse calls that come first.
    initialized: RefCell<Option<CancellationToken>>,
}

impl HttpLinkState {
    pub(super) fn new(
        settings: Arc<HttpSettings>,
        tls: &Tls,
        sink: EventSink,
        session: SessionHeaders,
    ) -> Result<Rc<Self>, LinkOpenError> {
        let server = RequestFactory::new(&settings, tls)?;
        let requests = server.requests(&session)?;
        Ok(Rc::new(Self {
            settings,
            server,
            session: RefCell::new(session),
            requests: RefCell::new(Rc::new(requests)),
            sessionless_request_cache: SessionlessRequestCache::default(),
            sink,
            is_muted: Cell::new(false),
            calls: RefCell::default(),
            notes: TaskTracker::new(),
            notes_ended: CancellationToken::new(),
            listening: RefCell::default(),
            initialized: RefCell::default(),
        }))
    }

    pub(super) fn emit(&self, event: LinkEvent) {
        if !self.is_muted.get() {
            (self.sink)(event);
        }
    }

    pub(super) fn fail(&self, call: Option<u64>, error: LinkError) {
        match call {
            Some(call) => self.emit(LinkEvent::Failed { call, error }),
            None => log::debug!(error:%; "a message was not delivered"),
        }
    }

    pub(super) fn requests(&self) -> Rc<SessionRequests> {
        Rc::clone(&self.requests.borrow())
    }

    /// A request that belongs to no session.
    ///
    /// # Errors
    ///
    /// Returns [`FreezeRequestError`] when the HTTP client refuses the request.
    pub(super) fn sessionless(
        &self,
        headers: &StandardHeaders,
    ) -> Result<FrozenClientRequest, FreezeRequestError> {
        self.sessionless_request_cache.of(headers, &self.server)
    }

    pub(super) fn http_session(&self) -> Option<HttpSession> {
        let session = self.session.borrow();
        let id = session.id.as_ref();
        let id = id.and_then(|id| id.to_str().ok()).map(str::to_owned);
        let revision = session.revision?;
        Some(HttpSession { id, revision })
    }

    pub(super) fn set_revision(&self, revision: Revision) {
        self.change_session(|session| session.revision = Some(revision));
    }

    /// Later requests are sent in this session instead.
    pub(super) fn set_session(&self, new: HttpSession) {
        self.change_session(|session| {
            session.id = new.id.and_then(|id| id.parse().ok());
            session.revision = Some(new.revision);
        });
    }

    /// Takes the id that a server gives with its answer to `initialize` (C-HTTP-14).
    pub(super) fn adopt_session(&self, id: &HeaderValue) {
        if id.len() > SESSION_ID_MAX || id.to_str().is_err() {
            log::warn!(length = id.len(); "unusable session id ignored");
            return;
        }
        let mut id = id.clone();
        id.set_sensitive(true);
        self.change_session(|session| session.id = Some(id));
    }

    /// The server does not know the session any more (C-HTTP-15). The id stays until a new
    /// handshake begins ([`HttpLinkState::set_session`]): a call without one would be refused as
    /// wrong.
    pub(super) fn session_gone(&self, call: Option<u64>) {
        self.emit(LinkEvent::SessionGone { call });
    }

    fn change_session(&self, change: impl FnOnce(&mut SessionHeaders)) {
        let mut session = self.session.borrow().clone();
        change(&mut session);
        match self.server.requests(&session) {
            Ok(requests) => {
                *self.requests.borrow_mut() = Rc::new(requests);
                *self.session.borrow_mut() = session;
            }
            Err(error) => log::error!(error:%; "session cannot be used"),
        }
    }

    /// Hands on what came for `call`; whether its answer was among it.
    ///
    /// # Errors
    ///
    /// Returns the fault of the first message that is none.
    pub(super) fn receive(
        &self,
        call: Option<u64>,
        bytes: Bytes,
        is_whole_answer: bool,
    ) -> Result<bool, EnvelopeError> {
        let mut answered = false;
        messages::for_each_message(bytes, |envelope| {
            let mut envelope = envelope;
            if let (Some(number), Envelope::Response(response)) = (call, &envelope) {
                let id = response.id.as_ref();
                if id.and_then(RequestId::as_number) == Some(number) {
                    answered = true;
                } else if id.is_none() && is_whole_answer && is_error(&response.outcome) {
                    // The server could not read the id; there is only one that it can mean.
                    let own = response.with_id(&RequestId::from(number));
                    if let Ok(with_id) = Envelope::parse(own) {
                        envelope = with_id;
                        answered = true;
                    }
                }
            }
            self.emit(LinkEvent::Received { call, envelope });
        })?;
        Ok(answered)
    }

    /// The task says itself when it has ended ([`HttpLinkState::finish`]).
    pub(super) fn start_call(&self, call: u64, task: impl Future<Output = ()> + 'static) {
        let task = actix_rt::spawn(task);
        if let Some(older) = self.calls.borrow_mut().insert(call, task) {
            older.abort();
        }
    }

    /// The call is over: `forget` can do nothing to its task any more.
    pub(super) fn finish(&self, call: u64) {
        self.calls.borrow_mut().remove(&call);
    }

    pub(super) fn forget(&self, call: u64) {
        if let Some(task) = self.calls.borrow_mut().remove(&call) {
            task.abort();
        }
    }

    pub(super) fn start_listening(&self, task: impl Future<Output = ()> + 'static) {
        let task = AbortOnDropHandle::new(actix_rt::spawn(task));
        self.listening.borrow_mut().replace(task);
    }

    /// Sends a message that is no call, unless too many are under way.
    pub(super) fn start_note(
        &self,
        task: impl Future<Output = ()> + 'static,
    ) -> Result<(), SendError> {
        if self.notes.is_closed() {
            return Err(SendError::Closed);
        }
        if self.notes.len() >= NOTES_MAX {
            return Err(SendError::Full);
        }
        let ended = self.notes_ended.clone();
        let task = async move {
            ended.run_until_cancelled(task).await;
        };
        actix_rt::spawn(self.notes.track_future(task));
        Ok(())
    }

    /// Takes no more notes and waits for those under way.
    pub(super) async fn drain_notes(&self) {
        self.notes.close();
        self.notes.wait().await;
    }

    /// Ends all calls and the stream.
    pub(super) fn end_calls(&self) {
        self.listening.borrow_mut().take();
        for (_, task) in self.calls.borrow_mut().drain() {
            task.abort();
        }
    }

    pub(super) fn end_notes(&self) {
        self.notes.close();
        self.notes_ended.cancel();
    }

    /// From now on calls wait until the returned token is cancelled.
    pub(super) fn delay_calls(&self) -> CancellationToken {
        let token = CancellationToken::new();
        self.initialized.borrow_mut().replace(token.clone());
        token
    }

    /// The `initialized` that calls have to wait for, if it is still under way.
    pub(super) fn pending_initialized(&self) -> Option<CancellationToken> {
        let pending_initialized = self.initialized.borrow();
        pending_initialized
            .as_ref()
            .filter(|token| !token.is_cancelled())
            .cloned()
    }

    pub(super) fn mute(&self) {
        self.is_muted.set(true);
    }
}

fn is_error(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Error(_))
}
