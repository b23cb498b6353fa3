//! A link and a sink that write to a tape what passes.

use std::rc::Rc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use tokio::time::Instant;

use super::Tape;
use super::entry::Entry;
use crate::protocol::{Envelope, RequestId, Revision};
use crate::transport::{EventSink, HttpSession, Link, LinkEvent, Outgoing, SendError};

pub(super) struct Recorded {
    inner: Box<dyn Link>,
    tape: Tape,
}

impl Recorded {
    pub(super) fn new(inner: Box<dyn Link>, tape: Tape) -> Self {
        Self { inner, tape }
    }
}

pub(super) fn recorded(inner: EventSink, tape: Tape) -> EventSink {
    Rc::new(move |event| {
        let entry = Entry::received(Instant::now(), &event, tape.settings.body_max);
        let answered = match &event {
            LinkEvent::Received {
                envelope: Envelope::Response(response),
                ..
            } => response.id.as_ref().and_then(RequestId::as_number),
            LinkEvent::Failed { call, .. } => Some(*call),
            LinkEvent::Received { .. } | LinkEvent::SessionGone { .. } | LinkEvent::Closed(_) => {
                None
            }
        };
        tape.received(answered, entry);
        inner(event);
    })
}

impl Link for Recorded {
    fn send(&self, outgoing: Outgoing) -> Result<(), SendError> {
        let now = Instant::now();
        let (call, frame) = (outgoing.call, outgoing.frame.clone());
        self.inner.send(outgoing)?;
        let body_max = self.tape.settings.body_max;
        let entry = Entry::sent(now, call, &frame, body_max);
        self.tape.sent(call, frame, entry);
        Ok(())
    }

    fn forget(&self, call: u64) {
        self.tape.answered(call);
        self.inner.forget(call);
    }

    fn set_revision(&self, revision: Revision) {
        self.inner.set_revision(revision);
    }

    fn set_session(&self, session: HttpSession) {
        self.inner.set_session(session);
    }

    fn http_session(&self) -> Option<HttpSession> {
        self.inner.http_session()
    }

    fn listen(&self) {
        self.inner.listen();
    }

    fn close(self: Box<Self>, grace: Duration) -> LocalBoxFuture<'static, ()> {
        self.inner.close(grace)
    }
}
