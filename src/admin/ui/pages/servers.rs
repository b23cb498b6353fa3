//! `/ui/servers`: all servers, those in trouble first.

use maud::{Markup, html};

use super::server_rows::{filter, none_fits, page_of};
use crate::admin::render::reason;
use crate::admin::status::ServerStatus;
use crate::admin::ui::page::{Page, Section, View};
use crate::admin::ui::paging::{PageLinks, Paged};
use crate::admin::ui::pieces::Row;
use crate::admin::ui::{parts, text};

pub(super) fn page(view: &View<'_>) -> Page {
    let servers = view.operator.status().servers;
    let count = servers.len();
    let paged = page_of(servers, view);
    let rows = paged.rows.iter().map(|server| row(server, view)).collect();
    let add = html! { a .button.primary href="/ui/servers/new" { "Add a server" } };
    Page::new(Section::Servers, "Servers")
        .fixed(parts::heading("Servers", Some(add)))
        .fixed(filter(count, view))
        .live_list("servers", rows, |rows| table(count, &paged, rows, view))
}

fn table(count: usize, paged: &Paged<ServerStatus>, rows: Markup, view: &View<'_>) -> Markup {
    if count == 0 {
        return parts::empty(
            "No server is configured",
            html! { "A server is a program that the gateway starts, or a URL." },
        );
    }
    if paged.total == 0 {
        return none_fits(view);
    }
    html! {
        div .card.table tabindex="0" role="region" aria-label="Servers" {
            table {
                thead {
                    tr {
                        th scope="col" { "Server" }
                        th scope="col" { "State" }
                        th .extra scope="col" { "For" }
                        th .number.extra scope="col" { "Restarts" }
                        th .number.extra scope="col" { "In flight" }
                        th .extra scope="col" { "Transport" }
                        th .number.extra scope="col" { "Tools" }
                        th .extra scope="col" { "Remedy" }
                    }
                }
                tbody #servers-rows data-rows { (rows) }
            }
        }
        (PageLinks::of(paged, ("server", "servers")).show(view))
    }
}

fn row(server: &ServerStatus, view: &View<'_>) -> Row {
    let name = &server.name;
    let connection = server.connection.as_ref();
    let shared = server.shared();
    let number = |number: Option<u64>| number.map(text::count).unwrap_or_default();
    let why = reason(server);
    let id = format!("server-{name}");
    let row = html! {
        tr #(id) {
            td {
                a href=(format!("/ui/servers/{name}")) { (text::line(name)) }
                @if !parts::is_well(server) && !why.is_empty() { p .why { (text::sentence(&why)) } }
            }
            td { (parts::state(server)) }
            td .nowrap.extra { (shared.map(parts::since).unwrap_or_default()) }
            td .number.extra { (number(shared.map(|it| it.restarts))) }
            td .number.extra { (number(connection.map(|it| it.in_flight as u64))) }
            td .extra { (connection.map_or("", |it| &it.transport)) }
            td .number.extra { (text::count(server.item_count("tools") as u64)) }
            td .extra { (parts::remedies(server, view)) }
        }
    };
    Row::new(id, row)
}
