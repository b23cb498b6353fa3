//! The stdio transport: a server as a child process, with one message per line (C-STDIO-01,
//! C-STDIO-03, C-STDIO-04).
//!
//! Reader, writer and stderr are separate tasks, so that a child that floods one pipe without
//! reading another blocks none of them. Only the reader reports `Closed`, after everything that the
//! child wrote.

mod child_groups;
mod command;
mod confined;
pub(super) mod lines;
mod link_end;
mod reader;
mod sign_in;
mod stderr;
mod unread;
mod writer;

pub use command::PASSED_VARIABLES;
pub use confined::ServerSandbox;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{FutureExt as _, LocalBoxFuture};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::child_reaper::GroupHandle;
use super::exec_lanes::CheckedProgram;
use super::large_answers::MessageRoom;
use super::link_sink::LinkSink;
use super::process::pressure_of;
use super::spawner::{SpawnRequest, Spawner};
use super::{
    Connector, EventSink, HttpSession, LargeAnswers, Link, LinkEvent, LinkOpenError, OutgoingFrame,
    Pressure, SendError, StdioSettings,
};
use crate::protocol::Revision;
use crate::telemetry::LogRing;

use child_groups::{ChildGroups, RunningChild};
use reader::StdoutReader;
use unread::Unread;
use writer::StdinWriter;

/// How long the system may take to end a killed process before the link stops waiting for it.
const KILL_WAIT_MAX: Duration = Duration::from_secs(6);

/// Starts one server's command.
#[derive(Clone, Debug)]
pub struct StdioConnector {
    settings: Arc<StdioSettings>,
    spawner: Spawner,
    log: LogRing,
    answers: LargeAnswers,
    children: ChildGroups,
    sandbox: Option<ServerSandbox>,
}

impl StdioConnector {
    /// `log` receives the server's stderr and stray lines.
    pub fn new(settings: StdioSettings, spawner: Spawner, log: LogRing) -> Self {
        Self {
            settings: Arc::new(settings),
            spawner,
            log,
            answers: LargeAnswers::default(),
            children: ChildGroups::default(),
            sandbox: None,
        }
    }

    /// Starts the command in a sandbox, if its level is not `off`.
    pub fn with_sandbox(mut self, sandbox: ServerSandbox) -> Self {
        self.sandbox = Some(sandbox);
        self
    }

    /// Shares the budget for large answers with other servers.
    pub fn with_answers(mut self, answers: LargeAnswers) -> Self {
        self.answers = answers;
        self
    }
}

impl Connector for StdioConnector {
    fn open(
        &self,
        sink: EventSink,
    ) -> LocalBoxFuture<'static, Result<Box<dyn Link>, LinkOpenError>> {
        let connector = self.clone();
        async move {
            let link = connector.start(sink).await?;
            Ok(Box::new(link) as Box<dyn Link>)
        }
        .boxed_local()
    }

    fn starts_process(&self) -> bool {
        true
    }

    fn process_groups(&self) -> Vec<u32> {
        self.children.all()
    }

    fn pressure(&self) -> Option<Pressure> {
        // Without groups of their own, children are in the group of the gateway.
        if self.spawner.missing_cgroups().is_some() {
            return None;
        }
        let groups = self.children.all();
        let all = groups.into_iter().filter_map(pressure_of);
        all.reduce(|one, other| Pressure {
            cpu: one.cpu.max(other.cpu),
            memory: one.memory.max(other.memory),
        })
    }

    fn access(&self) -> Vec<String> {
        let sandbox = self.sandbox.iter();
        let sentences = sandbox.map(|sandbox| confined::sentences(&self.settings, sandbox));
        sentences.flatten().collect()
    }

    fn knows_call_of_requests(&self) -> bool {
        false
    }

    fn transport(&self) -> &'static str {
        "stdio"
    }
}

