//! Transports to downstream servers: bytes and envelopes.
//!
//! Contains only client ends, and no policy. A [`Link`] is an open channel to a server: it accepts
//! frames without blocking, and reports envelopes and failures to an [`EventSink`]. It does not
//! know handshakes, the catalog or supervision.

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
mod program;
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
pub(crate) use http::peer_client::{PeerAnswer, PeerClient, PeerError, PeerRequest};
pub use http::sse::read_events;
pub use http::web_client::WebClient;
pub use http_connector::HttpConnector;
pub use large_answers::LargeAnswers;
pub use process::{Pressure, ProcessExit, ProcessOwner, raise_open_files};
pub(crate) use process::{ProcessUsage, open_descriptors, process_usage};
pub use program::find_program;
pub(crate) use program::{check_program, is_program};
pub use proxy::{InvalidProxy, Proxy, ProxyChoice};
pub use recorder::{
    LinkRecording, MessageReport, PendingCall, Recorder, RecorderSettings, RecordingReport,
};
pub use settings::{
    ChildLimits, ForwardedHeader, HttpKind, HttpSettings, InheritEnv, StdioSettings, TreeLimits,
};
pub use spawner::Spawner;
pub use stdio::{PASSED_VARIABLES, ServerSandbox, StdioConnector};
pub use tls::{Tls, TlsFiles, TlsFilesError, install_crypto_provider};

pub(crate) use proxy::tunnel_answer;
pub(crate) use stdio::lines::{Line, LineSplitter};

/// Receives a link's events. Called on the link's arbiter, never during a call to the link itself,
/// and not after the link is closing or dropped.
pub type EventSink = Rc<dyn Fn(LinkEvent)>;

/// Events of a link.
#[derive(Debug)]
pub enum LinkEvent {
    /// A message from the server. `call` is the number of the call on whose stream it arrived, if
    /// the transport can tell (Streamable HTTP can, stdio cannot). Over HTTP, an error without an
    /// id also has the number of its call here.
    Received {
        call: Option<u64>,
        envelope: Envelope,
    },
    /// Only this call failed in transport.
    Failed { call: u64, error: LinkError },
    /// The server refused a request of a session that it may no longer know (C-HTTP-15).
    SessionGone {
        call: Option<u64>,
        refusal: Box<SessionRefusal>,
    },
    /// The server asks its user to sign in at this URL, outside of its messages.
    SignIn(SignInPlace),
    /// The link is dead and reports nothing more; it should be dropped or closed. Calls that were
    /// never written were reported as [`LinkError::NotSent`] before; other calls may have run.
    Closed(LinkEnd),
}

impl LinkEvent {
    /// Whether the answer reserved room in the budget for large answers, or failed because there
    /// was none.
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

/// Refusal of a request that was sent in a session.
#[derive(Clone, Debug)]
pub struct SessionRefusal {
    pub error: LinkError,
    /// The server's answer to the call, which is valid if the session does exist.
    pub answer: Option<Envelope>,
    /// Whether the call may have run despite the refusal.
    pub may_have_run: bool,
    /// Whether the request was sent in a session that has been replaced.
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

    /// Whether the server's text or a 404 states that it does not know the session.
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

/// The place where a user signs in to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignInPlace {
    /// On a page named by the server's program.
    Page(Url),
    /// Through the gateway, which keeps the token.
    Gateway,
    /// Through the client, whose token is exchanged.
    Client,
}

/// The end of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkEnd {
    pub reason: Reason,
    /// Exit status of the server's process, if it has one and the system reported it.
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

/// Why one call failed in transport. `{}` is for clients; `{:#}` is for operators and includes the
/// server's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// Nothing was sent, so a retry cannot run the call twice.
    #[error("not sent: {0}")]
    NotSent(Reason),
    #[error("connection lost before the answer: {0}")]
    Lost(String),
    #[error(fmt = show_status)]
    Status {
        status: u16,
        text: String,
        /// Value of `Retry-After`.
        retry_after: Option<Duration>,
    },
    #[error("answer is larger than the limit of {limit} bytes ({name})")]
    TooLarge { name: &'static str, limit: usize },
    /// The answer found no room in the budget for large answers.
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

    /// The cause, if it is a known one.
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

/// Formats an HTTP status, with the accompanying text for operators.
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

/// Why a frame was not accepted.
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
        /// Value of `Retry-After`.
        retry_after: Option<Duration>,
    },
    #[error("{0}")]
    Other(String),
}

