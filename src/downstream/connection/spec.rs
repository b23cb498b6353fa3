//! The specification of one connection in a server's pool, from which every incarnation is built.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use actix::{Message, Recipient};
use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
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
use crate::downstream::separation::Comparison;
use crate::downstream::server_event::{ListTimes, RoutedServerEvent, ServerEvent};
use crate::downstream::session_status::SessionStatus;
use crate::downstream::settings::{ServerSettings, Sharing};
use crate::downstream::starting::StartProgress;
use crate::id::{ServerName, SessionId};
use crate::protocol::{DeclaredCapabilities, Era, LogLevel, Revision};
use crate::telemetry::LogSource;
use crate::transport::{HttpSession, LinkError, Recorder};

/// The specification of a connection, shared by all its incarnations.
pub(crate) struct ConnectionSpec {
    pub(crate) server: ServerName,
    pub(crate) of_server: ServerParts,
    pub(crate) of_all: PoolParts,
    pub(crate) key: ConnectionKey,
    /// The session for which the connection was opened.
    pub(crate) opener: Option<SessionId>,
    /// Index of the arbiter that the connection lives on.
    pub(crate) home: usize,
    pub(crate) load: Arc<ConnectionLoad>,
    /// Tasks that clients follow themselves.
    pub(crate) client_tasks: ClientTasks,
    pub(crate) progress: StartProgress,
    /// The last messages of the current incarnation.
    pub(crate) recorder: ArcSwap<Recorder>,
    /// Arguments that a sessionless HTTP server requires in headers, by tool name.
    pub(crate) param_headers: ArcSwap<HashMap<String, ParamHeaders>>,
    /// The items that the server last offered, valid until an incarnation lists them again.
    pub(crate) last_part: ArcSwapOption<ServerPart>,
    /// The first lists of the current incarnation, before calls could change them, if they are
    /// compared.
    pub(crate) first_lists: ArcSwapOption<FirstLists>,
    /// Whether the server was ever listed.
    pub(crate) listed: watch::Sender<bool>,
    /// State of the session, for operators.
    pub(crate) session: SessionStatus,
    /// For one client's session, the lists that its calls could have changed since they were read.
    pub(crate) called: CalledLists,
    /// One client's session, while the server knows it.
    pub(crate) own_session: OwnSession,
}

/// The items that an incarnation listed first, and when they were read.
pub(crate) struct FirstLists {
    pub(crate) part: Arc<ServerPart>,
    pub(crate) read_at: ListTimes,
}

/// A client's own session at an HTTP server, as its connection and the pool see it.
#[derive(Default)]
pub(crate) struct OwnSession {
    open: Mutex<Option<(HttpSession, Arc<Negotiated>)>>,
    /// Whether the session stays open when its connection ends.
    is_left_open: AtomicBool,
}

impl OwnSession {
    pub(crate) fn new(resumed: Option<(HttpSession, Arc<Negotiated>)>) -> Self {
        let open = Mutex::new(resumed);
        let is_left_open = AtomicBool::new(false);
        Self { open, is_left_open }
    }

    /// Records that a handshake opened the session.
    pub(crate) fn opened(&self, session: HttpSession, negotiated: Negotiated) {
        *self.open.lock() = Some((session, Arc::new(negotiated)));
    }

    /// Records that the server lost the session, or that the connection ended.
    pub(crate) fn lost(&self) {
        self.open.lock().take();
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.lock().is_some()
    }

    pub(crate) fn take(&self) -> Option<(HttpSession, Arc<Negotiated>)> {
        self.open.lock().take()
    }

    /// Takes the session from its connection, which then leaves it open.
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
    /// Whether log lines that belong to no call are kept for operators, because they could concern
    /// another client's call.
    pub(crate) fn keeps_logs(&self) -> bool {
        let is_of_one = matches!(self.key.owner, ConnectionOwner::Session(..));
        !is_of_one && !self.of_server.settings.load().limits.share_logs
    }

    /// Whether log lines that belong to no call are for all clients of the connection.
    pub(crate) fn shares_logs(&self) -> bool {
        !self.key.is_exclusive() && self.of_server.settings.load().limits.share_logs
    }

    /// Whether the connection is one client's session at a server behind a URL whose other
    /// connections are shared. It does only what the client requests, which keeps it cheap.
    pub(crate) fn is_own_session(&self) -> bool {
        matches!(self.key.owner, ConnectionOwner::Session(..))
            && !self.of_server.connector.starts_process()
            && self.of_server.settings.load().sharing == Sharing::Auto
    }

    /// Whether the connection's end would end a session that its client still has. A session over
    /// HTTP lasts without its connection once it is idle; over HTTP+SSE the connection is the
    /// session.
    pub(crate) fn keeps_session(&self) -> bool {
        let is_session =
            self.is_own_session() && !self.of_server.connector.knows_call_of_requests();
        is_session || self.own_session.is_open()
    }

