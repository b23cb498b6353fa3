//! Decodes server-sent events with a size limit (WHATWG HTML, "Interpreting an event stream").
//!
//! Pure and push-based: it accepts chunks of any size and returns the events in them.

use std::time::Duration;

use bytes::Bytes;
use memchr::{memchr, memchr2};

use crate::transport::large_answers::MessageBuffer;
use crate::transport::messages::MessageScanner;

/// One event of a stream; comments are not events (C-HTTP-17).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SseEvent {
    Message(SseMessage),
    /// An event that exceeded the limit; its bytes were dropped.
    TooLarge {
        /// Number of the request that the event answered.
        response_id: Option<u64>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SseMessage {
    /// The `event` field; empty if it is missing or `message`.
    pub(crate) kind: String,
    /// The `data` lines, joined by LF. Empty in an event that only carries an id.
    pub(crate) data: Bytes,
}

/// Longest `event` or `id` value, in bytes; longer ones are ignored.
const FIELD_MAX: usize = 1024;

/// Allowance for a field's name in a line, in addition to its value.
const NAME_MAX: usize = 64;

/// Largest line buffer that is kept; larger ones are freed.
const LINE_KEPT: usize = 64 * 1024;

/// Longest delay that a server can request.
const RETRY_MAX: Duration = Duration::from_secs(600);

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

#[derive(Debug)]
pub(crate) struct SseDecoder {
    event_max: usize,
    /// Start of an incomplete line.
    line: Vec<u8>,
    line_rest: LineRest,
    event: PartialEvent,
    last_id: Option<String>,
    /// Number of complete events, including events without data.
    count: u64,
    retry: Option<Duration>,
    /// Whether the previous byte was a CR, so that an LF now belongs to it.
    after_cr: bool,
    /// Whether a byte order mark can follow.
    at_start: bool,
}

/// How the rest of an incomplete line is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineRest {
    Kept,
    /// Data over the limit, searched only for the id.
    Scanned,
    /// Ignored: a comment, or another field that is too long.
    Dropped,
}

/// Fields of an incomplete event.
#[derive(Debug, Default)]
struct PartialEvent {
    data: Option<Vec<u8>>,
    kind: String,
    id: Option<String>,
    /// Scanner for data over the limit, which is not kept.
    too_large: Option<MessageScanner>,
}

impl SseDecoder {
    /// `event_max` is the maximum size of an event's data, in bytes.
    pub(crate) fn new(event_max: usize) -> Self {
        Self {
            event_max,
            line: Vec::new(),
            line_rest: LineRest::Kept,
            event: PartialEvent::default(),
            last_id: None,
            count: 0,
            retry: None,
            after_cr: false,
            at_start: true,
        }
    }

    /// Id of the last complete event that had one; a resumed stream continues after it.
    pub(crate) fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// Number of complete events so far, including events without data.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Delay that the server requested before a reconnection.
    pub(crate) fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Prepares for a new connection of the same stream: drops an incomplete event, and keeps the
    /// id and the delay.
    pub(crate) fn reconnected(&mut self) {
        self.line.clear();
        self.line_rest = LineRest::Kept;
        self.event = PartialEvent::default();
        self.after_cr = false;
        self.at_start = true;
    }

