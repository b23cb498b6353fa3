//! Decides which names denote secrets.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

/// A name that contains one of these, ignoring separators, denotes a secret.
const PARTS: [&str; 10] = [
    "secret",
    "password",
    "passwd",
    "passphrase",
    "token",
    "apikey",
    "credential",
    "authorization",
    "cookie",
    "requeststate",
];

/// A name with one of these words denotes a secret.
const WORDS: [&str; 7] = ["key", "keys", "auth", "pwd", "pass", "jwt", "bearer"];

/// Last words of names that denote the location or kind of a secret, not the secret.
const PLACES: [&str; 21] = [
    "file",
    "files",
    "path",
    "dir",
    "directory",
    "folder",
    "url",
    "uri",
    "endpoint",
    "host",
    "mode",
    "type",
    "method",
    "provider",
    "algorithm",
    "format",
    "ttl",
    "timeout",
    "count",
    "limit",
    "size",
];

/// Protocol names that are not secrets.
const PLAIN: [&str; 2] = ["progresstoken", "maxtokens"];

/// Maximum length of a meaningful name, in bytes.
const LENGTH_MAX: usize = 64;

/// Finds all parts in one pass.
static PART_FINDER: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| AhoCorasick::new(PARTS).ok());

/// Whether the value of a member or variable of this name is likely to be a secret.
pub fn names_secret(name: &str) -> bool {
    if name.len() > LENGTH_MAX {
        return false;
    }
    let mut buffer = [0; LENGTH_MAX];
    let compact = letters(name, &mut buffer);
    let has_part = match &*PART_FINDER {
        Some(finder) => finder.is_match(compact),
        None => true,
    };
    let is_secret = has_part || words(name).any(is_word);
    is_secret && !PLAIN.iter().any(|plain| plain.as_bytes() == compact)
}

/// Whether a name denotes the location or kind of a secret, by its last word.
pub(super) fn names_place(name: &str) -> bool {
    let last = words(name).filter(|word| !word.is_empty()).last();
    last.is_some_and(|last| PLACES.iter().any(|place| last.eq_ignore_ascii_case(place)))
}

/// Whether a number under this name counts something, as in `input_tokens`.
pub fn names_count(name: &str) -> bool {
    let mut buffer = [0; LENGTH_MAX];
    name.len() <= LENGTH_MAX && letters(name, &mut buffer).ends_with(b"tokens")
}

/// The letters and digits of a name that fits into the buffer, in lower case.
fn letters<'b>(name: &str, buffer: &'b mut [u8; LENGTH_MAX]) -> &'b [u8] {
    let letters = name.bytes().filter(u8::is_ascii_alphanumeric);
    let mut length = 0;
    for (place, letter) in buffer.iter_mut().zip(letters) {
        *place = letter.to_ascii_lowercase();
        length += 1;
    }
    buffer.get(..length).unwrap_or_default()
}

fn is_word(word: &str) -> bool {
    WORDS.iter().any(|known| word.eq_ignore_ascii_case(known))
}

/// The words of `snake_case`, `kebab-case` and `camelCase`.
fn words(name: &str) -> impl Iterator<Item = &str> {
    let parts = name.split(|letter: char| !letter.is_ascii_alphanumeric());
    parts.flat_map(|part| {
        let bytes = part.as_bytes();
        let humps = (1..bytes.len())
            .filter(|at| bytes[at - 1].is_ascii_lowercase() && bytes[*at].is_ascii_uppercase());
        let ends = humps.chain([bytes.len()]);
        ends.scan(0, |start, end| {
            let word = part.get(*start..end);
            *start = end;
            word
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_recognised() {
        let secret = [
            "key",
            "api_key",
            "apiKey",
            "API-KEY",
            "X-Api-Key",
            "accessToken",
            "token",
            "password",
            "client_secret",
            "Authorization",
            "Cookie",
            "set-cookie",
            "dbPassword",
            "auth",
            "pwd",
            "requestState",
            "AWS_SECRET_ACCESS_KEY",
        ];
        for name in secret {
            assert!(names_secret(name), "{name}");
        }
        let plain = [
            "keyword",
            "monkeys",
            "author",
            "passenger",
            "progressToken",
            "maxTokens",
            "name",
            "path",
            "compass",
            "",
            "é",
            "keyboardLayout",
        ];
        for name in plain {
            assert!(!names_secret(name), "{name}");
        }
        assert!(names_count("input_tokens") && !names_count("token"));
    }
}
