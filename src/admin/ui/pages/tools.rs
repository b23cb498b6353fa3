//! `/ui/tools`: the tools that clients see, and what they cost.

use maud::{Markup, html};
use serde_json::Value;

use super::pins::unapproved;
use crate::admin::status::ToolView;
use crate::admin::ui::page::{Page, Section, View};
use crate::admin::ui::{parts, text};
use crate::id::ViewId;

/// Tools on the page.
const TOOLS_MAX: usize = 200;

pub(super) fn page(view: &View<'_>) -> Page {
    let tools = view.operator.tools(&ViewId::Default);
    let is_any = !tools.is_empty();
    let unapproved = unapproved(&view.operator.pins()).len();
    let found = found(tools, view);
    let tokens: usize = found.iter().map(|(tool, _)| tool.tokens).sum();
    let servers = view.operator.status().servers;
    let servers: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
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
                div {
                    label for="text" { "Search" }
                    input #text name="text" type="search" value=[view.query("text")] maxlength="256";
                }
                (parts::choice("server", "Server", &servers, view))
                div .submit { button type="submit" { "Search" } }
            }
            p .hint {
                (text::many(found.len() as u64, "tool", "tools")) ", about "
                (text::count(tokens as u64)) " tokens in the list of a client"
            }
            (list(&found))
        }
    })
}

/// The tools that fit the search, with their entries.
fn found(tools: Vec<ToolView>, view: &View<'_>) -> Vec<(ToolView, Value)> {
    let server = view.query("server");
    let words = view.query("text").unwrap_or_default().to_lowercase();
    let tools = tools
        .into_iter()
        .filter(|tool| server.is_none_or(|it| tool.server == it));
    let fits = |(tool, entry): &(ToolView, Value)| {
        let about = format!("{} {}", tool.name, description(entry)).to_lowercase();
        words.split_whitespace().all(|word| about.contains(word))
    };
    tools
        .map(|tool| {
            let entry = entry(&tool);
            (tool, entry)
        })
        .filter(fits)
        .collect()
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

fn list(found: &[(ToolView, Value)]) -> Markup {
    html! {
        @if found.is_empty() {
            (parts::empty("No tool fits", html! { a href="/ui/tools" { "Show all" } }))
        } @else {
            ul .rows.card.after {
                @for (tool, entry) in found.iter().take(TOOLS_MAX) {
                    li .row {
                        div .grow {
                            p .title { a .mono href=(link(&tool.name)) { (text::line(&tool.name)) } }
                            @let first = description(entry).lines().next().unwrap_or_default();
                            @if !first.is_empty() { p .why { (text::line(first)) } }
                        }
                        span .hint { (text::line(&tool.server)) }
                        span .hint .tokens { (text::count(tool.tokens as u64)) " tokens" }
                    }
                }
            }
            @if found.len() > TOOLS_MAX {
                p .hint.after { (found.len() - TOOLS_MAX) " more: search for them." }
            }
        }
    }
}
