//! The event streams of one session: what was sent is kept within bounds, so that a client that
//! lost its connection can go on after the last event that it read.
//!
//! Every message goes out on exactly one stream (S-HTTP-29). The stream of a call is named after
//! the call's number; stream 0 is the general one that a client opens with GET.

use std::collections::VecDeque;

use bytes::Bytes;
use tokio::sync::mpsc::Receiver;
use tokio::time::{Duration, Instant};

use crate::calls::event_queue::{EventSender, event_queue};
use crate::calls::{EventId, StreamEvent};
use crate::id::QuickMap;
use crate::memory::{KeptBytes, KeptShare};
use crate::protocol::RequestId;

/// The general stream, opened by GET. It never carries an answer (S-HTTP-27).
pub(crate) const GENERAL_STREAM: u64 = 0;

#[derive(Clone, Copy, Debug)]
pub(crate) struct EventLogLimits {
    pub(crate) events_per_stream: usize,
    pub(crate) bytes_max: usize,
    /// Of all sessions together.
    pub(crate) all_bytes_max: usize,
    pub(crate) queue_max: usize,
    pub(crate) queue_bytes_max: usize,
    /// How long a stream is kept after its end.
    pub(crate) finished_kept: Duration,
}

pub(crate) struct EventLog {
    limits: EventLogLimits,
    /// Tells event ids of this actor from those of one before it.
    epoch: u32,
    streams: QuickMap<u64, LogStream>,
    log: VecDeque<LoggedEvent>,
    bytes: KeptShare,
    /// Streams that have ended, and when, the oldest first.
    finished: VecDeque<(Instant, u64)>,
}

struct LogStream {
    /// The request whose answer ends the stream.
    request: Option<RequestId>,
    sequence: u64,
    logged: usize,
    ended: bool,
    /// Absent while no client reads.
    reader: Option<EventSender>,
}

struct LoggedEvent {
    id: EventId,
    frame: Option<Bytes>,
    is_answer: bool,
}

/// A table that grows has room for twice as many events; the rest is for the memory of a frame.
const EVENT_OVERHEAD: usize = 2 * size_of::<LoggedEvent>() + size_of::<LogStream>() + 64;

impl LoggedEvent {
    fn event(&self) -> StreamEvent {
        StreamEvent {
            id: Some(self.id.clone()),
            frame: self.frame.clone(),
            is_answer: self.is_answer,
            queued: None,
        }
    }

    /// Bytes that it takes, with its part in the tables that hold it.
    fn size(&self) -> usize {
        EVENT_OVERHEAD + self.frame.as_ref().map_or(0, Bytes::len)
    }
}

/// The stream that a client's `Last-Event-ID` resumes.
#[derive(Debug)]
pub(crate) enum ResumeOutcome {
    /// Missed events first, then live ones.
    Stream(Receiver<StreamEvent>),
    /// The same of the general stream, but some of the missed events were not kept.
    Gap(Receiver<StreamEvent>),
    /// The stream has ended, and the client has seen all of it.
    Over,
    /// Not a stream of this actor. The request that it belonged to, if any: its answer is lost.
    Unknown(Option<RequestId>),
}

impl EventLog {
    pub(crate) fn new(limits: EventLogLimits, epoch: u32, all: &KeptBytes) -> Self {
        Self {
            limits,
            epoch,
            streams: QuickMap::default(),
            log: VecDeque::new(),
            bytes: all.share(),
            finished: VecDeque::new(),
        }
    }

    /// Opens a stream, or gives an open one to another reader: the former one ends. With
    /// `priming`, the first event has an id and no data (S-HTTP-30).
    pub(crate) fn open(
        &mut self,
        number: u64,
        request: Option<RequestId>,
        priming: bool,
    ) -> Receiver<StreamEvent> {
        let (reader, events) = event_queue(self.limits.queue_max, self.limits.queue_bytes_max);
        let stream = self.streams.entry(number).or_insert_with(|| LogStream {
            request,
            sequence: 0,
            logged: 0,
            ended: false,
            reader: None,
        });
        stream.reader = Some(reader);
        if priming {
            self.push(number, None, false);
        }
        events
    }

