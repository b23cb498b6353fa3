//! The activity of one session at the moment, for operators.

use tokio::time::Instant;

use crate::calls::Call;
use crate::protocol::Revision;

/// Calls of a session that are shown.
const CALLS_MAX: usize = 100;

/// The streams and calls of a session at the moment.
#[derive(Clone, Debug, Default)]
pub struct SessionActivity {
    pub streams: usize,
    /// Milliseconds since its actor was built.
    pub built_ms: u64,
    pub calls: Vec<OpenCall>,
}

/// A call that is not answered.
#[derive(Clone, Debug)]
pub struct OpenCall {
    pub method: String,
    pub item: String,
    pub server: String,
    /// Of the connection that it was sent over.
    pub server_revision: Option<Revision>,
}

impl SessionActivity {
    pub(crate) fn new<'c>(
        streams: usize,
        built_at: Instant,
        calls: impl Iterator<Item = &'c Call>,
    ) -> Self {
        let shown = |call: &Call| OpenCall {
            method: call.method.as_str().to_owned(),
            item: call.item.to_string(),
            server: call.target.server.to_string(),
            server_revision: call.server_revision(),
        };
        Self {
            streams,
            built_ms: u64::try_from(built_at.elapsed().as_millis()).unwrap_or(u64::MAX),
            calls: calls.take(CALLS_MAX).map(shown).collect(),
        }
    }
}
