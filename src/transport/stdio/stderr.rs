//! A child's standard error: kept as lines, never taken for a fault by itself (C-STDIO-03).

use std::cell::RefCell;
use std::rc::Rc;

use tokio::io::AsyncReadExt as _;
use tokio::process::ChildStderr;

use super::lines::{Line, LineSplitter};
use super::link_end::mentions_limit;
use crate::telemetry::{LogRing, LogSource};

/// Longest line, in bytes; of a longer one only its presence is kept.
const LINE_MAX: usize = 64 * 1024;

/// The last line with text on it, often the reason why a child ended, and the last one that
/// tells of a limit, which a stack trace may follow.
#[derive(Clone, Debug, Default)]
pub(super) struct StderrTail(Rc<RefCell<TailLines>>);

#[derive(Clone, Debug, Default)]
pub(super) struct TailLines {
    pub(super) last: Option<String>,
    pub(super) limit_line: Option<String>,
    /// Lines after it.
    pub(super) since: usize,
}

/// Lines of a stack trace; a refusal that is followed by more did not end the child.
const TRACE_MAX: usize = 100;

/// Bytes of the last line that go into the reason.
const LAST_WORDS_MAX: usize = 300;

impl StderrTail {
    pub(super) fn get(&self) -> TailLines {
        self.0.borrow().clone()
    }

    fn set(&self, text: &str) {
        let text = text.trim();
        if !text.is_empty() {
            let short = crate::transport::messages::excerpt(text.as_bytes(), LAST_WORDS_MAX);
            let mut words = self.0.borrow_mut();
            if mentions_limit(&short) {
                words.limit_line = Some(short.clone());
                words.since = 0;
            } else if words.since < TRACE_MAX {
                words.since += 1;
            } else {
                words.limit_line = None;
            }
            words.last = Some(short);
        }
    }
}

/// Reads to the end.
pub(super) async fn read(mut pipe: ChildStderr, log: LogRing, stderr_tail: StderrTail) {
    let mut lines = LineSplitter::new(LINE_MAX);
    let keep = |line: Line| match line {
        Line::Whole(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            log.push(LogSource::Stderr, &text);
            stderr_tail.set(&text);
        }
        Line::TooLong { .. } => log.push(LogSource::Stderr, "(a line longer than 64 KiB)"),
    };
    loop {
        match pipe.read_buf(lines.space()).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {
                while let Some(line) = lines.next_line() {
                    keep(line);
                }
            }
        }
    }
    if let Some(line) = lines.finish() {
        keep(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_about_a_limit_of_long_ago_is_forgotten() {
        let words = StderrTail::default();
        words.set("  out of memory ");
        for line in 0..TRACE_MAX {
            words.set(&format!("at frame {line}"));
            assert_eq!(words.get().limit_line.as_deref(), Some("out of memory"));
        }
        words.set("");
        assert!(words.get().limit_line.is_some());
        words.set("all is well");
        assert_eq!(words.get().limit_line, None);
        assert_eq!(words.get().last.as_deref(), Some("all is well"));
    }
}
