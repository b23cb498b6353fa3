//! The kept lines of a server as text.

use serde_json::Value;

use super::screen::Screen;
use crate::telemetry::{ClockForm, Style, local_time, one_line};

/// The lines, each with when it came and where from.
pub fn log_lines(lines: &Value, screen: &Screen) -> String {
    let lines = lines.as_array().into_iter().flatten();
    let line = |line: &Value| {
        let at = line["at"].as_u64().unwrap_or(0);
        let at = local_time(at, ClockForm::DateAndTime);
        let source = line["source"].as_str().unwrap_or("?");
        let style = match source {
            "gateway" => Style::Name,
            "stray" => Style::Warning,
            _ => Style::Dim,
        };
        format!(
            "{} {} {}\n",
            screen.painted(Style::Dim, &at),
            screen.painted(style, &format!("{source:7}")),
            one_line(line["text"].as_str().unwrap_or(""))
        )
    };
    lines.map(line).collect()
}

/// The number of the last line, to ask for those after it; 0 if there is none.
pub fn last_sequence(lines: &Value) -> u64 {
    let last = lines.as_array().and_then(|lines| lines.last());
    last.and_then(|line| line["sequence"].as_u64()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn log_lines_say_when_they_came_and_where_from() {
        let lines = json!([
            {"sequence": 3, "at": 1_700_000_000_000_u64, "source": "stderr", "text": "a\u{1b}"},
            {"sequence": 4, "at": 1_700_000_001_000_u64, "source": "gateway", "text": "b"},
        ]);
        let time = |at| local_time(at, ClockForm::DateAndTime);
        let expected = format!(
            "{} stderr  a\\u{{1b}}\n{} gateway b\n",
            time(1_700_000_000_000),
            time(1_700_000_001_000)
        );
        assert_eq!(log_lines(&lines, &Screen::default()), expected);
        assert_eq!(last_sequence(&lines), 4);
        assert_eq!(last_sequence(&json!([])), 0);
    }
}
