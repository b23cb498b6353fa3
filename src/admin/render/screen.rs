//! Where a text is shown: how wide a line may be, and whether there are colours.

use crate::telemetry::{Paint, Style};

/// A terminal, or a file or pipe, where lines are as long as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Screen {
    pub columns: Option<usize>,
    pub rows: Option<usize>,
    pub paint: Paint,
}

/// Narrower terminals are treated as this wide.
const COLUMNS_MIN: usize = 40;

impl Screen {
    /// The screen behind standard output.
    #[cfg(unix)]
    pub fn of_stdout() -> Self {
        use std::io::IsTerminal as _;

        let stdout = std::io::stdout();
        if !stdout.is_terminal() {
            return Self::default();
        }
        let size = rustix::termios::tcgetwinsize(&stdout).ok();
        // A terminal that does not know its size says 0.
        let known = |count: u16| (count > 0).then_some(usize::from(count));
        Self {
            columns: size.and_then(|size| known(size.ws_col)),
            rows: size.and_then(|size| known(size.ws_row)),
            paint: Paint::of_process(true),
        }
    }

    #[cfg(not(unix))]
    pub fn of_stdout() -> Self {
        Self::default()
    }

    /// As much of the text as fits after so many columns, with a mark where it was cut.
    pub(super) fn cut(&self, text: &str, used: usize) -> String {
        let Some(columns) = self.columns else {
            return text.to_owned();
        };
        let room = columns.max(COLUMNS_MIN).saturating_sub(used);
        if text.chars().count() <= room {
            return text.to_owned();
        }
        let kept: String = text.chars().take(room.saturating_sub(1)).collect();
        format!("{}…", kept.trim_end())
    }

    /// As many lines as fit, with a line that says how many are left out.
    pub fn cut_lines(&self, text: &str) -> String {
        // The last row stays free for the cursor.
        let room = self.rows.map_or(usize::MAX, |rows| rows.saturating_sub(1));
        let lines: Vec<&str> = text.lines().collect();
        if lines.len() <= room {
            return text.to_owned();
        }
        let shown = room.saturating_sub(1);
        let left = lines.len() - shown;
        let mut cut: String = lines
            .iter()
            .take(shown)
            .map(|line| format!("{line}\n"))
            .collect();
        cut.push_str(&format!("… {left} more lines\n"));
        cut
    }

    pub(super) fn painted(&self, style: Style, text: &str) -> String {
        self.paint.apply(style, text)
    }
}

/// The text with spaces up to a width.
pub(super) fn padded(text: &str, width: usize) -> String {
    let missing = width.saturating_sub(text.chars().count());
    format!("{text}{}", " ".repeat(missing))
}

/// The width of the longest text.
pub(super) fn width<'t>(texts: impl IntoIterator<Item = &'t str>) -> usize {
    let lengths = texts.into_iter().map(|text| text.chars().count());
    lengths.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(columns: usize, rows: usize) -> Screen {
        Screen {
            columns: Some(columns),
            rows: Some(rows),
            ..Screen::default()
        }
    }

    #[test]
    fn a_text_is_cut_at_the_edge() {
        let table = [
            (Screen::default(), "a".repeat(200), 20, "a".repeat(200)),
            (screen(50, 10), "b".repeat(30), 20, "b".repeat(30)),
            (
                screen(50, 10),
                "b".repeat(31),
                20,
                format!("{}…", "b".repeat(29)),
            ),
            (
                screen(5, 10),
                "ä".repeat(31),
                30,
                format!("{}…", "ä".repeat(9)),
            ),
            (screen(40, 10), "x".to_owned(), 90, "…".to_owned()),
        ];
        for (screen, text, used, expected) in table {
            assert_eq!(screen.cut(&text, used), expected);
        }
    }

    #[test]
    fn lines_below_the_screen_are_counted() {
        assert_eq!(screen(80, 4).cut_lines("a\nb\nc\n"), "a\nb\nc\n");
        assert_eq!(
            screen(80, 4).cut_lines("a\nb\nc\nd\n"),
            "a\nb\n… 2 more lines\n"
        );
        assert_eq!(Screen::default().cut_lines("a\nb\n"), "a\nb\n");
    }
}
