//! Reads a child's stdout, and handles the end of the child.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::{ChildStderr, ChildStdout};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::lines::{Line, LineSplitter};
use super::link_end::{ReadStop, TailLines, link_end};
use super::stderr;
use super::writer::StdinWriter;
use crate::sandbox::Confinement;
use crate::telemetry::{LogRing, LogSource};
use crate::transport::large_answers::{LargeAnswers, MessageRoom, SHARED_WAIT_MAX};
use crate::transport::link_sink::LinkSink;
use crate::transport::process::{ChildEnd, ProcessExit};
use crate::transport::{ChildLimits, LinkError, LinkEvent, messages};

/// Silence after a child's exit from which on its pipes count as drained, because a descendant can
/// hold them open.
const QUIET: Duration = Duration::from_millis(100);

/// Maximum time for which pipes are read after a child's exit.
const DRAIN_MAX: Duration = Duration::from_secs(1);

/// How long the gateway waits for a child that closed a pipe to exit, so that the reason can
/// include its exit status.
const EXIT_WAIT: Duration = Duration::from_secs(1);

/// Size of one read, in bytes, from which on a child counts as flooding.
const FLOOD: usize = 32 * 1024;

/// Maximum bytes kept of a stray line.
const STRAY_MAX: usize = 1024;

pub(super) struct StdoutReader {
    pub(super) log: LogRing,
    pub(super) sink: Rc<LinkSink>,
    pub(super) exit: oneshot::Receiver<ChildEnd>,
    pub(super) stop_writing: CancellationToken,
    pub(super) line_max: usize,
    pub(super) limits: ChildLimits,
    /// The sandbox that the child runs in.
    pub(super) confinement: Option<Arc<Confinement>>,
    pub(super) answers: LargeAnswers,
    /// Reservation for the line that is being read, if it is long.
    pub(super) room: MessageRoom,
}

impl StdoutReader {
    /// Reads until the end of the link and reports it.
    pub(super) async fn run(
        mut self,
        stdout: ChildStdout,
        stderr: ChildStderr,
        writer: StdinWriter,
    ) {
        let mut writer = AbortOnDropHandle::new(actix_rt::spawn(writer.run()));
        let log = self.log.clone();
        let tail = Rc::<RefCell<TailLines>>::default();
        let sink = Rc::clone(&self.sink);
        let confinement = self.confinement.clone();
        let stderr = stderr::read(stderr, log, Rc::clone(&tail), sink, confinement);
        let stderr = AbortOnDropHandle::new(actix_rt::spawn(stderr));

        let end = self.read(stdout, &mut writer).await;
        self.stop_writing.cancel();
        if !writer.is_finished() {
            // The runtime reports a panic of the writer.
            let _ = writer.await;
        }
        // A descendant can hold the pipe open; the lines so far suffice.
        let _ = timeout(QUIET, stderr).await;
        let link_end = link_end(
            end,
            &tail.borrow(),
            self.limits,
            self.confinement.as_deref(),
        );
        self.sink.send(LinkEvent::Closed(link_end));
    }

    async fn read(
        &mut self,
        mut stdout: ChildStdout,
        writer: &mut AbortOnDropHandle<()>,
    ) -> ReadStop {
        let mut lines = LineSplitter::new(self.line_max);
        let mut is_open = true;
        let mut end = None;
        // Deadlines once something has ended: for silence, and in total.
        let mut quiet = None;
        let mut latest = None;
        loop {
            let limit = async {
                match quiet.min(latest).or(latest) {
                    Some(limit) => sleep_until(limit).await,
                    None => std::future::pending().await,
                }
            };
            let has_exited = matches!(end, Some(ReadStop::ChildEnd(_)));
            if has_exited && !is_open {
                break;
            }
            tokio::select! {
                biased;
                exit = &mut self.exit, if !has_exited => {
                    end = Some(ReadStop::ChildEnd(exit.unwrap_or(ProcessExit::Unknown.into())));
                    quiet = Some(Instant::now() + QUIET);
                    latest = Some(Instant::now() + DRAIN_MAX);
                }
                _ = &mut *writer, if end.is_none() && !self.sink.is_muted() => {
                    end = Some(ReadStop::InputClosed);
                    latest = Some(Instant::now() + EXIT_WAIT);
                }
                () = limit => break,
                read = stdout.read_buf(lines.space()), if is_open => {
                    let Ok(count @ 1..) = read else {
                        is_open = false;
                        // Closes stdin, so that a process waiting for input exits.
                        self.stop_writing.cancel();
                        end = end.or(Some(ReadStop::OutputClosed));
                        latest = latest.or(Some(Instant::now() + EXIT_WAIT));
                        continue;
                    };
                    quiet = quiet.map(|_| Instant::now() + QUIET);
                    while let Some(line) = lines.next_line() {
                        self.take(line);
                    }
                    let waited = self.room.wait(&self.answers, &mut lines, SHARED_WAIT_MAX);
                    if let Err(error) = waited.await {
                        let text = format!("discarded a line: {error}");
                        self.log.push(LogSource::Gateway, &text);
                    }
                    if count >= FLOOD {
                        // Lets the receiver empty its mailbox, which has no limit.
                        tokio::task::yield_now().await;
                    }
                }
            }
        }
        if let Some(line) = lines.finish() {
            self.take(line);
        }
        end.unwrap_or(ReadStop::OutputClosed)
    }

    fn take(&mut self, line: Line) {
        let room = self.room.take();
        match line {
            Line::Whole(bytes) if bytes.trim_ascii().is_empty() => {}
            Line::Whole(bytes) => {
                let mut room = room.settle(bytes.len());
                let received = messages::for_each_message(bytes.clone(), |mut envelope| {
                    let call = None;
                    envelope.take_room(&mut room);
                    self.sink.send(LinkEvent::Received { call, envelope });
                });
                if received.is_err() {
                    let text = messages::excerpt(&bytes, STRAY_MAX);
                    self.log.push(LogSource::Stray, &text);
                }
            }
            Line::TooLong { id } => {
                let error = room.discarded("limits.line", self.line_max);
                if let LinkError::TooLarge { name, limit } = error {
                    let text = format!("discarded a line longer than {limit} bytes ({name})");
                    self.log.push(LogSource::Gateway, &text);
                }
                if let Some(call) = id {
                    self.sink.send(LinkEvent::Failed { call, error });
                }
            }
        }
    }
}
