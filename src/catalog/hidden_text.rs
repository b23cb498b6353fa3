//! Detects characters that people cannot see but models read: a server could use them to tell a
//! model something that reviewers do not see.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use crate::telemetry::is_unprintable;

/// Maximum number of characters that are named.
const NAMED_MAX: usize = 5;

/// The hidden characters of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HiddenText {
    count: usize,
    /// The first distinct characters.
    kinds: BTreeSet<char>,
}

impl HiddenText {
    /// Finds the hidden characters of a text.
    pub fn of(text: &str) -> Option<Self> {
        let mut found = Self::none();
        found.read(text);
        found.any()
    }

    /// Finds the hidden characters in all keys and strings of a JSON value.
    pub fn in_json(json: &str) -> Option<Self> {
        // Most values are plain ASCII, in which only an escape can hide something.
        if json.is_ascii() && !json.contains("\\u") {
            return None;
        }
        let mut found = Self::none();
        // The JSON is valid and within the depth limit for lists.
        if let Ok(value) = serde_json::from_str(json) {
            found.read_value(&value);
        }
        found.any()
    }

    fn none() -> Self {
        Self {
            count: 0,
            kinds: BTreeSet::new(),
        }
    }

    fn any(self) -> Option<Self> {
        (self.count > 0).then_some(self)
    }

    fn read_value(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.read(text),
            Value::Array(elements) => elements.iter().for_each(|it| self.read_value(it)),
            Value::Object(members) => {
                for (key, value) in members {
                    self.read(key);
                    self.read_value(value);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn read(&mut self, text: &str) {
        if text.is_ascii() && !text.bytes().any(|byte| byte.is_ascii_control()) {
            return;
        }
        let mut before = ' ';
        let mut characters = text.chars().peekable();
        while let Some(character) = characters.next() {
            let after = characters.peek().copied().unwrap_or(' ');
            if is_hidden(character) && !joins(before, character, after) {
                self.count += 1;
                if self.kinds.len() < NAMED_MAX {
                    self.kinds.insert(character);
                }
            }
            before = character;
        }
    }
}

/// Formats `2 hidden characters (U+200B, U+202E)`.
impl fmt::Display for HiddenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noun = if self.count == 1 {
            "character"
        } else {
            "characters"
        };
        let kinds = self
            .kinds
            .iter()
            .map(|kind| format!("U+{:04X}", *kind as u32));
        let kinds = kinds.collect::<Vec<_>>().join(", ");
        write!(f, "{} hidden {noun} ({kinds})", self.count)
    }
}

/// Whether a character is invisible, or changes the direction of the following text.
pub(super) fn is_hidden(character: char) -> bool {
    match character {
        '\n' | '\r' | '\t' => false,
        // Soft hyphen, Hangul fillers, zero-width characters, tags, and variation selectors outside
        // emoji.
        '\u{ad}'
        | '\u{34f}'
        | '\u{115f}'
        | '\u{1160}'
        | '\u{17b4}'
        | '\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200d}'
        | '\u{2060}'..='\u{2065}'
        | '\u{206a}'..='\u{206f}'
        | '\u{3164}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e0fff}' => true,
        other => is_unprintable(other),
    }
}

/// Whether a joiner serves its purpose: between letters of a script, or parts of an emoji.
fn joins(before: char, character: char, after: char) -> bool {
    matches!(character, '\u{200c}' | '\u{200d}')
        && [before, after]
            .iter()
            .all(|it| !it.is_ascii() && !is_hidden(*it))
}

/// The text with hidden characters spelled out, such as `<U+200B>`.
pub(super) fn with_hidden_shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match is_hidden(character) {
            true => shown.push_str(&format!("<U+{:04X}>", character as u32)),
            false => shown.push(character),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_people_do_not_see_is_found_and_what_scripts_need_is_not() {
        let table = [
            ("plain\n\ttext", None),
            ("naïve – “quoted” 漢字 عربي", None),
            ("👩\u{200d}💻 ❤\u{fe0f}", None),
            ("می\u{200c}خواهم", None),
            ("read\u{200b}file", Some("1 hidden character (U+200B)")),
            ("a\u{200d}b", Some("1 hidden character (U+200D)")),
            (
                "a\u{202e}b\u{202e}\u{2066}",
                Some("3 hidden characters (U+202E, U+2066)"),
            ),
            (
                "\u{e0041}\u{e0042}",
                Some("2 hidden characters (U+E0041, U+E0042)"),
            ),
            ("\u{1b}[31m", Some("1 hidden character (U+001B)")),
            ("\u{feff}x", Some("1 hidden character (U+FEFF)")),
        ];
        for (text, expected) in table {
            let found = HiddenText::of(text).map(|hidden| hidden.to_string());
            assert_eq!(found.as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn json_escapes_and_keys_are_searched() {
        let nested = json!({ "a": [{ "b\u{200b}": "c\u{202e}" }] }).to_string();
        let found = |text: &str| HiddenText::in_json(text).map(|hidden| hidden.count);
        assert_eq!(found(&nested), Some(2));
        assert_eq!(found(r#"{"a":"x\u200by"}"#), Some(1));
        assert_eq!(found(r#"{"a":"caf\u00e9\n"}"#), None);
        assert_eq!(found(r#"{"a":1}"#), None);
        assert_eq!(with_hidden_shown("a\u{200b}b"), "a<U+200B>b");
    }
}
