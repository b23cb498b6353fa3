//! Events of the gateway for listening operators.
//!
//! A single bounded ring holds all events, and each listener has a position in it: slow listeners
//! do not cause queues, but learn how many events they missed. Nothing is recorded while there are
//! no listeners.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::clock::unix_millis;
use crate::masking::LiveSecrets;
use crate::memory::{Ring, RingEntry, RingLimits};

/// Number of events kept for listeners that lag or return.
const EVENTS_MAX: usize = 10_000;

/// Maximum size of these events, in bytes.
const BYTES_MAX: usize = 8 << 20;

const KEPT: RingLimits = RingLimits {
    entries: EVENTS_MAX,
    bytes: BYTES_MAX,
};

/// Maximum number of concurrent listeners; one more is refused.
const LISTENERS_MAX: usize = 32;

/// How long events are recorded for a listener that left, so that it misses none when it returns.
const RETURN_WITHIN: Duration = Duration::from_secs(60);

/// Maximum number of events in one batch.
const BATCH_MAX: usize = 100;

/// The subject of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A server's state changed.
    Server,
    /// A call ended.
    Call,
    /// A log record.
    Log,
    /// A tool is listed with an unapproved definition.
    Pin,
}

impl EventKind {
    pub const ALL: [Self; 4] = [Self::Server, Self::Call, Self::Log, Self::Pin];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Call => "call",
            Self::Log => "log",
            Self::Pin => "pin",
        }
    }
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Id with which a listener can resume.
    pub id: String,
    pub kind: EventKind,
    /// A JSON object on one line.
    pub data: Arc<str>,
}

/// The next events for a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventBatch {
    /// Minimum number of missed events before these.
    pub missed: u64,
    pub events: Vec<Event>,
}

/// A handle; clones share the events.
#[derive(Clone, Debug)]
pub struct EventFeed(Arc<Feed>);

#[derive(Debug)]
struct Feed {
    /// Distinguishes the ids of this process from the ids of other processes.
    origin: u64,
    /// Secrets masked in every event.
    secrets: LiveSecrets,
    gathers: AtomicBool,
    gathered: Mutex<Gathered>,
    /// The number of the newest event.
    newest: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Gathered {
    events: Ring<(EventKind, Arc<str>)>,
    listeners: usize,
    /// When the last listener left.
    left: Option<Instant>,
    is_closed: bool,
}

impl RingEntry for (EventKind, Arc<str>) {
    fn bytes(&self) -> usize {
        self.1.len()
    }
}

impl Default for EventFeed {
    fn default() -> Self {
        Self::new(LiveSecrets::default())
    }
}

impl EventFeed {
    /// `secrets` are masked in every event.
    pub fn new(secrets: LiveSecrets) -> Self {
        Self(Arc::new(Feed {
            secrets,
            origin: unix_millis(),
            gathers: AtomicBool::new(false),
            gathered: Mutex::default(),
            newest: watch::Sender::new(0),
        }))
    }

    /// Whether events are currently recorded.
    pub fn gathers(&self) -> bool {
        self.0.gathers.load(Ordering::Relaxed)
    }

    /// Publishes an event. `data` must return an object, and is called only if there can be a
    /// reader.
    pub fn publish(&self, kind: EventKind, data: impl FnOnce() -> Value) {
        if !self.gathers() {
            return;
        }
        let mut data = data();
        self.0.secrets.mask_json(&mut data);
        let data: Arc<str> = data.to_string().into();
        let mut gathered = self.0.gathered.lock();
        let is_over = |left: Instant| left.elapsed() >= RETURN_WITHIN;
        if gathered.listeners == 0 && gathered.left.is_none_or(is_over) {
            self.0.gathers.store(false, Ordering::Relaxed);
            gathered.events.clear();
            return;
        }
        gathered.events.push((kind, data), KEPT);
        self.0.newest.send_replace(gathered.events.newest());
    }

    /// Listens from now on, or after the event with this id. `None` if the limit of listeners is
    /// reached.
    pub fn listen(&self, after: Option<&str>) -> Option<EventListener> {
        let mut gathered = self.0.gathered.lock();
        if gathered.listeners >= LISTENERS_MAX || gathered.is_closed {
            return None;
        }
        gathered.listeners += 1;
        let events = &gathered.events;
        let number = after.map(|id| self.number_of(id).filter(|it| *it <= events.newest()));
        let (at, missed) = match number {
            None => (events.newest(), 0),
            Some(Some(number)) => (number, 0),
            // From another process: the number of missed events is unknown.
            Some(None) => (events.oldest() - 1, 1),
        };
        self.0.gathers.store(true, Ordering::Relaxed);
        Some(EventListener {
            newest: self.0.newest.subscribe(),
            feed: self.clone(),
            at,
            missed,
        })
    }

    /// Ends the feed: listeners read the remaining events, and then the end.
    pub fn close(&self) {
        self.0.gathered.lock().is_closed = true;
        self.0.newest.send_modify(|_| {});
    }

    /// Whether the gateway is shutting down.
    pub fn is_closed(&self) -> bool {
        self.0.gathered.lock().is_closed
    }

