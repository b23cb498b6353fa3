//! Recognises words that look like tokens.

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

/// Prefixes of tokens from well-known services.
const PREFIXES: [&str; 34] = [
    "AGE-SECRET-KEY-",
    "AIza",
    "AKIA",
    "ASIA",
    "ATATT",
    "SG.",
    "dop_v1_",
    "eyJ",
    "figd_",
    "ghp_",
    "gho_",
    "ghr_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "gsk_",
    "hf_",
    "lin_api_",
    "npm_",
    "ntn_",
    "nvapi-",
    "pplx-",
    "pypi-",
    "rk_live_",
    "sbp_",
    "shpat_",
    "sk-",
    "sk_live_",
    "sk_test_",
    "tvly-",
    "xai-",
    "xapp-",
    "xox",
];

/// Minimum length after such a prefix for a word to be a token, in bytes.
const REST_MIN: usize = 10;

/// Minimum length of a token without a known prefix, in bytes.
const TOKEN_MIN: usize = 20;

/// Minimum number of bytes outside of ordinary parts for a word to be a token.
const UNUSUAL_MIN: usize = 16;

static PREFIX_FINDER: LazyLock<Option<AhoCorasick>> =
    LazyLock::new(|| AhoCorasick::new(PREFIXES).ok());

/// Tokens of well-known services in a text, recognised by their prefixes.
pub(super) fn known_tokens(text: &str) -> impl Iterator<Item = Range<usize>> {
    let finder = PREFIX_FINDER.as_ref();
    let found = finder
        .into_iter()
        .flat_map(move |finder| finder.find_iter(text));
    found.filter_map(move |found| {
        let before = text.get(..found.start())?.bytes().next_back();
        if before.is_some_and(is_token_byte) {
            return None;
        }
        let word = token_at(text.get(found.start()..)?);
        let rest = word.get(found.len()..)?;
        let is_web_token = word.matches('.').count() == 2;
        let is_token =
            rest.len() >= REST_MIN && is_mixed(rest) && (!word.starts_with("eyJ") || is_web_token);
        is_token.then(|| found.start()..found.start() + word.len())
    })
}

/// Words with high entropy, except hashes that pin a package or an image.
pub(super) fn random_words(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = text.get(at..)?;
            let start = at + rest.bytes().position(is_word_byte)?;
            let word = text.get(start..)?;
            let length = word.bytes().take_while(|byte| is_word_byte(*byte)).count();
            at = start + length;
            let word = word.get(..length)?;
            if is_random(word) && !is_pin(text.get(..start)?, word) {
                return Some(start..at);
            }
        }
    })
}

/// Whether a word is too irregular to consist of ordinary words.
fn is_random(word: &str) -> bool {
    let unusual = word.split(['-', '_', '+', '~']);
    let unusual = unusual.filter(|part| !is_plain_part(part)).map(str::len);
    word.len() >= TOKEN_MIN && unusual.sum::<usize>() >= UNUSUAL_MIN
}

/// Whether a word is the hash of a commit or image, which follows an `@` or its algorithm.
fn is_pin(before: &str, word: &str) -> bool {
    let is_hash = matches!(word.len(), 40 | 64) && word.bytes().all(|b| b.is_ascii_hexdigit());
    is_hash && before.ends_with(['@', ':', '#'])
}

/// Whether each part of a text is a word, a short number, or a word with a short number.
pub(super) fn is_plain_text(text: &str) -> bool {
    let mut parts = text.split(|c: char| !c.is_ascii_alphanumeric() && c.is_ascii());
    parts.all(is_plain_part)
}

fn is_plain_part(part: &str) -> bool {
    /// Maximum length of a part that mixes letters and digits.
    const SHORT: usize = 5;
    /// Number of digits in a date.
    const NUMBER_MAX: usize = 8;
    /// Maximum number of digits after a word, as in `python3` or `sha512`.
    const SUFFIX_MAX: usize = 4;
    let letters = part.trim_end_matches(|c: char| c.is_ascii_digit());
    let digits = part.len() - letters.len();
    let is_number = digits <= NUMBER_MAX && matches!(letters, "" | "v");
    let is_word = digits <= SUFFIX_MAX && letters.chars().all(char::is_alphabetic);
    part.len() <= SHORT || is_number || is_word && !changes_case_often(letters)
}

/// Whether a word changes case more often than `camelCase`.
fn changes_case_often(letters: &str) -> bool {
    let bytes = letters.as_bytes();
    let is_hump = |pair: &&[u8]| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase();
    bytes.windows(2).filter(is_hump).count() * 5 > bytes.len()
}

fn is_mixed(text: &str) -> bool {
    let has = |test: fn(&u8) -> bool| text.as_bytes().iter().any(test);
    has(u8::is_ascii_digit) || has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase)
}

fn token_at(text: &str) -> &str {
    let length = text
        .bytes()
        .take_while(|byte| is_token_byte(*byte) || *byte == b'.');
    let token = text.get(..length.count()).unwrap_or_default();
    token.trim_end_matches('.')
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_".contains(&byte)
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_+~".contains(&byte)
}
/// Whether the text is exactly `${NAME}` or `Bearer ${NAME}`, which refers to a secret but is not
/// one.
pub fn is_variable(text: &str) -> bool {
    let name = text.strip_prefix("Bearer ").unwrap_or(text);
    let name = name.strip_prefix("${");
    let name = name.and_then(|rest| rest.strip_suffix('}'));
    let is_legal = |c: char| c.is_ascii_alphanumeric() || "_:".contains(c);
    name.is_some_and(|name| name.chars().all(is_legal))
}
