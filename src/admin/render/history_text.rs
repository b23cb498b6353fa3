//! Renders calls and log records as text, one per line.

use serde_json::Value;

use super::screen::Screen;
use crate::history::RecordedCall;
use crate::telemetry::{ClockForm, LogEntry, Style, local_time, one_line};

/// Calls as lines, in the given order.
pub fn call_lines(entries: &[RecordedCall], screen: &Screen) -> String {
    entries
        .iter()
        .map(|entry| call_line(entry, screen))
        .collect()
}

fn call_line(call: &RecordedCall, screen: &Screen) -> String {
    let outcome = one_line(&call.outcome);
    let style = match outcome.as_str() {
        "ok" => Style::Good,
        "input_required" | "task" | "cancelled" => Style::Dim,
        "tool_error" | "shed" | "refused_input" => Style::Warning,
        _ => Style::Bad,
    };
    let mut line = format!(
        "{} {} {:>9} {} {}",
        screen.painted(Style::Dim, &time(call.timestamp)),
        screen.painted(style, &format!("{outcome:14}")),
        milliseconds(call.duration),
        one_line(&call.method),
        screen.painted(Style::Name, &one_line(&call.target)),
    );
    let facts = [
        ("server", call.server_id.as_ref()),
        ("error", call.error.as_ref().map(|error| &error.code)),
        ("client", call.client.as_ref()),
        ("session", call.session.as_ref()),
        ("id", Some(&call.id)),
    ];
    let facts = facts.into_iter();
    let facts = facts.filter_map(|(name, value)| Some(format!("{name}={}", one_line(value?))));
    let facts: Vec<String> = facts.collect();
    line.push_str(&screen.painted(Style::Dim, &format!("  ({})", facts.join(", "))));
    line.push('\n');
    line
}

/// Log records as lines, in the given order.
pub fn record_lines(entries: &[LogEntry], screen: &Screen) -> String {
    entries
        .iter()
        .map(|entry| record_line(entry, screen))
        .collect()
}

fn record_line(entry: &LogEntry, screen: &Screen) -> String {
    let level = one_line(&entry.level);
    let style = match level.as_str() {
        "error" => Style::Bad,
        "warn" => Style::Warning,
        "info" => Style::Good,
        _ => Style::Dim,
    };
    let own = entry.fields.iter().filter(|(_, value)| **value != "app");
    let data = entry.data.iter().filter(|(name, _)| *name != "module");
    let fields: Vec<String> = own
        .chain(data)
        .map(|(name, value)| format!("{}={}", one_line(name), word(value)))
        .collect();
    let fields = match fields.as_slice() {
        [] => String::new(),
        fields => screen.painted(Style::Dim, &format!("  ({})", fields.join(", "))),
    };
    format!(
        "{} {} {}{fields}\n",
        screen.painted(Style::Dim, &time(entry.timestamp)),
        screen.painted(style, &format!("{level:5}")),
        one_line(&entry.message),
    )
}

fn time(millis: u64) -> String {
    local_time(millis, ClockForm::DateAndTime)
}

fn milliseconds(millis: f64) -> String {
    if millis < 10.0 {
        return format!("{millis:.2}ms");
    }
    format!("{millis:.0}ms")
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => one_line(text),
        Value::Null => String::new(),
        value => one_line(&value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_call_is_a_line() {
        let entry = json!({
            "id": "17", "timestamp": 1_700_000_000_000_u64, "method": "tools/call",
            "target": "files__read\u{1b}", "serverId": "files", "outcome": "timeout",
            "duration": 1234.5, "error": {"code": "timeout"}, "client": null, "session": "0000abcd",
        });
        let at = local_time(1_700_000_000_000, ClockForm::DateAndTime);
        let expected = format!(
            "{at} timeout           1234ms tools/call files__read\\u{{1b}}  (server=files, \
             error=timeout, session=0000abcd, id=17)\n"
        );
        assert_eq!(
            call_lines(
                &[serde_json::from_value(entry).unwrap()],
                &Screen::default()
            ),
            expected
        );
    }

    #[test]
    fn a_record_is_a_line() {
        let entry = json!({
            "id": "17", "timestamp": 1_700_000_000_000_u64, "level": "warn", "type": "app",
            "message": "down", "serverId": "files", "data": {"error": "gone", "module": "m"},
        });
        let at = local_time(1_700_000_000_000, ClockForm::DateAndTime);
        let expected = format!("{at} warn  down  (serverId=files, error=gone)\n");
        assert_eq!(
            record_lines(
                &[serde_json::from_value(entry).unwrap()],
                &Screen::default()
            ),
            expected
        );
    }
}
