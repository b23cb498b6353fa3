//! Values of `Mcp-Name` and `Mcp-Param-*`: plain ASCII, or Base64 between two marks.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

const OPEN: &str = "=?base64?";
const CLOSE: &str = "?=";

/// A text as a header value: as it is, or encoded where HTTP would not carry it unchanged or it
/// looks encoded already (C-HTTP-06). An empty one is encoded, since some drop empty headers.
pub fn encode(text: &str) -> Cow<'_, str> {
    if is_plain(text) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{OPEN}{}{CLOSE}", STANDARD.encode(text)))
}

/// Whether a text may stand in a header as it is.
pub(super) fn is_plain(text: &str) -> bool {
    let is_blank = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_whitespace);
    let bytes = text.as_bytes();
    let is_padded = is_blank(bytes.first()) || is_blank(bytes.last());
    let looks_encoded = text.starts_with(OPEN) && text.ends_with(CLOSE);
    !is_padded && !looks_encoded && is_visible(text)
}

/// The text behind a header value (S-HDR-07); `None` when it is marked as Base64 and is none, or
/// does not decode to UTF-8.
pub fn decode(value: &str) -> Option<Cow<'_, str>> {
    let marked = value.strip_prefix(OPEN);
    let Some(encoded) = marked.and_then(|rest| rest.strip_suffix(CLOSE)) else {
        return Some(Cow::Borrowed(value));
    };
    let bytes = STANDARD.decode(encoded).ok()?;
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

/// Whether HTTP carries a text unchanged. No early end: so it takes many bytes at a time.
fn is_visible(text: &str) -> bool {
    let legal = |byte: u8| byte == b'\t' || (b' '..=b'~').contains(&byte);
    text.bytes().fold(true, |all, byte| all & legal(byte))
}

/// A header value as text without white space around it; `None` when it holds what RFC 9110
/// does not allow in one.
pub(super) fn visible(value: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(value.trim_ascii()).ok()?;
    is_visible(text).then_some(text)
}
