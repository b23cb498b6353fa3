//! Messages to a permanent child that outlive its incarnations.
//!
//! A mailbox dies with its actor, and what is in it is lost. What must not be lost waits here: an
//! incarnation takes one message at a time and says when it is done with it. One that died over a
//! message leaves it to the next, which tries it once more; then it is given up, so that one bad
//! message costs no more than that.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use futures_util::stream::{self, Stream};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// How often a message is tried.
const TRIES_MAX: u32 = 2;

/// A queue of messages for one child. Cheap to clone; may be written from any thread.
pub struct Inbox<T>(Arc<InboxState<T>>);

struct InboxState<T> {
    queue: Mutex<InboxQueue<T>>,
    wakeup: Notify,
    max: usize,
}

struct InboxQueue<T> {
    waiting: VecDeque<T>,
    /// The message in progress, with the number of times that it was taken.
    in_progress: Option<(T, u32)>,
}

/// A message that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboxItem<T> {
    /// To be carried out, perhaps for the second time.
    Try(T),
    /// Whoever carried it out died of it each time.
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
    /// No more than `max` messages wait.
    pub fn new(max: usize) -> Self {
        let queue = Mutex::new(InboxQueue {
            waiting: VecDeque::new(),
            in_progress: None,
        });
        let wakeup = Notify::new();
        Self(Arc::new(InboxState { queue, wakeup, max }))
    }

    /// Adds a message; `false` when too many wait.
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

    /// The message in hand is carried out.
    pub fn done(&self) {
        let done = self.0.queue.lock().in_progress.take();
        // Not while others wait for the queue.
        drop(done);
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.0.queue.lock().waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: Clone + 'static> Inbox<T> {
    /// All messages for one incarnation, which says [`Inbox::done`] after each; without end. What
    /// an incarnation before it was not done with comes first.
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
        // Each stream is another incarnation's.
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
    async fn a_message_wakes_whoever_reads_and_too_many_are_refused() {
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
