//! Displays external text in a page: truncated, with visible control characters, and with isolated
//! text direction. Pure, but for the date of today.

use maud::{Markup, html};

use crate::telemetry::{ClockForm, local_time, one_line, printable, rfc3339, unix_millis};

/// Maximum length of text within a line, in characters.
const LINE_MAX: usize = 300;

/// Length of a date, such as `2026-11-20`.
const DATE: usize = 10;

/// Maximum length of text in a block, in characters.
const BLOCK_MAX: usize = 64 * 1024;

/// Text on one line.
pub(in crate::admin) fn line(text: &str) -> Markup {
    html! { bdi { (plain(text)) } }
}

/// Text on one line, for an attribute.
pub(super) fn plain(text: &str) -> String {
    cut(&one_line(cut_at(text, LINE_MAX)), text.len(), LINE_MAX)
}

/// Text on one line, in the code font.
pub(in crate::admin) fn code(text: &str) -> Markup {
    html! { code { (line(text)) } }
}

/// Text with several lines.
pub(super) fn block(text: &str) -> Markup {
    let text = cut(&printable(cut_at(text, BLOCK_MAX)), text.len(), BLOCK_MAX);
    html! { pre tabindex="0" { bdi { (text) } } }
}

/// The difference of two texts, whose lines start with `+`, `-` or a space.
pub(super) fn diff(text: &str) -> Markup {
    let text = cut(&printable(cut_at(text, BLOCK_MAX)), text.len(), BLOCK_MAX);
    html! {
        pre .diff tabindex="0" {
            bdi {
                @for line in text.split_inclusive('\n') {
                    @match line.as_bytes().first() {
                        Some(b'+') => { ins { (line) } }
                        Some(b'-') => { del { (line) } }
                        _ => { (line) }
                    }
                }
            }
        }
    }
}

/// Text with several lines, in the regular font.
pub(super) fn paragraph(text: &str) -> Markup {
    let text = cut(&printable(cut_at(text, BLOCK_MAX)), text.len(), BLOCK_MAX);
    html! { p .lines { bdi { (text) } } }
}

/// Text to copy, not truncated.
pub(super) fn whole(text: &str) -> Markup {
    html! { bdi { (printable(text)) } }
}

/// A sentence of the gateway, with the parts in backticks formatted as code.
pub(in crate::admin) fn sentence(text: &str) -> Markup {
    let text = one_line(cut_at(text, 4 * LINE_MAX));
    html! {
        @for (index, part) in text.split('`').enumerate() {
            @if index % 2 == 1 { code { bdi { (part) } } } @else { bdi { (part) } }
        }
    }
}

/// A sentence that stands alone and therefore starts with a capital letter.
pub(in crate::admin) fn full_sentence(text: &str) -> Markup {
    let mut rest = text.chars();
    let first = rest.next().into_iter().flat_map(char::to_uppercase);
    sentence(&first.chain(rest).collect::<String>())
}

fn cut_at(text: &str, characters: usize) -> &str {
    let end = text.char_indices().nth(characters);
    end.and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

/// Cuts the text by its displayed length, because control characters are displayed as longer
/// sequences.
fn cut(shown: &str, bytes: usize, characters: usize) -> String {
    let kept = cut_at(shown, 2 * characters);
    let is_whole = kept.len() == shown.len() && bytes <= shown.len();
    match is_whole {
        true => kept.to_owned(),
        false => format!("{kept}…"),
    }
}

/// A duration in its largest units, for times in the past or future.
pub(super) fn age(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0 => "<1s".to_owned(),
        1..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// A number with its digits in groups of three.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push('\u{202f}');
        }
        shown.push(digit);
    }
    shown
}

/// Bytes as mebibytes.
pub(super) fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", count(bytes.div_ceil(1024 * 1024)))
}

/// A number with its noun in singular or plural.
pub(super) fn many(number: u64, one: &str, more: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        number => format!("{} {more}", count(number)),
    }
}

/// A time in milliseconds since 1970, in this machine's time zone, with its date unless it is
/// today's; a tooltip has it exactly.
pub(super) fn moment(millis: u64) -> Markup {
    let full = local_time(millis, ClockForm::DateAndTime);
    let today = local_time(unix_millis(), ClockForm::DateAndTime);
    let time = full.get(DATE + 1..DATE + 9);
    let shown = time.filter(|_| full.get(..DATE) == today.get(..DATE));
    let shown = shown.or(full.get(..DATE + 6));
    html! { time datetime=(rfc3339(millis)) title=(full) { (shown.unwrap_or(&full)) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_texts_are_harmless() {
        let table = [
            ("<script>alert(1)</script>", "&lt;script&gt;"),
            ("\u{1b}[31mred", "\\u{1b}[31mred"),
            ("a\u{202e}b", "a\\u{202e}b"),
            ("a\nb\0", "a\\nb\\u{0}"),
            ("\"><img src=x onerror=y>", "&quot;&gt;&lt;img"),
        ];
        for (text, expected) in table {
            for shown in [line(text), code(text), sentence(text)] {
                let shown = shown.into_string();
                assert!(shown.contains(expected), "{shown}");
                assert!(shown.contains("<bdi>"), "{shown}");
            }
        }
        let shown = full_sentence("é `b`").into_string();
        assert_eq!(shown, "<bdi>É </bdi><code><bdi>b</bdi></code><bdi></bdi>");
        let shown = block("a\nb\u{7}<b>\u{2066}").into_string();
        assert!(shown.contains("a\nb\\u{7}&lt;b&gt;\\u{2066}"), "{shown}");
    }

    #[test]
    fn lines_of_a_difference_are_marked() {
        let shown = diff("  a\n- <b>\n+ c\n").into_string();
        assert!(
            shown.contains("  a\n<del>- &lt;b&gt;\n</del><ins>+ c\n</ins>"),
            "{shown}"
        );
    }

    #[test]
    fn long_texts_are_cut() {
        let long = "é".repeat(100_000);
        assert!(line(&long).into_string().len() < 1000);
        assert!(line(&long).into_string().contains('…'));
        assert!(sentence(&long).into_string().len() < 4000);
        let controls = "\u{1b}".repeat(100_000);
        assert!(line(&controls).into_string().len() < 1000);
        assert!(block(&controls).into_string().len() < 200_000);
        assert!(!line("short").into_string().contains('…'));
    }

    #[test]
    fn numbers_and_times_read_well() {
        assert_eq!(count(0), "0");
        assert_eq!(count(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(many(1, "tool", "tools"), "1 tool");
        assert_eq!(many(0, "tool", "tools"), "0 tools");
        let table = [
            (0, "<1s"),
            (61_000, "1m"),
            (7_260_000, "2h 1m"),
            (90_000_000, "1d 1h"),
        ];
        for (millis, expected) in table {
            assert_eq!(age(millis), expected);
        }
    }
}
