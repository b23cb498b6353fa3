//! The last lines that a server wrote outside of its messages, for diagnosing failures.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::clock::unix_millis;
use super::one_line::is_unprintable;
use crate::masking::LiveSecrets;
use crate::memory::{Ring, RingEntry, RingLimits};

/// The origin of a line.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogSource {
    /// The server's standard error.
    Stderr,
    /// A line on the server's standard output that is not a message.
    Stray,
    /// A protocol log line that belongs to no call.
    Message,
    /// The gateway's own remarks about the server.
    Gateway,
}

impl LogSource {
    /// The serialized form.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stderr => "stderr",
            Self::Stray => "stray",
            Self::Message => "message",
            Self::Gateway => "gateway",
        }
    }
}

/// One kept line.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// Counts from 1 over the lifetime of the ring, without gaps.
    pub sequence: u64,
    /// Time of arrival, in milliseconds since 1970.
    pub at: u64,
    pub source: LogSource,
    pub text: String,
}

/// Limits of a [`LogRing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRingSettings {
    pub lines_max: usize,
    /// Maximum size of all kept lines, in bytes.
    pub bytes_max: usize,
    /// Maximum size of one line, in bytes; longer ones are truncated.
    pub line_max: usize,
}

impl Default for LogRingSettings {
    fn default() -> Self {
        Self {
            lines_max: 1000,
            bytes_max: 256 * 1024,
            line_max: 4096,
        }
    }
}

/// Counts of the lines added to a [`LogRing`] since it was created.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogCounters {
    pub stderr: u64,
    pub stray: u64,
    pub message: u64,
    pub gateway: u64,
    /// Lines dropped in favour of newer ones.
    pub dropped: u64,
    /// Lines truncated at the limit.
    pub cut: u64,
}

/// The last lines of one server, bounded in lines and bytes. Clones share the lines; writers and
/// readers can be on different threads.
#[derive(Clone, Debug, Default)]
pub struct LogRing {
    kept: Arc<Mutex<KeptLines>>,
    secrets: LiveSecrets,
}

#[derive(Debug, Default)]
struct KeptLines {
    settings: LogRingSettings,
    lines: Ring<LogLine>,
    counters: LogCounters,
}

impl RingEntry for LogLine {
    fn bytes(&self) -> usize {
        self.text.len()
    }
}

impl LogRing {
    /// `secrets` are masked in every line.
    pub fn new(settings: LogRingSettings, secrets: LiveSecrets) -> Self {
        let kept = KeptLines {
            settings,
            ..KeptLines::default()
        };
        Self {
            kept: Arc::new(Mutex::new(kept)),
            secrets,
        }
    }

    /// Adds a line; the oldest ones are dropped. Control characters are replaced, so that a server
    /// cannot forge lines or colours in a terminal.
    pub fn push(&self, source: LogSource, text: &str) {
        let text = self.secrets.masked(text);
        self.kept.lock().push(source, &text);
    }

    /// The kept lines with a sequence number above `sequence`, oldest first; 0 for all.
    pub fn after(&self, sequence: u64) -> Vec<LogLine> {
        let kept = self.kept.lock();
        let newer = kept.lines.after(sequence);
        newer.map(|(_, line)| line.clone()).collect()
    }

    /// The last lines, at most this many.
    pub fn tail(&self, lines: usize) -> Vec<LogLine> {
        let kept = self.kept.lock();
        let skipped = kept.lines.len().saturating_sub(lines);
        kept.lines.iter().skip(skipped).cloned().collect()
    }

    pub fn counters(&self) -> LogCounters {
        self.kept.lock().counters
    }
}

impl KeptLines {
    fn push(&mut self, source: LogSource, text: &str) {
        let counter = match source {
            LogSource::Stderr => &mut self.counters.stderr,
            LogSource::Stray => &mut self.counters.stray,
            LogSource::Message => &mut self.counters.message,
            LogSource::Gateway => &mut self.counters.gateway,
        };
        *counter += 1;
        let end = text.floor_char_boundary(self.settings.line_max);
        let kept = text.get(..end).unwrap_or_default();
        self.counters.cut += u64::from(end < text.len());
        let text: String = kept.chars().map(printable).collect();
        let line = LogLine {
            sequence: self.lines.newest() + 1,
            at: unix_millis(),
            source,
            text,
        };
        let limits = RingLimits {
            entries: self.settings.lines_max,
            bytes: self.settings.bytes_max,
        };
        self.lines.push(line, limits);
        self.counters.dropped = self.lines.oldest() - 1;
    }
}

fn printable(character: char) -> char {
    if is_unprintable(character) && character != '\t' {
        '\u{fffd}'
    } else {
        character
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(lines_max: usize, bytes_max: usize, line_max: usize) -> LogRing {
        let settings = LogRingSettings {
            lines_max,
            bytes_max,
            line_max,
        };
        LogRing::new(settings, LiveSecrets::of(["hunter22"]))
    }

    fn texts(ring: &LogRing) -> Vec<String> {
        ring.after(0).into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn the_oldest_lines_make_room() {
        let ring = ring(2, 1000, 1000);
        for text in ["aa", "bb", "cc"] {
            ring.push(LogSource::Stderr, text);
        }
        assert_eq!(texts(&ring), ["bb", "cc"]);
        assert_eq!(ring.counters().dropped, 1);
        assert_eq!(ring.after(0)[0].sequence, 2);
        assert_eq!((ring.after(2).len(), ring.tail(1)[0].sequence), (1, 3));
    }

    #[test]
    fn lines_are_truncated_at_characters_without_control_characters() {
        let ring = ring(10, 1000, 4);
        ring.push(LogSource::Stray, "aaaä");
        ring.push(LogSource::Gateway, "\x1b[1m");
        assert_eq!(texts(&ring), ["aaa", "\u{fffd}[1m"]);
        let counters = ring.counters();
        assert_eq!((counters.stray, counters.gateway, counters.cut), (1, 1, 1));
    }

    #[test]
    fn no_secret_enters_a_ring() {
        let ring = ring(10, 1000, 12);
        ring.push(LogSource::Stderr, "token hunter22 refused");
        ring.push(LogSource::Stray, "12345 hunter22");
        assert_eq!(texts(&ring), ["token *** re", "12345 ***"]);
    }

    #[test]
    fn a_ring_without_room_stays_empty() {
        let ring = ring(0, 0, 0);
        ring.push(LogSource::Stderr, "text");
        assert_eq!(texts(&ring), Vec::<String>::new());
    }

    #[test]
    fn a_panic_while_locked_leaves_the_ring_usable() {
        let ring = ring(10, 100, 100);
        let other = ring.clone();
        let panicked = std::thread::spawn(move || {
            let _held = other.kept.lock();
            panic!("while locked");
        });
        assert!(panicked.join().is_err());
        ring.push(LogSource::Stderr, "after");
        assert_eq!(texts(&ring), ["after"]);
    }
}
