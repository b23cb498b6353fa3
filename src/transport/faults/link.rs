//! A link that injects faults into the messages to and from a server.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::{FaultState, FaultyConnection, FrameFate};
use crate::protocol::{Envelope, RequestId, Revision};
use crate::transport::{
    EventSink, HttpSession, Link, LinkError, LinkEvent, OutgoingFrame, SendError, messages,
};

/// Maximum messages that wait for their delay; more are lost.
const QUEUE_MAX: usize = 10_000;

/// Maximum bytes of garbage that are logged.
const EXCERPT_MAX: usize = 100;

/// A link with injected faults.
pub(super) struct FaultyLink {
    pub(super) inner: Box<dyn Link>,
    pub(super) faults: LinkFaults,
}

/// The faults of one link, and its delayed events, whose delivery stops when this is dropped.
pub(super) struct LinkFaults {
    state: Arc<FaultState>,
    connection: Arc<FaultyConnection>,
    delayed: DelayQueue,
    delivery: AbortOnDropHandle<()>,
}

/// Delayed events, in order.
#[derive(Clone)]
struct DelayQueue(mpsc::Sender<(Instant, LinkEvent)>);

impl LinkFaults {
    /// Returns the faults and the sink that the real link reports to.
    pub(super) fn new(
        state: &Arc<FaultState>,
        connection: Arc<FaultyConnection>,
        knows_call_of_requests: bool,
        sink: EventSink,
    ) -> (Self, EventSink) {
        // One place is reserved for the end of the link.
        let (events, queue) = mpsc::channel(QUEUE_MAX + 1);
        let delayed = DelayQueue(events);
        let receiver = FaultyReceiver {
            state: Arc::clone(state),
            connection: Arc::clone(&connection),
            knows_call_of_requests,
            delayed: delayed.clone(),
        };
        let faults = Self {
            state: Arc::clone(state),
            connection,
            delayed,
            delivery: AbortOnDropHandle::new(actix_rt::spawn(deliver(queue, sink))),
        };
        (faults, Rc::new(move |event| receiver.take(event)))
    }
}

async fn deliver(mut queue: mpsc::Receiver<(Instant, LinkEvent)>, sink: EventSink) {
    while let Some((due, event)) = queue.recv().await {
        if due > Instant::now() {
            sleep_until(due).await;
        }
        let is_last = matches!(event, LinkEvent::Closed(_));
        sink(event);
        if is_last {
            return;
        }
    }
}

impl DelayQueue {
    fn push(&self, delay: Duration, event: LinkEvent) {
        let is_end = matches!(event, LinkEvent::Closed(_));
        if self.0.capacity() > 1 || is_end {
            // An error here implies that the end of the link is delivered or queued.
            let _ = self.0.try_send((Instant::now() + delay, event));
        }
    }
}

/// Receives the events of the real link.
struct FaultyReceiver {
    state: Arc<FaultState>,
    connection: Arc<FaultyConnection>,
    knows_call_of_requests: bool,
    delayed: DelayQueue,
}

impl FaultyReceiver {
    fn take(&self, event: LinkEvent) {
        let silent = self.connection.silent.load(Ordering::Relaxed);
        let settings = &self.state.settings;
        let event = match event {
            LinkEvent::Closed(end) => LinkEvent::Closed(end),
            _ if silent => return,
            LinkEvent::Received { .. } if self.state.should_inject(settings.drop) => return,
            LinkEvent::Received { call, envelope }
                if self.state.should_inject(settings.garbage) =>
            {
                match self.garble(call, &envelope) {
                    Some(failed) => failed,
                    None => return,
                }
            }
            other => other,
        };
        self.delayed.push(settings.delay, event);
    }

    /// Returns the effect of garbage on the transport: over HTTP, the call to which it belongs
    /// fails; garbage on stdout belongs to no call.
    fn garble(&self, call: Option<u64>, envelope: &Envelope) -> Option<LinkEvent> {
        let (frame, answered) = match envelope {
            Envelope::Request(request) => (&request.frame, None),
            Envelope::Notification(notification) => (&notification.frame, None),
            Envelope::Response(response) => (&response.frame, response.id.as_ref()),
        };
        let garbage = self.state.garbled(frame.as_bytes());
        let excerpt = messages::excerpt(&garbage, EXCERPT_MAX);
        let error = messages::for_each_message(garbage.into(), |_| {}).err()?;
        self.state
            .note(&format!("garbage by fault injection: {excerpt}"));
        let call = call.or(answered.and_then(RequestId::as_number));
        let call = call.filter(|_| self.knows_call_of_requests)?;
        let error = LinkError::Protocol(messages::fault(&error));
        Some(LinkEvent::Failed { call, error })
    }
}

impl Link for FaultyLink {
    fn send(&self, outgoing: OutgoingFrame) -> Result<(), SendError> {
        let LinkFaults {
            state,
            connection,
            delayed,
            ..
        } = &self.faults;
        match state.fate(connection, &outgoing.frame) {
            FrameFate::Pass => self.inner.send(outgoing),
            FrameFate::Lost => Ok(()),
            FrameFate::Crash => {
                let reason = "broken by fault injection (`faults.crash_after`)".to_owned();
                delayed.push(Duration::ZERO, LinkEvent::Closed(reason.into()));
                Ok(())
            }
        }
    }

    fn is_read(&self) -> Option<bool> {
        self.inner.is_read()
    }

    fn forget(&self, call: u64) {
        self.inner.forget(call);
    }

    fn set_revision(&self, revision: Revision) {
        self.inner.set_revision(revision);
    }

    fn set_session(&self, session: HttpSession) {
        self.inner.set_session(session);
    }

    fn http_session(&self) -> Option<HttpSession> {
        let session = self.inner.http_session()?;
        let LinkFaults {
            state, connection, ..
        } = &self.faults;
        state.remember(session.clone(), connection);
        Some(session)
    }

    fn listen(&self) {
        self.inner.listen();
    }

    fn kill(&self) {
        self.inner.kill();
    }

    fn close(self: Box<Self>, grace: Duration) -> LocalBoxFuture<'static, ()> {
        self.faults.delivery.abort();
        self.inner.close(grace)
    }
}
