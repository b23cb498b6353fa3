//! The link of a connection, shared by the connection, which writes its own requests to it, and by
//! the sender on the same thread, which writes the clients' calls and reads the link's events.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use tokio::time::Instant;

use crate::protocol::{Era, Revision};
use crate::transport::{
    EventSink, HttpSession, Link, LinkEvent, LinkRecording, OutgoingFrame, SendError,
};

/// A link, and what everything that writes to it has to know. Cheap to clone.
#[derive(Clone)]
pub(crate) struct SharedLink(Rc<LinkState>);

struct LinkState {
    /// `None` before the link is opened, and after it was taken.
    link: RefCell<Option<Box<dyn Link>>>,
    recording: LinkRecording,
    /// Whether there is no session, so that calls wait for a handshake.
    awaits_handshake: Cell<bool>,
    is_modern: Cell<bool>,
    is_own_session: Cell<bool>,
    last_received: Cell<Option<Instant>>,
    last_large: Cell<Option<Instant>>,
}

impl SharedLink {
    /// A link that is not open yet. Its messages are added to `recording`.
    pub(crate) fn new(recording: LinkRecording) -> Self {
        Self(Rc::new(LinkState {
            link: RefCell::default(),
            recording,
            awaits_handshake: Cell::new(true),
            is_modern: Cell::default(),
            is_own_session: Cell::default(),
            last_received: Cell::default(),
            last_large: Cell::default(),
        }))
    }

    /// The sink with which the link has to be opened.
    pub(crate) fn recorded(&self, sink: EventSink) -> EventSink {
        self.0.recording.sink(sink)
    }

    pub(crate) fn set_open(&self, link: Box<dyn Link>) {
        let link = self.0.recording.link(link);
        self.0.link.replace(Some(link));
    }

    /// Takes the link in order to close or drop it. Nothing can be sent from now on.
    pub(crate) fn take(&self) -> Option<Box<dyn Link>> {
        self.0.link.take()
    }

    /// Runs an operation of the link, if it is open.
    pub(crate) fn with<T>(&self, run: impl FnOnce(&dyn Link) -> T) -> Option<T> {
        self.0.link.borrow().as_deref().map(run)
    }

    /// Accepts a frame without blocking.
    ///
    /// # Errors
    ///
    /// Returns [`SendError`] if the frame was not accepted and will not be sent.
    pub(crate) fn send(&self, outgoing: OutgoingFrame) -> Result<(), SendError> {
        let sent = self.with(|link| link.send(outgoing));
        sent.unwrap_or(Err(SendError::Closed))
    }

    /// Sends a notification or a response. A dead link reports its own end.
    pub(crate) fn write(&self, frame: Bytes) {
        let _ = self.send(OutgoingFrame::new(None, frame));
    }

    /// Frees the resources of a request whose answer is no longer awaited.
    pub(crate) fn forget(&self, number: u64) {
        self.with(|link| link.forget(number));
    }

    /// The session of a Streamable HTTP server.
    pub(crate) fn http_session(&self) -> Option<HttpSession> {
        self.with(|link| link.http_session()).flatten()
    }

    /// Sets the revision for later requests, after a handshake.
    pub(crate) fn set_revision(&self, revision: Revision) {
        self.0.is_modern.set(revision.era() == Era::Modern);
        self.with(|link| link.set_revision(revision));
    }

    pub(crate) fn set_session(&self, session: HttpSession) {
        self.with(|link| link.set_session(session));
    }

    /// Whether the server is sessionless, so that every request describes its client.
    pub(crate) fn is_modern(&self) -> bool {
        self.0.is_modern.get()
    }

    /// Whether there is no session, because the handshake is not done or the server lost the
    /// session. Calls then wait.
    pub(crate) fn awaits_handshake(&self) -> bool {
        self.0.awaits_handshake.get()
    }

    pub(crate) fn set_awaits_handshake(&self, awaits_handshake: bool) {
        self.0.awaits_handshake.set(awaits_handshake);
    }

    /// Whether this is one client's session, whose lists its calls can change.
    pub(crate) fn is_own_session(&self) -> bool {
        self.0.is_own_session.get()
    }

    pub(crate) fn set_own_session(&self, is_own_session: bool) {
        self.0.is_own_session.set(is_own_session);
    }

    /// Records when an event arrived.
    pub(crate) fn note(&self, event: &LinkEvent, now: Instant) {
        if let LinkEvent::Received { .. } = event {
            self.0.last_received.set(Some(now));
        }
        if event.is_of_large_answer() {
            self.0.last_large.set(Some(now));
        }
    }

    /// When the server last sent a message.
    pub(crate) fn last_received(&self) -> Option<Instant> {
        self.0.last_received.get()
    }

    /// When a large answer last arrived or was discarded.
    pub(crate) fn last_large(&self) -> Option<Instant> {
        self.0.last_large.get()
    }
}
