//! `/ui/servers`: all servers, those in trouble first.

use maud::{Markup, html};
use serde_json::Value;

use crate::admin::render::{by_trouble, reason};
use crate::admin::ui::page::{Page, Section, View};
use crate::admin::ui::{parts, text};

pub(super) fn page(view: &View<'_>) -> Page {
    let status = view.status();
    let add = html! { a .button.primary href="/ui/servers/new" { "Add a server" } };
    Page::new(Section::Servers, "Servers")
        .fixed(parts::heading("Servers", Some(add)))
        .live("servers", table(&by_trouble(&status), view))
}

fn table(servers: &[&Value], view: &View<'_>) -> Markup {
    if servers.is_empty() {
        return parts::empty(
            "No server is configured",
            html! { "A server is a program that the gateway starts, or a URL." },
        );
    }
    html! {
        div .card.table tabindex="0" role="region" aria-label="Servers" {
            table {
                thead {
                    tr {
                        th scope="col" { "Server" }
                        th scope="col" { "State" }
                        th .extra scope="col" { "Since" }
                        th .number.extra scope="col" { "Restarts" }
                        th .number.extra scope="col" { "In flight" }
                        th .extra scope="col" { "Transport" }
                        th .number.extra scope="col" { "Tools" }
                        th scope="col" { "Remedy" }
                    }
                }
                tbody { @for server in servers { (row(server, view)) } }
            }
        }
    }
}

fn row(server: &Value, view: &View<'_>) -> Markup {
    let name = server["name"].as_str().unwrap_or_default();
    let connection = &server["connection"];
    let number = |value: &Value| value.as_u64().map(text::count).unwrap_or_default();
    let why = reason(server);
    html! {
        tr id=(format!("server-{name}")) {
            td {
                a href=(format!("/ui/servers/{name}")) { (text::line(name)) }
                @if !parts::is_well(server) && !why.is_empty() { p .why { (text::sentence(&why)) } }
            }
            td { (parts::state(server)) }
            td .nowrap.extra { (parts::since(&connection["shared"])) }
            td .number.extra { (number(&connection["shared"]["restarts"])) }
            td .number.extra { (number(&connection["in_flight"])) }
            td .extra { (connection["transport"].as_str().unwrap_or_default()) }
            td .number.extra { (number(&server["items"]["tools"])) }
            td { (parts::remedies(server, view)) }
        }
    }
}
