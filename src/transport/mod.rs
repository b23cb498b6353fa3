//! Bytes and envelopes: how a downstream server is reached.
//!
//! Client ends only; policy-free. A [`Link`] is one open way to a server: frames go in without
//! waiting, envelopes and failures come out through an [`EventSink`]. It knows no handshake, no
//! catalog and no supervision.

mod child_reaper;
mod exec_lanes;
mod fault_settings;
#[cfg(feature = "faults")]
mod faults;
mod http;
mod http_connector;
mod http_sse;
mod large_answers;
mod link_sink;
mod messages;
mod orphans;
mod process;
mod proxy;
mod recorder;
mod settings;
mod spawner;
mod stdio;
mod streamable_http;
mod tls;

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use url::Url;

use crate::bridge::headers::{ClientHeaders, Headers};
use crate::credentials::Credential;
use crate::protocol::{Envelope, Revision};
use crate::telemetry::{Cause, Reason, one_line};

pub use fault_settings::FaultSettings;
#[cfg(feature = "faults")]
pub use faults::{FaultParts, FaultyConnector};
pub use http::cookies::CookieJar;
pub use http::sse::read_events;
pub use http::web_client::WebClient;
pub use http_connector::HttpConnector;
pub use large_answers::LargeAnswers;
pub use process::{ProcessExit, ProcessOwner, raise_open_files};
pub(crate) use process::{ProcessUsage, process_usage};
pub use proxy::{InvalidProxy, Proxy, ProxyChoice};
pub use recorder::{
    LinkRecording, MessageReport, PendingCall, Recorder, RecorderSettings, RecordingReport,
};
pub use settings::{
    ChildLimits, ForwardedHeader, HttpKind, HttpSettings, InheritEnv, StdioSettings,
};
pub use spawner::Spawner;
pub use stdio::{PASSED_VARIABLES, StdioConnector};
pub use tls::{Tls, TlsFiles, TlsFilesError, install_crypto_provider};

pub(crate) use proxy::tunnel_answer;
pub(crate) use stdio::lines::{Line, LineSplitter};

/// Where a link reports to; called on the arbiter that the link lives on, never from within a
/// call to the link itself, and not at all once the link is closing or dropped.
pub type EventSink = Rc<dyn Fn(LinkEvent)>;

/// Events of a link.
#[derive(Debug)]
pub enum LinkEvent {
    /// A message of the server. `call` is the number of the call on whose own stream it came, if
    /// the transport can tell (Streamable HTTP can, stdio cannot). On HTTP an error answer whose
    /// id is null carries the call's id here.
    Received {
        call: Option<u64>,
        envelope: Envelope,
    },
    /// This call, and no other, failed in transport.
    Failed { call: u64, error: LinkError },
    /// The server refused a request of a session that it possibly does not know any more (C-HTTP-15).
    SessionGone {
        call: Option<u64>,
        refusal: Box<SessionRefusal>,
    },
    /// The server asks its user to sign in at this URL, beside its messages.
    SignIn(SignInPlace),
    /// The link is dead; nothing comes after this, and it should be dropped or closed. Calls that
    /// were never written were reported as [`LinkError::NotSent`] before; others may have run.
    Closed(LinkEnd),
}

impl LinkEvent {
    /// Whether it is an answer that had to have room among others, or failed for want of it.
    pub(crate) fn is_of_large_answer(&self) -> bool {
        match self {
            Self::Received {
                envelope: Envelope::Response(response),
                ..
            } => response.room.is_some(),
            Self::Failed { error, .. } => matches!(error, LinkError::NoRoom(_)),
            _ => false,
        }
    }
}

/// The refusal of a request that was sent in a session.
#[derive(Clone, Debug)]
pub struct SessionRefusal {
    pub error: LinkError,
    /// The answer of the server to the call, which holds if the session exists after all.
    pub answer: Option<Envelope>,
    /// The refusal does not exclude that the call ran.
    pub may_have_run: bool,
    /// The request was sent in a session that was replaced meanwhile.
    pub is_stale: bool,
}

