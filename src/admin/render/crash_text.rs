//! Crashes on one screen: the last ones in a line each, and the newest in full.

use serde_json::Value;

use super::duration;
use super::screen::{Screen, padded, width};
use crate::telemetry::{ClockForm, Style, local_time, one_line};

/// Crashes in the list.
const LIST_MAX: usize = 5;

/// Messages and lines of the log of the newest crash; the last ones tell the most.
const MESSAGES_MAX: usize = 2;
const LOG_MAX: usize = 5;

/// Calls without an answer that are named.
const CALLS_MAX: usize = 3;

/// The crashes as a list, and the newest whole.
pub fn crash_text(answer: &Value, screen: &Screen) -> String {
    let crashes = answer["crashes"].as_array().map_or(&[][..], Vec::as_slice);
    let Some(newest) = crashes.first() else {
        return "no server has crashed\n".to_owned();
    };
    let shown = &crashes[..crashes.len().min(LIST_MAX)];
    let names = width(
        shown
            .iter()
            .map(|crash| crash["server"].as_str().unwrap_or("?")),
    );
    let mut text: String = shown
        .iter()
        .map(|crash| line(crash, names, screen))
        .collect();
    if crashes.len() > shown.len() {
        text.push_str(&format!(
            "… and {} older ones (`--json`)\n",
            crashes.len() - shown.len()
        ));
    }
    text.push_str(&last(
        &answer["last"],
        word(&newest["file"]).as_str(),
        screen,
    ));
    text
}

fn line(crash: &Value, names: usize, screen: &Screen) -> String {
    let at = local_time(crash["at"].as_u64().unwrap_or(0), ClockForm::DateAndTime);
    let used = at.len() + names + 4;
    format!(
        "{}  {}  {}\n",
        screen.painted(Style::Dim, &at),
        padded(&word(&crash["server"]), names),
        screen.cut(&word(&crash["reason"]), used),
    )
}

fn last(report: &Value, file: &str, screen: &Screen) -> String {
    let mut text = format!("\n{}\n", screen.painted(Style::Bold, "the last one"));
    let mut row = |name: &str, value: &str, style: Option<Style>| {
        let value = screen.cut(value, 11);
        let value = style.map_or(value.clone(), |style| screen.painted(style, &value));
        text.push_str(&format!("  {name:8} {value}\n"));
    };
    let lived = duration(report["lived_ms"].as_u64().unwrap_or(0));
    let what = if report["was_up"] == true {
        "ended after"
    } else {
        "did not come up; ended after"
    };
    row(
        "server",
        &format!(
            "{} · {what} {lived} · {} · connection {} · generation {}",
            word(&report["server"]),
            word(&report["transport"]),
            word(&report["connection"]),
            report["generation"]
        ),
        None,
    );
    for (index, part) in word(&report["reason"]).split(" / ").enumerate() {
        row(
            if index == 0 { "reason" } else { "" },
            part,
            Some(Style::Bad),
        );
    }
    row("calls", &calls(report), None);
    let messages = report["messages"].as_array().map_or(&[][..], Vec::as_slice);
    for (index, message) in messages[messages.len().saturating_sub(MESSAGES_MAX)..]
        .iter()
        .enumerate()
    {
        row(
            if index == 0 { "messages" } else { "" },
            &message_text(message),
            None,
        );
    }
    let log = report["log"].as_array().map_or(&[][..], Vec::as_slice);
    for (index, said) in log[log.len().saturating_sub(LOG_MAX)..].iter().enumerate() {
        let said = format!("{:7} {}", word(&said["source"]), word(&said["text"]));
        row(if index == 0 { "log" } else { "" }, &said, Some(Style::Dim));
    }
    row(
        "more",
        &format!("crashes/{file} in the data directory, or `--json`"),
        None,
    );
    text
}

fn calls(report: &Value) -> String {
    let pending = report["pending"].as_array().map_or(&[][..], Vec::as_slice);
    let total = report["pending_calls"].as_u64().unwrap_or(0);
    if total == 0 {
        return "none was waiting for an answer".to_owned();
    }
    let named = pending.iter().take(CALLS_MAX).map(|call| {
        let name = call["name"]
            .as_str()
            .map(|name| format!(" {}", one_line(name)));
        format!("{}{}", word(&call["method"]), name.unwrap_or_default())
    });
    let named: Vec<String> = named.collect();
    format!("{total} without an answer: {}", named.join(", "))
}

/// The fields of a message that say what it is, in words.
fn message_text(message: &Value) -> String {
    let fields = message.as_object().into_iter().flatten();
    let fields = fields.filter(|(_, value)| !value.is_null() && !value.is_object());
    let fields = fields.map(|(key, value)| format!("{key} {}", word(value)));
    fields.collect::<Vec<_>>().join(" · ")
}

fn word(value: &Value) -> String {
    match value {
        Value::Null => "?".to_owned(),
        Value::String(text) => one_line(text),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_newest_crash_fits_on_a_screen() {
        let crash = |number: u64| {
            json!({"at": 1_700_000_000_000_u64 - number, "server": "py", "file": format!("py.{number}.json"),
                "reason": "process exited with code 1: a / b / c"})
        };
        let crashes: Vec<Value> = (0..30).map(crash).collect();
        let log: Vec<Value> = (0..50)
            .map(|n| json!({"source": "stderr", "text": format!("line {n}\n")}))
            .collect();
        let messages: Vec<Value> = (0..50).map(|n| json!({"direction": "sent", "method": "tools/call", "id": n, "text": "x".repeat(500)})).collect();
        let last = json!({
            "at": 1, "server": "py", "connection": "shared", "transport": "stdio", "generation": 4,
            "was_up": true, "lived_ms": 65_000, "reason": "process exited with code 1: a / b / c",
            "pending_calls": 9, "pending": [{"method": "tools/call", "name": "hang"}],
            "messages": messages, "log": log,
        });
        let screen = Screen {
            columns: Some(80),
            ..Screen::default()
        };
        let text = crash_text(&json!({"crashes": crashes, "last": last}), &screen);
        assert!(text.lines().count() <= 23, "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        for part in [
            "  py  process exited with code 1: a / b / c\n",
            "… and 25 older ones (`--json`)\n",
            "  server   py · ended after 1m 5s · stdio · connection shared · generation 4\n",
            "  reason   process exited with code 1: a\n           b\n           c\n",
            "  calls    9 without an answer: tools/call hang\n",
            "  log      stderr  line 45\\n\n",
            "  more     crashes/py.0.json in the data directory, or `--json`\n",
        ] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
        assert_eq!(
            crash_text(&json!({"crashes": []}), &screen),
            "no server has crashed\n"
        );
    }
}
