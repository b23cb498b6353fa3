//! The link of a connection, shared by the connection, which writes its own requests to it, and by
//! the sender on the same thread, which writes the clients' calls and reads the link's events.

use std::cell::{Cell, RefCell};

use bytes::Bytes;
use tokio::time::Instant;

use crate::protocol::{Era, Revision};
use crate::transport::{EventSink, HttpSession, Link, LinkRecording, OutgoingFrame, SendError};

/// A link, and what everything that writes to it has to know.
pub(crate) struct SharedLink {
    /// `None` before the link is opened, and after it was taken.
    link: RefCell<Option<Box<dyn Link>>>,
    recording: LinkRecording,
    /// Whether there is no session, because the handshake is not done or the server lost the
    /// session. Calls then wait.
    pub(crate) awaits_handshake: Cell<bool>,
    /// Whether the server is sessionless, so that every request describes its client.
    pub(crate) is_modern: Cell<bool>,
    /// Whether this is one client's session. Its lists are the shared ones until calls of the
    /// client could have changed them.
    pub(crate) is_own_session: Cell<bool>,
    /// When the server last sent a message; before that, when the link was created.
    pub(crate) last_received: Cell<Instant>,
    /// When a large answer last arrived or was discarded.
    pub(crate) last_large: Cell<Option<Instant>>,
}

impl SharedLink {
    /// A link that is not open yet. Its messages are added to `recording`.
    pub(crate) fn new(recording: LinkRecording) -> Self {
        Self {
            link: RefCell::default(),
            recording,
            awaits_handshake: Cell::new(true),
            is_modern: Cell::default(),
            is_own_session: Cell::default(),
            last_received: Cell::new(Instant::now()),
            last_large: Cell::default(),
        }
    }

    /// The sink with which the link has to be opened, so that its events are recorded.
    pub(crate) fn recorded(&self, sink: EventSink) -> EventSink {
        self.recording.sink(sink)
    }

    pub(crate) fn set_open(&self, link: Box<dyn Link>) {
        self.link.replace(Some(self.recording.link(link)));
    }

    /// Takes the link in order to close or drop it. Nothing can be sent from now on.
    pub(crate) fn take(&self) -> Option<Box<dyn Link>> {
        self.link.take()
    }

    /// Runs an operation of the link, if it is open.
    pub(crate) fn with<T>(&self, run: impl FnOnce(&dyn Link) -> T) -> Option<T> {
        self.link.borrow().as_deref().map(run)
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
        self.is_modern.set(revision.era() == Era::Modern);
        self.with(|link| link.set_revision(revision));
    }
}