impl SessionRefusal {
    pub fn new(error: LinkError) -> Self {
        Self {
            error,
            answer: None,
            may_have_run: false,
            is_stale: false,
        }
    }

    /// Whether the server says with words or with 404 that it does not know the session.
    pub fn is_certain(&self) -> bool {
        match &self.error {
            LinkError::Status { status: 404, .. } => true,
            LinkError::Status {
                status: 400..=499,
                text,
                ..
            } => http::refusals::names_session(text.as_bytes()),
            _ => false,
        }
    }
}

/// Where somebody signs in to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignInPlace {
    /// At a page that the server's program names.
    Page(Url),
    /// Through the gateway, which keeps the token.
    Gateway,
    /// At the gateway, as its client: its token is exchanged.
    Client,
}

/// How a link ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkEnd {
    pub reason: Reason,
    /// How the server's process ended, if it has one and the system reported it.
    pub exit: Option<ProcessExit>,
    /// The limit (its key under `[servers.NAME.limits]`) that the process is known to have
    /// reached.
    pub limit: Option<&'static str>,
}

impl<R: Into<Reason>> From<R> for LinkEnd {
    fn from(reason: R) -> Self {
        Self {
            reason: reason.into(),
            ..Self::default()
        }
    }
}

impl fmt::Display for LinkEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.reason, f)
    }
}

/// Why one call failed in transport. `{}` is for clients, `{:#}` for operators: it shows the words
/// of the server, too.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// Nothing was sent: repeating it cannot run anything twice.
    #[error("not sent: {0}")]
    NotSent(Reason),
    #[error("connection lost before the answer: {0}")]
    Lost(String),
    #[error(fmt = show_status)]
    Status {
        status: u16,
        text: String,
        /// From `Retry-After`.
        retry_after: Option<Duration>,
    },
    #[error("answer is larger than the limit of {limit} bytes ({name})")]
    TooLarge { name: &'static str, limit: usize },
    /// The answer waited for room among other large answers.
    #[error("the gateway had no room for the answer for {} s (`limits.answer_bytes`)", .0.as_secs())]
    NoRoom(Duration),
    #[error(fmt = show_protocol)]
    Protocol(Reason),
}

impl LinkError {
    pub fn status(status: u16, text: impl Into<String>) -> Self {
        Self::Status {
            status,
            text: text.into(),
            retry_after: None,
        }
    }

    /// How long the server asks clients to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            Self::NotSent(reason) => reason.retry_after(),
            Self::NoRoom(_) => Some(Duration::from_secs(1)),
            Self::Lost(_) | Self::TooLarge { .. } | Self::Protocol(_) => None,
        }
    }

    /// Its kind, where a program can tell.
    pub fn cause(&self) -> Option<Cause> {
        match self {
            Self::NotSent(reason) => reason.cause(),
            Self::Lost(_)
            | Self::Status { .. }
            | Self::TooLarge { .. }
            | Self::NoRoom(_)
            | Self::Protocol(_) => None,
        }
    }
}

/// An HTTP status, and for operators the text that came with it.
fn show_status(
    status: &u16,
    text: &str,
    _: &Option<Duration>,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    write!(f, "server answered with HTTP status {status}")?;
    match f.alternate() && !text.trim().is_empty() {
        true => write!(f, ": {}", one_line(text)),
        false => Ok(()),
    }
}

fn show_protocol(reason: &Reason, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("answer breaks the protocol: ")?;
    fmt::Display::fmt(&reason, f)
}

/// Why a frame could not be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    #[error("server does not read: its write queue is full")]
    Full,
    #[error("connection is closed")]
    Closed,
}

/// Why a link could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkOpenError {
    #[error("command `{command}` cannot be started: {reason}")]
    Spawn { command: String, reason: String },
    #[error("{text}")]
    Refused {
        text: String,
        /// From `Retry-After`.
        retry_after: Option<Duration>,
    },
    #[error("{0}")]
    Other(String),
}

impl LinkOpenError {
    /// Its kind, where a program can tell.
    pub fn cause(&self) -> Option<Cause> {
        matches!(self, Self::Spawn { .. }).then_some(Cause::SpawnFailed)
    }

