//! Lists of servers for several pages: those in trouble first, then by name.

use maud::{Markup, html};

use crate::admin::render::Trouble;
use crate::admin::status::ServerStatus;
use crate::admin::ui::page::View;
use crate::admin::ui::paging::{AFTER, Paged};
use crate::admin::ui::parts::{self, SORT};

/// The servers that match the query, limited to the current page, in the order of their keys.
pub(super) fn page_of(
    mut servers: Vec<ServerStatus>,
    view: &View<'_>,
    key: impl Fn(&ServerStatus) -> String,
) -> Paged<ServerStatus> {
    if let Some(text) = view.query("text") {
        let text = text.to_lowercase();
        servers.retain(|server| server.name.to_lowercase().contains(&text));
    }
    Paged::of(servers, key, view.query(AFTER))
}

/// The key of a server that puts those in trouble first.
pub(super) fn place(server: &ServerStatus) -> String {
    format!("{}.{}", Trouble::of(server).place(), server.name)
}

/// Memory of a server's processes, in bytes.
pub(super) fn memory(server: &ServerStatus, view: &View<'_>) -> u64 {
    let connection = server.connection.as_ref();
    connection.map_or(0, |it| view.traffic.memory(&it.process_groups))
}

/// A filter by server name, shown when there are more servers than this.
pub(super) fn filter(servers: usize, least: usize, view: &View<'_>) -> Markup {
    html! {
        @if servers > least {
            form .filters method="get" action=(view.path) {
                @if let Some(sort) = view.query(SORT) { input type="hidden" name=(SORT) value=(sort); }
                (parts::search("Name", view))
                div .submit { button type="submit" { "Search" } }
            }
        }
    }
}

/// Shown instead of a list when no server name matches the filter.
pub(super) fn none_fits(view: &View<'_>) -> Markup {
    parts::empty(
        "No matching servers",
        html! { a href=(view.path) { "Show all" } },
    )
}
