//! The spellings of a secret in texts.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// All characters except the ones that [RFC
/// 3986](https://www.rfc-editor.org/rfc/rfc3986#section-2.3) never encodes.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// An encoding of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    Raw,
    Json,
    /// JSON as Python writes it: non-ASCII letters and slashes are also escaped.
    JsonAscii,
    Percent,
    PercentLower,
    Form,
    /// Every byte is written in hexadecimal digits after this prefix.
    EachByte(&'static str, Digits),
    /// Base64, in a text in which this many bytes of a group of three precede the secret.
    Base64(usize),
    Base64Url(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Digits {
    Lower,
    Upper,
}

pub(super) const SPELLINGS: [Spelling; 18] = [
    Spelling::Raw,
    Spelling::Json,
    Spelling::JsonAscii,
    Spelling::Percent,
    Spelling::PercentLower,
    Spelling::Form,
    Spelling::EachByte("", Digits::Lower),
    Spelling::EachByte("", Digits::Upper),
    Spelling::EachByte("%", Digits::Lower),
    Spelling::EachByte("%", Digits::Upper),
    Spelling::EachByte("\\u00", Digits::Lower),
    Spelling::EachByte("\\u00", Digits::Upper),
    Spelling::Base64(0),
    Spelling::Base64(1),
    Spelling::Base64(2),
    Spelling::Base64Url(0),
    Spelling::Base64Url(1),
    Spelling::Base64Url(2),
];

impl Spelling {
    /// The secret in this spelling. For base64, only the characters that do not depend on the
    /// surrounding text.
    pub(super) fn of(self, text: &str) -> String {
        match self {
            Self::Raw => text.to_owned(),
            Self::Json => json(text),
            Self::JsonAscii => json_ascii(text),
            Self::Percent => utf8_percent_encode(text, RESERVED).to_string(),
            Self::PercentLower => lower_escapes(&Self::Percent.of(text)),
            Self::Form => Self::Percent.of(text).replace("%20", "+"),
            Self::EachByte(sign, Digits::Lower) => {
                text.bytes().map(|b| format!("{sign}{b:02x}")).collect()
            }
            Self::EachByte(sign, Digits::Upper) => {
                text.bytes().map(|b| format!("{sign}{b:02X}")).collect()
            }
            Self::Base64(before) => inner_base64(text, before, |it| STANDARD_NO_PAD.encode(it)),
            Self::Base64Url(before) => inner_base64(text, before, |it| URL_SAFE_NO_PAD.encode(it)),
        }
    }
}

fn json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    let inner = quoted.get(1..quoted.len().saturating_sub(1));
    inner.unwrap_or_default().to_owned()
}

fn json_ascii(text: &str) -> String {
    let mut escaped = String::new();
    for character in json(text).chars() {
        match character {
            '/' => escaped.push_str("\\/"),
            _ if character.is_ascii() => escaped.push(character),
            _ => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    escaped.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    escaped
}

/// Lowercases the digits after each `%`.
fn lower_escapes(text: &str) -> String {
    let mut digits = 0;
    let lower = text.chars().map(|character| match character {
        '%' => {
            digits = 2;
            character
        }
        _ if digits > 0 => {
            digits -= 1;
            character.to_ascii_lowercase()
        }
        _ => character,
    });
    lower.collect()
}

fn inner_base64(text: &str, before: usize, encode: impl Fn(&[u8]) -> String) -> String {
    let mut bytes = vec![0; before];
    bytes.extend_from_slice(text.as_bytes());
    let encoded = encode(&bytes);
    let (start, end) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
    encoded.get(start..end).unwrap_or_default().to_owned()
}
