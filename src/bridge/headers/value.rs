//! Encodes values of `Mcp-Name` and `Mcp-Param-*`: plain ASCII, or marked Base64.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

const OPEN: &str = "=?base64?";
const CLOSE: &str = "?=";

/// Encodes a text as a header value: unchanged, or as Base64 if HTTP would alter it or it looks
/// encoded already (C-HTTP-06). The empty text is encoded, because some proxies drop empty headers.
pub fn encode(text: &str) -> Cow<'_, str> {
    if is_plain(text) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{OPEN}{}{CLOSE}", STANDARD.encode(text)))
}

/// Whether a text can be a header value unchanged.
pub(super) fn is_plain(text: &str) -> bool {
    let is_blank = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_whitespace);
    let bytes = text.as_bytes();
    let is_padded = is_blank(bytes.first()) || is_blank(bytes.last());
    let looks_encoded = text.starts_with(OPEN) && text.ends_with(CLOSE);
    !is_padded && !looks_encoded && is_visible(text)
}

/// Decodes a header value (S-HDR-07); `None` if it is marked as Base64 but is invalid, or does not
/// decode to UTF-8.
pub fn decode(value: &str) -> Option<Cow<'_, str>> {
    let marked = value.strip_prefix(OPEN);
    let Some(encoded) = marked.and_then(|rest| rest.strip_suffix(CLOSE)) else {
        return Some(Cow::Borrowed(value));
    };
    let bytes = STANDARD.decode(encoded).ok()?;
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

/// Whether HTTP transmits a text unchanged. No early return, so that the loop can be vectorized.
fn is_visible(text: &str) -> bool {
    let legal = |byte: u8| byte == b'\t' || (b' '..=b'~').contains(&byte);
    text.bytes().fold(true, |all, byte| all & legal(byte))
}

/// A header value as trimmed text; `None` if it contains characters that RFC 9110 does not allow.
pub(super) fn visible(value: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(value.trim_ascii()).ok()?;
    is_visible(text).then_some(text)
}
