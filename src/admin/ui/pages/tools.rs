//! `/ui/tools`: the tools that clients see, and their token costs.

use std::collections::BTreeSet;

use maud::{Markup, html};
use serde_json::Value;

use super::pins::unapproved;
use crate::admin::status::ToolView;
use crate::admin::ui::page::{Page, Section, View};
use crate::admin::ui::paging::{AFTER, PageLinks, Paged};
use crate::admin::ui::{parts, text};
use crate::catalog::{Exposure, ViewSettings};
use crate::id::ViewId;

/// The tools of a view, and how they are exposed to its clients.
pub(super) struct ViewTools {
    pub(super) view: ViewId,
    pub(super) settings: ViewSettings,
    pub(super) tools: Vec<ToolView>,
}

impl ViewTools {
    pub(super) fn of(view: &View<'_>, (id, settings): (ViewId, ViewSettings)) -> Self {
        Self {
            tools: view.operator.state.tools(&id),
            view: id,
            settings,
        }
    }

    /// The effective exposure, never [`Exposure::Auto`].
    pub(super) fn exposure(&self) -> Exposure {
        self.settings.expose.of(self.tools.len())
    }

    /// Token cost of all tools in the view.
    pub(super) fn tokens(&self) -> usize {
        self.tools.iter().map(|tool| tool.tokens).sum()
    }

    /// Token cost of the list that clients receive, which is smaller when a few static tools
    /// represent all others.
    pub(super) fn listed_tokens(&self) -> usize {
        match self.exposure() {
            Exposure::All => self.tokens(),
            few => {
                let definitions = few.definitions();
                let sizes = definitions.iter().map(|it| it.as_bytes().len());
                sizes.map(ToolView::tokens_of).sum()
            }
        }
    }
}

pub(super) fn page(view: &View<'_>) -> Page {
    let mut views = view.operator.state.catalog.views().into_iter();
    let whole = views.find(|(id, _)| *id == ViewId::Default);
    let view_tools = ViewTools::of(view, whole.unwrap_or_default());
    let unapproved = unapproved(&view.operator.pins()).len();
    Page::new(Section::Tools, "Tools").fixed(html! {
        (parts::heading("Tools", None))
        @if unapproved > 0 {
            p .notice.warn {
                (text::many(unapproved as u64, "definition is", "definitions are"))
                " not approved. " a href="/ui/pins" { "See what changed" }
            }
        }
        (searched(&view_tools, view))
    })
}

/// The tools that match the page's search, with the search field.
pub(super) fn searched(view_tools: &ViewTools, view: &View<'_>) -> Markup {
    if view_tools.tools.is_empty() {
        let hint = html! { "Tools appear when a server has listed them." };
        return parts::empty("No tools yet", hint);
    }
    let servers: BTreeSet<&str> = view_tools
        .tools
        .iter()
        .map(|it| it.server.as_str())
        .collect();
    let servers: Vec<&str> = servers.into_iter().collect();
    let found = found(&view_tools.tools, view);
    let tokens: usize = found.iter().map(|(tool, _)| tool.tokens).sum();
    let paged = Paged::of(found, |(tool, _)| tool.name.clone(), view.query(AFTER));
    html! {
        form .filters method="get" action=(view.path) data-auto {
            (parts::search("Search", view))
            (parts::server_filter_among(&servers, view))
            div .submit { button type="submit" { "Search" } }
        }
        p .hint {
            (text::many(paged.total as u64, "tool", "tools")) ", about "
            (text::count(tokens as u64)) " tokens in the list of a client"
            @if view_tools.exposure() != Exposure::All {
                " that lists them all. With " (static_tools(view_tools.exposure())) " instead, it reads about "
                (text::count(view_tools.listed_tokens() as u64)) " tokens"
            }
        }
        (list(&view_tools.view, &paged, view))
    }
}

/// The tools of one server.
pub(super) fn of_server(view: &View<'_>, server: &str) -> Markup {
    let tools = view.operator.state.tools(&ViewId::Default);
    let own = tools.iter().filter(|tool| tool.server == server);
    let own: Vec<FoundTool<'_>> = own.map(|tool| (tool, entry(tool))).collect();
    if own.is_empty() {
        return parts::empty("No tools", html! { "The server has not listed any." });
    }
    let paged = Paged::of(own, |(tool, _)| tool.name.clone(), view.query(AFTER));
    list(&ViewId::Default, &paged, view)
}

/// Names of the static tools that represent all others.
pub(super) fn static_tools(exposure: Exposure) -> Markup {
    html! {
        @for (index, (name, _)) in exposure.tools().iter().enumerate() {
            @if index > 0 { ", " }
            code { (name) }
        }
    }
}

/// A tool and its parsed entry.
type FoundTool<'t> = (&'t ToolView, Value);

/// The tools that match the search.
fn found<'t>(tools: &'t [ToolView], view: &View<'_>) -> Vec<FoundTool<'t>> {
    let server = view.query("server");
    let words = view.query("text").unwrap_or_default().to_lowercase();
    let tools = tools
        .iter()
        .filter(|tool| server.is_none_or(|it| tool.server == it));
    let fits = |(tool, entry): &FoundTool<'t>| {
        let about = format!("{} {}", tool.name, description(entry)).to_lowercase();
        words.split_whitespace().all(|word| about.contains(word))
    };
    tools
        .map(|tool| {
            let entry = entry(tool);
            (tool, entry)
        })
        .filter(fits)
        .collect()
}

/// The tool's list entry as received from its server.
pub(super) fn entry(tool: &ToolView) -> Value {
    serde_json::from_str(tool.entry.as_str()).unwrap_or_default()
}

pub(super) fn description(entry: &Value) -> &str {
    let description = entry.get("description").and_then(Value::as_str);
    description.unwrap_or_default()
}

/// The URL of the page for a view's tool.
pub(super) fn link(of: &ViewId, name: &str) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.append_pair("name", name);
    if let Some(of) = Option::<String>::from(of.clone()) {
        query.append_pair("view", &of);
    }
    format!("/ui/tool?{}", query.finish())
}

fn list(of: &ViewId, paged: &Paged<FoundTool<'_>>, view: &View<'_>) -> Markup {
    html! {
        @if paged.total == 0 {
            (parts::empty("No matching tools", html! { a href=(view.path) { "Show all" } }))
        } @else {
            ul .rows.card.after { @for found in &paged.rows { (row(of, found)) } }
            (PageLinks::of(paged, ("tool", "tools")).show(view))
        }
    }
}

fn row(of: &ViewId, (tool, entry): &FoundTool<'_>) -> Markup {
    let first = description(entry).lines().next().unwrap_or_default();
    html! {
        li .row {
            div .grow {
                p .title { a .mono href=(link(of, &tool.name)) { (text::line(&tool.name)) } }
                @if !first.is_empty() { p .why { (text::line(first)) } }
            }
            span .hint { (text::line(&tool.server)) }
            span .hint .tokens { (text::count(tool.tokens as u64)) " tokens" }
        }
    }
}
