//! The output device: line width, and whether colours are available.

use crate::telemetry::{Paint, Style};

/// A terminal, or a file or pipe, where lines are not shortened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Screen {
    pub columns: Option<usize>,
    pub rows: Option<usize>,
    pub paint: Paint,
}

/// A visible part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    pub text: String,
    /// Index of the first line, from 0.
    pub first: usize,
    /// Number of lines that fit.
    pub page: usize,
}

/// Minimum width; narrower terminals are treated as this wide.
const COLUMNS_MIN: usize = 40;

impl Screen {
    /// The screen for standard output.
    #[cfg(unix)]
    pub fn of_stdout() -> Self {
        use std::io::IsTerminal as _;

        let stdout = std::io::stdout();
        if !stdout.is_terminal() {
            return Self::default();
        }
        let size = rustix::termios::tcgetwinsize(&stdout).ok();
        // A terminal of unknown size reports 0.
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

    /// The text shortened to the space left after `used` columns, with a mark where it was cut.
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

    /// The lines from `first` on that fit, followed by a position line. If fewer lines remain than
    /// fit, the window starts earlier.
    pub fn window(&self, text: &str, first: usize) -> Window {
        // The last row is reserved for the cursor.
        let room = self.rows.map_or(usize::MAX, |rows| rows.saturating_sub(1));
        let lines: Vec<&str> = text.lines().collect();
        if lines.len() <= room {
            return Window {
                text: text.to_owned(),
                first: 0,
                page: room,
            };
        }
        let page = room.saturating_sub(1).max(1);
        let first = first.min(lines.len() - page);
        let shown = lines.iter().skip(first).take(page);
        let mut text: String = shown.map(|line| format!("{line}\n")).collect();
        let (from, to, all) = (first + 1, first + page, lines.len());
        let foot = format!("lines {from} to {to} of {all} · arrows, space and b scroll, q ends");
        text.push_str(&self.cut(&foot, 0));
        text.push('\n');
        Window { text, first, page }
    }

    pub(super) fn painted(&self, style: Style, text: &str) -> String {
        self.paint.apply(style, text)
    }
}

/// The text padded with spaces to a width.
pub(super) fn padded(text: &str, width: usize) -> String {
    let missing = width.saturating_sub(text.chars().count());
    format!("{text}{}", " ".repeat(missing))
}

/// Width of the longest text.
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
    fn a_screen_is_a_window_on_the_lines() {
        let lines = "a\nb\nc\nd\ne\n";
        let all = |rows| screen(80, rows).window(lines, 3);
        assert_eq!((all(6).text.as_str(), all(6).first), (lines, 0));
        assert_eq!(Screen::default().window(lines, 3).text, lines);
        let table = [
            (0, 0, "a\nb\nlines 1 to 2 of 5 "),
            (1, 1, "b\nc\nlines 2 to 3 of 5 "),
            (9, 3, "d\ne\nlines 4 to 5 of 5 "),
        ];
        for (wanted, first, start) in table {
            let window = screen(80, 4).window(lines, wanted);
            assert_eq!((window.first, window.page), (first, 2));
            assert!(window.text.starts_with(start), "{}", window.text);
        }
        // A terminal without any rows.
        assert_eq!(screen(1, 0).window(lines, 9).first, 4);
    }
}
