//! Renders a server's buffered log lines.

use super::screen::Screen;
use crate::telemetry::{ClockForm, LogLine, LogSource, Style, local_time, one_line};

/// The lines, each with its time and source.
pub fn log_lines(lines: &[LogLine], screen: &Screen) -> String {
    let line = |line: &LogLine| {
        let at = local_time(line.at, ClockForm::DateAndTime);
        let source = line.source.as_str();
        let style = match line.source {
            LogSource::Gateway => Style::Name,
            LogSource::Stray => Style::Warning,
            LogSource::Stderr | LogSource::Message => Style::Dim,
        };
        format!(
            "{} {} {}\n",
            screen.painted(Style::Dim, &at),
            screen.painted(style, &format!("{source:7}")),
            one_line(&line.text)
        )
    };
    lines.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_say_when_they_came_and_where_from() {
        let line = |sequence, at, source, text: &str| LogLine {
            sequence,
            at,
            source,
            text: text.to_owned(),
        };
        let lines = [
            line(3, 1_700_000_000_000, LogSource::Stderr, "a\u{1b}"),
            line(4, 1_700_000_001_000, LogSource::Gateway, "b"),
        ];
        let time = |at| local_time(at, ClockForm::DateAndTime);
        let expected = format!(
            "{} stderr  a\\u{{1b}}\n{} gateway b\n",
            time(1_700_000_000_000),
            time(1_700_000_001_000)
        );
        assert_eq!(log_lines(&lines, &Screen::default()), expected);
    }
}
