//! A link and a sink that record the messages passing through them.

use std::rc::Rc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use tokio::time::Instant;

use super::LinkRecording;
use super::recorded_message::RecordedMessage;
use crate::protocol::{Envelope, RequestId, Revision};
use crate::transport::{EventSink, HttpSession, Link, LinkEvent, OutgoingFrame, SendError};

pub(super) struct RecordingLink {
    inner: Box<dyn Link>,
    recording: LinkRecording,
}

impl RecordingLink {
    pub(super) fn new(inner: Box<dyn Link>, recording: LinkRecording) -> Self {
        Self { inner, recording }
    }
}

pub(super) fn recording_sink(inner: EventSink, recording: LinkRecording) -> EventSink {
    Rc::new(move |event| {
        let entry = RecordedMessage::received(Instant::now(), &event, recording.settings.body_max);
        let answered = match &event {
            LinkEvent::Received {
                envelope: Envelope::Response(response),
                ..
            } => response.id.as_ref().and_then(RequestId::as_number),
            LinkEvent::Failed { call, .. } => Some(*call),
            LinkEvent::Received { .. }
            | LinkEvent::SessionGone { .. }
            | LinkEvent::SignIn(_)
            | LinkEvent::Closed(_) => None,
        };
        recording.received(answered, entry);
        inner(event);
    })
}

impl Link for RecordingLink {
    fn send(&self, outgoing: OutgoingFrame) -> Result<(), SendError> {
        let now = Instant::now();
        let (call, frame) = (outgoing.call, outgoing.frame.clone());
        self.inner.send(outgoing)?;
        let body_max = self.recording.settings.body_max;
        let entry = RecordedMessage::sent(now, call, &frame, body_max);
        self.recording.sent(call, frame, entry);
        Ok(())
    }

    fn is_read(&self) -> Option<bool> {
        self.inner.is_read()
    }

    fn forget(&self, call: u64) {
        self.recording.answered(call);
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

    fn kill(&self) {
        self.inner.kill();
    }

    fn close(self: Box<Self>, grace: Duration) -> LocalBoxFuture<'static, ()> {
        self.inner.close(grace)
    }
}
