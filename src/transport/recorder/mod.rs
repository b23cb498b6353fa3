//! The flight recorder: keeps the last messages of a connection for its crash report.
//!
//! Each link of a connection, including its worker links, has its own recording, so that threads
//! do not wait for each other. Memory is bounded. [`RecorderSettings::body_max`] limits the
//! report's quotes, and [`LiveSecrets`] masks them.

mod link;
mod recorded_message;

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{EventSink, Link};
use crate::id::QuickMap;
use crate::masking::LiveSecrets;
use crate::memory::{Ring, RingLimits};
use crate::telemetry::millis;
pub use recorded_message::MessageReport;
use recorded_message::RecordedMessage;

/// Limits of a connection's recordings and of the reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecorderSettings {
    /// Maximum messages per link; zero disables the recorder.
    pub messages_max: usize,
    /// Maximum bytes of memory for these messages.
    pub bytes_max: usize,
    /// Bytes of each message that a report quotes; with zero, a report has only direction, time,
    /// method, id and size.
    pub body_max: usize,
    /// Maximum crash reports kept per server; zero writes none.
    pub reports_max: usize,
}

impl Default for RecorderSettings {
    fn default() -> Self {
        Self {
            messages_max: 64,
            bytes_max: 64 << 10,
            body_max: 0,
            reports_max: 10,
        }
    }
}

/// Recordings of one incarnation of a connection. Clones share them.
#[derive(Clone, Debug)]
pub struct Recorder {
    settings: RecorderSettings,
    recordings: Arc<Mutex<Vec<LinkRecording>>>,
}

/// Recording of one link.
#[derive(Clone, Debug)]
pub struct LinkRecording {
    settings: RecorderSettings,
    buffer: Arc<Mutex<RecordingBuffer>>,
}

#[derive(Debug, Default)]
struct RecordingBuffer {
    entries: Ring<RecordedMessage>,
    pending: QuickMap<u64, OpenRequest>,
}

/// A request without an answer.
#[derive(Debug)]
struct OpenRequest {
    since: Instant,
    /// Shared with the sender, which keeps the frame until the answer as well.
    frame: Bytes,
}

/// A request that was unanswered when the report was created.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PendingCall {
    /// Number of the request, which is its JSON-RPC id at the server.
    pub call: u64,
    pub method: String,
    /// Name of the tool or prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Time since the request was sent, in milliseconds.
    pub for_ms: u64,
}

/// All recorded messages, in chronological order.
#[derive(Clone, Debug, Default)]
pub struct RecordingReport {
    pub pending: Vec<PendingCall>,
    pub messages: Vec<MessageReport>,
}

impl Recorder {
    pub fn new(settings: RecorderSettings) -> Self {
        Self {
            settings,
            recordings: Arc::default(),
        }
    }

    /// Adds a recording for another link.
    pub fn recording(&self) -> LinkRecording {
        let recording = LinkRecording {
            settings: self.settings,
            buffer: Arc::default(),
        };
        if self.settings.messages_max > 0 {
            self.recordings.lock().push(recording.clone());
        }
        recording
    }

    /// The recorded messages, with `secrets` masked.
    pub fn report(&self, now: Instant, secrets: &LiveSecrets) -> RecordingReport {
        let body_max = self.settings.body_max;
        let mut messages = Vec::new();
        let mut pending = Vec::new();
        for recording in &*self.recordings.lock() {
            let buffer = recording.buffer.lock();
            let report = |entry: &RecordedMessage| (entry.at, entry.report(now, body_max, secrets));
            messages.extend(buffer.entries.iter().map(report));
            let open = buffer.pending.iter();
            pending.extend(open.map(|(call, open)| open.report(*call, now, secrets)));
        }
        messages.sort_by_key(|(at, _)| *at);
        let excess = messages.len().saturating_sub(self.settings.messages_max);
        pending.sort_by_key(|call| call.call);
        RecordingReport {
            pending,
            messages: messages
                .into_iter()
                .skip(excess)
                .map(|(_, message)| message)
                .collect(),
        }
    }
}

impl OpenRequest {
    fn report(&self, call: u64, now: Instant, secrets: &LiveSecrets) -> PendingCall {
        let (method, name) = recorded_message::request_of(&self.frame);
        let since = now.saturating_duration_since(self.since);
        PendingCall {
            call,
            method: secrets.masked(&method),
            name: name.map(|name| secrets.masked(&name)),
            for_ms: millis(since),
        }
    }
}

impl LinkRecording {
    /// Wraps a link so that its messages are recorded.
    pub fn link(&self, inner: Box<dyn Link>) -> Box<dyn Link> {
        if self.settings.messages_max == 0 {
            return inner;
        }
        Box::new(link::RecordingLink::new(inner, self.clone()))
    }

    /// Wraps a sink so that its events are recorded.
    pub fn sink(&self, inner: EventSink) -> EventSink {
        if self.settings.messages_max == 0 {
            return inner;
        }
        link::recording_sink(inner, self.clone())
    }

    /// Records a sent message; `frame` is set if it is a request.
    fn sent(&self, call: Option<u64>, frame: Bytes, entry: RecordedMessage) {
        let since = entry.at;
        let mut buffer = self.buffer.lock();
        self.push(&mut buffer, entry);
        if let Some(call) = call {
            buffer.pending.insert(call, OpenRequest { since, frame });
        }
    }

    /// Records a received message; `answered` is set if it ends a request.
    fn received(&self, answered: Option<u64>, entry: RecordedMessage) {
        let mut buffer = self.buffer.lock();
        self.push(&mut buffer, entry);
        if let Some(call) = answered {
            buffer.pending.remove(&call);
        }
    }

    fn push(&self, buffer: &mut RecordingBuffer, entry: RecordedMessage) {
        let limits = RingLimits {
            entries: self.settings.messages_max,
            bytes: self.settings.bytes_max,
        };
        buffer.entries.push(entry, limits);
    }

    fn answered(&self, call: u64) {
        self.buffer.lock().pending.remove(&call);
    }
}

#[cfg(test)]
mod tests;
