//! The current activity of one session, as shown to operators.

use tokio::time::Instant;

use crate::calls::Call;
use crate::protocol::Revision;

/// Maximum number of calls shown per session.
const CALLS_MAX: usize = 100;

/// The current streams and calls of a session.
#[derive(Clone, Debug, Default)]
pub struct SessionActivity {
    pub streams: usize,
    /// Milliseconds since the session's actor was started.
    pub built_ms: u64,
    pub calls: Vec<OpenCall>,
}

/// A call that was not answered yet.
#[derive(Clone, Debug)]
pub struct OpenCall {
    pub method: String,
    pub item: String,
    pub server: String,
    /// Revision of the connection that last carried the call.
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
