//! The body of an event stream: sends events, and keep-alive comments while the stream is quiet.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::calls::RequestGuard;

/// A comment that clients ignore. It keeps proxies from closing the stream, and reveals clients
/// that have disconnected.
const COMMENT: Bytes = Bytes::from_static(b": keep-alive\n\n");

/// The body of a response that streams `events`.
pub(in crate::front) struct EventBody<S> {
    events: S,
    comments: Interval,
    /// Whether events were sent since the comment interval was last reset.
    had_event: bool,
    _in_flight: TaskTrackerToken,
    _waiting: Option<RequestGuard>,
}

impl<S> EventBody<S> {
    pub(in crate::front) fn new(
        events: S,
        comment_every: Duration,
        in_flight: TaskTrackerToken,
        waiting: Option<RequestGuard>,
    ) -> Self {
        let mut comments = interval_at(Instant::now() + comment_every, comment_every);
        comments.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            events,
            comments,
            had_event: false,
            _in_flight: in_flight,
            _waiting: waiting,
        }
    }
}

impl<S: Stream<Item = Bytes> + Unpin> Stream for EventBody<S> {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let body = self.get_mut();
        if let Poll::Ready(event) = body.events.poll_next_unpin(task) {
            body.had_event = true;
            return Poll::Ready(event.map(Ok));
        }
        // Resetting the interval once per burst is cheaper than once per event.
        if std::mem::take(&mut body.had_event) {
            body.comments.reset();
        }
        body.comments.poll_tick(task).map(|_| Some(Ok(COMMENT)))
    }
}
