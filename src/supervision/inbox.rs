//! A message queue for a permanent child that outlives its incarnations.
//!
//! An actor's mailbox dies with it, and its messages are lost. Messages that must not be lost wait
//! here: an incarnation takes one message at a time and acknowledges it. If it dies while handling
//! a message, the next incarnation retries the message once; after a second death the message is
//! dropped, so that one bad message cannot block the rest.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use futures_util::stream::{self, Stream};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Maximum number of attempts for a message.
const TRIES_MAX: u32 = 2;

/// A queue of messages for one child. Cheap to clone; writable from any thread.
pub struct Inbox<T>(Arc<InboxState<T>>);

struct InboxState<T> {
    queue: Mutex<InboxQueue<T>>,
    wakeup: Notify,
    max: usize,
}

struct InboxQueue<T> {
    waiting: VecDeque<T>,
    /// The message in progress, with the number of attempts.
    in_progress: Option<(T, u32)>,
}

/// A message taken from the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboxItem<T> {
    /// To be handled, possibly for the second time.
    Try(T),
    /// Dropped, because every attempt killed the incarnation that handled it.
    GivenUp(T),
}

impl<T> Clone for Inbox<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> fmt::Debug for Inbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.len();
        f.debug_struct("Inbox").field("waiting", &waiting).finish()
    }
}

impl<T> Inbox<T> {
    /// Creates a queue for at most `max` messages.
    pub fn new(max: usize) -> Self {
        let queue = Mutex::new(InboxQueue {
            waiting: VecDeque::new(),
            in_progress: None,
        });
        let wakeup = Notify::new();
        Self(Arc::new(InboxState { queue, wakeup, max }))
    }

    /// Adds a message; returns `false` if the queue is full.
    #[must_use]
    pub fn put(&self, message: T) -> bool {
        let mut queue = self.0.queue.lock();
        if queue.waiting.len() >= self.0.max {
            return false;
        }
        queue.waiting.push_back(message);
        drop(queue);
        self.0.wakeup.notify_one();
        true
    }

    /// Acknowledges the message in progress.
    pub fn done(&self) {
        let done = self.0.queue.lock().in_progress.take();
        // Drop it only after the lock is released.
        drop(done);
    }

    /// Number of waiting messages.
    pub fn len(&self) -> usize {
        self.0.queue.lock().waiting.len()
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: Clone + 'static> Inbox<T> {
    /// The endless stream of messages for one incarnation, which calls [`Inbox::done`] after each.
    /// A message that the previous incarnation did not acknowledge comes first.
    pub fn stream(&self) -> impl Stream<Item = InboxItem<T>> + 'static {
        stream::unfold(self.clone(), |inbox| async {
            loop {
                let taken = inbox.0.queue.lock().take();
                if let Some(taken) = taken {
                    return Some((taken, inbox));
                }
                inbox.0.wakeup.notified().await;
            }
        })
    }
}

impl<T: Clone> InboxQueue<T> {
    fn take(&mut self) -> Option<InboxItem<T>> {
        let (message, tries) = match self.in_progress.take() {
            Some((message, tries)) if tries >= TRIES_MAX => {
                return Some(InboxItem::GivenUp(message));
            }
            Some(again) => again,
            None => (self.waiting.pop_front()?, 0),
        };
        self.in_progress = Some((message.clone(), tries + 1));
        Some(InboxItem::Try(message))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt as _, StreamExt as _};

    use super::*;

    #[test]
    fn a_message_that_ended_an_incarnation_is_tried_once_more_and_then_given_up() {
        let inbox = Inbox::new(10);
        for message in ["a", "b", "c"] {
            assert!(inbox.put(message));
        }
        let next = || inbox.stream().boxed_local().next().now_or_never();
        let next = || next().flatten();
        assert_eq!(next(), Some(InboxItem::Try("a")));
        inbox.done();
        // Each stream represents another incarnation.
        assert_eq!(next(), Some(InboxItem::Try("b")));
        assert_eq!(next(), Some(InboxItem::Try("b")));
        inbox.done();
        assert_eq!(next(), Some(InboxItem::Try("c")));
        assert_eq!(next(), Some(InboxItem::Try("c")));
        assert_eq!(next(), Some(InboxItem::GivenUp("c")));
        assert_eq!(next(), None);
        assert!(inbox.put("d"));
        assert_eq!(next(), Some(InboxItem::Try("d")));
    }

    #[tokio::test]
    async fn a_message_wakes_the_reader_and_a_full_queue_refuses_more() {
        let inbox = Inbox::new(2);
        let mut stream = inbox.stream().boxed_local();
        assert!(stream.next().now_or_never().is_none());
        assert!(inbox.put(1) && inbox.put(2) && !inbox.put(3));
        assert_eq!(inbox.len(), 2);
        assert_eq!(stream.next().await, Some(InboxItem::Try(1)));
        inbox.done();
        assert_eq!(stream.next().await, Some(InboxItem::Try(2)));
        inbox.done();
        assert!(inbox.is_empty());
        assert!(stream.next().now_or_never().is_none());
        drop(stream);
        assert!(inbox.put(4));
        let mut next = inbox.stream().boxed_local();
        assert_eq!(next.next().await, Some(InboxItem::Try(4)));
    }
}
