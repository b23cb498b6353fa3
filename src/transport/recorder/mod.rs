//! The flight recorder: the last messages of a connection, kept for the report of its crash.
//!
//! Each link of a connection (its own and those of its lanes) writes to a tape of its own, so that
//! threads do not wait for each other. What is kept is bounded; what is told is decided by
//! [`RecorderSettings::body_max`] and cleaned by [`Secrets`].

mod entry;
mod link;
mod secrets;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde::Serialize;
use tokio::time::Instant;

use super::{EventSink, Link};
use crate::id::QuickMap;
use entry::Entry;
pub use entry::Told;
pub use secrets::Secrets;

/// How much a connection remembers, and how much of it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecorderSettings {
    /// Messages of each link; zero turns the recorder off.
    pub messages_max: usize,
    /// Bytes that these may hold in memory.
    pub bytes_max: usize,
    /// Bytes of a message that a report quotes; with zero it tells direction, time, method, id
    /// and size only.
    pub body_max: usize,
    /// Crash reports that are kept of one server; zero writes none.
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

/// The tapes of one incarnation of a connection. Clones share them.
#[derive(Clone, Debug)]
pub struct Recorder {
    settings: RecorderSettings,
    tapes: Arc<Mutex<Vec<Tape>>>,
}

/// What one link recorded.
#[derive(Clone, Debug)]
pub struct Tape {
    settings: RecorderSettings,
    track: Arc<Mutex<Track>>,
}

#[derive(Debug, Default)]
struct Track {
    entries: VecDeque<Entry>,
    /// Bytes that the entries hold.
    bytes: usize,
    pending: QuickMap<u64, Open>,
}

/// A request that is not answered.
#[derive(Debug)]
struct Open {
    since: Instant,
    /// Held until the answer by whoever sent it, too.
    frame: Bytes,
}

/// A request that was not answered when the report was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PendingCall {
    /// Its number towards the server, which is its JSON-RPC id there.
    pub call: u64,
    pub method: String,
    /// The tool or prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How long it was under way, in milliseconds.
    pub for_ms: u64,
}

/// All that was recorded, in the order of time.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    pub pending: Vec<PendingCall>,
    pub messages: Vec<Told>,
}

impl Recorder {
    pub fn new(settings: RecorderSettings) -> Self {
        Self {
            settings,
            tapes: Arc::default(),
        }
    }

    /// A tape for one more link.
    pub fn tape(&self) -> Tape {
        let tape = Tape {
            settings: self.settings,
            track: Arc::default(),
        };
        if self.settings.messages_max > 0 {
            lock(&self.tapes).push(tape.clone());
        }
        tape
    }

    /// What is on the tapes, without anything of `secrets`.
    pub fn told(&self, now: Instant, secrets: &Secrets) -> Recording {
        let body_max = self.settings.body_max;
        let mut messages = Vec::new();
        let mut pending = Vec::new();
        for tape in &*lock(&self.tapes) {
            let track = lock(&tape.track);
            let told = |entry: &Entry| (entry.at, entry.told(now, body_max, secrets));
            messages.extend(track.entries.iter().map(told));
            let open = track.pending.iter();
            pending.extend(open.map(|(call, open)| open.told(*call, now, secrets)));
        }
        messages.sort_by_key(|(at, _)| *at);
        let excess = messages.len().saturating_sub(self.settings.messages_max);
        pending.sort_by_key(|call| call.call);
        Recording {
            pending,
            messages: messages
                .into_iter()
                .skip(excess)
                .map(|(_, message)| message)
                .collect(),
        }
    }
}

impl Open {
    fn told(&self, call: u64, now: Instant, secrets: &Secrets) -> PendingCall {
        let (method, name) = entry::request_of(&self.frame);
        let since = now.saturating_duration_since(self.since);
        PendingCall {
            call,
            method: secrets.masked(&method),
            name: name.map(|name| secrets.masked(&name)),
            for_ms: entry::millis(since),
        }
    }
}

impl Tape {
    /// A link that is recorded.
    pub fn link(&self, inner: Box<dyn Link>) -> Box<dyn Link> {
        if self.settings.messages_max == 0 {
            return inner;
        }
        Box::new(link::Recorded::new(inner, self.clone()))
    }

    /// A sink that is recorded.
    pub fn sink(&self, inner: EventSink) -> EventSink {
        if self.settings.messages_max == 0 {
            return inner;
        }
        link::recorded(inner, self.clone())
    }

    /// A message was sent; `frame` if it is a request.
    fn sent(&self, call: Option<u64>, frame: Bytes, entry: Entry) {
        let since = entry.at;
        let mut track = lock(&self.track);
        self.push(&mut track, entry);
        if let Some(call) = call {
            track.pending.insert(call, Open { since, frame });
        }
    }

    /// Something came; `answered` if it ends a request.
    fn received(&self, answered: Option<u64>, entry: Entry) {
        let mut track = lock(&self.track);
        self.push(&mut track, entry);
        if let Some(call) = answered {
            track.pending.remove(&call);
        }
    }

    fn push(&self, track: &mut Track, entry: Entry) {
        track.bytes += entry.held();
        track.entries.push_back(entry);
        while track.entries.len() > self.settings.messages_max
            || track.bytes > self.settings.bytes_max
        {
            let Some(oldest) = track.entries.pop_front() else {
                break;
            };
            track.bytes -= oldest.held();
        }
    }

    fn answered(&self, call: u64) {
        lock(&self.track).pending.remove(&call);
    }
}

/// A panic elsewhere leaves whole entries behind: the lock may be taken over.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
