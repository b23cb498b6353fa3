//! `/ui/tools`: the tools that clients see, and their token costs.

use std::collections::BTreeSet;
use std::time::Duration;

use maud::{Markup, html};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::pins::unapproved;
use crate::admin::config_order::EntryOrder;
use crate::admin::status::ToolView;
use crate::admin::ui::page::{FormOutcome, Page, Section, View};
use crate::admin::ui::paging::{self, AFTER, PageLinks, Paged};
use crate::admin::ui::{parts, text};
use crate::catalog::{Exposure, ItemKind, ViewSettings};
use crate::id::ViewId;
use crate::protocol::Failure;

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

/// The lists of the page: the value of `kind` in the query, and the name.
const LISTS: [(ItemKind, &str); 5] = [
    (ItemKind::Tools, "Tools"),
    (ItemKind::Prompts, "Prompts"),
    (ItemKind::Resources, "Resources"),
    (ItemKind::ResourceTemplates, "Resource templates"),
    (ItemKind::Skills, "Skills"),
];

/// How long a changed list is waited for.
const CHANGE_WAIT: Duration = Duration::from_secs(1);

fn tabs(kind: ItemKind) -> Markup {
    let paths = LISTS.map(|(kind, _)| format!("/ui/tools?kind={}", kind.member()));
    let tabs: Vec<(&str, &str)> = paths
        .iter()
        .map(String::as_str)
        .zip(LISTS.map(|it| it.1))
        .collect();
    parts::tabs("Lists", &tabs, &format!("/ui/tools?kind={}", kind.member()))
}

/// The kind of items in the query.
pub(super) fn queried_kind(view: &View<'_>) -> ItemKind {
    let wanted = view.query("kind").unwrap_or_default();
    let found = ItemKind::ALL.into_iter().find(|it| it.member() == wanted);
    found.unwrap_or(ItemKind::Tools)
}

pub(super) fn page(view: &View<'_>) -> Page {
    let kind = queried_kind(view);
    if kind != ItemKind::Tools {
        return Page::new(Section::Tools, "Tools").fixed(html! {
            (parts::heading("Tools", None))
            (tabs(kind))
            (items(kind, view))
        });
    }
    let mut views = view.operator.state.catalog.views().into_iter();
    let whole = views.find(|(id, _)| *id == ViewId::Default);
    let view_tools = ViewTools::of(view, whole.unwrap_or_default());
    let unapproved = unapproved(&view.operator.pins()).len();
    Page::new(Section::Tools, "Tools").fixed(html! {
        (parts::heading("Tools", None))
        (tabs(kind))
        @if unapproved > 0 {
            p .notice.warn {
                (text::many(unapproved as u64, "definition is", "definitions are"))
                " not approved. " a href="/ui/pins" { "See what changed" }
            }
        }
        (searched(&view_tools, view))
    })
}

/// The prompts or resources that match the page's search.
fn items(kind: ItemKind, view: &View<'_>) -> Markup {
    let all = view.operator.state.items(kind);
    let paged = Paged::of(
        found(&all, true, view),
        |(item, ..)| place(item),
        view.query(AFTER),
    );
    html! {
        @if all.is_empty() {
            (parts::empty("None", html! { "No server lists any." }))
        } @else {
            form .filters method="get" action=(view.path) {
                input type="hidden" name="kind" value=(kind.member());
                (parts::text_filter(view))
            }
            (list((&ViewId::Default, kind), &paged, view))
        }
    }
}

/// The key of an item in a list: those of a server stand together.
fn place(tool: &ToolView) -> String {
    format!("{} {}", tool.server, tool.name)
}

