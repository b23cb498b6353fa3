//! A URL as it is shown: without what may be secret in it.

use url::Url;

use crate::telemetry::MASK;

/// A URL without what may be secret in it: user, password, query, and the parts of its path that
/// are no plain words.
pub fn public_url(url: &Url) -> String {
    let origin = url.origin().ascii_serialization();
    format!("{origin}{}", public_path(url.path()))
}

pub(super) fn public_path(path: &str) -> String {
    let shown = |part| if is_plain(part) { part } else { MASK };
    path.split('/').map(shown).collect::<Vec<_>>().join("/")
}

/// Letters of a plain word in a path.
const WORD_MAX: usize = 20;

/// Whether a part of a path is made of words and small numbers, as `mcp`, `v1` or `my-server`.
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
