//! One entry of a server's pool of connections: what every incarnation of it is built from.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use actix::{Message, Recipient};
use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::bridge::headers::ParamHeaders;
use crate::bridge::seal::Digest;
use crate::catalog::{ItemKind, ServerPart};
use crate::downstream::call_request::CallMessage;
use crate::downstream::connection::handshake::Negotiated;
use crate::downstream::connection_key::{ConnectionKey, ConnectionOwner};
use crate::downstream::era::KnownEra;
use crate::downstream::in_flight::client_tasks::ClientTasks;
use crate::downstream::parts::{PoolParts, ServerParts};
use crate::downstream::resilience::admission::ConnectionLoad;
use crate::downstream::session_status::SessionStatus;
use crate::downstream::settings::{ServerSettings, Sharing};
use crate::downstream::starting::StartProgress;
use crate::id::{ServerName, SessionId};
use crate::protocol::{Era, LogLevel, Revision};
use crate::telemetry::LogSource;
use crate::transport::{HttpSession, LinkError, Recorder};

/// The spec of a connection; the same for every incarnation.
pub(crate) struct ConnectionSpec {
    pub(crate) server: ServerName,
    pub(crate) of_server: ServerParts,
    pub(crate) of_all: PoolParts,
    pub(crate) key: ConnectionKey,
    /// The session for which it was opened.
    pub(crate) opener: Option<SessionId>,
    /// Index of the arbiter that the connection lives on.
    pub(crate) home: usize,
    pub(crate) load: Arc<ConnectionLoad>,
    /// Tasks that clients follow themselves.
    pub(crate) client_tasks: ClientTasks,
    pub(crate) progress: StartProgress,
    /// The last messages of the incarnation that lives.
    pub(crate) recorder: ArcSwap<Recorder>,
    /// Arguments that a sessionless server over HTTP wants in headers, by the tool's name.
    pub(crate) param_headers: ArcSwap<HashMap<String, ParamHeaders>>,
    /// The items that the server offered last: they hold until an incarnation has listed something
    /// else.
    pub(crate) last_part: ArcSwapOption<ServerPart>,
    /// Whether the server was listed once.
    pub(crate) listed: watch::Sender<bool>,
    /// How the session fares, for operators.
    pub(crate) session: SessionStatus,
    /// For the session of one client: the lists that its calls could have changed since they were read.
    pub(crate) called: CalledLists,
    /// The session of one client, while the server knows it.
    pub(crate) own_session: OwnSession,
}

/// A client's own session at an HTTP server, as its connection and the pool see it.
#[derive(Default)]
pub(crate) struct OwnSession {
    open: Mutex<Option<(HttpSession, Arc<Negotiated>)>>,
    /// The session stays open when its connection ends.
    is_left_open: AtomicBool,
}

impl OwnSession {
    pub(crate) fn new(resumed: Option<(HttpSession, Arc<Negotiated>)>) -> Self {
        let open = Mutex::new(resumed);
        let is_left_open = AtomicBool::new(false);
        Self { open, is_left_open }
    }

    /// A handshake has opened the session.
    pub(crate) fn opened(&self, session: HttpSession, negotiated: Negotiated) {
        *self.open.lock() = Some((session, Arc::new(negotiated)));
    }

    /// The server does not know it any more, or its connection ended.
    pub(crate) fn lost(&self) {
        self.open.lock().take();
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.lock().is_some()
    }

    pub(crate) fn take(&self) -> Option<(HttpSession, Arc<Negotiated>)> {
        self.open.lock().take()
    }

    /// Takes the session from its connection, which does not end it.
    pub(crate) fn leave_open(&self) -> Option<(HttpSession, Arc<Negotiated>)> {
        let open = self.take()?;
        self.is_left_open.store(true, Ordering::Relaxed);
        Some(open)
    }

    pub(crate) fn is_left_open(&self) -> bool {
        self.is_left_open.load(Ordering::Relaxed)
    }
}

/// Lists that calls in a session could have changed since they were read, as bits by
/// [`ItemKind::index`].
#[derive(Debug, Default)]
pub(crate) struct CalledLists(AtomicU8);

impl CalledLists {
    pub(crate) fn new(bits: u8) -> Self {
        Self(AtomicU8::new(bits))
    }

    pub(crate) fn bits(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self) {
        self.0.store(u8::MAX, Ordering::Relaxed);
    }

    pub(crate) fn any(&self) -> bool {
        self.bits() != 0
    }

    pub(crate) fn is_set(&self, kind: ItemKind) -> bool {
        self.bits() & 1 << kind.index() != 0
    }

    /// Whether calls could have changed this list; the caller reads it next.
    pub(crate) fn take(&self, kind: ItemKind) -> bool {
        let bit = 1 << kind.index();
        self.0.fetch_and(!bit, Ordering::Relaxed) & bit != 0
    }
}

