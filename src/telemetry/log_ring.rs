//! The last lines that a server wrote beside its messages, for people who look for the cause of a
//! failure.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::clock::unix_millis;
use super::one_line::is_unprintable;
use crate::masking::LiveSecrets;

/// Where a line comes from.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogSource {
    /// The server's standard error.
    Stderr,
    /// A line on the server's standard output that is no message.
    Stray,
    /// A log line of the protocol that belongs to no call.
    Message,
    /// The gateway's own remarks about the server.
    Gateway,
}

impl LogSource {
    /// The word that is also its serialised form.
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
    /// Counts from 1 over the life of the ring; gaps do not occur.
    pub sequence: u64,
    /// When it came, in milliseconds since 1970.
    pub at: u64,
    pub source: LogSource,
    pub text: String,
}

/// How much a [`LogRing`] keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRingSettings {
    pub lines_max: usize,
    /// Bytes of text of all kept lines.
    pub bytes_max: usize,
    /// Bytes of one line; the rest of a longer one is cut off.
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

/// The lines that went through a [`LogRing`] since it was made.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogCounters {
    pub stderr: u64,
    pub stray: u64,
    pub message: u64,
    pub gateway: u64,
    /// Lines that made room for newer ones.
    pub dropped: u64,
    /// Lines that were cut at the limit.
    pub cut: u64,
}

/// The last lines of one server, bounded in lines and bytes. Clones share the lines; writers and
/// readers may be on different threads.
#[derive(Clone, Debug, Default)]
pub struct LogRing {
    ring: Arc<Mutex<Ring>>,
    secrets: LiveSecrets,
}

#[derive(Debug, Default)]
struct Ring {
    settings: LogRingSettings,
    lines: VecDeque<LogLine>,
    bytes: usize,
    sequence: u64,
    counters: LogCounters,
}

impl LogRing {
    /// `secrets` are masked in every line.
    pub fn new(settings: LogRingSettings, secrets: LiveSecrets) -> Self {
        let ring = Ring {
            settings,
            ..Ring::default()
        };
        Self {
            ring: Arc::new(Mutex::new(ring)),
            secrets,
        }
    }

    /// Adds a line; the oldest ones make room. Control characters are replaced, so that no server
    /// can forge lines or colours in a terminal.
    pub fn push(&self, source: LogSource, text: &str) {
        let text = self.secrets.masked(text);
        self.lock().push(source, &text);
    }

    /// The kept lines with a sequence number above `sequence`, oldest first; 0 for all.
    pub fn after(&self, sequence: u64) -> Vec<LogLine> {
        let ring = self.lock();
        let newer = ring.lines.iter().filter(|line| line.sequence > sequence);
        newer.cloned().collect()
    }

    /// The last lines, at most so many.
    pub fn tail(&self, lines: usize) -> Vec<LogLine> {
        let ring = self.lock();
        let skipped = ring.lines.len().saturating_sub(lines);
        ring.lines.iter().skip(skipped).cloned().collect()
    }

    pub fn counters(&self) -> LogCounters {
        self.lock().counters
    }

    /// A panic elsewhere leaves complete lines behind: the lock may be taken over.
    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
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
        self.sequence += 1;
        self.bytes += text.len();
        self.lines.push_back(LogLine {
            sequence: self.sequence,
            at: unix_millis(),
            source,
            text,
        });
        while self.lines.len() > self.settings.lines_max || self.bytes > self.settings.bytes_max {
            let Some(oldest) = self.lines.pop_front() else {
                return;
            };
            self.bytes -= oldest.text.len();
            self.counters.dropped += 1;
        }
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
        let by_lines = ring(2, 1000, 1000);
        let by_bytes = ring(1000, 4, 1000);
        for ring in [&by_lines, &by_bytes] {
            for text in ["aa", "bb", "cc"] {
                ring.push(LogSource::Stderr, text);
            }
            assert_eq!(texts(ring), ["bb", "cc"]);
            assert_eq!(ring.counters().dropped, 1);
            assert_eq!(ring.after(2).len(), 1);
            assert_eq!(ring.after(0)[0].sequence, 2);
        }
    }

    #[test]
    fn a_line_is_cut_at_a_character_and_holds_no_control_characters() {
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
            let _held = other.lock();
            panic!("while locked");
        });
        assert!(panicked.join().is_err());
        ring.push(LogSource::Stderr, "after");
        assert_eq!(texts(&ring), ["after"]);
    }
}
