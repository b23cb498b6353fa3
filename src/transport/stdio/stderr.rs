//! Reads a child's stderr into its log; output there is never treated as a fault (C-STDIO-03).

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use tokio::io::AsyncReadExt as _;
use tokio::process::ChildStderr;

use super::lines::{Line, LineSplitter};
use super::link_end::{TailLines, beginning};
use super::sign_in::SignInWatch;
use crate::sandbox::{Confinement, refusal};
use crate::telemetry::{LogRing, LogSource};
use crate::transport::link_sink::LinkSink;
use crate::transport::{LinkEvent, SignInPlace};

/// Longest line, in bytes; a longer one is only noted.
const LINE_MAX: usize = 64 * 1024;

/// Remarks in a server's log on paths that the sandbox refused, for programs that do not end then.
struct RefusalRemarks {
    confinement: Option<Arc<Confinement>>,
    /// The last remark, which is not repeated.
    last: Option<String>,
}

impl RefusalRemarks {
    fn remark(&mut self, text: &str) -> Option<&str> {
        let confinement = self.confinement.as_deref()?;
        let remark = refusal([beginning(text)].into_iter(), confinement);
        let remark = remark.filter(|remark| self.last.as_ref() != Some(remark))?;
        Some(self.last.insert(remark))
    }
}

/// Reads until the child closes its stderr.
pub(super) async fn read(
    mut pipe: ChildStderr,
    log: LogRing,
    tail: Rc<RefCell<TailLines>>,
    sink: Rc<LinkSink>,
    confinement: Option<Arc<Confinement>>,
) {
    let mut refusals = RefusalRemarks {
        confinement,
        last: None,
    };
    let mut sign_in = SignInWatch::default();
    let mut lines = LineSplitter::new(LINE_MAX);
    let mut keep = |line: Line| match line {
        Line::Whole(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            log.push(LogSource::Stderr, &text);
            if let Some(remark) = refusals.remark(&text) {
                log.push(LogSource::Gateway, remark);
            }
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