impl ConnectionSpec {
    /// Whether a log line of no call is for operators: it may be about the call of somebody else
    /// than those who would read it.
    pub(crate) fn keeps_logs(&self) -> bool {
        let is_of_one = matches!(self.key.owner, ConnectionOwner::Session(..));
        !is_of_one && !self.of_server.settings.load().limits.share_logs
    }

    /// Whether it serves one client, in a session at an HTTP server that clients otherwise share. It does
    /// only work that the client requests, so that it costs little.
    pub(crate) fn is_own_session(&self) -> bool {
        matches!(self.key.owner, ConnectionOwner::Session(..))
            && self.of_server.connector.knows_call_of_requests()
            && self.of_server.settings.load().sharing == Sharing::Auto
    }

    pub(crate) fn server(&self) -> &ServerName {
        &self.server
    }

    pub(crate) fn settings(&self) -> Arc<ServerSettings> {
        self.of_server.settings.load_full()
    }

    /// The server refused a call with a status: operators read its own words.
    pub(crate) fn note_refusal(&self, error: &LinkError, now: Instant) {
        if let LinkError::Status { status, .. } = error
            && self.session.is_news(*status, now)
        {
            let why = self.masked(&format!("{error:#}"));
            log::warn!(server = self.server.as_str(), why; "server refused a call");
            let remark = format!("refused a call: {why}");
            self.of_server.log.push(LogSource::Gateway, &remark);
        }
    }

    /// The era in which the first question is asked.
    pub(crate) async fn look_up_era(&self) -> KnownEra {
        // That transport ended with the older era.
        if self.of_server.connector.transport() == "sse" {
            return KnownEra::Configured(Era::Legacy);
        }
        match self.key.era {
            Some(era) => KnownEra::Configured(era),
            None => self.of_server.era.look_up().await,
        }
    }

    /// Forgets what an earlier incarnation recorded.
    pub(crate) fn begin_recording(&self) {
        let recorder = Recorder::new(self.of_server.settings.load().recorder);
        self.recorder.store(Arc::new(recorder));
    }
}

/// The senders of a ready connection, by arbiter: a call takes the nearest. Cheap to clone.
#[derive(Clone)]
pub struct CallSenders(Arc<CallSenderTable>);

struct CallSenderTable {
    by_arbiter: Vec<Recipient<CallMessage>>,
    owner: Recipient<ConnectionCommand>,
    revision: Revision,
    settings: Arc<ServerSettings>,
    declaration: Digest,
    transport: &'static str,
}

impl CallSenders {
    pub(crate) fn new(
        by_arbiter: Vec<Recipient<CallMessage>>,
        owner: Recipient<ConnectionCommand>,
        revision: Revision,
        spec: &ConnectionSpec,
    ) -> Self {
        let settings = spec.settings();
        Self(Arc::new(CallSenderTable {
            by_arbiter,
            owner,
            revision,
            declaration: settings.declaration(),
            settings,
            transport: spec.of_server.connector.transport(),
        }))
    }

    /// The revision that is spoken over the connection.
    pub fn revision(&self) -> Revision {
        self.0.revision
    }

    /// Those that it was opened with.
    pub(crate) fn settings(&self) -> &ServerSettings {
        &self.0.settings
    }

    /// That of the server at its other end.
    pub fn declaration(&self) -> Digest {
        self.0.declaration
    }

    /// The name of its transport.
    pub fn transport(&self) -> &'static str {
        self.0.transport
    }

    /// Sends to the way in that is nearest to the arbiter of this index.
    pub fn send(&self, arbiter: usize, message: CallMessage) {
        let ways = &self.0.by_arbiter;
        if let Some(recipient) = ways.get(arbiter).or(ways.first()) {
            recipient.do_send(message);
        }
    }

    pub fn command(&self, command: ConnectionCommand) {
        self.0.owner.do_send(command);
    }
}

/// A change of subscriptions or log levels, for the connection to pass on.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub enum ConnectionCommand {
    Level(LogLevel),
    /// The level that one sessionless request asks for: a server that is asked once for all its
    /// callers says more from now on, never less.
    LevelAtLeast(LogLevel),
    Subscribe(String),
    Unsubscribe(String),
    /// Somebody wants to hear of another task.
    Tasks,
    /// The client of this session listens for messages of the server outside of calls.
    Listen,
    /// Look again whether the lists changed.
    Refresh,
    /// A client asks for a list that was read a while ago.
    Reread(ItemKind),
    /// A client asks for a list that its calls could have changed.
    Relist(ItemKind),
    RootsChanged,
    /// A notification of an extension, as the client wrote it.
    Extension(Bytes),
    /// Is the server still there?
    Check,
    /// The settings are different now.
    Retune,
    /// The server's process is killed, if it has one.
    Kill,
}
