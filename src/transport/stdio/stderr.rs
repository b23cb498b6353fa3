//! Reads a child's stderr into its log; output there is never treated as a fault (C-STDIO-03).

use std::cell::RefCell;
use std::rc::Rc;

use tokio::io::AsyncReadExt as _;
use tokio::process::ChildStderr;

use super::lines::{Line, LineSplitter};
use super::link_end::TailLines;
use super::sign_in::SignInWatch;
use crate::telemetry::{LogRing, LogSource};
use crate::transport::link_sink::LinkSink;
use crate::transport::{LinkEvent, SignInPlace};

/// Longest line, in bytes; a longer one is only noted.
const LINE_MAX: usize = 64 * 1024;

/// Reads until the child closes its stderr.
pub(super) async fn read(
    mut pipe: ChildStderr,
    log: LogRing,
    tail: Rc<RefCell<TailLines>>,
    sink: Rc<LinkSink>,
) {
    let mut sign_in = SignInWatch::default();
    let mut lines = LineSplitter::new(LINE_MAX);
    let mut keep = |line: Line| match line {
        Line::Whole(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            log.push(LogSource::Stderr, &text);
            tail.borrow_mut().add(&text);
            if let Some(url) = sign_in.request(&text) {
                sink.send(LinkEvent::SignIn(SignInPlace::Page(url)));
            }
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
