//! Tracks the phase of a client connection (idle, receiving a head, serving) for its timeouts, and
//! splits answers into parts, so that slow readers do not make the gateway buffer whole answers.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix_web::body::{BodySize, MessageBody};
use bytes::Bytes;
use pin_project_lite::pin_project;
use tokio::time::Instant;

use crate::memory::note_passed;

/// The phase of one connection and its unsent bytes.
#[derive(Debug)]
pub(super) struct RequestClock {
    phase: Cell<Phase>,
    /// Bytes of the current answer that were not handed to the connection yet.
    unsent: Cell<usize>,
    /// Whether the connection has no seat, so that its requests are refused.
    is_beyond: Cell<bool>,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Opened at this time; no byte was received yet. actix-http times the first head.
    New(Instant),
    /// The first request's head is being received.
    FirstHead,
    Serving,
    /// Idle since this time: no byte of a further request was received.
    Idle(Instant),
    /// A further request's head has been arriving since this time.
    Head(Instant),
}

/// A request in progress; dropped when the last part of its answer was handed to the connection.
#[derive(Debug)]
pub(super) struct Serving(Rc<RequestClock>);

impl Default for RequestClock {
    fn default() -> Self {
        Self {
            phase: Cell::new(Phase::New(Instant::now())),
            unsent: Cell::default(),
            is_beyond: Cell::default(),
        }
    }
}

impl RequestClock {
    /// Records that a request was received.
    pub(super) fn serve(self: &Rc<Self>) -> Serving {
        self.phase.set(Phase::Serving);
        Serving(Rc::clone(self))
    }

    pub(super) fn set_beyond(&self) {
        self.is_beyond.set(true);
    }

    /// Returns whether the connection exceeds the limit, so that its requests are refused.
    pub(super) fn is_beyond(&self) -> bool {
        self.is_beyond.get()
    }

    /// Returns the time since when the connection has been idle; `None` if it is in use.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        match self.phase.get() {
            Phase::New(since) | Phase::Idle(since) => Some(since),
            Phase::FirstHead | Phase::Serving | Phase::Head(_) => None,
        }
    }

    /// Returns the number of bytes of the current answer that were not handed to the connection
    /// yet.
    pub(super) fn unsent(&self) -> usize {
        self.unsent.get()
    }

    /// Records that bytes were received.
    pub(super) fn received(&self) {
        match self.phase.get() {
            Phase::New(_) => self.phase.set(Phase::FirstHead),
            Phase::Idle(_) => self.phase.set(Phase::Head(Instant::now())),
            Phase::FirstHead | Phase::Serving | Phase::Head(_) => {}
        }
    }

    /// Returns when the connection times out because a head is missing. actix-http closes idle
    /// connections earlier, except when it has received what looks like the start of a head.
    pub(super) fn due(&self, head_timeout: Duration, keep_alive: Duration) -> Option<Instant> {
        match self.phase.get() {
            Phase::New(_) | Phase::FirstHead | Phase::Serving => None,
            Phase::Idle(since) => Some(since + keep_alive + head_timeout),
            Phase::Head(since) => Some(since + head_timeout),
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.unsent.set(0);
        self.0.phase.set(Phase::Idle(Instant::now()));
    }
}

/// Maximum size of the parts handed to the connection, in bytes. The connection copies each part,
/// so a client that does not read costs at most this much in addition to the answer itself.
const PART_MAX: usize = 32 * 1024;

pin_project! {
    /// The body of an answer, split into parts. Dropping it ends the request.
    pub(super) struct ServedBody<B> {
        #[pin]
        body: B,
        rest: Bytes,
        serving: Option<Serving>,
    }
}

impl<B> ServedBody<B> {
    pub(super) fn new(body: B, serving: Option<Serving>) -> Self {
        let rest = Bytes::new();
        Self {
            body,
            rest,
            serving,
        }
    }
}

impl<B: MessageBody> MessageBody for ServedBody<B> {
    type Error = B::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let this = self.project();
        if this.rest.is_empty() {
            match ready!(this.body.poll_next(cx)) {
                Some(Ok(bytes)) => {
                    if bytes.len() > PART_MAX {
                        note_passed(bytes.len());
                    }
                    *this.rest = bytes;
                }
                end => return Poll::Ready(end),
            }
        }
        let part = this.rest.split_to(PART_MAX.min(this.rest.len()));
        if let Some(Serving(clock)) = this.serving {
            clock.unsent.set(this.rest.len());
        }
        Poll::Ready(Some(Ok(part)))
    }

    fn try_into_bytes(self) -> Result<Bytes, Self> {
        if !self.rest.is_empty() {
            return Err(self);
        }
        let Self { body, serving, .. } = self;
        body.try_into_bytes()
            .map_err(|body| Self::new(body, serving))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::poll_fn;
    use std::pin::pin;

    use actix_web::body::BodyStream;
    use futures_util::stream;

    use super::*;

    #[tokio::test]
    async fn a_large_answer_is_handed_on_in_parts() {
        let chunks = [3 * PART_MAX + 1, 0, 5].map(|size| Bytes::from(vec![b'x'; size]));
        let chunks = stream::iter(chunks.map(Ok::<_, Infallible>));
        let clock = Rc::new(RequestClock::default());
        let body = ServedBody::new(BodyStream::new(chunks), Some(clock.serve()));
        let mut seen = Vec::new();
        {
            let mut body = pin!(body);
            while let Some(part) = poll_fn(|cx| body.as_mut().poll_next(cx)).await {
                seen.push((part.unwrap().len(), clock.unsent()));
            }
        }
        let whole = PART_MAX;
        let expected = [
            (whole, 2 * whole + 1),
            (whole, whole + 1),
            (whole, 1),
            (1, 0),
            (5, 0),
        ];
        assert_eq!(seen, expected);
    }

    #[tokio::test]
    async fn an_answer_that_is_dropped_is_not_unsent() {
        let clock = Rc::new(RequestClock::default());
        let body = ServedBody::new(Bytes::from(vec![b'x'; 2 * PART_MAX]), Some(clock.serve()));
        {
            let mut body = pin!(body);
            poll_fn(|cx| body.as_mut().poll_next(cx))
                .await
                .unwrap()
                .unwrap();
            assert_eq!(clock.unsent(), PART_MAX);
        }
        assert_eq!(clock.unsent(), 0);
    }
}
