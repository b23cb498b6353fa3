//! A child's standard error: kept as lines, never taken for a fault by itself (C-STDIO-03).

use std::cell::RefCell;
use std::rc::Rc;

use tokio::io::AsyncReadExt as _;
use tokio::process::ChildStderr;

use super::lines::{Line, LineSplitter};
use crate::telemetry::{LogRing, LogSource};

/// Longest line, in bytes; of a longer one only its presence is kept.
const LINE_MAX: usize = 64 * 1024;

/// The last line with text on it: often the reason why a child ended.
#[derive(Clone, Debug, Default)]
pub(super) struct LastWords(Rc<RefCell<Option<String>>>);

/// Bytes of the last line that go into the reason.
const LAST_WORDS_MAX: usize = 300;

impl LastWords {
    pub(super) fn get(&self) -> Option<String> {
        self.0.borrow().clone()
    }

    fn set(&self, text: &str) {
        let text = text.trim();
        if !text.is_empty() {
            let short = crate::transport::messages::excerpt(text.as_bytes(), LAST_WORDS_MAX);
            *self.0.borrow_mut() = Some(short);
        }
    }
}

/// Reads to the end.
pub(super) async fn read(mut pipe: ChildStderr, log: LogRing, last_words: LastWords) {
    let mut lines = LineSplitter::new(LINE_MAX);
    let keep = |line: Line| match line {
        Line::Whole(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            log.push(LogSource::Stderr, &text);
            last_words.set(&text);
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
