//! Dispatches paths to pages, and submitted forms to actions.

mod argument_fields;
mod argument_lists;
mod arguments;
mod call;
mod calls;
mod config;
mod confirm;
mod connect;
mod keys;
mod logs;
mod overview;
mod pins;
mod playground;
mod policies;
mod registry;
mod search;
mod server;
mod server_form;
mod server_life;
mod server_limits;
mod server_rows;
mod servers;
mod session;
mod sessions;
mod shown_server;
mod tool;
mod tools;
mod tree;
mod view;
mod views;

use maud::html;

use super::fields::Fields;
use super::page::{FormOutcome, Page, Section, View};
use super::{parts, text};
use crate::protocol::{ErrorKind, Failure};

/// Segments of a path below `/ui`; no page has more than three.
fn segments(path: &str) -> [Option<&str>; 4] {
    let below = path.strip_prefix("/ui").unwrap_or_default();
    let below = below.strip_prefix('/').unwrap_or_default();
    let mut parts = below.split('/').filter(|_| !below.is_empty());
    std::array::from_fn(|_| parts.next())
}

/// # Errors
///
/// Returns the failure to show as a page.
pub(super) async fn show(view: &View<'_>) -> Result<Page, Failure> {
    match segments(view.path) {
        [None, ..] => Ok(overview::page(view).await),
        [Some(page), None, ..] => match page {
            "servers" => Ok(servers::page(view).await),
            "tree" => Ok(tree::page(view)),
            "sessions" => Ok(sessions::page(view).await),
            "calls" => calls::page(view).await,
            "tools" => Ok(tools::page(view)),
            "tool" => tool::page(view),
            "pins" => Ok(pins::page(view)),
            "logs" => logs::page(view),
            "config" => Ok(config::page(view).await),
            "views" => Ok(views::page(view)),
            "connect" => connect::page(view).await,
            "keys" => Ok(keys::page(view)),
            "policies" => Ok(policies::page(view)),
            "search" => Ok(search::page(view).await),
            _ => Err(no_such_page()),
        },
        [Some("servers"), Some("new"), None, _] => Ok(server_form::new_page(view).await),
        [Some("servers"), Some(name), None, _] => server::page(view, name).await,
        [Some("servers"), Some(name), Some("edit"), None] => {
            server_form::edit_page(view, name).await
        }
        [Some("sessions"), Some(handle), None, _] => session::page(view, handle).await,
        [Some("calls"), Some(id), None, _] => call::page(view, id).await,
        [Some("views"), Some(name), None, _] => view::page(view, name),
        _ => Err(no_such_page()),
    }
}

/// # Errors
///
/// Returns the failure to show as a page.
pub(super) async fn act(view: &View<'_>, form: &Fields) -> Result<FormOutcome, Failure> {
    let [first, second, third, None] = segments(view.path) else {
        return Err(no_such_page());
    };
    match (first.unwrap_or_default(), second, third) {
        ("servers", Some("new"), None) => server_form::create(view, form).await,
        ("servers", Some("paste"), None) => server_form::paste(view, form).await,
        ("servers", Some("test"), None) => Ok(server_form::test(view, None, form).await),
        ("servers", Some(name), Some("test")) => {
            Ok(server_form::test(view, Some(name), form).await)
        }
        ("servers", Some(name), Some("edit")) => server_form::update(view, name, form).await,
        ("servers", Some(name), Some(verb)) => server::act(view, name, verb, form).await,
        ("sessions", Some(handle), Some("end")) => sessions::end(view, handle, form).await,
        ("config", Some("plan"), None) => config::plan(view, form).await,
        ("config", Some("apply"), None) => config::apply(view, form).await,
        ("calls", Some(id), Some("replay")) => call::replay(view, id, form).await,
        ("connect", Some(client), Some(verb)) => connect::act(view, (client, verb)).await,
        ("tools", None, None) => tools::switch(view).await,
        ("keys", None, None) => keys::create(view, form).await,
        ("keys", Some(name), Some(verb)) => keys::change(view, (name, verb), form).await,
        ("tool", None, None) => tool::act(view, form).await,
        ("notices", Some(id), Some("dismiss")) => overview::dismiss(view, id).await,
        ("pins", None, None) => pins::approve(view, form).await,
        _ => Err(no_such_page()),
    }
}

fn no_such_page() -> Failure {
    Failure::new(ErrorKind::NotFound, "page not found")
}

/// The page for a failed request.
pub(super) fn failed(failure: &Failure) -> Page {
    let title = match failure.kind {
        ErrorKind::NotFound | ErrorKind::ServerNotFound | ErrorKind::SessionNotFound => "Not found",
        _ => "Something went wrong",
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
