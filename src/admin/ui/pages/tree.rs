//! `/ui/tree`: the current supervision tree, a tab of the servers.

use maud::{Markup, html};

use super::server_rows::{filter, none_fits, page_of, place};
use super::servers;
use crate::admin::render::{breaker_text, group_line, reason};
use crate::admin::status::{ServerStatus, Status};
use crate::admin::ui::page::{Page, Section, View};
use crate::admin::ui::paging::{PageLinks, Paged, ROWS};
use crate::admin::ui::pieces::Row;
use crate::admin::ui::{parts, text};
use crate::downstream::GroupView;
use crate::supervision::{ChildPhase, ChildView};

/// Maximum per-client connections, and maximum breakers, shown per server.
const OWN_MAX: usize = 20;

pub(super) fn page(view: &View<'_>) -> Page {
    let mut status = view.operator.status();
    let servers = std::mem::take(&mut status.servers);
    let count = servers.len();
    let groups: Vec<Markup> = status
        .groups
        .iter()
        .map(|it| group_node(it, &servers))
        .collect();
    let paged = page_of(servers, view, place);
    let rows = paged.rows.iter().map(server_node).collect();
    Page::new(Section::Servers, "Supervision tree")
        .fixed(html! { (parts::heading("Servers", Some(servers::add()))) (servers::tabs(view)) })
        .fixed(filter(count, ROWS, view))
        .live_list("tree", rows, |rows| {
            tree(&status, (count, &groups), &paged, rows, view)
        })
}

fn tree(
    status: &Status,
    (count, groups): (usize, &[Markup]),
    paged: &Paged<ServerStatus>,
    rows: Markup,
    view: &View<'_>,
) -> Markup {
    html! {
        div .card.tree {
            p .node.root {
                span .strong { "gateway" }
                span .hint {
                    "pid " (status.pid) " · "
                    (text::many(status.sessions as u64, "session", "sessions"))
                    @let replaced = status.arbiters_replaced;
                    @if replaced > 0 { " · " (text::many(replaced, "thread", "threads")) " replaced" }
                }
            }
            ul {
                @for actor in &status.actors {
                    li { (child(actor, &actor.name, Markup::default())) }
                }
                @for group in groups { li { (group) } }
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

/// A group with its servers in the order of their starts, each with its state.
fn group_node(group: &GroupView, servers: &[ServerStatus]) -> Markup {
    let state = |name: &String| servers.iter().find(|server| server.name == *name);
    html! {
        p .node { span { (text::line(&group_line(group))) } }
        p .node.chain aria-label={ "Servers of the group " (text::plain(&group.name)) } {
            @for (index, name) in group.servers.iter().enumerate() {
                @if index > 0 { span .hint aria-hidden="true" { "→" } }
                a href=(format!("/ui/servers/{name}")) { (text::line(name)) }
                @if let Some(server) = state(name) { (parts::state(server)) }
            }
        }
    }
}

fn server_node(server: &ServerStatus) -> Row {
    let name = &server.name;
    let connection = server.connection.as_ref();
    let own = connection.map_or(&[][..], |it| &it.own);
    let id = format!("node-{name}");
    let node = html! {
        li #(id) {
            p .node data-server=(name) {
                a href=(format!("/ui/servers/{name}")) { (text::line(name)) }
                (parts::state(server))
                @if let Some(connection) = connection {
                    (child_facts(&connection.shared))
                    span .hint { (connection.in_flight) " in flight" }
                    @if connection.queued > 0 { span .hint { (connection.queued) " waiting" } }
                }
            }
            @let why = reason(server);
            @if !parts::is_well(server) && !why.is_empty() { p .why { (text::sentence(&why)) } }
            @if !(own.is_empty() && server.open_breakers().next().is_none()) {
                ul {
                    @for own in own.iter().take(OWN_MAX) {
                        li {
                            (child(&own.connection, &own.owner,
                                html! { span .hint { "own connection" } }))
                        }
                    }
                    @if own.len() > OWN_MAX {
                        li { p .node { span .hint { (own.len() - OWN_MAX) " more own connections" } } }
                    }
                    @for breaker in server.open_breakers().take(OWN_MAX) {
                        li { p .node { (parts::badge("warn", "breaker")) span .hint { (text::line(&breaker_text(breaker))) } } }
                    }
                }
            }
        }
    };
    Row::new(id, node)
}

fn child(child: &ChildView, name: &str, remark: Markup) -> Markup {
    let tone = match child.phase {
        ChildPhase::Up => "good",
        ChildPhase::Idle => "quiet",
        ChildPhase::Backoff | ChildPhase::Broken => "bad",
        ChildPhase::Waiting | ChildPhase::Starting | ChildPhase::Stopping | ChildPhase::Stopped => {
            "warn"
        }
    };
    html! {
        p .node {
            span { (text::line(name)) }
            (parts::badge(tone, child.phase.as_str()))
            (child_facts(child))
            (remark)
        }
    }
}

fn child_facts(child: &ChildView) -> Markup {
    html! {
        span .hint { "for " (parts::since(child)) }
        span .hint { "generation " (child.generation) }
        span .hint { (text::many(child.restarts, "restart", "restarts")) }
        @if child.panics > 0 { span .badge.bad { (text::many(child.panics, "panic", "panics")) } }
        @if child.stuck > 0 { span .badge.bad { "blocked a thread " (child.stuck) " times" } }
    }
}
