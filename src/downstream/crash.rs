//! The report of a connection that ended badly, and where it goes.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::telemetry::LogLine;
use crate::transport::{MessageReport, PendingCall, ProcessExit};

/// Where reports go; it must not block.
pub type CrashSink = Arc<dyn Fn(CrashReport) + Send + Sync>;

/// The end of one incarnation of a connection. Live secrets are masked
/// in every text.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CrashReport {
    pub server: String,
    /// Whose connection: `shared`, `profile` or `session` with the beginning of its id.
    pub connection: String,
    pub transport: Cow<'static, str>,
    pub generation: u64,
    /// Whether its handshake was done.
    pub was_up: bool,
    pub lived_ms: u64,
    pub reason: String,
    /// `{"code": 1}` or `{"signal": 9}`, of a process whose end is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit: Option<ProcessExit>,
    /// The limit that it is known to have reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Cow<'static, str>>,
    /// Requests without an answer, in all.
    pub pending_calls: usize,
    /// The first of them.
    pub pending: Vec<PendingCall>,
    /// The last messages, oldest first.
    pub messages: Vec<MessageReport>,
    /// The last lines of its stderr, stray output and remarks of the gateway.
    pub log: Vec<LogLine>,
    /// How many reports of this server are kept.
    #[serde(skip)]
    pub keep: usize,
}
