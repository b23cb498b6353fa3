//! Keys of a server that only Streamable HTTP can serve, where each request has headers of its own.

use super::keys::{ServerKeys, TransportKind};
use super::section::Section;
use crate::transport::HttpKind;

/// Refuses HTTP+SSE for a server with this key; where no transport is named, it speaks Streamable HTTP.
pub(super) fn require(keys: &mut ServerKeys, section: &Section<'_>, key: &str) {
    match &mut keys.transport {
        Some(TransportKind::Http(HttpKind::Sse)) => {
            let message = format!("`{}` does not go with HTTP+SSE", section.path(key));
            let help = "only over Streamable HTTP (`transport = \"http\"`) it is certain that a \
                        header stays with the client that sent it";
            section.refuse(&[key], message, help.to_owned());
        }
        Some(TransportKind::Http(kind)) => *kind = HttpKind::Streamable,
        Some(TransportKind::Stdio) | None => {}
    }
}
