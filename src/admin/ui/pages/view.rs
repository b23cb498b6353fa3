//! `/ui/views/NAME`: one view, its permissions, and its tools.

use maud::{Markup, html};

use super::tools::{ViewTools, searched, static_tools};
use crate::admin::ui::page::{Page, Section, View};
use crate::admin::ui::{parts, text};
use crate::auth::Effect;
use crate::catalog::Exposure;
use crate::id::ViewId;
use crate::protocol::{ErrorKind, Failure};

/// # Errors
///
/// Returns an error when no such view exists.
pub(super) fn page(view: &View<'_>, name: &str) -> Result<Page, Failure> {
    let mut views = view.operator.state.catalog.views().into_iter();
    let found = views.find(|(id, _)| matches!(id, ViewId::Named(known) if **known == *name));
    let view_tools = ViewTools::of(view, found.ok_or_else(|| unknown(name))?);
    let action =
        html! { a .button.primary href=(connect(&view_tools.view)) { "Connect a client" } };
    Ok(Page::new(Section::Views, name).fixed(html! {
        p .crumb { a href="/ui/views" { "Views" } }
        (parts::heading(name, Some(action)))
        (parts::snippet("address", &view.address(&view_tools.view)))
        div .card.after { (facts(&view_tools, view)) }
        h2 { "Access" }
        div .card { (access(&view_tools, view)) }
        h2 { "Its tools" }
        (searched(&view_tools, view))
    }))
}

fn unknown(name: &str) -> Failure {
    let name: String = name.chars().take(64).collect();
    Failure::new(ErrorKind::NotFound, format!("there is no view {name:?}"))
}

fn facts(view_tools: &ViewTools, view: &View<'_>) -> Markup {
    let settings = &view_tools.settings;
    let tokens = |tokens: usize| text::count(tokens as u64);
    html! {
        dl .facts {
            dt { "Servers" } dd { (servers(view_tools, view)) }
            dt { "Listed" } dd { (exposure(view_tools)) " (" (text::code("expose")) " is " (text::code(settings.expose.name())) ")" }
            dt { "Tools" }
            dd {
                (text::count(view_tools.tools.len() as u64)) ", about " (tokens(view_tools.tokens())) " tokens"
                @if view_tools.listed_tokens() != view_tools.tokens() {
                    "; the listed ones about " (tokens(view_tools.listed_tokens()))
                }
            }
            @for (label, globs) in [("Only tools like", &settings.allow), ("No tools like", &settings.deny)] {
                @if !globs.is_empty() { dt { (label) } dd { (text::code(&globs.join(", "))) } }
            }
            @if !settings.overrides.is_empty() {
                dt { "Overrides" }
                dd { (text::many(settings.overrides.len() as u64, "tool", "tools")) " with changed descriptions" }
            }
        }
    }
}

/// How the view's tools are exposed.
fn exposure(view_tools: &ViewTools) -> Markup {
    match view_tools.exposure() {
        Exposure::All => html! { "each of its tools" },
        few => html! { (static_tools(few)) ", by which its tools are found and called" },
    }
}

/// The servers of a view, each with its state.
fn servers(view_tools: &ViewTools, view: &View<'_>) -> Markup {
    let wanted = &view_tools.settings.servers;
    if wanted.is_empty() {
        return html! { "all of them, in the order of the configuration" };
    }
    let known = view.operator.status().servers;
    html! {
        @for name in wanted {
            p {
                @match known.iter().find(|it| it.name == name.as_str()) {
                    Some(server) => {
                        a href=(format!("/ui/servers/{name}")) { (text::line(name.as_str())) } " "
                        (parts::state(server))
                    }
                    None => { (text::line(name.as_str())) " " (parts::badge("warn", "not configured")) }
                }
            }
        }
    }
}

/// Permissions on a view's tools according to the policies.
pub(super) fn access(view_tools: &ViewTools, view: &View<'_>) -> Markup {
    let Some(access) = view.operator.state.view_access(&view_tools.view) else {
        return html! {
            p .row {
                "Every client that reaches the gateway: there are no policies. A view says what is shown, not who \
                 may do what."
            }
        };
    };
    let of_all = |tools: usize| format!("{} of {} tools", tools, view_tools.tools.len());
    html! {
        dl .facts {
            dt { "Policies" }
            dd {
                @if access.policies.is_empty() { "none" }
                @for name in &access.policies { (text::code(name)) " " }
                @match access.default {
                    Effect::Allow => "(allowed unless a policy denies it)",
                    Effect::Deny => "(denied unless a policy allows it)",
                }
            }
            @for (key, tools) in &access.by_key { dt { "Key " (text::line(key)) } dd { (of_all(*tools)) } }
            @if access.more_keys > 0 { dt { "Other keys" } dd { (access.more_keys) " (not counted here)" } }
            dt { "Anonymous" } dd { (of_all(access.unnamed)) ", where clients do not authenticate" }
            dt { "With a token" } dd { "decided by the policies from its subject and scopes" }
        }
    }
}

/// The URL of the page on connecting to a view.
pub(super) fn connect(of: &ViewId) -> String {
    match Option::<String>::from(of.clone()) {
        Some(name) => format!("/ui/connect?view={name}"),
        None => "/ui/connect".to_owned(),
    }
}
