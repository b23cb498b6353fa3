//! The authorization server of a server, and what tokens for it are requested for.

use super::{AuthorizationServer, Scopes};

/// The authorization server of a protected server.
#[derive(Clone, Debug)]
pub(super) struct Authority {
    /// The resource that tokens are requested for (RFC 8707).
    pub(super) resource: String,
    pub(super) server: AuthorizationServer,
    /// The scopes that the server supports.
    pub(super) scopes: Scopes,
    /// Whether the server accepts only tokens that are bound to a key.
    pub(super) needs_dpop: bool,
}
