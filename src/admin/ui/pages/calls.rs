//! `/ui/calls`: the call history.

use maud::{Markup, html};

use crate::admin::history::{RecordsError, history_page};
use crate::admin::ui::page::{Page, Section, View};
use crate::admin::ui::paging::{PageLinks, ROWS};
use crate::admin::ui::parts::Column;
use crate::admin::ui::pieces::Row;
use crate::admin::ui::{parts, text};
use crate::history::{CallOutcome, CallPage, HistoryError, RecordedCall};
use crate::protocol::Failure;
use crate::telemetry::unix_millis;

/// Page parameters that are passed to the history unchanged.
const FILTERS: [&str; 5] = ["server", "method", "outcome", "session", "text"];

/// Times since the end of a call to choose from, in minutes.
const RANGES: [(&str, u64); 4] = [("15m", 15), ("1h", 60), ("6h", 360), ("1d", 1440)];

/// The parameter for the oldest call on the previous page.
const BEFORE: &str = "before";

/// # Errors
///
/// Returns the invalid filter, or why the history cannot be read.
pub(super) async fn page(view: &View<'_>) -> Result<Page, Failure> {
    let page = Page::new(Section::Calls, "Calls")
        .fixed(parts::heading("Calls", Some(parts::pause())))
        .once(view, async { filter_form(view) })
        .await;
    listed(view, None, page).await
}

/// Adds the calls of one server to its page.
///
/// # Errors
///
/// As [`page`].
pub(super) async fn of_server(view: &View<'_>, server: &str, page: Page) -> Result<Page, Failure> {
    listed(view, Some(server), page).await
}

async fn listed(view: &View<'_>, server: Option<&str>, page: Page) -> Result<Page, Failure> {
    let history = &view.operator.state.history;
    let filters = FILTERS
        .iter()
        .filter(|name| server.is_none() || **name != "server")
        .filter_map(|name| Some((*name, view.query(name)?)));
    let range = view.query("range");
    let range = range.and_then(|range| RANGES.iter().find(|(name, _)| *name == range));
    let since =
        range.map(|(_, minutes)| unix_millis().saturating_sub(minutes * 60_000).to_string());
    let since = since.as_deref().map(|since| ("since", since));
    let before = view.query(BEFORE).map(|before| (BEFORE, before));
    let server = server.map(|server| ("server", server));
    let limit = ROWS.to_string();
    let parameters = filters
        .chain(before)
        .chain(since)
        .chain(server)
        .chain([("limit", limit.as_str())]);
    match history_page(history, parameters).await {
        Ok(found) => {
            let rows = found.entries.iter().map(row).collect();
            Ok(page.live_list("calls", rows, |rows| table(&found, rows, view)))
        }
        Err(RecordsError::Unavailable(HistoryError::Off)) => Ok(page.fixed(off())),
        Err(error) => Err(error.into()),
    }
}

fn off() -> Markup {
    parts::empty(
        "Calls are not recorded",
        html! {
            "The configuration turns the history off:"
            pre .inline { code { "[history]\nenabled = false" } }
        },
    )
}

fn filter_form(view: &View<'_>) -> Markup {
    let outcomes: Vec<&str> = CallOutcome::ALL.iter().map(|it| it.as_str()).collect();
    let methods = [
        "tools/call",
        "prompts/get",
        "resources/read",
        "completion/complete",
    ];
    html! {
        form .filters method="get" action="/ui/calls" data-auto {
            (parts::server_filter(view))
            (parts::choice("method", "Method", &methods, view))
            (parts::choice("outcome", "Outcome", &outcomes, view))
            (parts::choice("range", "Ended within", &RANGES.map(|it| it.0), view))
            (parts::text_filter(view))
        }
    }
}

const COLUMNS: [Column; 6] = [
    ("Ended", "", ""),
    ("Call", "", ""),
    ("Server", "extra", ""),
    ("Client", "extra", ""),
    ("Outcome", "", ""),
    ("Took", "number extra", ""),
];

fn table(found: &CallPage, rows: Markup, view: &View<'_>) -> Markup {
    if found.entries.is_empty() {
        let is_filtered = FILTERS
            .iter()
            .chain(&["range"])
            .any(|name| view.query(name).is_some());
        return match is_filtered {
            true => parts::empty(
                "No matching calls",
                html! { a href="/ui/calls" { "Show all" } },
            ),
            false => parts::empty(
                "No calls yet",
                html! {
                    "Calls appear here when they end. " a href="/ui/tools" { "Try a tool" } "."
                },
            ),
        };
    }
    html! {
        (parts::table(view, ("calls", "Calls"), &COLUMNS, &rows))
        (ways(found).show(view))
    }
}

fn ways(found: &CallPage) -> PageLinks<'_> {
    let total = found.total;
    PageLinks {
        parameter: BEFORE,
        first: "Newest",
        next: ("Older", found.next.as_deref()),
        total: total.map_or_else(String::new, |total| text::many(total, "call", "calls")),
    }
}

fn row(call: &RecordedCall) -> Row {
    let RecordedCall {
        id, method, target, ..
    } = call;
    let row_id = format!("call-{id}");
    let row = html! {
        tr #(row_id) {
            td .nowrap { (text::moment(call.timestamp)) }
            td .wide {
                a href=(format!("/ui/calls/{id}")) {
                    (text::line(call.title()))
                }
                @if !target.is_empty() { " " span .hint { (text::line(method)) } }
                @let arguments = call.params.as_ref().and_then(|it| it.get("arguments"));
                @if let Some(arguments) = arguments { p .target { (text::line(&arguments.to_string())) } }
            }
            td .extra { (text::line(call.server_id.as_deref().unwrap_or_default())) }
            td .extra { (text::line(call.client.as_deref().unwrap_or_default())) }
            td { (outcome(call)) }
            td .number.extra { (duration(call.duration)) }
        }
    };
    Row::new(row_id, row)
}

/// The outcome of a call as coloured text.
pub(super) fn outcome(call: &RecordedCall) -> Markup {
    let tone = match call.outcome.as_str() {
        "ok" => "good",
        "tool_error" | "cancelled" => "warn",
        _ => "bad",
    };
    parts::badge(tone, &call.outcome.replace('_', " "))
}

/// A duration in milliseconds, as text.
pub(super) fn duration(millis: f64) -> String {
    match millis {
        short if short < 10.0 => format!("{short:.2} ms"),
        long if long < 1000.0 => format!("{long:.0} ms"),
        longer => format!("{:.1} s", longer / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_their_unit() {
        let table = [(0.123, "0.12 ms"), (12.6, "13 ms"), (1234.0, "1.2 s")];
        for (millis, expected) in table {
            assert_eq!(duration(millis), expected);
        }
    }
}
