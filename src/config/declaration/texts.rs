//! Value kinds for strings. `${…}` is filled in before a string is checked.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value as Json, json};

use super::ValueKind;
use crate::config::section::{Section, ValueError};

/// A string that is never displayed. Comparable, so that changes to the file can be detected.
#[derive(Clone)]
pub(crate) struct SecretText(SecretString);

impl SecretText {
    pub(crate) fn new(text: &str) -> Self {
        Self(SecretString::from(text))
    }

    pub(crate) fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    pub(crate) fn to_secret(&self) -> SecretString {
        self.0.clone()
    }
}

impl PartialEq for SecretText {
    fn eq(&self, other: &Self) -> bool {
        self.expose() == other.expose()
    }
}

/// A value parsed from a checked string.
pub(crate) trait TextValue: Clone {
    /// The original string; `None` if it can be secret.
    fn text(&self) -> Option<String>;
}

impl TextValue for String {
    fn text(&self) -> Option<String> {
        Some(self.clone())
    }
}

impl TextValue for PathBuf {
    fn text(&self) -> Option<String> {
        Some(self.to_string_lossy().into_owned())
    }
}

impl TextValue for SocketAddr {
    fn text(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl TextValue for IpNet {
    fn text(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl TextValue for SecretText {
    fn text(&self) -> Option<String> {
        None
    }
}

fn quoted(text: impl fmt::Display) -> String {
    format!("\"{text}\"")
}

/// Checks a string and parses it into a value.
pub(crate) type ParseText<T> = fn(&str) -> Result<T, ValueError>;

/// One string.
pub(crate) struct TextKind<T> {
    must_be: &'static str,
    parse: ParseText<T>,
}

pub(crate) fn text<T>(must_be: &'static str, parse: ParseText<T>) -> TextKind<T> {
    TextKind { must_be, parse }
}

impl<T: TextValue> ValueKind for TextKind<T> {
    type Value = T;

    fn must_be(&self) -> String {
        self.must_be.to_owned()
    }

    fn schema(&self) -> Json {
        json!({ "type": "string" })
    }

    fn toml(&self, value: &T) -> Option<String> {
        value.text().map(quoted)
    }

    fn read(&self, section: &Section<'_>, key: &'static str) -> Option<T> {
        let text = section.text(key)?;
        section.checked(&text, self.must_be, (self.parse)(&text.value))
    }
}

/// An array of strings.
pub(crate) struct TextListKind<T> {
    each: &'static str,
    parse: ParseText<T>,
    example: Option<&'static str>,
}

/// `each` describes what every string must be.
pub(crate) fn texts<T>(each: &'static str, parse: ParseText<T>) -> TextListKind<T> {
    TextListKind {
        each,
        parse,
        example: None,
    }
}

impl<T> TextListKind<T> {
    pub(crate) fn such_as(self, example: &'static str) -> Self {
        Self {
            example: Some(example),
            ..self
        }
    }
}

impl<T: TextValue> ValueKind for TextListKind<T> {
    type Value = Vec<T>;

    fn must_be(&self) -> String {
        format!("an array of strings, each {}", self.each)
    }

    fn schema(&self) -> Json {
        json!({ "type": "array", "items": { "type": "string" } })
    }

    fn toml(&self, value: &Vec<T>) -> Option<String> {
        let texts: Option<Vec<String>> = value.iter().map(|v| v.text().map(quoted)).collect();
        Some(format!("[{}]", texts?.join(", ")))
    }

    fn show(&self, value: &Vec<T>) -> Option<String> {
        let texts: Option<Vec<String>> = value.iter().map(TextValue::text).collect();
        Some(texts?.join(", "))
    }

    fn example(&self) -> Option<&'static str> {
        self.example
    }

    fn read(&self, section: &Section<'_>, key: &'static str) -> Option<Vec<T>> {
        let texts = section.texts(key)?.into_iter();
        let value = |text| section.checked(&text, self.each, (self.parse)(&text.value));
        Some(texts.filter_map(value).collect())
    }
}

/// Secret strings by name.
pub(crate) type NamedSecrets = Vec<(String, SecretText)>;

/// A table of named secret strings.
pub(crate) struct NamedTextsKind {
    example: &'static str,
    /// Validates a name against the entries before it.
    check_name: fn(&str, &NamedSecrets) -> Result<(), ValueError>,
    check_value: fn(&str) -> Result<(), ValueError>,
}

pub(crate) fn named_texts(
    check_name: fn(&str, &NamedSecrets) -> Result<(), ValueError>,
    check_value: fn(&str) -> Result<(), ValueError>,
    example: &'static str,
) -> NamedTextsKind {
    NamedTextsKind {
        example,
        check_name,
        check_value,
    }
}

impl ValueKind for NamedTextsKind {
    type Value = NamedSecrets;

    fn must_be(&self) -> String {
        "a table of strings".to_owned()
    }

    fn schema(&self) -> Json {
        json!({ "type": "object", "additionalProperties": { "type": "string" } })
    }

    fn toml(&self, value: &NamedSecrets) -> Option<String> {
        value.is_empty().then(|| "{}".to_owned())
    }

    fn show(&self, _: &NamedSecrets) -> Option<String> {
        None
    }

    fn example(&self) -> Option<&'static str> {
        Some(self.example)
    }

    fn read(&self, section: &Section<'_>, key: &'static str) -> Option<NamedSecrets> {
        let mut taken = NamedSecrets::new();
        for (name, text) in section.named_texts(key)? {
            let name_fits = (self.check_name)(&name.value, &taken);
            if section.checked(&name, "", name_fits).is_none() {
                continue;
            }
            let value_fits = (self.check_value)(&text.value);
            if section.checked(&text, "", value_fits).is_some() {
                taken.push((name.value, SecretText::new(&text.value)));
            }
        }
        Some(taken)
    }
}