    /// Decodes bytes and passes the events that they complete to `take`.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], mut take: impl FnMut(SseEvent)) {
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_cr)
                && let Some(rest) = bytes.strip_prefix(b"\n")
            {
                bytes = rest;
                continue;
            }
            let Some(end) = memchr2(b'\n', b'\r', bytes) else {
                self.keep(bytes);
                return;
            };
            let (part, rest) = bytes.split_at(end);
            self.after_cr = rest.first() == Some(&b'\r');
            bytes = rest.get(1..).unwrap_or_default();
            let event = if self.line.is_empty() && part.len() <= self.line_max() {
                self.end_line(part)
            } else {
                self.keep(part);
                self.line_rest = LineRest::Kept;
                let mut line = std::mem::take(&mut self.line);
                let event = self.end_line(&line);
                line.clear();
                line.shrink_to(LINE_KEPT);
                self.line = line;
                event
            };
            if let Some(event) = event {
                take(event);
            }
        }
    }

    /// Keeps the start of a line. For a comment or a line that is too long, only the first byte is
    /// kept, which distinguishes it from an empty line.
    fn keep(&mut self, part: &[u8]) {
        match self.line_rest {
            LineRest::Kept => {}
            LineRest::Scanned => return self.event.scan(part),
            LineRest::Dropped => return,
        }
        let first = self.line.first().or(part.first()).copied();
        let is_comment = first == Some(b':');
        let length = self.line.len() + part.len();
        if is_comment || length > self.line_max() {
            self.line_rest = LineRest::Dropped;
            if !is_comment {
                self.event.exceed();
            }
            let line = [self.line.as_slice(), part].concat();
            if let Some(value) = line.strip_prefix(b"data:") {
                self.line_rest = LineRest::Scanned;
                self.event.scan(value);
            }
            self.line.clear();
            self.line.extend(first);
            if self.event.too_large.is_some() {
                self.line.shrink_to(NAME_MAX);
            }
            return;
        }
        self.line.extend_from_slice(part);
    }

    /// Longest line that can still belong to this event, wherever chunks end.
    fn line_max(&self) -> usize {
        self.event_max.saturating_sub(self.event.length()) + NAME_MAX
    }

    fn end_line(&mut self, line: &[u8]) -> Option<SseEvent> {
        let mark = std::mem::take(&mut self.at_start).then_some(BYTE_ORDER_MARK);
        let line = mark
            .and_then(|mark| line.strip_prefix(mark))
            .unwrap_or(line);
        if line.is_empty() {
            return self.end_event();
        }
        let (name, value) = match memchr(b':', line) {
            Some(colon) => line.split_at(colon),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        self.field(name, value);
        None
    }

    fn field(&mut self, name: &[u8], value: &[u8]) {
        let text = || {
            let short = Some(value).filter(|value| value.len() <= FIELD_MAX);
            short.and_then(|value| std::str::from_utf8(value).ok())
        };
        match name {
            b"data" => self.data(value),
            b"event" => {
                let kind = text().filter(|kind| *kind != "message");
                self.event.kind = kind.unwrap_or_default().to_owned();
            }
            b"id" => {
                let id = text().filter(|id| !id.contains('\0'));
                self.event.id = id.map(str::to_owned).or(self.event.id.take());
            }
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                let delay = text().and_then(|text| text.parse().ok());
                let delay = delay.map_or(RETRY_MAX, Duration::from_millis);
                self.retry = Some(delay.min(RETRY_MAX));
            }
            _ => {}
        }
    }

    fn data(&mut self, value: &[u8]) {
        let event = &mut self.event;
        let length = event.data.as_ref().map_or(0, |data| data.len() + 1);
        if event.too_large.is_some() || length + value.len() > self.event_max {
            event.exceed();
            event.scan(value);
            return;
        }
        match &mut event.data {
            Some(data) => {
                data.push(b'\n');
                data.extend_from_slice(value);
            }
            None => event.data = Some(value.to_vec()),
        }
    }

    fn end_event(&mut self) -> Option<SseEvent> {
        let event = std::mem::take(&mut self.event);
        let is_event = event.id.is_some() || event.data.is_some() || event.too_large.is_some();
        self.count += u64::from(is_event);
        if let Some(id) = event.id {
            // An empty id resets the last one.
            self.last_id = Some(id).filter(|id| !id.is_empty());
        }
        if let Some(scanner) = event.too_large {
            let response_id = scanner.response_id();
            return Some(SseEvent::TooLarge { response_id });
        }
        let data = Bytes::from(event.data?);
        let kind = event.kind;
        Some(SseEvent::Message(SseMessage { kind, data }))
    }
}

/// The data of all events of a stream that arrives in these pieces; `None` for an event longer than
/// `event_max` bytes. Uses the decoder of both HTTP transports; for tools outside this crate.
pub fn read_events<'a>(
    event_max: usize,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<Option<Bytes>> {
    let mut decoder = SseDecoder::new(event_max);
    let mut events = Vec::new();
    for piece in pieces {
        decoder.feed(piece, |event| {
            events.push(match event {
                SseEvent::Message(message) => Some(message.data),
                SseEvent::TooLarge { .. } => None,
            });
        });
    }
    events
}

impl MessageBuffer for SseDecoder {
    fn incomplete(&self) -> usize {
        self.line.len() + self.event.length()
    }

    // The rest is searched only for the id of the request that the event answers.
    fn discard(&mut self) {
        self.event.exceed();
        let line = std::mem::take(&mut self.line);
        if let Some(value) = line.strip_prefix(b"data:") {
            self.line_rest = LineRest::Scanned;
            self.event.scan(value);
        } else if line.len() > NAME_MAX {
            self.line_rest = LineRest::Dropped;
        } else {
            self.line = line;
            return;
        }
        // The first byte distinguishes the line from an empty one.
        self.line.extend(line.first());
    }
}

impl PartialEvent {
    fn length(&self) -> usize {
        self.data.as_ref().map_or(0, Vec::len)
    }

    /// Drops the data, and searches the rest only for the id.
    fn exceed(&mut self) {
        let scanner = self.too_large.get_or_insert_default();
        if let Some(data) = self.data.take() {
            scanner.feed(&data);
        }
    }

    fn scan(&mut self, part: &[u8]) {
        if let Some(scanner) = &mut self.too_large {
            scanner.feed(part);
        }
    }
}

#[cfg(test)]
mod tests;
