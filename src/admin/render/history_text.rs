//! Calls and records of the log as text, a line each.

use serde_json::Value;

use super::screen::Screen;
use crate::telemetry::{ClockForm, Style, local_time, one_line};

/// The lines of some calls, in the order in which they stand.
pub fn call_lines(entries: &[Value], screen: &Screen) -> String {
    entries
        .iter()
        .map(|entry| call_line(entry, screen))
        .collect()
}

fn call_line(entry: &Value, screen: &Screen) -> String {
    let outcome = word(&entry["outcome"]);
    let style = match outcome.as_str() {
        "ok" => Style::Good,
        "input_required" | "task" | "cancelled" => Style::Dim,
        "tool_error" | "shed" | "refused_input" => Style::Warning,
        _ => Style::Bad,
    };
    let mut line = format!(
        "{} {} {:>9} {} {}",
        screen.painted(Style::Dim, &time(entry)),
        screen.painted(style, &format!("{outcome:14}")),
        milliseconds(&entry["duration"]),
        word(&entry["method"]),
        screen.painted(Style::Name, &word(&entry["target"])),
    );
    let facts = [
        ("server", &entry["serverId"]),
        ("error", &entry["error"]["code"]),
        ("client", &entry["client"]),
        ("session", &entry["session"]),
        ("id", &entry["id"]),
    ];
    let facts = facts.iter().filter(|(_, value)| !value.is_null());
    let facts: Vec<String> = facts
        .map(|(name, value)| format!("{name}={}", word(value)))
        .collect();
    line.push_str(&screen.painted(Style::Dim, &format!("  ({})", facts.join(", "))));
    line.push('\n');
    line
}

/// The lines of some records of the log, in the order in which they stand.
pub fn record_lines(entries: &[Value], screen: &Screen) -> String {
    entries
        .iter()
        .map(|entry| record_line(entry, screen))
        .collect()
}

fn record_line(entry: &Value, screen: &Screen) -> String {
    let level = word(&entry["level"]);
    let style = match level.as_str() {
        "error" => Style::Bad,
        "warn" => Style::Warning,
        "info" => Style::Good,
        _ => Style::Dim,
    };
    let shown =
        |name: &&String| !["timestamp", "level", "message", "data", "id"].contains(&name.as_str());
    let own = entry.as_object().into_iter().flatten();
    let data = entry["data"].as_object().into_iter().flatten();
    let own = own.filter(|(name, value)| shown(name) && **value != "app");
    let data = data.filter(|(name, _)| *name != "module");
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
        screen.painted(Style::Dim, &time(entry)),
        screen.painted(style, &format!("{level:5}")),
        word(&entry["message"]),
    )
}

fn time(entry: &Value) -> String {
    local_time(
        entry["timestamp"].as_u64().unwrap_or(0),
        ClockForm::DateAndTime,
    )
}

fn milliseconds(value: &Value) -> String {
    let millis = value.as_f64().unwrap_or(0.0);
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
        assert_eq!(call_lines(&[entry], &Screen::default()), expected);
    }

    #[test]
    fn a_record_is_a_line() {
        let entry = json!({
            "id": "17", "timestamp": 1_700_000_000_000_u64, "level": "warn", "type": "app",
            "message": "down", "serverId": "files", "data": {"error": "gone", "module": "m"},
        });
        let at = local_time(1_700_000_000_000, ClockForm::DateAndTime);
        let expected = format!("{at} warn  down  (serverId=files, error=gone)\n");
        assert_eq!(record_lines(&[entry], &Screen::default()), expected);
    }
}
