//! Finds secrets in the middle of texts: `password=x`, `"token": "x"` in embedded JSON, `Bearer x`,
//! tokens of well-known services.

use std::ops::Range;
use std::sync::LazyLock;

use memchr::{memchr2_iter, memmem};

use super::names::names_secret;
use super::tokens::known_tokens;

/// Minimum length of a secret value, in bytes: shorter ones occur in every other sentence.
const VALUE_MIN: usize = 4;

/// Maximum number of characters between a name, its `:` or `=`, and the value.
const GAP_MAX: usize = 6;

/// Schemes that precede a token.
pub(super) const SCHEMES: [&str; 3] = ["bearer", "basic", "token"];

/// The secrets in a text written by people or programs: values after secret names, tokens after
/// `Bearer`, and tokens of well-known services.
pub fn text_spans(text: &str) -> Vec<Range<usize>> {
    let mut spans = named_values(text);
    spans.extend(token_spans(text));
    spans
}

/// The secrets that are recognisable without a name: log lines of servers name much that is not
/// secret.
pub(super) fn token_spans(text: &str) -> impl Iterator<Item = Range<usize>> {
    bearer_tokens(text).chain(known_tokens(text))
}

/// The values after secret names.
fn named_values(text: &str) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let found = memchr2_iter(b':', b'=', bytes).filter_map(|sign| {
        let before = text.get(..sign)?;
        let name_end = sign - gap(before.bytes().rev());
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
        let length = bytes
            .get(..name_end)?
            .iter()
            .rev()
            .take_while(|b| is_part(b));
        let name = text.get(name_end - length.count()..name_end)?;
        if !names_secret(name) {
            return None;
        }
        let start = sign + 1 + gap(bytes.get(sign + 1..)?.iter().copied());
        let end = start + value_length(text.get(start..)?);
        let value = text.get(start..end)?;
        if SCHEMES
            .iter()
            .any(|scheme| value.eq_ignore_ascii_case(scheme))
        {
            let rest = text.get(end..)?;
            let next = rest.len() - rest.trim_start_matches(' ').len();
            let length = value_length(rest.get(next..)?);
            return Some(start..end + next + length);
        }
        (value.len() >= VALUE_MIN).then_some(start..end)
    });
    found.collect()
}

fn gap(bytes: impl Iterator<Item = u8>) -> usize {
    let signs = bytes
        .take(GAP_MAX)
        .take_while(|byte| b"\"'\\ `".contains(byte));
    signs.count()
}

fn value_length(text: &str) -> usize {
    let is_end = |byte: &u8| byte.is_ascii_whitespace() || b"\"'\\`,;&<>(){}[]".contains(byte);
    text.bytes().take_while(|byte| !is_end(byte)).count()
}

/// Finds what precedes a token.
static BEARER: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new("earer "));

fn bearer_tokens(text: &str) -> impl Iterator<Item = Range<usize>> {
    // The first letter can be upper or lower case.
    BEARER.find_iter(text.as_bytes()).filter_map(|at| {
        let first = text.as_bytes().get(at.checked_sub(1)?)?;
        let start = at + "earer ".len();
        let length = value_length(text.get(start..)?);
        (b"bB".contains(first) && length >= VALUE_MIN).then_some(start..start + length)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::masking::{REDACTED, hide};

    #[test]
    fn secrets_are_found_in_the_middle_of_a_text() {
        let table = [
            ("plain text: nothing", "plain text: nothing"),
            ("password=hunter22 and more", "password=[REDACTED] and more"),
            ("API_KEY: abcd1234, x", "API_KEY: [REDACTED], x"),
            (
                r#"{\"token\":\"abcd\",\"a\":1}"#,
                r#"{\"token\":\"[REDACTED]\",\"a\":1}"#,
            ),
            (
                "Authorization: Bearer abcd.ef-g",
                "Authorization: [REDACTED]",
            ),
            (
                "sent Bearer abcd.ef-g to it",
                "sent Bearer [REDACTED] to it",
            ),
            (
                "https://a.example/?api_key=abcd&x=1",
                "https://a.example/?api_key=[REDACTED]&x=1",
            ),
            ("the key: a", "the key: a"),
            ("key:", "key:"),
            ("=", "="),
            ("earer abcd", "earer abcd"),
            ("é password = ä1234é", "é password = [REDACTED]"),
        ];
        for (text, expected) in table {
            let shown = hide(text, text_spans(text), REDACTED);
            assert_eq!(shown, expected);
        }
    }
}