    fn number_of(&self, id: &str) -> Option<u64> {
        let (origin, number) = id.split_once('-')?;
        let is_own = origin.parse() == Ok(self.0.origin);
        number.parse().ok().filter(|_| is_own)
    }
}

/// A position among the events.
#[derive(Debug)]
pub struct EventListener {
    feed: EventFeed,
    newest: watch::Receiver<u64>,
    /// The number of the last event that was read.
    at: u64,
    missed: u64,
}

impl EventListener {
    /// Waits for the next events; `None` at the end.
    pub async fn next(&mut self) -> Option<EventBatch> {
        loop {
            self.newest.borrow_and_update();
            let (batch, is_closed) = self.take();
            if batch.missed > 0 || !batch.events.is_empty() {
                return Some(batch);
            }
            if is_closed || self.newest.changed().await.is_err() {
                return None;
            }
        }
    }

    fn take(&mut self) -> (EventBatch, bool) {
        let gathered = self.feed.0.gathered.lock();
        let oldest = gathered.events.oldest();
        let missed = std::mem::take(&mut self.missed) + oldest.saturating_sub(self.at + 1);
        let origin = self.feed.0.origin;
        let events = gathered.events.after(self.at).take(BATCH_MAX);
        let events = events.map(|(number, (kind, data))| Event {
            id: format!("{origin}-{number}"),
            kind: *kind,
            data: data.clone(),
        });
        let events: Vec<Event> = events.collect();
        self.at = self.at.max(oldest - 1) + events.len() as u64;
        (EventBatch { missed, events }, gathered.is_closed)
    }
}

impl Drop for EventListener {
    fn drop(&mut self) {
        let mut gathered = self.feed.0.gathered.lock();
        gathered.listeners -= 1;
        gathered.left = Some(Instant::now());
    }
}

impl EventBatch {
    /// The data of the event that reports missed events.
    pub fn missed_data(&self) -> Value {
        json!({ "atLeast": self.missed })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn publish(feed: &EventFeed, number: usize) {
        feed.publish(EventKind::Call, || json!({ "number": number }));
    }

    /// The number of missed events, and the numbers of the events that can be read now.
    fn read(listener: &mut EventListener) -> (u64, Vec<u64>) {
        let (mut missed, mut numbers) = (0, Vec::new());
        while let Some(Some(batch)) = listener.next().now_or_never() {
            missed += batch.missed;
            numbers.extend(batch.events.iter().map(|event| {
                let data: Value = serde_json::from_str(&event.data).unwrap();
                data["number"].as_u64().unwrap()
            }));
        }
        (missed, numbers)
    }

    #[tokio::test(start_paused = true)]
    async fn a_returning_listener_misses_nothing_for_a_while() {
        let feed = EventFeed::default();
        publish(&feed, 1);
        let mut listener = feed.listen(None).unwrap();
        publish(&feed, 2);
        let batch = listener.next().await.unwrap();
        let id = batch.events.first().unwrap().id.clone();
        publish(&feed, 3);
        drop(listener);
        publish(&feed, 4);
        let mut again = feed.listen(Some(&id)).unwrap();
        assert_eq!(read(&mut again), (0, vec![3, 4]));
        drop(again);
        tokio::time::advance(RETURN_WITHIN).await;
        publish(&feed, 5);
        assert!(!feed.gathers());
        let mut late = feed.listen(Some(&id)).unwrap();
        assert!(read(&mut late).0 > 0);
        publish(&feed, 6);
        assert_eq!(read(&mut late), (0, vec![6]));
    }

    #[tokio::test]
    async fn a_slow_listener_learns_how_much_it_missed() {
        let feed = EventFeed::default();
        let mut listener = feed.listen(None).unwrap();
        for number in 0..EVENTS_MAX + 7 {
            publish(&feed, number);
        }
        let (missed, numbers) = read(&mut listener);
        assert_eq!((missed, numbers.len()), (7, EVENTS_MAX));
        assert_eq!(numbers.first(), Some(&7));
        let large = "x".repeat(BYTES_MAX / 4);
        for _ in 0..8 {
            feed.publish(EventKind::Log, || json!({ "number": 1, "text": large }));
        }
        assert!(read(&mut listener).0 > 0);
        assert!(feed.0.gathered.lock().events.bytes() <= BYTES_MAX);
    }

    #[tokio::test]
    async fn an_id_of_another_process_yields_all_events() {
        let feed = EventFeed::default();
        let _other = feed.listen(None);
        publish(&feed, 1);
        for id in ["1-1", "", "x", "18446744073709551616-1"] {
            let mut listener = feed.listen(Some(id)).unwrap();
            assert_eq!(read(&mut listener), (1, vec![1]), "{id}");
        }
        let ahead = format!("{}-{}", feed.0.origin, u64::MAX);
        let mut listener = feed.listen(Some(&ahead)).unwrap();
        assert_eq!(read(&mut listener), (1, vec![1]));
    }

    #[tokio::test]
    async fn listeners_are_limited_and_end_with_the_feed() {
        let feed = EventFeed::default();
        let mut all: Vec<_> = (0..LISTENERS_MAX).map(|_| feed.listen(None)).collect();
        assert!(all.iter().all(Option::is_some));
        assert!(feed.listen(None).is_none());
        let mut one = all.pop().flatten().unwrap();
        publish(&feed, 1);
        feed.close();
        assert_eq!(one.next().await.unwrap().events.len(), 1);
        assert_eq!(one.next().await, None);
        drop(one);
        assert!(feed.listen(None).is_none());
    }
}
