//! Text of others on one line of a terminal.

/// The text with everything escaped that would end the line, move the cursor, change colours or
/// turn the direction of what follows.
pub fn one_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\t' => out.push(' '),
            _ if character.is_control() || is_invisible(character) => {
                out.extend(character.escape_default());
            }
            _ => out.push(character),
        }
    }
    out
}

/// Line ends of Unicode, and marks that turn the direction of a text.
fn is_invisible(character: char) -> bool {
    matches!(
        character,
        '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leaves_its_line() {
        let table = [
            ("plain ä 本", "plain ä 本"),
            ("a\nb\r\tc", "a\\nb\\r c"),
            ("\x1b[31mred", "\\u{1b}[31mred"),
            ("\u{85}\u{2028}\u{202e}", "\\u{85}\\u{2028}\\u{202e}"),
        ];
        for (text, expected) in table {
            assert_eq!(one_line(text), expected);
        }
    }
}