/// Shows a tool to clients, or hides it from them.
///
/// # Errors
///
/// Returns the reason why the configuration stays as it is.
pub(super) async fn switch(view: &View<'_>) -> Result<FormOutcome, Failure> {
    let text = |name: &str| view.query(name).unwrap_or_default().to_owned();
    let (server, tool, is_enabled) = (text("server"), text("tool"), text("on") == "yes");
    let order = EntryOrder::SetTool {
        server: server.clone(),
        tool: tool.clone(),
        is_enabled,
    };
    view.operator.config_orders.ask(order, None).await?;
    let state = &view.operator.state;
    let changed = async {
        while state.shows_tool(&server, &tool) != is_enabled {
            sleep(CHANGE_WAIT / 50).await;
        }
    };
    // A server that is down lists its tools later.
    let _ = timeout(CHANGE_WAIT, changed).await;
    let words = if is_enabled {
        "shown to"
    } else {
        "hidden from"
    };
    Ok(FormOutcome::Done {
        to: view.from.clone(),
        message: format!("`{tool}` of {server} is {words} all clients"),
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
    let mut found = found(&view_tools.tools, true, view);
    let (count, tokens) = (
        found.len(),
        found.iter().map(|(tool, ..)| tool.tokens).sum::<usize>(),
    );
    let hidden = match view_tools.view {
        ViewId::Default => view.operator.state.hidden_tools(),
        _ => Vec::new(),
    };
    found.extend(self::found(&hidden, false, view));
    let paged = Paged::of(found, |(tool, ..)| place(tool), view.query(AFTER));
    html! {
        form .filters method="get" action=(view.path) data-auto {
            (parts::search("Search", view))
            (parts::server_filter_among(&servers, view))
            div .submit { button type="submit" { "Search" } }
        }
        p .hint {
            (text::many(count as u64, "tool", "tools")) ", about "
            (text::count(tokens as u64)) " tokens in the list of a client"
            @if view_tools.exposure() != Exposure::All {
                " that lists them all. With " (static_tools(view_tools.exposure())) " instead, it reads about "
                (text::count(view_tools.listed_tokens() as u64)) " tokens"
            }
        }
        (list((&view_tools.view, ItemKind::Tools), &paged, view))
    }
}

/// The tools of one server.
pub(super) fn of_server(view: &View<'_>, server: &str) -> Markup {
    let state = &view.operator.state;
    let (shown, hidden) = (state.tools(&ViewId::Default), state.hidden_tools());
    let shown = shown.iter().map(|tool| (tool, true));
    let all = shown.chain(hidden.iter().map(|tool| (tool, false)));
    let own = all.filter(|(tool, _)| tool.server == server);
    let own: Vec<FoundTool<'_>> = own
        .map(|(tool, is_on)| (tool, entry(tool), is_on))
        .collect();
    if own.is_empty() {
        return parts::empty("No tools", html! { "The server has not listed any." });
    }
    let paged = Paged::of(own, |(tool, ..)| tool.name.clone(), view.query(AFTER));
    list((&ViewId::Default, ItemKind::Tools), &paged, view)
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

/// A tool, its parsed entry, and whether clients see it.
type FoundTool<'t> = (&'t ToolView, Value, bool);

/// The tools that match the search, all of them shown to clients or hidden.
fn found<'t>(tools: &'t [ToolView], is_on: bool, view: &View<'_>) -> Vec<FoundTool<'t>> {
    let server = view.query("server");
    let words = view.query("text").unwrap_or_default().to_lowercase();
    let tools = tools
        .iter()
        .filter(|tool| server.is_none_or(|it| tool.server == it));
    let fits = |(tool, entry, _): &FoundTool<'t>| {
        let about = format!("{} {}", tool.name, description(entry)).to_lowercase();
        words.split_whitespace().all(|word| about.contains(word))
    };
    tools
        .map(|tool| {
            let entry = entry(tool);
            (tool, entry, is_on)
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
    item_link((of, ItemKind::Tools), name)
}

/// The URL of the page for a tool, prompt or resource.
pub(super) fn item_link((of, kind): (&ViewId, ItemKind), name: &str) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.append_pair("name", name);
    if let Some(of) = Option::<String>::from(of.clone()) {
        query.append_pair("view", &of);
    }
    if kind != ItemKind::Tools {
        query.append_pair("kind", kind.member());
    }
    format!("/ui/tool?{}", query.finish())
}

fn list(of: (&ViewId, ItemKind), paged: &Paged<FoundTool<'_>>, view: &View<'_>) -> Markup {
    let servers = paged
        .rows
        .chunk_by(|(one, ..), (other, ..)| one.server == other.server);
    html! {
        @if paged.total == 0 {
            (parts::empty("Nothing matches", html! { a href=(view.path) { "Show all" } }))
        } @else {
            @for tools in servers {
                @if let Some((first, ..)) = tools.first() {
                    h2 { a href=(format!("/ui/servers/{}", first.server)) { (text::line(&first.server)) } }
                }
                ul .rows.card { @for found in tools { (row(of, found)) } }
            }
            (PageLinks::of(paged, ("item", "items")).show(view))
        }
    }
}

fn row((of, kind): (&ViewId, ItemKind), (tool, entry, is_on): &FoundTool<'_>) -> Markup {
    let first = description(entry).lines().next().unwrap_or_default();
    let is_tool = kind == ItemKind::Tools;
    html! {
        li .row {
            div .grow {
                p .title {
                    @if *is_on { a .mono href=(item_link((of, kind), &tool.name)) { (text::line(&tool.name)) } }
                    @else { span .mono.hint { (text::line(&tool.name)) } }
                    @if is_tool { (effects(entry)) }
                }
                @if !first.is_empty() { p .why { (text::line(first)) } }
            }
            span .hint.tokens { (text::count(tool.tokens as u64)) " tokens" }
            @if is_tool && *of == ViewId::Default {
                (parts::switch(&switch_path(tool, *is_on), &format!("{} is shown to clients", tool.name), *is_on))
            }
        }
    }
}

fn switch_path(tool: &ToolView, is_on: bool) -> String {
    let fields = [("server", &tool.server), ("tool", &tool.native_name)];
    let fields = fields.map(|(name, value)| (name.to_owned(), value.clone()));
    let on = if is_on { "no" } else { "yes" };
    paging::link("/ui/tools", &fields.into(), "on", Some(on))
}

/// Badges for the effects that a tool declares.
fn effects(entry: &Value) -> Markup {
    let says = |hint: &str| {
        entry
            .get("annotations")
            .and_then(|it| it.get(hint)?.as_bool())
    };
    html! {
        @if says("readOnlyHint") == Some(true) { (parts::badge("good", "read-only")) }
        @else if says("destructiveHint") == Some(true) { (parts::badge("bad", "destructive")) }
    }
}
