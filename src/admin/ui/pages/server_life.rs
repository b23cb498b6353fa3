//! The life of a server's connections, on its page: a time line from the gateway's log, and the reports
//! of how they ended.

use maud::{Markup, html};
use serde_json::Value;

use crate::admin::history::log_page;
use crate::admin::ui::page::View;
use crate::admin::ui::{parts, text};

/// Moments in a time line; more are on the page of the log.
const MOMENTS: &str = "50";

/// Reports of ends on the page.
const CRASHES_MAX: usize = 10;

/// Last lines before an end.
const LINES_MAX: usize = 20;

/// The fields of a log record that are shown, and the words before each.
const FIELDS: [(&str, &str); 4] = [
    ("why", ""),
    ("revision", "revision "),
    ("generation", "generation "),
    ("child", "connection "),
];

/// The newest moments first, down to the start of the gateway.
pub(super) fn time_line(view: &View<'_>, name: &str, started_at: u64) -> Markup {
    let query = [("server", name), ("level", "info"), ("limit", MOMENTS)];
    let found = log_page(&view.operator.log_records(), query).unwrap_or_default();
    let entries = found["entries"].as_array().map_or(&[][..], Vec::as_slice);
    let is_whole = found["total"].as_u64() == u64::try_from(entries.len()).ok();
    // The reports stand below.
    let moments = entries.iter().filter(|it| it["data"]["report"].is_null());
    html! {
        h2 { "Time line" }
        ol .rows.card {
            @for entry in moments {
                @let id = entry["id"].as_str().unwrap_or_default();
                li .row id=(format!("moment-{id}")) {
                    span .hint.nowrap { (text::moment(entry["timestamp"].as_u64().unwrap_or(0))) }
                    div .grow { (moment(entry, name)) }
                }
            }
            @if is_whole {
                li .row {
                    // In whole seconds: two clocks are compared, and a page that is open is not to flicker.
                    span .hint.nowrap { (text::moment(started_at.saturating_add(500) / 1000 * 1000)) }
                    p .grow { "The gateway started" }
                }
            }
        }
        p .hint.after {
            "From the gateway's log, which forgets its oldest records and ends with the gateway. "
            a href=(format!("/ui/logs?server={name}")) { "More" }
        }
    }
}

fn moment(entry: &Value, server: &str) -> Markup {
    let tone = match entry["level"].as_str() {
        Some("error") => "bad",
        Some("warn") => "warn",
        _ => "quiet",
    };
    let data = &entry["data"];
    // The connection of all clients needs no name.
    let shared = format!("server/{server}");
    let details = FIELDS
        .iter()
        .filter_map(|(name, words)| match &data[*name] {
            Value::Null => None,
            Value::String(value) if *value == shared => None,
            Value::String(value) => Some(format!("{words}{value}")),
            value => Some(format!("{words}{value}")),
        });
    let details: Vec<String> = details.collect();
    html! {
        p {
            (parts::badge(tone, entry["level"].as_str().unwrap_or_default())) " "
            (text::sentence(entry["message"].as_str().unwrap_or_default()))
        }
        @if !details.is_empty() { p .why { (text::line(&details.join(" · "))) } }
    }
}

/// The reports of ends, the newest first, each with the last lines before it.
pub(super) async fn crashes(view: &View<'_>, name: &str) -> Markup {
    let Ok(reports) = view.operator.crash_reports(name, CRASHES_MAX).await else {
        return Markup::default();
    };
    html! {
        h2 { "How it ended" }
        @if let Some(last) = reports.first() {
            ul .rows.card {
                @for report in &reports { li .row { (crash(report)) } }
            }
            p .hint.after {
                "The gateway keeps a report of each end as long as " code { "recorder.reports" }
                " says; of starts that failed one after the other only the last."
            }
            details .card.padded.after {
                summary { "The last messages before the newest" }
                (text::block(&messages(last)))
            }
        } @else {
            p .hint { "There is no report of an end. The gateway keeps as many as " code { "recorder.reports" } " says." }
        }
    }
}

fn crash(report: &Value) -> Markup {
    let lines = report["log"].as_array().map_or(&[][..], Vec::as_slice);
    let last = lines.get(lines.len().saturating_sub(LINES_MAX)..);
    let was = match report["was_up"] == true {
        true => "was up for",
        false => "did not come up, ended after",
    };
    html! {
        span .hint.nowrap { (text::moment(report["at"].as_u64().unwrap_or(0))) }
        div .grow {
            p { (text::sentence(report["reason"].as_str().unwrap_or_default())) }
            p .why {
                (was) " " (text::age(report["lived_ms"].as_u64().unwrap_or(0)))
                ", generation " (report["generation"])
                @if report["connection"] != "shared" {
                    ", connection " (text::line(report["connection"].as_str().unwrap_or_default()))
                }
                ", " (text::many(report["pending_calls"].as_u64().unwrap_or(0), "call", "calls")) " under way"
            }
            @match last.unwrap_or_default() {
                [] => { p .why { "It wrote no line before." } }
                last => {
                    details .after {
                        summary { "Its last lines" }
                        (text::block(&lines_of(last)))
                    }
                }
            }
        }
    }
}

fn messages(report: &Value) -> String {
    let messages = report["messages"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let line = |message: &Value| {
        let before = text::age(message["before_ms"].as_u64().unwrap_or(0));
        let words = ["direction", "kind", "method", "text"].map(|name| text(&message[name]));
        format!("{before} before: {}\n", words.join(" ").trim_end())
    };
    messages.map(line).collect()
}

fn lines_of(lines: &[Value]) -> String {
    let lines = lines.iter().filter_map(|line| line["text"].as_str());
    lines.map(|line| format!("{line}\n")).collect()
}
