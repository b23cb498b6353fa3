//! `/ui/logs`: the gateway's own log.

use maud::{Markup, html};
use serde_json::{Map, Value};

use crate::admin::history::log_page;
use crate::admin::ui::page::{Page, Section, View};
use crate::admin::ui::pieces::Row;
use crate::admin::ui::{parts, text};
use crate::protocol::Failure;
use crate::telemetry::LogEntry;

/// Number of records on the page.
const RECORDS: &str = "200";

const LEVELS: [&str; 4] = ["error", "warn", "info", "debug"];

/// # Errors
///
/// Returns the invalid filter.
pub(super) fn page(view: &View<'_>) -> Result<Page, Failure> {
    let names = ["level", "server", "text"];
    let filters = names
        .iter()
        .filter_map(|name| Some((*name, view.query(name)?)));
    let parameters = filters.chain([("limit", RECORDS)]);
    let found = log_page(&view.operator.state.log, parameters)?;
    let page = Page::new(Section::Logs, "Logs").fixed(html! {
        (parts::heading("Logs", Some(tools())))
        form .filters method="get" action="/ui/logs" data-auto {
            (parts::choice("level", "From level", &LEVELS, view))
            (parts::server_filter(view))
            (parts::text_filter(view))
        }
    });
    let entries = &found.entries;
    let rows = entries.iter().map(row).collect();
    Ok(page.live_list("records", rows, |rows| records(entries.is_empty(), rows)))
}

/// Buttons of the script, which stops, wraps, copies and saves the list.
fn tools() -> Markup {
    html! {
        (parts::pause())
        button type="button" hidden data-script data-wrap { "Wrap" }
        button type="button" hidden data-script data-copy="records-rows" { "Copy" }
        button type="button" hidden data-script data-save="records-rows" { "Download" }
    }
}

fn records(is_empty: bool, rows: Markup) -> Markup {
    if is_empty {
        return parts::empty(
            "No matching records",
            html! { a href="/ui/logs" { "Show all" } },
        );
    }
    html! {
        ul #records-rows .card.log data-rows data-follow tabindex="0"
            aria-label="Records, newest first" { (rows) }
    }
}

fn row(entry: &LogEntry) -> Row {
    let id = format!("record-{}", entry.id);
    let level = &entry.level;
    let row = html! {
        li #(id) {
            (text::moment(entry.timestamp))
            span .level.(level) { (level) }
            span .text {
                @if let Some(server) = entry.server() { b { (text::line(server)) } " " }
                (text::line(&entry.message))
                (details(&entry.data))
            }
        }
    };
    Row::new(id, row)
}

/// The fields of a record, except its source location.
fn details(data: &Map<String, Value>) -> Markup {
    let fields = data.iter().filter(|(name, _)| *name != "module");
    html! {
        @for (name, value) in fields {
            @let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            " " span .hint { (text::line(name)) "=" (text::line(&shown)) }
        }
    }
}
