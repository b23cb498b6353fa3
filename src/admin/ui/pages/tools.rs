//! `/ui/tools`: the tools that clients see, and what they cost.

use maud::{Markup, html};
use serde_json::Value;

use super::pins::unapproved;
use crate::admin::status::ToolView;
use crate::admin::ui::page::{Page, Section, View};
use crate::admin::ui::paging::{AFTER, Paged, Ways};
use crate::admin::ui::{parts, text};
use crate::id::ViewId;

pub(super) fn page(view: &View<'_>) -> Page {
    let tools = view.operator.tools(&ViewId::Default);
    let is_any = !tools.is_empty();
    let unapproved = unapproved(&view.operator.pins()).len();
    let found = found(tools, view);
    let tokens: usize = found.iter().map(|tool| tool.tokens).sum();
    let paged = Paged::of(found, |tool| tool.name.clone(), view.query(AFTER));
    Page::new(Section::Tools, "Tools").fixed(html! {
        (parts::heading("Tools", None))
        @if unapproved > 0 {
            p .notice.warn {
                (text::many(unapproved as u64, "tool has", "tools have"))
                " a definition that nobody approved. " a href="/ui/pins" { "See what changed" }
            }
        }
        @if !is_any {
            (parts::empty("No tools yet", html! { "They appear when a server has listed them." }))
        } @else {
            form .filters method="get" action="/ui/tools" data-auto {
                (parts::search("Search", view))
                (parts::server_filter(view))
                div .submit { button type="submit" { "Search" } }
            }
            p .hint {
                (text::many(paged.total as u64, "tool", "tools")) ", about "
                (text::count(tokens as u64)) " tokens in the list of a client"
            }
            (list(&paged, view))
        }
    })
}

/// The tools that fit the search.
fn found(mut tools: Vec<ToolView>, view: &View<'_>) -> Vec<ToolView> {
    if let Some(server) = view.query("server") {
        tools.retain(|tool| tool.server == server);
    }
    if let Some(text) = view.query("text") {
        let text = text.to_lowercase();
        tools.retain(|tool| {
            let about = format!("{} {}", tool.name, description(&entry(tool))).to_lowercase();
            text.split_whitespace().all(|word| about.contains(word))
        });
    }
    tools
}

/// The entry of a tool in the list, as its server wrote it.
pub(super) fn entry(tool: &ToolView) -> Value {
    serde_json::from_str(tool.entry.as_str()).unwrap_or_default()
}

pub(super) fn description(entry: &Value) -> &str {
    entry["description"].as_str().unwrap_or_default()
}

pub(super) fn link(name: &str) -> String {
    let name: String = url::form_urlencoded::byte_serialize(name.as_bytes()).collect();
    format!("/ui/tool?name={name}")
}

fn list(paged: &Paged<ToolView>, view: &View<'_>) -> Markup {
    html! {
        @if paged.total == 0 {
            (parts::empty("No tool fits", html! { a href="/ui/tools" { "Show all" } }))
        } @else {
            ul .rows.card.after { @for tool in &paged.rows { (row(tool)) } }
            (Ways::through(paged, ("tool", "tools")).show(view))
        }
    }
}

fn row(tool: &ToolView) -> Markup {
    let entry = entry(tool);
    let first = description(&entry).lines().next().unwrap_or_default();
    html! {
        li .row {
            div .grow {
                p .title { a .mono href=(link(&tool.name)) { (text::line(&tool.name)) } }
                @if !first.is_empty() { p .why { (text::line(first)) } }
            }
            span .hint { (text::line(&tool.server)) }
            span .hint .tokens { (text::count(tool.tokens as u64)) " tokens" }
        }
    }
}
