//! The frame around each page: head, navigation and connection status. Pure.

use maud::{DOCTYPE, Markup, html};

use super::assets::ASSETS;
use super::page::{Page, Section, View};
use super::{parts, text};
use crate::protocol::Failure;
use crate::telemetry::one_line;

const SECTIONS: [(Section, &str, &str); 10] = [
    (Section::Overview, "/ui", "Overview"),
    (Section::Servers, "/ui/servers", "Servers"),
    (Section::Tree, "/ui/tree", "Tree"),
    (Section::Sessions, "/ui/sessions", "Sessions"),
    (Section::Calls, "/ui/calls", "Calls"),
    (Section::Tools, "/ui/tools", "Tools"),
    (Section::Views, "/ui/views", "Views"),
    (Section::Logs, "/ui/logs", "Logs"),
    (Section::Config, "/ui/config", "Configuration"),
    (Section::Connect, "/ui/connect", "Connect"),
];

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
                link rel="icon" href="data:,";
                link rel="stylesheet" href=(ASSETS.style);
                script src=(ASSETS.script) defer {}
            }
            (body)
        }
    }
}

/// A page with the navigation. `message` is the result of the form that led here.
pub(super) fn whole(view: &View<'_>, page: Page, message: Option<&str>) -> Markup {
    let Page {
        title,
        section,
        body,
        live,
    } = page;
    let query: Vec<String> = view
        .query
        .iter()
        .map(|(name, value)| {
            let mut pair = url::form_urlencoded::Serializer::new(String::new());
            pair.append_pair(name, value).finish()
        })
        .collect();
    let shown = match query.is_empty() {
        true => view.path.to_owned(),
        false => format!("{}?{}", view.path, query.join("&")),
    };
    let live = (!live.is_empty()).then_some(shown);
    document(
        &title,
        html! {
            body data-live=[live] data-release=(ASSETS.release) {
                a .skip href="#main" { "Skip to content" }
                div .frame {
                    nav aria-label="Pages" {
                        a .mark href="/ui" { "mcpvisor" }
                        ul {
                            @for (entry, path, name) in SECTIONS {
                                li {
                                    a href=(path) aria-current=[(entry == section).then_some("page")] {
                                        (name)
                                    }
                                }
                            }
                        }
                        form .signout method="post" action="/ui/logout" {
                            (parts::form_token(view))
                            button .quiet type="submit" { "Sign out" }
                        }
                    }
                    main #main tabindex="-1" {
                        p #connection role="status" hidden {}
                        @if let Some(message) = message {
                            p .notice.done role="status" { (text::sentence(message)) }
                        }
                        (body)
                    }
                }
            }
        },
    )
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
