//! `/ui/sessions`: the sessions of clients.

use std::collections::HashMap;

use maud::{Markup, html};

use super::confirm::{confirm, is_sure};
use crate::admin::ui::fields::Fields;
use crate::admin::ui::page::{FormOutcome, Page, Section, View};
use crate::admin::ui::paging::{AFTER, PageLinks, Paged, ROWS};
use crate::admin::ui::parts::{Button, Column, ROW_ACTIONS};
use crate::admin::ui::pieces::Row;
use crate::admin::ui::{parts, text};
use crate::history::{HistoryQuery, RecordedCall};
use crate::protocol::{ErrorKind, Failure};
use crate::sessions::{SessionList, SessionView};

/// Recorded calls among which the last one of each session is looked for: a search for each session
/// would read the whole history.
const RECENT_CALLS: usize = 500;

pub(super) async fn page(view: &View<'_>) -> Page {
    let sessions = SessionList::of(&view.operator.state.sessions);
    let after = view
        .query(AFTER)
        .and_then(|name| u32::from_str_radix(name, 16).ok());
    let (total, shown, has_more) = sessions.page_after(after, ROWS).await;
    let last = shown.last().filter(|_| has_more);
    let paged = Paged {
        next: last.map(|session| session.recorded_as.clone()),
        rows: shown,
        total,
    };
    let calls = last_calls(view).await;
    let rows = paged.rows.iter();
    let rows = rows.map(|session| row(session, calls.get(&session.recorded_as)));
    let rows = rows.collect();
    Page::new(Section::Sessions, "Sessions")
        .fixed(parts::heading("Sessions", None))
        .live_list("sessions", rows, |rows| table(&paged, rows, view))
}

/// The last call of each session, by the name that its records have, among the last recorded calls.
async fn last_calls(view: &View<'_>) -> HashMap<String, RecordedCall> {
    let query = HistoryQuery {
        limit: RECENT_CALLS,
        ..HistoryQuery::default()
    };
    let mut last = HashMap::new();
    // The list is useful even if no calls were recorded.
    let page = view.operator.state.history.page(query).await;
    for entry in page.iter().flat_map(|page| &page.entries) {
        let call = entry.record();
        if let Some(session) = call.session.clone() {
            last.entry(session).or_insert(call);
        }
    }
    last
}

const COLUMNS: [Column; 7] = [
    ("Client", "", ""),
    ("Principal", "extra", ""),
    ("Age", "number", ""),
    ("Last heard", "number", ""),
    ("Last call", "extra", ""),
    ("Handle", "extra", ""),
    ROW_ACTIONS,
];

fn table(paged: &Paged<SessionView>, rows: Markup, view: &View<'_>) -> Markup {
    if paged.total == 0 {
        let hint = html! {
            "A client opens one when it connects. " a href="/ui/connect" { "Connect a client" } "."
        };
        return parts::empty("No client has a session", hint);
    }
    html! {
        (parts::table(view, ("sessions", "Sessions"), &COLUMNS, &rows))
        (PageLinks::of(paged, ("session", "sessions")).show(view))
    }
}

fn row(session: &SessionView, call: Option<&RecordedCall>) -> Row {
    let id = format!("session-{}", session.handle);
    let row = html! {
        tr #(id) {
            td { a href=(format!("/ui/sessions/{}", session.handle)) { (client(session)) } }
            td .extra { (text::line(&session.principal)) }
            td .number { (age(session)) }
            td .number { (text::age(session.idle_seconds.saturating_mul(1000))) " ago" }
            td .extra {
                @if let Some(call) = call {
                    a href={ "/ui/calls/" (call.id) } { (text::line(call.title())) }
                    p .why.nowrap { (text::moment(call.timestamp)) }
                }
            }
            td .mono.extra { (session.handle) }
            td .tail { div .actions { (Button::new(&format!("/ui/sessions/{}/end", session.handle), "End").asks().show()) } }
        }
    };
    Row::new(id, row)
}

pub(super) fn client(session: &SessionView) -> Markup {
    let name = session
        .client
        .name
        .as_deref()
        .filter(|name| !name.is_empty());
    html! {
        (text::line(name.unwrap_or("unnamed client")))
        @if let Some(version) = &session.client.version { " " (text::line(version)) }
    }
}

pub(super) fn age(session: &SessionView) -> String {
    let age = session.age_seconds;
    age.map(|age| text::age(age.saturating_mul(1000)))
        .unwrap_or_default()
}

/// # Errors
///
/// Returns an error when no such session exists.
pub(super) async fn end(
    view: &View<'_>,
    handle: &str,
    form: &Fields,
) -> Result<FormOutcome, Failure> {
    if !is_sure(form) {
        let text = "End this session? Its client has to connect again.";
        return Ok(confirm(view, form, Section::Sessions, ("End it", text)));
    }
    let sessions = SessionList::of(&view.operator.state.sessions);
    match sessions.end(handle).await {
        true => Ok(FormOutcome::Done {
            to: "/ui/sessions".to_owned(),
            message: "the session was ended".to_owned(),
        }),
        false => Err(unknown()),
    }
}

pub(super) fn unknown() -> Failure {
    let message = "this session no longer exists";
    Failure::new(ErrorKind::SessionNotFound, message)
}