    pub(crate) fn has_reader(&self, number: u64) -> bool {
        let reader = self
            .streams
            .get(&number)
            .and_then(|stream| stream.reader.as_ref());
        reader.is_some_and(|reader| !reader.is_closed())
    }

    /// Ends the general stream's connection to its reader; the stream can be resumed.
    pub(crate) fn detach_general_reader(&mut self) {
        if let Some(stream) = self.streams.get_mut(&GENERAL_STREAM) {
            stream.reader = None;
        }
    }

    pub(crate) fn has_any_reader(&self) -> bool {
        self.readers() > 0
    }

    /// How many streams somebody reads.
    pub(crate) fn readers(&self) -> usize {
        let numbers = self.streams.keys();
        numbers.filter(|number| self.has_reader(**number)).count()
    }

    /// Sends a message on an open stream and keeps it; a reader that does not keep up loses the
    /// stream and may resume it.
    pub(crate) fn send(&mut self, number: u64, message: &[u8]) {
        self.push(number, Some(message), false);
    }

    /// Like [`EventLog::send`] for what may be left out: a reader that lags behind does not get
    /// it, so that a burst of it does not cost the stream.
    pub(crate) fn send_if_room(&mut self, number: u64, message: &[u8]) {
        let reader = self.streams.get(&number).and_then(|s| s.reader.as_ref());
        if reader.is_none_or(|reader| reader.has_room_to_spare(message.len())) {
            self.push(number, Some(message), false);
        }
    }

    /// Sends the answer that ends a stream.
    pub(crate) fn answer(&mut self, number: u64, message: &[u8]) {
        self.push(number, Some(message), true);
        self.end(number);
    }

    /// Nothing follows on this stream; what was sent can still be fetched.
    pub(crate) fn end(&mut self, number: u64) {
        if let Some(stream) = self.streams.get_mut(&number) {
            stream.ended = true;
            stream.reader = None;
            if stream.logged == 0 {
                self.streams.remove(&number);
            } else {
                self.finished.push_back((Instant::now(), number));
            }
        }
    }

    /// When the next finished stream is to be dropped.
    pub(crate) fn next_drop(&self) -> Option<Instant> {
        let (ended, _) = self.finished.front()?;
        Some(*ended + self.limits.finished_kept)
    }

    /// Drops the streams that ended too long ago for their clients to come back.
    pub(crate) fn drop_finished(&mut self) {
        let now = Instant::now();
        while self.next_drop().is_some_and(|at| at <= now) {
            if let Some((_, number)) = self.finished.pop_front() {
                self.streams.remove(&number);
            }
        }
        let (streams, bytes) = (&self.streams, &mut self.bytes);
        self.log.retain(|event| {
            let is_kept = streams.contains_key(&event.id.stream);
            if !is_kept {
                bytes.subtract(event.size());
            }
            is_kept
        });
    }

