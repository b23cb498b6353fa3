//! `/ui/tree`: the supervision tree as it is now.

use maud::{Markup, html};
use serde_json::Value;

use crate::admin::render::{breaker_text, open_breakers, reason};
use crate::admin::ui::page::{Page, Section, View};
use crate::admin::ui::{parts, text};

pub(super) fn page(view: &View<'_>) -> Page {
    let status = view.status();
    Page::new(Section::Tree, "Tree")
        .fixed(parts::heading("Supervision tree", None))
        .live("tree", tree(&status))
}

fn tree(status: &Value) -> Markup {
    let actors = status["actors"].as_array().into_iter().flatten();
    let servers = status["servers"].as_array().map_or(&[][..], Vec::as_slice);
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
                        span .hint { (servers.len()) }
                    }
                    ul { @for server in servers { li { (server_node(server)) } } }
                }
            }
        }
    }
}

fn server_node(server: &Value) -> Markup {
    let name = server["name"].as_str().unwrap_or_default();
    let connection = &server["connection"];
    let own = connection["own"].as_array().map_or(&[][..], Vec::as_slice);
    let number = |name: &str| connection[name].as_u64().unwrap_or(0);
    html! {
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
                @for own in own {
                    li {
                        (child(&own["connection"], own["owner"].as_str().unwrap_or_default(),
                            html! { span .hint { "a connection of its own" } }))
                    }
                }
                @for breaker in open_breakers(server) {
                    li { p .node { (parts::badge("warn", "breaker")) span .hint { (text::line(&breaker_text(breaker))) } } }
                }
            }
        }
    }
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
