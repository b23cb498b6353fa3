//! The body of an event stream: events, and comments while there are none.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::calls::RequestGuard;

/// A line that clients ignore: it keeps proxies from closing the stream, and shows whether the
/// client is still there.
const COMMENT: Bytes = Bytes::from_static(b": keep-alive\n\n");

pub(in crate::front) struct EventBody<E> {
    events: mpsc::Receiver<E>,
    encode: fn(&E) -> Bytes,
    comments: Interval,
    _in_flight: TaskTrackerToken,
    _waiting: Option<RequestGuard>,
}

impl<E> EventBody<E> {
    pub(in crate::front) fn new(
        events: mpsc::Receiver<E>,
        encode: fn(&E) -> Bytes,
        comment_every: Duration,
        in_flight: TaskTrackerToken,
        waiting: Option<RequestGuard>,
    ) -> Self {
        let mut comments = interval_at(Instant::now() + comment_every, comment_every);
        comments.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            events,
            encode,
            comments,
            _in_flight: in_flight,
            _waiting: waiting,
        }
    }
}

impl<E> Stream for EventBody<E> {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let body = self.get_mut();
        if let Poll::Ready(event) = body.events.poll_recv(task) {
            body.comments.reset();
            return Poll::Ready(event.map(|event| Ok((body.encode)(&event))));
        }
        body.comments.poll_tick(task).map(|_| Some(Ok(COMMENT)))
    }
}
