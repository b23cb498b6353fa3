//! `/ui/tree`: the supervision tree as it is now.

use maud::{Markup, html};
use serde_json::Value;

use super::server_rows::{filter, none_fits, page_of};
use crate::admin::render::{breaker_text, open_breakers, reason};
use crate::admin::ui::page::{Page, Section, View};
use crate::admin::ui::paging::{PageLinks, Paged};
use crate::admin::ui::pieces::Row;
use crate::admin::ui::{parts, text};

/// Connections of their own, and breakers, that are shown of one server.
const OWN_MAX: usize = 20;

pub(super) fn page(view: &View<'_>) -> Page {
    let (status, servers) = view.status_and_servers();
    let count = servers.len();
    let paged = page_of(servers, view);
    let rows = paged.rows.iter().map(server_node).collect();
    Page::new(Section::Tree, "Tree")
        .fixed(parts::heading("Supervision tree", None))
        .fixed(filter(count, view))
        .live_list("tree", rows, |rows| {
            tree(&status, count, &paged, rows, view)
        })
}

fn tree(
    status: &Value,
    count: usize,
    paged: &Paged<Value>,
    rows: Markup,
    view: &View<'_>,
) -> Markup {
    let actors = status["actors"].as_array().into_iter().flatten();
    html! {
        div .card.tree {
            p .node.root {
                span .strong { "gateway" }
                span .hint {
                    "pid " (status["pid"].as_u64().unwrap_or(0)) " · "
                    (text::many(status["sessions"].as_u64().unwrap_or(0), "session", "sessions"))
                    @let replaced = status["arbiters_replaced"].as_u64().unwrap_or(0);
                    @if replaced > 0 { " · " (text::many(replaced, "thread", "threads")) " replaced" }
                }
            }
            ul {
                @for actor in actors {
                    li { (child(actor, actor["name"].as_str().unwrap_or_default(), Markup::default())) }
                }
                li {
                    p .node {
                        span .strong { "servers" }
                        span .hint { (count) }
                    }
                    ul #tree-rows data-rows { (rows) }
                }
            }
        }
        @if paged.total == 0 && count > 0 { (none_fits(view)) }
        (PageLinks::of(paged, ("server", "servers")).show(view))
    }
}

fn server_node(server: &Value) -> Row {
    let name = server["name"].as_str().unwrap_or_default();
    let connection = &server["connection"];
    let own = connection["own"].as_array().map_or(&[][..], Vec::as_slice);
    let number = |name: &str| connection[name].as_u64().unwrap_or(0);
    let id = format!("node-{name}");
    let node = html! {
        li #(id) {
            p .node data-server=(name) {
                a href=(format!("/ui/servers/{name}")) { (text::line(name)) }
                (parts::state(server))
                @if connection.is_object() {
                    (child_facts(&connection["shared"]))
                    span .hint { (number("in_flight")) " in flight" }
                    @if number("queued") > 0 { span .hint { (number("queued")) " waiting" } }
                }
            }
            @let why = reason(server);
            @if !parts::is_well(server) && !why.is_empty() { p .why { (text::sentence(&why)) } }
            @if !(own.is_empty() && open_breakers(server).next().is_none()) {
                ul {
                    @for own in own.iter().take(OWN_MAX) {
                        li {
                            (child(&own["connection"], own["owner"].as_str().unwrap_or_default(),
                                html! { span .hint { "a connection of its own" } }))
                        }
                    }
                    @if own.len() > OWN_MAX {
                        li { p .node { span .hint { (own.len() - OWN_MAX) " more connections of their own" } } }
                    }
                    @for breaker in open_breakers(server).take(OWN_MAX) {
                        li { p .node { (parts::badge("warn", "breaker")) span .hint { (text::line(&breaker_text(breaker))) } } }
                    }
                }
            }
        }
    };
    Row::new(id, node)
}

fn child(child: &Value, name: &str, remark: Markup) -> Markup {
    let phase = child["phase"].as_str().unwrap_or_default();
    let tone = match phase {
        "up" => "good",
        "idle" => "quiet",
        "backoff" | "broken" => "bad",
        _ => "warn",
    };
    html! {
        p .node {
            span { (text::line(name)) }
            (parts::badge(tone, phase))
            (child_facts(child))
            (remark)
        }
    }
}

fn child_facts(child: &Value) -> Markup {
    let number = |name: &str| child[name].as_u64().unwrap_or(0);
    html! {
        span .hint { "for " (parts::since(child)) }
        span .hint { "generation " (number("generation")) }
        span .hint { (text::many(number("restarts"), "restart", "restarts")) }
        @if number("panics") > 0 { span .badge.bad { (text::many(number("panics"), "panic", "panics")) } }
        @if number("stuck") > 0 { span .badge.bad { "blocked a thread " (number("stuck")) " times" } }
    }
}
