//! The search for a server in the registry, on the page that adds one.

use futures_util::future::OptionFuture;
use maud::{Markup, html};

use crate::admin::ui::page::View;
use crate::admin::ui::{parts, text};

/// The form of the search, and what it found.
pub(super) async fn search(view: &View<'_>) -> Markup {
    let word = view.query("text").map(str::to_owned);
    let found = OptionFuture::from(word.map(view.operator.search)).await;
    html! {
        form .filters method="get" action="/ui/servers/new" {
            (parts::search("Search the registry", view))
            div .submit { button type="submit" { "Search" } }
        }
        @match found {
            None => {}
            Some(Err(why)) => { p .notice.bad role="alert" { (text::full_sentence(&why)) } }
            Some(Ok(found)) => {
                @if found.is_empty() { p .notice { "The registry has no server with such a name." } }
                ul .rows.card {
                    @for (name, about) in &found {
                        li .row {
                            div .grow { p { (text::code(name)) } p .why { (text::line(about)) } }
                            form method="post" action="/ui/servers/paste" {
                                (parts::form_token(view))
                                input type="hidden" name="paste" value=(name);
                                button type="submit" aria-label={ "Fill in " (text::plain(name)) } { "Fill in" }
                            }
                        }
                    }
                }
            }
        }
    }
}
