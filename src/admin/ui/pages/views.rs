//! `/ui/views`: endpoints with a subset of the servers or tools.

use maud::{Markup, html};

use super::tools::ViewTools;
use super::view::{access, connect};
use crate::admin::ui::page::{Page, Section, View};
use crate::admin::ui::{parts, text};
use crate::id::ViewId;

/// Maximum views on the page, since each catalog is merged separately.
const VIEWS_MAX: usize = 50;

const EXAMPLE: &str = "[views.reading]\nservers = [\"files\", \"git\"]\nallow = [\"*__read_*\"]";

pub(super) fn page(view: &View<'_>) -> Page {
    let words = view.query("text").unwrap_or_default().to_lowercase();
    let views = view.operator.state.catalog.views();
    let are_many = views.len() > VIEWS_MAX;
    let is_any = views.iter().any(|(id, _)| *id != ViewId::Default);
    let fits = |id: &ViewId| name(id).to_lowercase().contains(&words);
    let found: Vec<_> = views.into_iter().filter(|(id, _)| fits(id)).collect();
    let more = found.len().saturating_sub(VIEWS_MAX);
    let shown = found.into_iter().take(VIEWS_MAX);
    let shown: Vec<ViewTools> = shown.map(|found| ViewTools::of(view, found)).collect();
    Page::new(Section::Views, "Views").fixed(html! {
        (parts::heading("Views", None))
        @if are_many {
            form .filters method="get" action="/ui/views" {
                (parts::search("Search", view))
                div .submit { button type="submit" { "Search" } }
            }
        }
        @if shown.is_empty() {
            (parts::empty("No matching views", html! { a href="/ui/views" { "Show all" } }))
        } @else {
            ul .rows.card { @for view_tools in &shown { (row(view_tools, view)) } }
        }
        @if more > 0 { p .hint.after { (more) " more: search for them." } }
        @if is_any {
            p .hint.after {
                "Each server also has its own endpoint, with its original names: "
                (text::code(&format!("{}/server/NAME", view.address(&ViewId::Default))))
            }
        } @else {
            div .after { (none()) }
        }
        @if let Some(whole) = shown.iter().find(|view_tools| view_tools.view == ViewId::Default) {
            h2 { "Access to the whole endpoint" }
            div .card { (access(whole, view)) }
        }
    })
}

fn none() -> Markup {
    parts::empty(
        "No views yet",
        html! {
            "A view shows clients some of the servers, or some of their tools, at its own address. \
             Write one into the "
            a href="/ui/config" { "configuration" } ":"
            (text::block(EXAMPLE))
        },
    )
}

/// The display name of a view.
pub(super) fn name(id: &ViewId) -> String {
    Option::<String>::from(id.clone()).unwrap_or_else(|| "The whole endpoint".to_owned())
}

fn row(view_tools: &ViewTools, view: &View<'_>) -> Markup {
    let page = match &view_tools.view {
        ViewId::Named(name) => format!("/ui/views/{name}"),
        ViewId::Default | ViewId::Server(_) => "/ui/tools".to_owned(),
    };
    let servers: Vec<&str> = view_tools
        .settings
        .servers
        .iter()
        .map(|it| it.as_str())
        .collect();
    html! {
        li .row {
            div .grow {
                p .title {
                    a href=(page) { (text::line(&name(&view_tools.view))) }
                    span .badge.quiet { "expose: " (view_tools.settings.expose.name()) }
                }
                p .why { code id={ "address-" (page) } { (view.address(&view_tools.view)) } }
                p .why {
                    @if servers.is_empty() { "all servers" } @else { (text::line(&servers.join(", "))) }
                }
            }
            span .hint { (text::many(view_tools.tools.len() as u64, "tool", "tools")) }
            span .hint.tokens { (text::count(view_tools.listed_tokens() as u64)) " tokens" }
            button type="button" hidden data-script data-copy={ "address-" (page) } { "Copy" }
            @if let ViewId::Named(name) = &view_tools.view {
                a .button href={ "/ui/config?at=views." (name) } { "Edit" }
            }
            a .button href=(connect(&view_tools.view)) { "Connect" }
        }
    }
}
