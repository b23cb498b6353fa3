//! `/ui/sessions`: the sessions of clients.

use maud::{Markup, html};

use super::confirm::{Confirmation, confirm, is_sure};
use crate::admin::ui::fields::Fields;
use crate::admin::ui::page::{FormOutcome, Page, Section, View};
use crate::admin::ui::paging::{AFTER, PageLinks, Paged, ROWS};
use crate::admin::ui::pieces::Row;
use crate::admin::ui::{parts, text};
use crate::protocol::{ErrorKind, Failure};
use crate::sessions::{SessionList, SessionView};

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
    let rows = paged.rows.iter().map(row).collect();
    Page::new(Section::Sessions, "Sessions")
        .fixed(parts::heading("Sessions", None))
        .live_list("sessions", rows, |rows| table(&paged, rows, view))
}

fn table(paged: &Paged<SessionView>, rows: Markup, view: &View<'_>) -> Markup {
    if paged.total == 0 {
        let hint = html! {
            "A client opens one when it connects. " a href="/ui/connect" { "Connect a client" } "."
        };
        return parts::empty("No client has a session", hint);
    }
    html! {
        div .card.table tabindex="0" role="region" aria-label="Sessions" {
            table {
                thead {
                    tr {
                        th scope="col" { "Client" }
                        th .extra scope="col" { "Revision" }
                        th .number scope="col" { "Age" }
                        th .number scope="col" { "Last heard" }
                        th .number.extra scope="col" { "Streams" }
                        th .extra scope="col" { "Handle" }
                    }
                }
                tbody #sessions-rows data-rows { (rows) }
            }
        }
        (PageLinks::of(paged, ("session", "sessions")).show(view))
    }
}

fn row(session: &SessionView) -> Row {
    let id = format!("session-{}", session.handle);
    let row = html! {
        tr #(id) {
            td { a href=(format!("/ui/sessions/{}", session.handle)) { (client(session)) } }
            td .nowrap.extra { (session.revision.as_str()) }
            td .number { (age(session)) }
            td .number { (text::age(session.idle_seconds.saturating_mul(1000))) " ago" }
            td .number.extra { (session.streams) }
            td .mono.extra { (session.handle) }
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
        return Ok(confirm(
            view,
            Confirmation {
                section: Section::Sessions,
                text,
                fields: form,
            },
        ));
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
