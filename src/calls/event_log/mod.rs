//! The event streams of one session: keeps sent events within limits, so that a client that lost
//! its connection can resume after the last event that it read.
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
use crate::memory::{ByteGauge, ByteShare, HeldRoom, Ring, RingEntry, RingLimits};
use crate::protocol::RequestId;

/// The general stream, opened by GET. It never carries an answer (S-HTTP-27).
pub(crate) const GENERAL_STREAM: u64 = 0;

#[derive(Clone, Copy, Debug)]
pub(crate) struct EventLogLimits {
    pub(crate) events_per_stream: usize,
    pub(crate) bytes_max: usize,
    /// Maximum for all sessions together.
    pub(crate) all_bytes_max: usize,
    pub(crate) queue_max: usize,
    pub(crate) queue_bytes_max: usize,
    /// How long a stream is kept after its end.
    pub(crate) finished_kept: Duration,
}

pub(crate) struct EventLog {
    limits: EventLogLimits,
    /// Distinguishes the event ids of this actor from ids of earlier actors.
    epoch: u32,
    streams: QuickMap<u64, LogStream>,
    /// Number of events logged so far on all streams, from which an event's age follows.
    pushed: u64,
    /// Number of events kept on all streams.
    kept: usize,
    bytes: ByteShare,
    /// Ended streams with the time of their end, oldest first.
    finished: VecDeque<(Instant, u64)>,
}

struct LogStream {
    /// The request whose answer ends the stream.
    request: Option<RequestId>,
    events: Ring<LoggedEvent>,
    ended: bool,
    /// The connected client; `None` if no client reads the stream.
    reader: Option<EventSender>,
}

struct LoggedEvent {
    /// Number of events that were logged before this one on all streams.
    age: u64,
    frame: Option<Bytes>,
    is_answer: bool,
}

/// No limits for a single stream: the log counts the events of all streams and drops the oldest.
const NO_LIMITS: RingLimits = RingLimits {
    entries: usize::MAX,
    bytes: usize::MAX,
};

/// Memory per event: a growing queue reserves room for twice as many events, and each frame has an
/// allocation.
const EVENT_OVERHEAD: usize = 2 * size_of::<LoggedEvent>() + 64;

/// Memory per stream: its entry in a growing table, and the smallest queue of events.
const STREAM_OVERHEAD: usize = 2 * size_of::<LogStream>() + 4 * size_of::<LoggedEvent>();

impl LoggedEvent {
    fn event(&self, id: EventId) -> StreamEvent {
        StreamEvent {
            id: Some(id),
            frame: self.frame.clone(),
            is_answer: self.is_answer,
            queued: None,
            room: None,
        }
    }
}

impl RingEntry for LoggedEvent {
    /// Returns the event's size, including its slot in the ring.
    fn bytes(&self) -> usize {
        EVENT_OVERHEAD + self.frame.as_ref().map_or(0, Bytes::len)
    }
}

/// The outcome of resuming a stream by the client's `Last-Event-ID`.
#[derive(Debug)]
pub(crate) enum ResumeOutcome {
    /// The missed events, followed by live ones.
    Stream(Receiver<StreamEvent>),
    /// The general stream, some of whose missed events are no longer kept.
    Gap(Receiver<StreamEvent>),
    /// The stream has ended, and the client has seen all of it.
    Over,
    /// The id does not belong to a stream of this actor. Contains the request that it belonged to,
    /// if any, whose answer is lost.
    Unknown(Option<RequestId>),
}

impl EventLog {
    pub(crate) fn new(limits: EventLogLimits, epoch: u32, all: &ByteGauge) -> Self {
        Self {
            limits,
            epoch,
            streams: QuickMap::default(),
            pushed: 0,
            kept: 0,
            bytes: all.share(),
            finished: VecDeque::new(),
        }
    }

