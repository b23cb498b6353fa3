//! The history of a server's connections on its page: a time line from the gateway's log, and crash
//! reports.

use maud::{Markup, html};
use serde_json::Value;

use crate::admin::crashes::DatedReport;
use crate::admin::history::log_page;
use crate::admin::ui::page::View;
use crate::admin::ui::{parts, text};
use crate::downstream::CrashReport;
use crate::telemetry::{LogEntry, LogLine};
use crate::transport::MessageReport;

/// Maximum entries in a time line; the log page has more.
const MOMENTS: &str = "50";

/// Maximum crash reports on the page.
const CRASHES_MAX: usize = 10;

/// Maximum log lines shown before a crash.
const LINES_MAX: usize = 20;

/// Displayed fields of a log record, with the text before each value.
const FIELDS: [(&str, &str); 4] = [
    ("why", ""),
    ("revision", "revision "),
    ("generation", "generation "),
    ("child", "connection "),
];

/// Entries since the start of the gateway, newest first.
pub(super) fn time_line(view: &View<'_>, name: &str, started_at: u64) -> Markup {
    let query = [("server", name), ("level", "info"), ("limit", MOMENTS)];
    let found = log_page(&view.operator.state.log, query).unwrap_or_default();
    let is_whole = found.total == found.entries.len();
    // Crash reports have their own list below.
    let moments = found
        .entries
        .iter()
        .filter(|it| !it.data.contains_key("report"));
    html! {
        h2 { "Timeline" }
        ol .rows.card {
            @for entry in moments {
                li .row id=(format!("moment-{}", entry.id)) {
                    span .hint.nowrap { (text::moment(entry.timestamp)) }
                    div .grow { (moment(entry, name)) }
                }
            }
            @if is_whole {
                li .row {
                    // Rounded to seconds: the time is computed from two clocks, and an open page
                    // should not flicker.
                    span .hint.nowrap { (text::moment(started_at.saturating_add(500) / 1000 * 1000)) }
                    p .grow { "The gateway started" }
                }
            }
        }
        p .hint.after {
            "From the gateway's log, which keeps only recent records of the running process. "
            a href=(format!("/ui/logs?server={name}")) { "More" }
        }
    }
}

fn moment(entry: &LogEntry, server: &str) -> Markup {
    let tone = match entry.level.as_str() {
        "error" => "bad",
        "warn" => "warn",
        _ => "quiet",
    };
    // The shared connection needs no label.
    let shared = format!("server/{server}");
    let details = FIELDS
        .iter()
        .filter_map(|(name, words)| match entry.data.get(*name)? {
            Value::Null => None,
            Value::String(value) if *value == shared => None,
            Value::String(value) => Some(format!("{words}{value}")),
            value => Some(format!("{words}{value}")),
        });
    let details: Vec<String> = details.collect();
    html! {
        p {
            (parts::badge(tone, &entry.level)) " "
            (text::sentence(&entry.message))
        }
        @if !details.is_empty() { p .why { (text::line(&details.join(" · "))) } }
    }
}

/// Crash reports, newest first, each with the last lines before the crash.
pub(super) async fn crashes(view: &View<'_>, name: &str) -> Markup {
    let Ok(reports) = view.operator.crash_reports(name, CRASHES_MAX).await else {
        return Markup::default();
    };
    html! {
        @if let Some(last) = reports.first() {
            ul .rows.card {
                @for report in &reports { li .row { (crash(report)) } }
            }
            p .hint.after {
                "The gateway keeps a report of each crash for as long as " code { "recorder.reports" }
                " allows. Of consecutive failed starts, it keeps only the last."
            }
            details .card.padded.after {
                summary { "The last messages before the newest crash" }
                (text::block(&messages(&last.report)))
            }
        } @else {
            p .hint { "No crash reports. " code { "recorder.reports" } " limits how many are kept." }
        }
    }
}

fn crash(dated: &DatedReport) -> Markup {
    let report = &dated.report;
    let was = match report.was_up {
        true => "was up for",
        false => "did not come up, ended after",
    };
    html! {
        span .hint.nowrap { (text::moment(dated.at)) }
        div .grow {
            p { (text::sentence(&report.reason)) }
            p .why {
                (was) " " (text::age(report.lived_ms)) ", generation " (report.generation)
                @if report.connection != "shared" { ", connection " (text::line(&report.connection)) }
                ", " (text::many(report.pending_calls as u64, "call", "calls")) " in flight"
            }
            @match last_of(&report.log) {
                [] => { p .why { "It wrote nothing before." } }
                last => {
                    details .after {
                        summary { "Last output" }
                        (text::block(&lines_of(last)))
                    }
                }
            }
        }
    }
}

fn last_of(lines: &[LogLine]) -> &[LogLine] {
    &lines[lines.len().saturating_sub(LINES_MAX)..]
}

fn messages(report: &CrashReport) -> String {
    let line = |message: &MessageReport| {
        let method = message.method.as_deref().unwrap_or_default();
        let content = message.text.as_deref().unwrap_or_default();
        let words = [&*message.direction, message.kind.as_str(), method, content];
        let words = words.join(" ");
        format!(
            "{} before: {}\n",
            text::age(message.before_ms),
            words.trim_end()
        )
    };
    report.messages.iter().map(line).collect()
}

fn lines_of(lines: &[LogLine]) -> String {
    lines
        .iter()
        .map(|line| format!("{}\n", line.text))
        .collect()
}
