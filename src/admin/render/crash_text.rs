//! Renders crashes on one screen: the latest ones in a line each, and the newest in full.

use super::duration;
use super::screen::{Screen, padded, width};
use crate::admin::crashes::{CrashSummary, Crashes};
use crate::downstream::CrashReport;
use crate::telemetry::{ClockForm, Style, counted, local_time, one_line};
use crate::transport::MessageReport;

/// Maximum crashes in the list.
const LIST_MAX: usize = 5;

/// Messages and log lines shown for the newest crash; the last ones are the most informative.
const MESSAGES_MAX: usize = 2;
const LOG_MAX: usize = 5;

/// Maximum unanswered calls that are named.
const CALLS_MAX: usize = 3;

/// A list of crashes, and the newest one in full.
pub fn crash_text(answer: &Crashes, screen: &Screen) -> String {
    let crashes = &answer.crashes;
    let Some(newest) = crashes.first() else {
        return "no server has crashed\n".to_owned();
    };
    let shown = &crashes[..crashes.len().min(LIST_MAX)];
    let names = width(shown.iter().map(|crash| crash.server.as_str()));
    let lines = shown.iter().map(|crash| line(crash, names, screen));
    let mut text: String = lines.collect();
    if crashes.len() > shown.len() {
        text.push_str(&format!(
            "… and {} older ones (`--json`)\n",
            crashes.len() - shown.len()
        ));
    }
    let last = answer.last.iter();
    text.extend(last.map(|last| whole(&last.report, &one_line(&newest.file), screen)));
    text
}

fn line(crash: &CrashSummary, names: usize, screen: &Screen) -> String {
    let at = local_time(crash.at, ClockForm::DateAndTime);
    let used = at.len() + names + 4;
    format!(
        "{}  {}  {}\n",
        screen.painted(Style::Dim, &at),
        padded(&one_line(&crash.server), names),
        screen.cut(&one_line(&crash.reason), used),
    )
}

/// The newest report, one row per fact, starting with the fact's name.
fn whole(report: &CrashReport, file: &str, screen: &Screen) -> String {
    let mut text = format!("\n{}\n", screen.painted(Style::Bold, "latest crash"));
    let mut row = |name: &str, values: Vec<String>, style: Option<Style>| {
        for (index, value) in values.iter().enumerate() {
            let value = screen.cut(value, 11);
            let value = style.map_or(value.clone(), |style| screen.painted(style, &value));
            let name = if index == 0 { name } else { "" };
            text.push_str(&format!("  {name:8} {value}\n"));
        }
    };
    row("server", vec![server_facts(report)], None);
    let reasons = one_line(&report.reason);
    let reasons = reasons.split(" / ").map(str::to_owned);
    row("reason", reasons.collect(), Some(Style::Bad));
    row("calls", vec![calls(report)], None);
    let messages = last_of(&report.messages, MESSAGES_MAX).iter();
    row("messages", messages.map(message_text).collect(), None);
    let log = last_of(&report.log, LOG_MAX).iter();
    let log = log.map(|line| format!("{:7} {}", line.source.as_str(), one_line(&line.text)));
    row("log", log.collect(), Some(Style::Dim));
    let more = format!("crashes/{file} in the data directory, or `--json`");
    row("more", vec![more], None);
    text
}

fn last_of<T>(all: &[T], most: usize) -> &[T] {
    &all[all.len().saturating_sub(most)..]
}

fn server_facts(report: &CrashReport) -> String {
    let what = if report.was_up {
        "ended after"
    } else {
        "did not come up; ended after"
    };
    format!(
        "{} · {what} {} · {} · connection {} · generation {}",
        one_line(&report.server),
        duration(report.lived_ms),
        one_line(&report.transport),
        one_line(&report.connection),
        report.generation
    )
}

fn calls(report: &CrashReport) -> String {
    let total = report.pending_calls;
    if total == 0 {
        return "none in flight".to_owned();
    }
    let named = report.pending.iter().take(CALLS_MAX).map(|call| {
        let name = call.name.iter();
        let name: String = name.map(|name| format!(" {}", one_line(name))).collect();
        format!("{}{name}", one_line(&call.method))
    });
    let named: Vec<String> = named.collect();
    format!("{total} in flight: {}", named.join(", "))
}

/// Identifying fields of a message, as text.
fn message_text(message: &MessageReport) -> String {
    let MessageReport {
        before_ms,
        direction,
        kind,
        method,
        id,
        bytes,
        text,
    } = message;
    let optional = [("method", method), ("id", id), ("text", text)];
    let optional = optional.into_iter();
    let optional = optional.filter_map(|(name, value)| {
        let value = value.as_deref()?;
        Some(format!("{name} {}", one_line(value)))
    });
    let sure = [
        format!("{before_ms} ms before"),
        format!("{} {}", one_line(direction), kind.as_str()),
        counted(*bytes as u64, "byte", "bytes"),
    ];
    let all: Vec<String> = sure.into_iter().chain(optional).collect();
    all.join(" · ")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_newest_crash_fits_on_a_screen() {
        let crash = |number: u64| {
            json!({"at": 1_700_000_000_000_u64 - number, "server": "py", "file": format!("py.{number}.json"),
                "reason": "process exited with code 1: a / b / c"})
        };
        let crashes: Vec<Value> = (0..30).map(crash).collect();
        let log: Vec<Value> = (0..50)
            .map(|n| json!({"sequence": n, "at": 0, "source": "stderr", "text": format!("line {n}\n")}))
            .collect();
        let messages: Vec<Value> = (0..50).map(|n| json!({"direction": "sent", "method": "tools/call", "id": n.to_string(), "text": "x".repeat(500)})).collect();
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
        let crashes = json!({"crashes": crashes, "last": last});
        let text = crash_text(&serde_json::from_value(crashes).unwrap(), &screen);
        assert!(text.lines().count() <= 23, "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        for part in [
            "  py  process exited with code 1: a / b / c\n",
            "… and 25 older ones (`--json`)\n",
            "  server   py · ended after 1m 5s · stdio · connection shared · generation 4\n",
            "  reason   process exited with code 1: a\n           b\n           c\n",
            "  calls    9 in flight: tools/call hang\n",
            "  log      stderr  line 45\\n\n",
            "  more     crashes/py.0.json in the data directory, or `--json`\n",
        ] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
        assert_eq!(
            crash_text(&Crashes::default(), &screen),
            "no server has crashed\n"
        );
    }
}