impl LinkOpenError {
    /// The cause, if it is a known one.
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
    /// `Mcp-Session-Id`, if the server set one.
    pub id: Option<String>,
    pub revision: Revision,
    /// Shared by all links of the session.
    pub cookies: CookieJar,
}

/// A frame for a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingFrame {
    /// Number of the request in the frame; `None` for notifications and responses.
    pub call: Option<u64>,
    pub frame: Bytes,
    /// Whether the gateway itself makes the request, which then does not wait for the connections
    /// that clients' calls occupy.
    pub is_own: bool,
    /// Headers for Streamable HTTP. A message with headers is of the sessionless revision, in which
    /// every message describes itself (C-HTTP-04). It belongs to no session and opens none, and its
    /// stream is not resumed when it breaks (C-HTTP-10). Other transports have no headers.
    pub headers: Option<Headers>,
    /// The calling client's own headers, of which Streamable HTTP forwards the configured ones.
    pub forwarded: Option<Arc<ClientHeaders>>,
}

impl OutgoingFrame {
    pub fn new(call: Option<u64>, frame: Bytes) -> Self {
        Self {
            call,
            frame,
            is_own: false,
            headers: None,
            forwarded: None,
        }
    }
}

/// An open channel to a downstream server.
pub trait Link {
    /// Accepts a frame without blocking.
    ///
    /// # Errors
    ///
    /// Returns [`SendError`] if the frame was not accepted and will not be sent.
    fn send(&self, outgoing: OutgoingFrame) -> Result<(), SendError>;

    /// Whether the server has read everything that was sent; `None` if the transport cannot tell.
    /// Used until [`Link::set_revision`]. An HTTP server has accepted a connection, so it is
    /// running.
    fn is_read(&self) -> Option<bool> {
        Some(true)
    }

    /// Frees the resources of a call that has no caller any more. Transports set no deadline for
    /// answers, so callers must report when they stop waiting. Over Streamable HTTP, this closes
    /// the answer's stream, which cancels a sessionless call (C-CANC-02).
    fn forget(&self, call: u64);

    /// Sets the revision for later requests, after the handshake.
    fn set_revision(&self, revision: Revision);

    /// Streamable HTTP: sends later requests in this session.
    fn set_session(&self, session: HttpSession);

    /// Streamable HTTP: the data with which a worker link on another arbiter joins the session.
    fn http_session(&self) -> Option<HttpSession>;

    /// Opens the stream for the server's messages that belong to no call, if the transport has one.
    /// A server may refuse it (HTTP 405).
    fn listen(&self);

    /// Kills the server's process, if this link started it, as if it had crashed.
    fn kill(&self) {}

    /// Closes the link in an orderly way, within `grace` per step. Resolves when nothing is left.
    fn close(self: Box<Self>, grace: Duration) -> LocalBoxFuture<'static, ()>;
}

/// Opens links to one server. Shared by arbiters; a trait so that tests can inject in-memory links.
pub trait Connector: Send + Sync {
    fn open(
        &self,
        sink: EventSink,
    ) -> LocalBoxFuture<'static, Result<Box<dyn Link>, LinkOpenError>>;

    /// A second link into the same session, for the calling arbiter; `None` if the transport has
    /// only one channel.
    fn worker_link(&self, _session: HttpSession, _sink: EventSink) -> Option<Box<dyn Link>> {
        None
    }

    /// A link that continues in the session of a link that has ended, and ends the session on
    /// close; `None` for transports without sessions.
    fn resume(&self, _session: HttpSession, _sink: EventSink) -> Option<Box<dyn Link>> {
        None
    }

    /// Whether each link starts its own process.
    fn starts_process(&self) -> bool {
        false
    }

    /// Process groups of the open links.
    fn process_groups(&self) -> Vec<u32> {
        Vec::new()
    }

    /// The highest pressure in the control groups of the open links, if they have any.
    fn pressure(&self) -> Option<Pressure> {
        None
    }

    /// Tells in sentences what the server's program can reach; nothing for a server that is no program.
    fn access(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether the transport can tell on which call's stream a server's request arrived.
    fn knows_call_of_requests(&self) -> bool;

    /// The token for this server's requests, if the server requires a sign-in.
    fn credential(&self) -> Option<&Arc<Credential>> {
        None
    }

    /// `stdio`, `http` or `sse`, for views and logs.
    fn transport(&self) -> &'static str;
}