    /// Opens a stream, or moves an open stream to a new reader and disconnects the previous one.
    /// If `priming` is set, the first event has an id but no data (S-HTTP-30).
    pub(crate) fn open(
        &mut self,
        number: u64,
        request: Option<RequestId>,
        priming: bool,
    ) -> Receiver<StreamEvent> {
        let (reader, events) = event_queue(self.limits.queue_max, self.limits.queue_bytes_max);
        let bytes = &mut self.bytes;
        let stream = self.streams.entry(number).or_insert_with(|| {
            bytes.add(STREAM_OVERHEAD);
            LogStream {
                request: request.map(|id| id.detached()),
                events: Ring::default(),
                ended: false,
                reader: None,
            }
        });
        stream.reader = Some(reader);
        if priming {
            self.push(number, None, false, None);
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

    /// Disconnects the reader of the general stream, which can be resumed.
    pub(crate) fn detach_general_reader(&mut self) {
        if let Some(stream) = self.streams.get_mut(&GENERAL_STREAM) {
            stream.reader = None;
        }
    }

    pub(crate) fn has_any_reader(&self) -> bool {
        self.readers() > 0
    }

    /// Returns the number of streams with a connected client.
    pub(crate) fn readers(&self) -> usize {
        let numbers = self.streams.keys();
        numbers.filter(|number| self.has_reader(**number)).count()
    }

    /// Sends a message on an open stream and keeps it. A reader that is too slow is disconnected
    /// and can resume the stream.
    pub(crate) fn send(&mut self, number: u64, message: &[u8]) {
        self.push(number, Some(message), false, None);
    }

    /// Sends an optional message as [`EventLog::send`] does, but skips it for a slow reader, so
    /// that a burst of such messages does not disconnect it.
    pub(crate) fn send_if_room(&mut self, number: u64, message: &[u8]) {
        let reader = self.streams.get(&number).and_then(|s| s.reader.as_ref());
        if reader.is_none_or(|reader| reader.has_room_to_spare(message.len())) {
            self.push(number, Some(message), false, None);
        }
    }

    /// Sends the answer that ends a stream. Its reserved memory is held until the client has read
    /// it; the copy kept for resumption counts towards the log's bytes.
    pub(crate) fn answer(&mut self, number: u64, message: &[u8], room: Option<HeldRoom>) {
        self.push(number, Some(message), true, room);
        self.end(number);
    }

    /// Ends a stream. Its kept events can still be fetched.
    pub(crate) fn end(&mut self, number: u64) {
        if let Some(stream) = self.streams.get_mut(&number) {
            stream.ended = true;
            stream.reader = None;
            if stream.events.len() == 0 {
                self.remove(number);
            } else {
                self.finished.push_back((Instant::now(), number));
            }
        }
    }

    /// Returns when the next ended stream expires.
    pub(crate) fn next_drop(&self) -> Option<Instant> {
        let (ended, _) = self.finished.front()?;
        Some(*ended + self.limits.finished_kept)
    }

    /// Drops ended streams whose time to be resumed has passed.
    pub(crate) fn drop_finished(&mut self) {
        let now = Instant::now();
        while self.next_drop().is_some_and(|at| at <= now) {
            self.drop_oldest_finished();
        }
    }

    /// Returns whether the log holds no streams.
    pub(crate) fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Resumes a stream: sends the events that followed the given one on the same stream
    /// (S-SESS-08).
    pub(crate) fn resume(&mut self, last_event_id: &str) -> ResumeOutcome {
        let Some(id) = EventId::parse(last_event_id) else {
            return ResumeOutcome::Unknown(None);
        };
        let known = id.epoch == self.epoch;
        let Some(stream) = self.streams.get_mut(&id.stream).filter(|_| known) else {
            return ResumeOutcome::Unknown(id.request);
        };
        let missed = stream.events.after(id.sequence);
        if stream.ended && missed.len() == 0 {
            return ResumeOutcome::Over;
        }
        let limits = self.limits;
        let (reader, events) = event_queue(limits.queue_max + missed.len(), limits.queue_bytes_max);
        for (sequence, event) in missed {
            let id = EventId {
                epoch: self.epoch,
                stream: id.stream,
                sequence,
                request: stream.request.clone(),
            };
            // The new queue has room for all of them, and the log already counts their bytes.
            let _ = reader.try_send_uncounted(event.event(id));
        }
        stream.reader = (!stream.ended).then_some(reader);
        if id.sequence.saturating_add(1) >= stream.events.oldest() || id.stream != GENERAL_STREAM {
            ResumeOutcome::Stream(events)
        } else {
            ResumeOutcome::Gap(events)
        }
    }

    fn push(
        &mut self,
        number: u64,
        message: Option<&[u8]>,
        is_answer: bool,
        room: Option<HeldRoom>,
    ) {
        let Some(stream) = self.streams.get_mut(&number) else {
            return;
        };
        let event = LoggedEvent {
            age: self.pushed,
            // Copied, because a slice would keep the server's whole message in memory.
            frame: message.map(Bytes::copy_from_slice),
            is_answer,
        };
        if let Some(reader) = &stream.reader {
            let event = event.event(EventId {
                epoch: self.epoch,
                stream: number,
                sequence: stream.events.newest() + 1,
                request: stream.request.clone(),
            });
            let event = StreamEvent { room, ..event };
            let sent = if is_answer {
                reader.try_send_uncounted(event)
            } else {
                reader.try_send(event)
            };
            if sent.is_err() {
                stream.reader = None;
            }
        }
        self.pushed += 1;
        self.kept += 1;
        self.bytes.add(event.bytes());
        stream.events.push(event, NO_LIMITS);
        let has_too_many = stream.events.len() > self.limits.events_per_stream;
        if has_too_many {
            self.drop_first(number);
        }
        self.trim();
    }

    /// Drops the oldest events until the limits are met, starting with ended streams. The newest
    /// event of a session is kept even if it exceeds the session's limit alone.
    fn trim(&mut self) {
        let limits = self.limits;
        while (self.bytes.own() > limits.bytes_max && self.kept > 1)
            || (self.bytes.all() > limits.all_bytes_max && self.kept > 0)
        {
            if !self.drop_oldest_finished() {
                self.drop_oldest();
            }
        }
    }

    /// Drops the oldest ended stream. Returns whether there was one.
    fn drop_oldest_finished(&mut self) -> bool {
        let finished = self.finished.pop_front();
        if let Some((_, number)) = finished {
            self.remove(number);
        }
        finished.is_some()
    }

    /// Drops the oldest event.
    fn drop_oldest(&mut self) {
        let streams = self.streams.iter();
        let ages = streams.filter_map(|(number, it)| Some((it.events.iter().next()?.age, *number)));
        if let Some((_, number)) = ages.min() {
            self.drop_first(number);
        }
    }

    /// Drops the oldest event of a stream.
    fn drop_first(&mut self, number: u64) {
        let stream = self.streams.get_mut(&number);
        if let Some(event) = stream.and_then(|stream| stream.events.pop_oldest()) {
            self.kept -= 1;
            self.bytes.subtract(event.bytes());
        }
    }

    fn remove(&mut self, number: u64) {
        if let Some(stream) = self.streams.remove(&number) {
            self.kept -= stream.events.len();
            self.bytes.subtract(STREAM_OVERHEAD + stream.events.bytes());
        }
    }
}

#[cfg(test)]
mod tests;
