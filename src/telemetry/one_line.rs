//! Makes untrusted text safe to print: a single filter for terminals, logs and JSON.

use serde::Serialize;

/// Whether a character does more than display itself: control characters (C0, DEL, C1), Unicode
/// line breaks, and marks that change the text direction.
pub fn is_unprintable(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'
                | '\u{2029}'
                | '\u{202a}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
        )
}

/// Escapes everything that would end the line, move the cursor, change colours or the text
/// direction.
pub fn one_line(text: &str) -> String {
    escaped(text, |character| match character {
        '\t' => Some(' '),
        _ => (!is_unprintable(character)).then_some(character),
    })
}

/// Like [`one_line`], for a text of several lines.
pub fn printable(text: &str) -> String {
    let is_shown = |character| matches!(character, '\n' | '\t') || !is_unprintable(character);
    escaped(text, |character| is_shown(character).then_some(character))
}

fn escaped(text: &str, shown: impl Fn(char) -> Option<char>) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match shown(character) {
            Some(shown) => out.push(shown),
            None => out.extend(character.escape_default()),
        }
    }
    out
}

/// A value as indented JSON that is safe to print and has the same meaning: characters that JSON
/// allows but terminals interpret are escaped.
///
/// # Errors
///
/// Fails like [`serde_json::to_string_pretty`].
pub fn pretty_json(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string_pretty(value).map(|json| escaped_json(&json))
}

/// Escapes JSON text for printing. Apart from line breaks between tokens, such characters occur
/// only in its strings.
pub(super) fn escaped_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for character in json.chars() {
        if is_unprintable(character) && character != '\n' {
            out.push_str(&format!("\\u{:04x}", u32::from(character)));
        } else {
            out.push(character);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn nothing_leaves_its_line() {
        let table = [
            ("plain ä 本", "plain ä 本"),
            ("a\nb\r\tc", "a\\nb\\r c"),
            ("\x1b[31mred", "\\u{1b}[31mred"),
            ("\u{85}\u{2028}\u{202e}", "\\u{85}\\u{2028}\\u{202e}"),
            ("\u{7f}\u{9b}\u{61c}", "\\u{7f}\\u{9b}\\u{61c}"),
        ];
        for (text, expected) in table {
            assert_eq!(one_line(text), expected);
            assert_eq!(one_line(expected), expected, "twice is once");
        }
        assert_eq!(printable("a\n\tb\x1b\r"), "a\n\tb\\u{1b}\\r");
    }

    #[test]
    fn printed_json_says_the_same_and_moves_no_cursor() {
        let value = json!({"a\u{202e}": "\u{1b}[1m\u{7f}\u{9b}31m\u{2066}\n ä", "b": [1, "\\"]});
        let text = pretty_json(&value).unwrap();
        let is_harmless = |character| character == '\n' || !is_unprintable(character);
        assert!(text.chars().all(is_harmless), "{text:?}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}
