//! Formats URLs for display, without secrets.

use std::ops::Range;

use memchr::memmem;
use url::{Origin, Url};

use super::tokens::{is_plain_text, is_variable};
use super::{MASK, argument_spans, hide};

/// Characters that end a URL in a text.
const URL_ENDS: &str = "\"'<>`|\\^";

/// A URL without user, password and query, in which path segments that are not plain words are
/// masked.
pub fn public_url(url: &Url) -> String {
    let origin = match url.origin() {
        // A Unix socket.
        Origin::Opaque(_) => format!("{}:", url.scheme()),
        origin @ Origin::Tuple(..) => origin.ascii_serialization(),
    };
    format!("{origin}{}", public_path(url.path()))
}

pub fn public_path(path: &str) -> String {
    let shown = |part| if is_plain(part) { part } else { MASK };
    path.split('/').map(shown).collect::<Vec<_>>().join("/")
}

/// A server's URL as written in a configuration, with its user, query values, and path segments
/// that are not plain words masked.
pub fn shown_url(written: &str, mask: &str) -> String {
    let mut spans = argument_spans("", written);
    spans.extend(url_spans(written));
    let path_end = written.find(['?', '#']).unwrap_or(written.len());
    let host = written.find("://").map_or(0, |at| at + 3);
    let path = written.get(host..path_end).unwrap_or_default();
    let mut at = host;
    for (index, part) in path.split('/').enumerate() {
        if index > 0 && !is_plain(part) && !is_variable(part) {
            spans.push(at..at + part.len());
        }
        at += part.len() + 1;
    }
    hide(written, spans, mask)
}

/// Positions of the user and the query values of each URL in a text.
pub fn url_spans(text: &str) -> Vec<Range<usize>> {
    let mut spans = Vec::new();
    for colon in memmem::find_iter(text.as_bytes(), "://") {
        let start = colon + "://".len();
        let rest = text.get(start..).unwrap_or_default();
        let is_end = |c: char| c.is_whitespace() || URL_ENDS.contains(c);
        let url = rest.split(is_end).next().unwrap_or_default();
        let authority = url.split(['/', '?', '#']).next().unwrap_or_default();
        if let Some((user, _)) = authority.rsplit_once('@')
            && (user.contains(':') || !is_plain_text(user))
        {
            spans.push(start..start + user.len());
        }
        // The fragment names a part of a package, such as `#subdirectory=src`.
        let url = url.split('#').next().unwrap_or_default();
        let mut at = start + url.find('?').map_or(url.len(), |at| at + 1);
        let query = text.get(at..start + url.len()).unwrap_or_default();
        for pair in query.split(['&', ';']) {
            let value = pair.split_once('=').map_or(pair, |(_, value)| value);
            if !value.is_empty() && !is_variable(value) {
                spans.push(at + pair.len() - value.len()..at + pair.len());
            }
            at += pair.len() + 1;
        }
    }
    spans
}

/// Maximum length of a plain word in a path.
const WORD_MAX: usize = 20;

/// Whether a path segment consists of words and small numbers, such as `mcp`, `v1` or `my-server`.
pub(super) fn is_plain(part: &str) -> bool {
    let is_letters = |word: &str| word.bytes().all(|byte| byte.is_ascii_alphabetic());
    let is_number = |word: &str| word.len() <= 4 && word.bytes().all(|byte| byte.is_ascii_digit());
    part.split(['-', '_', '.']).all(|word| {
        let is_word = word.len() <= WORD_MAX && is_letters(word);
        is_word || is_number(word.strip_prefix('v').unwrap_or(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_url_holds_no_secret() {
        let table = [
            ("http://127.0.0.1:9/mcp", "http://127.0.0.1:9/mcp"),
            (
                "https://user:word@example.com/a?key=k#f",
                "https://example.com/a",
            ),
            ("https://example.com:443", "https://example.com/"),
            (
                "https://example.com/api/v1/s/NTQyMWE3ZjktOGM/mcp/",
                "https://example.com/api/v1/s/***/mcp/",
            ),
            (
                "https://example.com/9b2f1c34-aaaa-bbbb-cccc-0123456789ab/my-server_2",
                "https://example.com/***/my-server_2",
            ),
            ("https://example.com/s3cret", "https://example.com/***"),
            ("https://example.com/a%2fb", "https://example.com/***"),
        ];
        for (url, expected) in table {
            assert_eq!(public_url(&Url::parse(url).unwrap()), expected);
        }
    }
}