    /// How long the server asks clients to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            Self::Spawn { .. } | Self::Other(_) => None,
        }
    }
}

/// The session id and revision from the handshake with a Streamable HTTP server; sent with every
/// later request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpSession {
    /// `Mcp-Session-Id`, if the server gave one.
    pub id: Option<String>,
    pub revision: Revision,
    /// Shared by all links into the session.
    pub cookies: CookieJar,
}

/// A frame on its way to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingFrame {
    /// The number of the request in it, `None` for notifications and responses.
    pub call: Option<u64>,
    pub frame: Bytes,
    /// Streamable HTTP: a message that has any speaks the sessionless revision, where every
    /// message says of itself what it is (C-HTTP-04). It belongs to no session and opens none, and
    /// a stream that breaks is not resumed (C-HTTP-10). Other transports have no headers.
    pub headers: Option<Headers>,
    /// Streamable HTTP: what the client of its call says in headers. Those go out that the settings
    /// name.
    pub forwarded: Option<Arc<ClientHeaders>>,
}

impl OutgoingFrame {
    pub fn new(call: Option<u64>, frame: Bytes) -> Self {
        Self {
            call,
            frame,
            headers: None,
            forwarded: None,
        }
    }
}

/// One open way to a downstream server.
pub trait Link {
    /// Takes a frame; never waits.
    ///
    /// # Errors
    ///
    /// Returns [`SendError`] when the frame was not taken and will not be sent.
    fn send(&self, outgoing: OutgoingFrame) -> Result<(), SendError>;

    /// Whether the server has read all that was sent; `None` where the transport cannot tell. Meant
    /// for the time until [`Link::set_revision`]. A server over HTTP was there to be connected to.
    fn is_read(&self) -> Option<bool> {
        Some(true)
    }

    /// Nobody waits for this call any more: frees what the transport holds for it. A transport
    /// sets no deadline for an answer; whoever gives up says so here. On Streamable HTTP it ends
    /// the stream of the answer, which takes a sessionless call back (C-CANC-02).
    fn forget(&self, call: u64);

    /// The handshake is done: later requests carry this revision.
    fn set_revision(&self, revision: Revision);

    /// Streamable HTTP: later requests are sent in this session instead.
    fn set_session(&self, session: HttpSession);

    /// Streamable HTTP: what a worker channel on another arbiter needs to speak in the same
    /// session.
    fn http_session(&self) -> Option<HttpSession>;

    /// Opens the stream for messages of the server that belong to no call, where the transport
    /// has one; a server that refuses it (HTTP 405) is fine.
    fn listen(&self);

    /// Kills the server's process, if this link started it, as if it had crashed.
    fn kill(&self) {}

    /// Ends the link in order, within `grace` per step; the future ends when nothing is left.
    fn close(self: Box<Self>, grace: Duration) -> LocalBoxFuture<'static, ()>;
}

/// Opens links to one server. Shared by arbiters, so that the tests can inject one in memory.
pub trait Connector: Send + Sync {
    fn open(
        &self,
        sink: EventSink,
    ) -> LocalBoxFuture<'static, Result<Box<dyn Link>, LinkOpenError>>;

    /// A second link into the same session for the arbiter that calls; `None` where the
    /// transport has only one way in.
    fn worker_link(&self, _session: HttpSession, _sink: EventSink) -> Option<Box<dyn Link>> {
        None
    }

    /// A link that continues in a session of another link, which has ended, and ends it on close;
    /// `None` without sessions.
    fn resume(&self, _session: HttpSession, _sink: EventSink) -> Option<Box<dyn Link>> {
        None
    }

    /// Whether each link is a process of its own, which is started for it.
    fn starts_process(&self) -> bool {
        false
    }

    /// The process groups of the links that are open.
    fn process_groups(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Whether the transport tells on whose call's stream a request of the server came.
    fn knows_call_of_requests(&self) -> bool;

    /// The token that its requests carry, if there is one to sign in for.
    fn credential(&self) -> Option<&Arc<Credential>> {
        None
    }

    /// `stdio`, `http` or `sse`, for views and logs.
    fn transport(&self) -> &'static str;
}