    /// Capabilities that the connection declares to the server.
    pub(crate) fn declared(&self) -> DeclaredCapabilities {
        match self.declares_all() {
            true => DeclaredCapabilities::all(),
            false => self.key.profile(),
        }
    }

    /// Whether this is the process that clients of any capabilities share.
    pub(crate) fn declares_all(&self) -> bool {
        self.serves_any() && self.of_server.separation.declares_all()
            || self.key.owner.is_stand_in()
    }

    /// Whether the server's shared process can serve clients of any capabilities.
    fn serves_any(&self) -> bool {
        self.key.is_shared()
            && self.of_server.connector.starts_process()
            && self.of_server.settings.load().sharing == Sharing::Auto
    }

    /// Records what this incarnation listed first.
    pub(crate) fn lists_first(&self, part: &Arc<ServerPart>, read_at: ListTimes) {
        if !self.serves_any() && !self.key.is_plain() {
            return;
        }
        let part = part.clone();
        let lists = Arc::new(FirstLists { part, read_at });
        self.first_lists.store(Some(lists.clone()));
        if self.serves_any() {
            let is_whole = self.session.trouble().is_none();
            (self.of_server.separation).shared_listed(&lists.part, is_whole);
        }
    }

    /// Whether no client sees the lists of this connection, because they are only compared.
    pub(crate) fn hides_lists(&self) -> bool {
        let separation = &self.of_server.separation;
        let is_shown =
            separation.is_plain_apart() && separation.comparison() == Comparison::Settled;
        self.key.is_plain() && !is_shown
    }

    /// Records that the connection opens, which decides what it declares.
    pub(crate) async fn opens(&self) {
        if self.serves_any() {
            self.of_server.separation.load().await;
            self.of_server.separation.shared_opens();
            self.first_lists.store(None);
        }
    }

    pub(crate) fn server(&self) -> &ServerName {
        &self.server
    }

    pub(crate) fn settings(&self) -> Arc<ServerSettings> {
        self.of_server.settings.load_full()
    }

    /// Sends an event to the clients that share a connection like this one, but of `owner`.
    pub(crate) fn send_event(&self, owner: ConnectionOwner, event: ServerEvent) {
        let key = ConnectionKey {
            owner,
            ..self.key.clone()
        };
        let server = self.server.clone();
        (self.of_all.listener)(RoutedServerEvent { server, key, event });
    }

    /// Records that the server refused a call with a status; operators see the server's own text.
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

    /// Era of the first question.
    pub(crate) async fn look_up_era(&self) -> KnownEra {
        // The HTTP+SSE transport exists only in the older era.
        if self.of_server.connector.transport() == "sse" {
            return KnownEra::Configured(Era::Legacy);
        }
        match self.key.era {
            Some(era) => KnownEra::Configured(era),
            None => self.of_server.era.look_up().await,
        }
    }

    /// Discards the messages recorded by earlier incarnations.
    pub(crate) fn begin_recording(&self) {
        let recorder = Recorder::new(self.of_server.settings.load().recorder);
        self.recorder.store(Arc::new(recorder));
    }
}

/// Senders of a ready connection, one per arbiter, so that calls use the nearest. Cheap to clone.
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
        Self(Arc::new(CallSenderTable {
            by_arbiter,
            owner,
            revision,
            declaration: spec.of_server.declaration,
            settings: spec.settings(),
            transport: spec.of_server.connector.transport(),
        }))
    }

    /// Revision that is spoken over the connection.
    pub fn revision(&self) -> Revision {
        self.0.revision
    }

    /// Settings with which the connection was opened.
    pub(crate) fn settings(&self) -> &ServerSettings {
        &self.0.settings
    }

    /// Declaration of the connected server.
    pub fn declaration(&self) -> Digest {
        self.0.declaration
    }

    /// Name of the transport.
    pub fn transport(&self) -> &'static str {
        self.0.transport
    }

    /// Sends a message through the sender nearest to the arbiter of this index.
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

/// A clone is held by each command until the server has answered it, or cannot; the receiver of the
/// channel then knows that all of them are settled.
pub type Pending = mpsc::Sender<()>;

/// A change of subscriptions or log levels, for the connection to pass on.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub enum ConnectionCommand {
    Level(LogLevel),
    /// Log level that a sessionless request asks for. A server whose level applies to all callers
    /// is only ever made more verbose.
    LevelAtLeast(LogLevel),
    Subscribe(String, Option<Pending>),
    Unsubscribe(String),
    /// The set of watched tasks has changed.
    Tasks,
    /// The client of this session listens for messages outside of calls.
    Listen,
    /// Checks again whether the lists changed.
    Refresh,
    /// A client requests a list that was read some time ago.
    Reread(ItemKind),
    /// A client requests a list that its calls could have changed.
    Relist(ItemKind),
    RootsChanged,
    /// Checks whether the server is alive.
    Check,
    /// Applies changed settings.
    Retune,
    /// Kills the server's process, if it has one.
    Kill,
}
