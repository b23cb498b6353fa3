//! Which page a path is, and what its forms do.

mod arguments;
mod call;
mod calls;
mod config;
mod confirm;
mod connect;
mod logs;
mod overview;
mod pins;
mod server;
mod server_form;
mod server_life;
mod server_limits;
mod server_rows;
mod servers;
mod session;
mod sessions;
mod tool;
mod tools;
mod tree;
mod trial;
mod view;
mod views;

use maud::html;

use super::fields::Fields;
use super::page::{Outcome, Page, Section, View};
use super::{parts, text};
use crate::protocol::{ErrorKind, Failure};

fn segments(path: &str) -> Vec<&str> {
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
        ["servers"] => Ok(servers::page(view)),
        ["servers", "new"] => Ok(server_form::new_page(view)),
        ["servers", name] => server::page(view, name).await,
        ["servers", name, "edit"] => server_form::edit_page(view, name).await,
        ["tree"] => Ok(tree::page(view)),
        ["sessions"] => Ok(sessions::page(view).await),
        ["sessions", handle] => session::page(view, handle).await,
        ["calls"] => calls::page(view).await,
        ["calls", id] => call::page(view, id).await,
        ["tools"] => Ok(tools::page(view)),
        ["tool"] => tool::page(view),
        ["pins"] => Ok(pins::page(view)),
        ["logs"] => logs::page(view),
        ["config"] => Ok(config::page(view).await),
        ["views"] => Ok(views::page(view)),
        ["views", name] => view::page(view, name),
        ["connect"] => connect::page(view),
        _ => Err(no_such_page()),
    }
}

/// # Errors
///
/// Returns the failure that the page is to show.
pub(super) async fn act(view: &View<'_>, form: &Fields) -> Result<Outcome, Failure> {
    match segments(view.path).as_slice() {
        ["servers", "new"] => server_form::create(view, form).await,
        ["servers", name, "edit"] => server_form::update(view, name, form).await,
        ["servers", name, verb] => server::act(view, name, verb, form).await,
        ["sessions", handle, "end"] => sessions::end(view, handle, form).await,
        ["config", "plan"] => config::plan(view, form).await,
        ["config", "apply"] => config::apply(view, form).await,
        ["calls", id, "replay"] => call::replay(view, id).await,
        ["tool"] => tool::act(view, form).await,
        ["pins"] => pins::approve(view, form).await,
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
            p { (text::full_sentence(&failure.message)) }
            p { a href="/ui" { "Back to the overview" } }
        }
    })
}