impl StdioConnector {
    async fn start(self, sink: EventSink) -> Result<StdioLink, LinkOpenError> {
        let settings = &self.settings;
        let failed = |error: std::io::Error| LinkOpenError::Spawn {
            command: settings.command.clone(),
            reason: command::explain(settings, &error),
        };
        let command = command::build(settings);
        let path = confined::search_path(&command);
        let confined = confined::confine(command, settings, self.sandbox.as_ref()).await;
        let program = confined.confinement.as_ref().map(|_| CheckedProgram {
            name: settings.command.clone().into(),
            path,
        });
        let order = SpawnRequest {
            command: confined.command,
            program,
            grace: settings.stop_grace,
            limits: settings.limits,
        };
        let child = self.spawner.spawn(order).await.map_err(failed)?;
        let (stdin, stdout, stderr) = child.pipes.adopt().map_err(failed)?;

        let sink = Rc::new(LinkSink::new(sink));
        let (frames, queue) = mpsc::channel(settings.write_queue_max.max(1));
        let stop_writing = CancellationToken::new();
        let unread = Rc::new(Unread::new(&stdin));
        let (stop, unsent) = (stop_writing.clone(), Rc::clone(&sink));
        let writer = StdinWriter::new(stdin, queue, stop, unsent, Rc::clone(&unread));
        let reader = StdoutReader {
            log: self.log.clone(),
            sink: Rc::clone(&sink),
            exit: child.exit,
            stop_writing: stop_writing.clone(),
            line_max: settings.line_max,
            limits: settings.limits,
            confinement: confined.confinement,
            answers: self.answers.clone(),
            room: MessageRoom::default(),
        };
        let reader = watch(reader.run(stdout, stderr, writer), Rc::clone(&sink));
        Ok(StdioLink {
            frames: Some(frames),
            unread,
            stop_writing,
            sink,
            group: Some(child.group),
            _running: self.children.enter(child.leader),
            _spawner: self.spawner,
            _reader: AbortOnDropHandle::new(actix_rt::spawn(reader)),
        })
    }
}

/// Runs the reader, and reports `Closed` if it panics.
async fn watch(reader: impl Future<Output = ()> + 'static, sink: Rc<LinkSink>) {
    let reader = AbortOnDropHandle::new(actix_rt::spawn(reader));
    if let Err(error) = reader.await {
        let reason = format!("reading failed: {error}");
        sink.send(LinkEvent::Closed(reason.into()));
    }
}

struct StdioLink {
    /// `None` once the link is closing, after which the writer closes the child's stdin.
    frames: Option<mpsc::Sender<OutgoingFrame>>,
    unread: Rc<Unread>,
    stop_writing: CancellationToken,
    sink: Rc<LinkSink>,
    group: Option<GroupHandle>,
    _running: RunningChild,
    /// Keeps the spawner running, whose end would kill the child.
    _spawner: Spawner,
    _reader: AbortOnDropHandle<()>,
}

impl Link for StdioLink {
    fn send(&self, outgoing: OutgoingFrame) -> Result<(), SendError> {
        let frames = self.frames.as_ref().ok_or(SendError::Closed)?;
        let sent = frames.try_send(outgoing);
        sent.map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => SendError::Full,
            mpsc::error::TrySendError::Closed(_) => SendError::Closed,
        })?;
        self.unread.on_queued();
        Ok(())
    }

    fn is_read(&self) -> Option<bool> {
        self.unread.is_empty()
    }

    /// The transport keeps no data per call.
    fn forget(&self, _call: u64) {}

    // A child process has no session, and one channel for all messages.
    fn set_revision(&self, _: Revision) {
        self.unread.stop();
    }

    fn set_session(&self, _: HttpSession) {}

    fn http_session(&self) -> Option<HttpSession> {
        None
    }

    fn listen(&self) {}

    fn kill(&self) {
        if let Some(group) = &self.group {
            group.kill();
        }
    }

    fn close(mut self: Box<Self>, grace: Duration) -> LocalBoxFuture<'static, ()> {
        self.sink.mute();
        self.unread.stop();
        self.frames = None;
        async move {
            let Some(mut group) = self.group.take() else {
                return;
            };
            if timeout(grace, group.gone()).await.is_ok() {
                return;
            }
            self.stop_writing.cancel();
            group.terminate();
            if timeout(grace, group.gone()).await.is_ok() {
                return;
            }
            group.kill();
            if timeout(KILL_WAIT_MAX, group.gone()).await.is_err() {
                log::error!("a killed child process has not ended");
            }
        }
        .boxed_local()
    }
}

impl Drop for StdioLink {
    /// Dropping the link also drops the group's handle, which kills the processes, and ends the
    /// tasks.
    fn drop(&mut self) {
        self.sink.mute();
        self.stop_writing.cancel();
    }
}
