//! Enforces Streamable HTTP for keys that need separate headers on each request.

use super::keys::{ServerKeys, TransportKind};
use super::section::Section;
use crate::transport::HttpKind;

/// Refuses HTTP+SSE for a server with this key; if no transport is set, selects Streamable HTTP.
pub(super) fn require(keys: &mut ServerKeys, section: &Section<'_>, key: &str) {
    match &mut keys.transport {
        Some(TransportKind::Http(HttpKind::Sse)) => {
            let message = format!("`{}` cannot be combined with HTTP+SSE", section.path(key));
            let help = "only Streamable HTTP (`transport = \"http\"`) guarantees that a \
                        header is used only for the client that sent it";
            section.refuse(&[key], message, help.to_owned());
        }
        Some(TransportKind::Http(kind)) => *kind = HttpKind::Streamable,
        Some(TransportKind::Stdio) | None => {}
    }
}
