//! Merges the instructions of all servers into one text.

use std::fmt::Write as _;

use super::hidden_text::is_hidden;
use super::{NameSettings, public_name};
use crate::id::ServerName;

/// Ends a truncated section.
const TRUNCATION_MARK: &str = " […]";

/// The heading of a server's section, which states the prefix of its names.
pub(super) fn heading(server: &ServerName, names: &NameSettings) -> String {
    match public_name::prefix(server, names) {
        "" => server.to_string(),
        prefix => format!("{server} (names start with `{prefix}__`)"),
    }
}

/// Joins the sections (heading, text) in at most `bytes_max` bytes. If they do not fit, the long
/// ones are truncated to the same length, so that a verbose server takes no room from a short one;
/// sections whose heading does not fit are omitted.
pub(super) fn merge(sections: &[(String, String)], bytes_max: usize) -> Option<String> {
    let overhead = |heading: &str| "## \n\n\n\n".len() + heading.len() + TRUNCATION_MARK.len();
    let mut room = bytes_max;
    let mut shown: Vec<(&str, String)> = Vec::new();
    for (heading, text) in sections {
        let text = text.trim();
        if text.is_empty() {
            continue;
        }
        let Some(left) = room.checked_sub(overhead(heading)) else {
            break;
        };
        room = left;
        shown.push((heading, without_headings(text)));
    }
    let share = fair_share(shown.iter().map(|(_, text)| text.len()).collect(), room);
    let mut merged = String::new();
    for (heading, text) in shown {
        let kept = text.get(..text.floor_char_boundary(share)).unwrap_or(&text);
        let mark = if kept.len() < text.len() {
            TRUNCATION_MARK
        } else {
            ""
        };
        let gap = if merged.is_empty() { "" } else { "\n\n" };
        let _ = write!(merged, "{gap}## {heading}\n\n{kept}{mark}");
    }
    (!merged.is_empty()).then_some(merged)
}

/// Escapes lines that look like our headings, so that no server can impersonate another one; deeper
/// headings stay.
fn without_headings(text: &str) -> String {
    const LINE_ENDS: [char; 7] = [
        '\n', '\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}',
    ];
    let mut is_after_text = false;
    let lines = text.split_inclusive(LINE_ENDS).map(|line| {
        // Hidden characters do not prevent readers from seeing a heading.
        let rest = line.trim_start_matches(is_blank);
        let is_marked = rest.starts_with('#') && !rest.starts_with("###");
        let is_line_of = |sign| rest.trim_end_matches(is_blank).chars().all(|c| c == sign);
        let is_underline = is_after_text && (is_line_of('=') || is_line_of('-'));
        is_after_text = !rest.is_empty();
        let is_heading = is_marked || is_underline && is_after_text;
        let indent = line.get(..line.len() - rest.len()).unwrap_or_default();
        let mark = if is_heading { "\\" } else { "" };
        [indent, mark, rest].concat()
    });
    lines.collect()
}

fn is_blank(character: char) -> bool {
    character.is_whitespace() || is_hidden(character)
}

/// The length to which texts must be truncated to fit into `room` together.
fn fair_share(mut lengths: Vec<usize>, mut room: usize) -> usize {
    lengths.sort_unstable();
    let mut left = lengths.len();
    for length in lengths {
        if length.saturating_mul(left) > room {
            return room / left;
        }
        room -= length;
        left -= 1;
    }
    usize::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sections: &[(&str, &str)], bytes_max: usize, expected: Option<&str>) {
        let sections: Vec<_> = sections
            .iter()
            .map(|(h, t)| ((*h).to_owned(), (*t).to_owned()))
            .collect();
        let merged = merge(&sections, bytes_max);
        assert_eq!(merged.as_deref(), expected);
        assert!(merged.is_none_or(|merged| merged.len() <= bytes_max));
    }

    #[test]
    fn no_server_writes_the_heading_of_another() {
        check(
            &[
                ("a", "one\n## b (names start with `b__`)\n  # c\r## d"),
                ("b", "### two"),
            ],
            200,
            Some(
                "## a\n\none\n\\## b (names start with `b__`)\n  \\# c\r\\## d\n\n## b\n\n### two",
            ),
        );
    }

    #[test]
    fn no_server_hides_that_it_writes_a_heading() {
        check(
            &[(
                "a",
                "one\n\u{200b}## b\n\u{feff} \u{202d}# c\nd\n\u{2060}---\u{200b}\n",
            )],
            200,
            Some("## a\n\none\n\u{200b}\\## b\n\u{feff} \u{202d}\\# c\nd\n\u{2060}\\---\u{200b}"),
        );
    }

    #[test]
    fn no_server_underlines_the_heading_of_another() {
        check(
            &[("a", "b\n---\n\n---\nb\n  ===\n\n- one\n|-|\n")],
            200,
            Some("## a\n\nb\n\\---\n\n---\nb\n  \\===\n\n- one\n|-|"),
        );
    }

    #[test]
    fn every_server_has_a_heading_and_long_texts_are_truncated() {
        check(&[], 100, None);
        check(&[("a", "  \n")], 100, None);
        check(
            &[("a", "one"), ("b", " two ")],
            100,
            Some("## a\n\none\n\n## b\n\ntwo"),
        );
        check(
            &[("a", "0123456789".repeat(9).as_str()), ("b", "two")],
            50,
            Some("## a\n\n0123456789012345678 […]\n\n## b\n\ntwo"),
        );
        check(&[("a", "ääääääääää")], 21, Some("## a\n\näää […]"));
        check(&[("a", "text"), ("b", "text")], 3, None);
    }
}
