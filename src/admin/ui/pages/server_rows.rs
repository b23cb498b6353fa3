//! The servers in the lists of several pages: those in trouble first, then by name.

use maud::{Markup, html};

use crate::admin::render::Trouble;
use crate::admin::status::ServerStatus;
use crate::admin::ui::page::View;
use crate::admin::ui::paging::{AFTER, Paged, ROWS};
use crate::admin::ui::parts;

/// The servers that the query asks for, cut to this page.
pub(super) fn page_of(mut servers: Vec<ServerStatus>, view: &View<'_>) -> Paged<ServerStatus> {
    if let Some(text) = view.query("text") {
        let text = text.to_lowercase();
        servers.retain(|server| server.name.to_lowercase().contains(&text));
    }
    Paged::of(servers, place, view.query(AFTER))
}

/// Where a server stands among all.
pub(super) fn place(server: &ServerStatus) -> String {
    format!("{}.{}", Trouble::of(server).place(), server.name)
}

/// Finds servers by their names, where there are more of them than a page has.
pub(super) fn filter(servers: usize, view: &View<'_>) -> Markup {
    html! {
        @if servers > ROWS {
            form .filters method="get" action=(view.path) {
                (parts::search("Name", view))
                div .submit { button type="submit" { "Search" } }
            }
        }
    }
}

/// In the place of a list of which no server has the text in its name.
pub(super) fn none_fits(view: &View<'_>) -> Markup {
    parts::empty(
        "No server fits",
        html! { a href=(view.path) { "Show all" } },
    )
}
