//! The report of a connection that crashed, and its destination.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::telemetry::LogLine;
use crate::transport::{MessageReport, PendingCall, ProcessExit};

/// Receives the reports; must not block.
pub type CrashSink = Arc<dyn Fn(CrashReport) + Send + Sync>;

/// The end of one incarnation of a connection. Live secrets are masked in every text.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CrashReport {
    pub server: String,
    /// Owner of the connection: `shared`, `profile`, or `session` with the start of its id.
    pub connection: String,
    pub transport: Cow<'static, str>,
    pub generation: u64,
    /// Whether the handshake was done.
    pub was_up: bool,
    pub lived_ms: u64,
    pub reason: String,
    /// `{"code": 1}` or `{"signal": 9}` if a process ended and its status is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit: Option<ProcessExit>,
    /// The limit that the process is known to have reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Cow<'static, str>>,
    /// Total number of unanswered requests.
    pub pending_calls: usize,
    /// The first unanswered requests.
    pub pending: Vec<PendingCall>,
    /// The last messages, oldest first.
    pub messages: Vec<MessageReport>,
    /// The last lines of stderr, stray output and the gateway's remarks.
    pub log: Vec<LogLine>,
    /// Number of reports kept for this server.
    #[serde(skip)]
    pub keep: usize,
}
