//! One link that misbehaves: what goes to the server, and what comes from it.

use std::cell::Cell;
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

/// Messages that may wait out their delay; more are lost.
const QUEUE_MAX: usize = 10_000;

/// Bytes of garbage that are kept for people.
const EXCERPT_MAX: usize = 100;

/// Half a link: what surrounds the real one.
pub(super) struct FaultLayer {
    shared: Arc<FaultState>,
    run: Arc<FaultyConnection>,
    delayed: DelayQueue,
    deliver: AbortOnDropHandle<()>,
}

/// The whole link.
struct FaultInjectingLink {
    inner: Box<dyn Link>,
    around: FaultLayer,
}

/// Events on their way, in order.
#[derive(Clone)]
struct DelayQueue {
    events: mpsc::UnboundedSender<(Instant, LinkEvent)>,
    /// How many there are.
    waiting: Rc<Cell<usize>>,
}

impl FaultLayer {
    /// With the sink that the real link reports to.
    pub(super) fn new(
        shared: Arc<FaultState>,
        run: Arc<FaultyConnection>,
        knows_call_of_requests: bool,
        sink: EventSink,
    ) -> (Self, EventSink) {
        let (events, queue) = mpsc::unbounded_channel();
        let delayed = DelayQueue {
            events,
            waiting: Rc::default(),
        };
        let deliver = deliver(queue, delayed.waiting.clone(), sink);
        let incoming = FaultyReceiver {
            shared: shared.clone(),
            run: run.clone(),
            knows_call_of_requests,
            delayed: delayed.clone(),
        };
        let link = Self {
            shared,
            run,
            delayed,
            deliver: AbortOnDropHandle::new(actix_rt::spawn(deliver)),
        };
        (link, Rc::new(move |event| incoming.take(event)))
    }

    pub(super) fn around(self, inner: Box<dyn Link>) -> impl Link {
        FaultInjectingLink {
            inner,
            around: self,
        }
    }
}

async fn deliver(
    mut queue: mpsc::UnboundedReceiver<(Instant, LinkEvent)>,
    waiting: Rc<Cell<usize>>,
    sink: EventSink,
) {
    while let Some((due, event)) = queue.recv().await {
        if due > Instant::now() {
            sleep_until(due).await;
        }
        waiting.set(waiting.get().saturating_sub(1));
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
        if self.waiting.get() < QUEUE_MAX || is_end {
            self.waiting.set(self.waiting.get() + 1);
            // An error means that the end was delivered.
            let _ = self.events.send((Instant::now() + delay, event));
        }
    }
}

/// The receiver of the real link's events.
struct FaultyReceiver {
    shared: Arc<FaultState>,
    run: Arc<FaultyConnection>,
    knows_call_of_requests: bool,
    delayed: DelayQueue,
}

impl FaultyReceiver {
    fn take(&self, event: LinkEvent) {
        let silent = self.run.silent.load(Ordering::Relaxed);
        let (shared, settings) = (&self.shared, &self.shared.settings);
        let event = match event {
            LinkEvent::Closed(ending) => LinkEvent::Closed(ending),
            _ if silent => return,
            LinkEvent::Received { .. } if shared.should_inject(settings.drop) => return,
            LinkEvent::Received { call, envelope } if shared.should_inject(settings.garbage) => {
                match self.garble(call, &envelope) {
                    Some(failed) => failed,
                    None => return,
                }
            }
            other => other,
        };
        self.delayed.push(settings.delay, event);
    }

    /// The effect of garbage on the transport: over HTTP the call fails to which it belongs, a line
    /// of a child belongs to nobody.
    fn garble(&self, call: Option<u64>, envelope: &Envelope) -> Option<LinkEvent> {
        let (frame, answered) = match envelope {
            Envelope::Request(request) => (&request.frame, None),
            Envelope::Notification(notification) => (&notification.frame, None),
            Envelope::Response(response) => (&response.frame, response.id.as_ref()),
        };
        let garbage = self.shared.garbled(frame.as_bytes());
        let excerpt = messages::excerpt(&garbage, EXCERPT_MAX);
        let error = messages::for_each_message(garbage.into(), |_| {}).err()?;
        self.shared
            .note(&format!("garbage by fault injection: {excerpt}"));
        let call = call.or(answered.and_then(RequestId::as_number));
        let call = call.filter(|_| self.knows_call_of_requests)?;
        Some(LinkEvent::Failed {
            call,
            error: LinkError::Protocol(error.to_string()),
        })
    }
}

impl Link for FaultInjectingLink {
    fn send(&self, outgoing: OutgoingFrame) -> Result<(), SendError> {
        match self.around.shared.fate(&self.around.run, &outgoing.frame) {
            FrameFate::Pass => self.inner.send(outgoing),
            FrameFate::Lost => Ok(()),
            FrameFate::Crash => {
                let reason = "broken by fault injection (`faults.crash_after`)".to_owned();
                let end = LinkEvent::Closed(reason.into());
                self.around.delayed.push(Duration::ZERO, end);
                Ok(())
            }
        }
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
        self.around
            .shared
            .remember(session.clone(), &self.around.run);
        Some(session)
    }

    fn listen(&self) {
        self.inner.listen();
    }

    fn close(self: Box<Self>, grace: Duration) -> LocalBoxFuture<'static, ()> {
        self.around.deliver.abort();
        self.inner.close(grace)
    }
}