    /// Whether it holds nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.streams.is_empty() && self.log.is_empty()
    }

    /// Sends what followed an event, of the same stream only (S-SESS-08).
    pub(crate) fn resume(&mut self, last_event_id: &str) -> ResumeOutcome {
        let Some(id) = EventId::parse(last_event_id) else {
            return ResumeOutcome::Unknown(None);
        };
        let known = id.epoch == self.epoch;
        let Some(stream) = self.streams.get_mut(&id.stream).filter(|_| known) else {
            return ResumeOutcome::Unknown(id.request);
        };
        let missed: Vec<&LoggedEvent> = self
            .log
            .iter()
            .filter(|event| event.id.stream == id.stream && event.id.sequence > id.sequence)
            .collect();
        if stream.ended && missed.is_empty() {
            return ResumeOutcome::Over;
        }
        let complete = (stream.sequence - id.sequence.min(stream.sequence)) == missed.len() as u64;
        let limits = self.limits;
        let (reader, events) = event_queue(limits.queue_max + missed.len(), limits.queue_bytes_max);
        for event in missed {
            // There is room for all of them, and the log holds their bytes.
            let _ = reader.try_send_uncounted(event.event());
        }
        stream.reader = (!stream.ended).then_some(reader);
        if complete || id.stream != GENERAL_STREAM {
            ResumeOutcome::Stream(events)
        } else {
            ResumeOutcome::Gap(events)
        }
    }

    fn push(&mut self, number: u64, message: Option<&[u8]>, is_answer: bool) {
        let Some(stream) = self.streams.get_mut(&number) else {
            return;
        };
        stream.sequence += 1;
        let event = LoggedEvent {
            id: EventId {
                epoch: self.epoch,
                stream: number,
                sequence: stream.sequence,
                request: stream.request.clone(),
            },
            // Copied, since a slice of what a server sent would keep all of that in memory.
            frame: message.map(Bytes::copy_from_slice),
            is_answer,
        };
        if let Some(reader) = &stream.reader {
            let sent = if is_answer {
                reader.try_send_uncounted(event.event())
            } else {
                reader.try_send(event.event())
            };
            if sent.is_err() {
                stream.reader = None;
            }
        }
        stream.logged += 1;
        self.bytes.add(event.size());
        self.log.push_back(event);
        self.trim(number);
    }

    fn trim(&mut self, number: u64) {
        let too_many = |streams: &QuickMap<u64, LogStream>, max| {
            streams.get(&number).is_some_and(|s| s.logged > max)
        };
        if too_many(&self.streams, self.limits.events_per_stream)
            && let Some(oldest) = self.log.iter().position(|event| event.id.stream == number)
        {
            self.drop_event(oldest);
        }
        let (own_max, all_max) = (self.limits.bytes_max, self.limits.all_bytes_max);
        while !self.log.is_empty() && (self.bytes.own() > own_max || self.bytes.all() > all_max) {
            self.drop_event(0);
        }
    }

    fn drop_event(&mut self, index: usize) {
        let Some(event) = self.log.remove(index) else {
            return;
        };
        self.bytes.subtract(event.size());
        if let Some(stream) = self.streams.get_mut(&event.id.stream) {
            stream.logged -= 1;
            if stream.ended && stream.logged == 0 {
                self.streams.remove(&event.id.stream);
            }
        }
        let streams = &self.streams;
        let gone = |(_, number): &mut (Instant, u64)| !streams.contains_key(number);
        while self.finished.pop_front_if(gone).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: EventLogLimits = EventLogLimits {
        events_per_stream: 3,
        bytes_max: 10_000,
        all_bytes_max: 100_000,
        queue_max: 2,
        queue_bytes_max: 100_000,
        finished_kept: Duration::from_secs(60),
    };

    /// The ids and messages of what came.
    fn read(events: &mut Receiver<StreamEvent>) -> Vec<(String, String)> {
        let mut read = Vec::new();
        while let Ok(event) = events.try_recv() {
            let frame = event.frame.unwrap_or_default().to_vec();
            let id = event.id.unwrap().to_string();
            read.push((id, String::from_utf8(frame).unwrap()));
        }
        read
    }

    fn event(id: &str, frame: &str) -> (String, String) {
        (id.to_owned(), frame.to_owned())
    }

    fn id(text: &str) -> RequestId {
        RequestId::try_new(Bytes::copy_from_slice(text.as_bytes())).unwrap()
    }

    #[test]
    fn a_client_goes_on_where_it_stopped() {
        let mut streams = EventLog::new(LIMITS, 7, &KeptBytes::default());
        let mut events = streams.open(5, Some(id("\"a b\"")), true);
        streams.send(5, b"{\"n\":\n1}");
        assert_eq!(
            read(&mut events),
            [
                event("7.5.1.%22a+b%22", ""),
                event("7.5.2.%22a+b%22", "{\"n\":\n1}")
            ]
        );
        drop(events);
        streams.send(5, b"{}");
        streams.answer(5, b"[]");
        let ResumeOutcome::Stream(mut events) = streams.resume("7.5.2.%22a+b%22") else {
            panic!()
        };
        assert!(!events.try_recv().unwrap().is_answer);
        let answer = events.try_recv().unwrap();
        assert!(answer.is_answer && answer.frame.unwrap() == "[]");
        assert!(matches!(
            events.try_recv(),
            Err(tokio::sync::mpsc::error::TryRecvError::Disconnected)
        ));
    }

    #[test]
    fn s_sess_08_only_events_of_the_same_stream_are_replayed() {
        let mut streams = EventLog::new(LIMITS, 1, &KeptBytes::default());
        drop((
            streams.open(1, Some(id("1")), true),
            streams.open(2, Some(id("2")), true),
        ));
        streams.send(1, b"1");
        streams.send(2, b"2");
        let ResumeOutcome::Stream(mut events) = streams.resume("1.2.1.2") else {
            panic!()
        };
        assert_eq!(read(&mut events), [event("1.2.2.2", "2")]);
    }

    #[test]
    fn a_stream_of_another_process_names_its_request() {
        let mut streams = EventLog::new(LIMITS, 1, &KeptBytes::default());
        for (text, request) in [
            ("2.5.1.%22a%22", Some(id("\"a\""))),
            ("1.5.1.7", Some(id("7"))),
            ("1.0.1.", None),
            ("garbage", None),
            ("", None),
        ] {
            let ResumeOutcome::Unknown(found) = streams.resume(text) else {
                panic!("{text}")
            };
            assert_eq!(found, request, "{text}");
        }
    }

    #[test]
    fn a_burst_leaves_room_for_the_answer() {
        let limits = EventLogLimits {
            queue_max: 8,
            ..LIMITS
        };
        let mut streams = EventLog::new(limits, 1, &KeptBytes::default());
        let mut events = streams.open(1, Some(id("1")), false);
        for _ in 0..100 {
            streams.send_if_room(1, b"{}");
        }
        streams.answer(1, b"[]");
        let read = read(&mut events);
        assert_eq!(read.len(), 7);
        assert_eq!(read[6].1, "[]");
    }

    #[test]
    fn the_log_is_bounded_and_a_slow_reader_is_let_go() {
        let mut streams = EventLog::new(LIMITS, 1, &KeptBytes::default());
        let events = streams.open(1, Some(id("1")), false);
        for _ in 0..10 {
            streams.send(1, b"{}");
        }
        assert_eq!(streams.log.len(), 3);
        assert!(!streams.has_reader(1));
        drop(events);
        streams.send(1, &[b'1'; 20_000]);
        assert_eq!((streams.log.len(), streams.bytes.own()), (0, 0));
        streams.end(1);
        assert!(streams.streams.is_empty());
    }

    /// The finding: sessions with progress streams kept 52 MiB for good.
    #[tokio::test(start_paused = true)]
    async fn all_sessions_together_keep_no_more_than_the_limit() {
        const SESSIONS: u64 = 16;
        let limits = EventLogLimits {
            events_per_stream: 10_000,
            bytes_max: 1 << 20,
            all_bytes_max: 4 << 20,
            ..LIMITS
        };
        let all = KeptBytes::default();
        let mut sessions: Vec<EventLog> = (0..SESSIONS)
            .map(|_| EventLog::new(limits, 1, &all))
            .collect();
        for session in &mut sessions {
            drop(session.open(1, Some(id("1")), true));
            for _ in 0..5000 {
                session.send(1, &[b'1'; 100]);
            }
            session.answer(1, b"[]");
        }
        let kept = || all.share().all();
        assert!(kept() <= 4 << 20, "{}", kept());
        assert!(kept() > 3 << 20, "{}", kept());
        tokio::time::advance(limits.finished_kept).await;
        for session in &mut sessions {
            session.drop_finished();
            assert!(session.is_empty());
        }
        assert_eq!(kept(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn finished_streams_are_dropped_in_time_and_others_stay() {
        let mut streams = EventLog::new(LIMITS, 1, &KeptBytes::default());
        for number in [1, 2, 3] {
            drop(streams.open(number, Some(id("1")), true));
        }
        streams.answer(1, b"[]");
        tokio::time::advance(Duration::from_secs(30)).await;
        streams.answer(2, b"[]");
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(streams.next_drop(), Some(Instant::now()));
        streams.drop_finished();
        let next = Instant::now() + Duration::from_secs(30);
        assert_eq!(streams.next_drop(), Some(next));
        assert!(matches!(
            streams.resume("1.1.1.1"),
            ResumeOutcome::Unknown(Some(_))
        ));
        for number in [2, 3] {
            let resumed = streams.resume(&format!("1.{number}.1.1"));
            assert!(matches!(resumed, ResumeOutcome::Stream(_)));
        }
    }
}
