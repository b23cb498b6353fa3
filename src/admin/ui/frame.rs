//! The frame around each page: head, navigation and connection status. Pure.

use maud::{DOCTYPE, Markup, html};

use super::assets::{ASSETS, ICONS, MARK};
use super::page::{Page, Section, View};
use super::{paging, parts, text};
use crate::protocol::Failure;
use crate::telemetry::one_line;

/// An entry of the navigation: its section, icon, path and name.
type Entry = (Section, &'static str, &'static str, &'static str);

/// The entries under their headings.
const GROUPS: [(&str, &[Entry]); 4] = [
    ("", &[(Section::Overview, "overview", "/ui", "Overview")]),
    (
        "Serve",
        &[
            (Section::Servers, "servers", "/ui/servers", "Servers"),
            (Section::Tools, "tools", "/ui/tools", "Tools"),
            (Section::Views, "views", "/ui/views", "Views"),
        ],
    ),
    (
        "Use",
        &[
            (Section::Connect, "connect", "/ui/connect", "Connect"),
            (Section::Sessions, "sessions", "/ui/sessions", "Sessions"),
            (Section::Calls, "calls", "/ui/calls", "Calls"),
        ],
    ),
    (
        "Operate",
        &[
            (Section::Keys, "keys", "/ui/keys", "API keys"),
            (Section::Policies, "policies", "/ui/policies", "Policies"),
            (Section::Logs, "logs", "/ui/logs", "Logs"),
            (Section::Config, "config", "/ui/config", "Configuration"),
        ],
    ),
];

/// All pages of the navigation, as path and name.
pub(super) fn pages() -> impl Iterator<Item = (&'static str, &'static str)> {
    let entries = GROUPS.iter().flat_map(|(_, entries)| *entries);
    entries.map(|(_, _, path, name)| (*path, *name))
}

fn document(title: &str, body: Markup) -> Markup {
    let title = one_line(title);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · mcpvisor" }
                link rel="icon" type="image/svg+xml" href=(ASSETS.logo);
                link rel="stylesheet" href=(ASSETS.style);
                script src=(ASSETS.script) defer {}
            }
            (body)
        }
    }
}

/// A page with the navigation. `message` is the result of the action that led here.
pub(super) fn whole(view: &View<'_>, page: Page, message: Option<Result<&str, &str>>) -> Markup {
    let Page {
        title,
        section,
        body,
        live,
    } = page;
    let shown = paging::link(view.path, &view.query, "", None);
    let (done, failed) = (message.and_then(Result::ok), message.and_then(Result::err));
    // The address of a refused action is none to reload.
    let at = failed.map(|_| shown.clone());
    let live = (!live.is_empty()).then_some(shown);
    document(
        &title,
        html! {
            body data-live=[live] data-at=[at] data-release=(ASSETS.release) data-plots=(ASSETS.plots) {
                a .skip href="#main" { "Skip to content" }
                (ICONS)
                div .frame {
                    (navigation(view, section))
                    main #main tabindex="-1" {
                        @if let Some(failed) = failed {
                            p .notice.bad role="alert" { (text::full_sentence(failed)) }
                        }
                        (body)
                    }
                }
                form id=(parts::ACTIONS) method="post" { (parts::form_token(view)) }
                div #toasts {
                    p #connection .toast role="status" hidden {}
                    @if let Some(done) = done {
                        p .toast.done role="status" { (parts::icon("done")) span { (text::full_sentence(done)) } }
                    }
                }
            }
        },
    )
}

fn navigation(view: &View<'_>, section: Section) -> Markup {
    html! {
        nav aria-label="Pages" {
            a .mark href="/ui" { (MARK) "mcpvisor" }
            a .find href="/ui/search" aria-keyshortcuts="Control+K Meta+K" {
                (parts::icon("search")) span { "Search" } kbd hidden data-script { "Ctrl K" }
            }
            button .quiet.pages type="button" popovertarget="pages" { (parts::icon("rows")) "Menu" }
            div #pages popover {
                @for (heading, entries) in GROUPS {
                    @if !heading.is_empty() { p .group { (heading) } }
                    ul aria-label=[(!heading.is_empty()).then_some(heading)] {
                        @for (entry, icon, path, name) in entries {
                            li {
                                a href=(path) aria-current=[(*entry == section).then_some("page")] {
                                    (parts::icon(icon)) (name)
                                }
                            }
                        }
                    }
                }
                form .signout method="post" action="/ui/logout" {
                    (parts::form_token(view))
                    button .quiet type="submit" { (parts::icon("out")) "Sign out" }
                }
            }
        }
    }
}

/// A page without navigation, for visitors who have not signed in to the dashboard.
pub(in crate::admin) fn bare(title: &str, body: Markup) -> Markup {
    document(
        title,
        html! {
            body { main #main .bare { (body) } }
        },
    )
}

pub(super) fn failure_page(failure: &Failure) -> Markup {
    bare(
        "Something went wrong",
        html! {
            div .card.message {
                h1 { "Something went wrong" }
                p { (text::full_sentence(&failure.message)) }
                p { a href="/ui" { "Back to the dashboard" } }
            }
        },
    )
}
