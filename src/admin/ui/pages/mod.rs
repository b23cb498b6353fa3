//! Which page a path is, and what its forms do.

mod overview;
mod tree;

use maud::html;

use super::fields::Fields;
use super::page::{Outcome, Page, Section, View};
use super::{parts, text};
use crate::protocol::{ErrorKind, Failure};

fn segments<'p>(path: &'p str) -> Vec<&'p str> {
    let below = path.strip_prefix("/ui").unwrap_or_default();
    let below = below.strip_prefix('/').unwrap_or_default();
    match below {
        "" => Vec::new(),
        below => below.split('/').collect(),
    }
}

/// # Errors
///
/// Returns the failure that the page is to show.
pub(super) async fn show(view: &View<'_>) -> Result<Page, Failure> {
    match segments(view.path).as_slice() {
        [] => Ok(overview::page(view)),
        ["tree"] => Ok(tree::page(view)),
        _ => Err(no_such_page()),
    }
}

/// # Errors
///
/// Returns the failure that the page is to show.
pub(super) async fn act(view: &View<'_>, _form: &Fields) -> Result<Outcome, Failure> {
    match segments(view.path).as_slice() {
        _ => Err(no_such_page()),
    }
}

fn no_such_page() -> Failure {
    Failure::new(ErrorKind::NotFound, "there is no such page")
}

/// The page in the place of one that failed.
pub(super) fn failed(failure: &Failure) -> Page {
    let title = match failure.kind {
        ErrorKind::NotFound | ErrorKind::ServerNotFound | ErrorKind::SessionNotFound => "Not found",
        _ => "This did not work",
    };
    let page = Page::new(Section::None, title);
    page.fixed(html! {
        (parts::heading(title, None))
        div .card.message {
            p { (text::sentence(&failure.message)) }
            p { a href="/ui" { "Back to the overview" } }
        }
    })
}
