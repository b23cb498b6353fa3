//! The only module that decides what is a secret, and hides it.
//!
//! It answers two questions for the whole gateway. Which parts of a command line, URL or text look
//! like a secret: [`argument_spans`], [`url_spans`] and [`text_spans`] return their positions, and
//! [`hide`] replaces them. Which secrets currently exist: [`LiveSecrets`] knows the secrets of the
//! configuration and the tokens of the running gateway, and finds them in any text, even in a
//! different spelling. Programs, packages, paths and ordinary words are never hidden.

mod arguments;
mod declared;
mod names;
mod registry;
mod spelling;
mod text;
mod tokens;
mod url;
mod user_info;

use std::ops::Range;

pub use arguments::{argument_spans, command_spans, holds_secret, shown_arguments};
pub use declared::{secrets_in_arguments, secrets_in_header, secrets_in_url, secrets_named};
pub use names::{names_count, names_secret};
pub use registry::{LiveSecrets, SecretOrigin};
pub use text::text_spans;
pub use tokens::is_variable;
pub use url::{public_path, public_url, shown_url, url_spans};

/// Replaces a secret in text for people.
pub const MASK: &str = "***";

/// Replaces a secret in API responses and in the history: if a client sends it back, the old value
/// stays.
pub const REDACTED: &str = "[REDACTED]";

/// Replaces each span with `mask`. Spans can overlap and come in any order.
pub fn hide(text: &str, mut spans: Vec<Range<usize>>, mask: &str) -> String {
    spans.sort_by_key(|span| span.start);
    let mut hidden = String::with_capacity(text.len());
    let mut copied = 0;
    for span in spans {
        if span.start >= copied && span.start < span.end {
            hidden.push_str(text.get(copied..span.start).unwrap_or_default());
            hidden.push_str(mask);
        }
        copied = copied.max(span.end);
    }
    hidden.push_str(text.get(copied..).unwrap_or_default());
    hidden
}

#[cfg(test)]
mod tests;
