//! Building blocks that several pages share. Pure.

use maud::{Markup, html};

use super::fields::{FORM_TOKEN, Fields};
use super::page::View;
use super::paging::{AFTER, ROWS, link};
use super::text;
use crate::admin::render::{Trouble, attempts};
use crate::admin::status::ServerStatus;
use crate::id::ServerName;
use crate::supervision::ChildView;

/// A page heading, with actions next to it.
pub(super) fn heading(title: &str, actions: Option<Markup>) -> Markup {
    html! {
        header .heading {
            h1 { (text::line(title)) }
            @if let Some(actions) = actions { div .actions { (actions) } }
        }
    }
}

/// One of the symbols in `assets/icons.svg`; the text beside it names it.
pub(super) fn icon(name: &str) -> Markup {
    html! { svg .icon aria-hidden="true" { use href={ "#icon-" (name) } {} } }
}

/// Links to the parts of a page, or to pages that belong together: path and name.
pub(super) fn tabs(label: &str, tabs: &[(&str, &str)], current: &str) -> Markup {
    html! {
        div .tabs role="navigation" aria-label=(label) {
            @for (path, name) in tabs {
                a href=(path) aria-current=[(*path == current).then_some("page")] { (name) }
            }
        }
    }
}

/// Actions behind a button. The id must be unique within the page.
pub(super) fn menu(id: &str, label: &str, actions: Markup) -> Markup {
    html! {
        button .quiet.more type="button" popovertarget=(id) aria-label=(label) { (icon("menu")) }
        div .menu id=(id) popover { (actions) }
    }
}

/// The query parameter with the column that a table is sorted by; `-` before it reverses the order.
pub(super) const SORT: &str = "sort";

/// The head of a column that sorts the table: first in this order, then in the opposite one, then
/// not at all.
pub(super) fn sorted(view: &View<'_>, first: &str, label: &str, class: &str) -> Markup {
    let current = view.query(SORT).unwrap_or_default();
    let second = match first.strip_prefix('-') {
        Some(column) => column.to_owned(),
        None => format!("-{first}"),
    };
    let next = match current {
        it if it == first => Some(&*second),
        it if it == second => None,
        _ => Some(first),
    };
    let is_current = current == first || current == second;
    let (order, arrow) = match (is_current, current.starts_with('-')) {
        (false, _) => (None, ""),
        (true, false) => (Some("ascending"), " ↑"),
        (true, true) => (Some("descending"), " ↓"),
    };
    let query = view.query.iter().filter(|(name, _)| name != AFTER);
    let query: Fields = query.cloned().collect();
    html! {
        th class=(class) scope="col" aria-sort=[order] {
            a href=(link(view.path, &query, SORT, next)) { (label) (arrow) }
        }
    }
}

/// A switch that submits a form. `name` is the name of the item that it turns on or off.
pub(super) fn switch(view: &View<'_>, to: &str, name: &str, is_on: bool) -> Markup {
    html! {
        form method="post" action=(to) {
            (form_token(view))
            button .switch type="submit" role="switch" aria-checked=(is_on) aria-label=(name) {}
        }
    }
}

/// The style for a server's state.
pub(super) fn tone(server: &ServerStatus) -> &'static str {
    match Trouble::of(server) {
        Trouble::Up => "good",
        Trouble::Off | Trouble::Idle => "quiet",
        Trouble::Stopped | Trouble::Moving | Trouble::Refusing => "warn",
        Trouble::Down | Trouble::Misconfigured => "bad",
    }
}

/// Whether a server is in its intended state.
pub(super) fn is_well(server: &ServerStatus) -> bool {
    Trouble::of(server).is_well()
}

/// The state of a server as one coloured word.
pub(super) fn state(server: &ServerStatus) -> Markup {
    let is_failing = server.shared().is_some_and(|it| it.failing_ms.is_some());
    let word = match Trouble::of(server) {
        Trouble::Refusing => "refusing calls",
        Trouble::Down | Trouble::Moving if needs_login(server) => "needs login",
        Trouble::Down | Trouble::Moving if is_failing => "failing",
        _ => &server.state,
    };
    badge(tone(server), word)
}

pub(super) fn badge(tone: &str, word: &str) -> Markup {
    html! { span .badge.(tone) { (text::line(word)) } }
}

/// Time that a child has been in its state, or since its first failure.
pub(super) fn since(child: &ChildView) -> String {
    match child.failing_ms {
        Some(time) => format!("{}, {}", text::age(time), attempts(child)),
        None => text::age(child.phase_ms),
    }
}

/// A button with its own form, and an optional confirmation.
pub(super) struct Button<'b> {
    pub(super) to: &'b str,
    pub(super) label: &'b str,
    pub(super) style: &'b str,
    pub(super) question: Option<&'b str>,
}

impl<'b> Button<'b> {
    pub(super) fn new(to: &'b str, label: &'b str) -> Self {
        Self {
            to,
            label,
            style: "",
            question: None,
        }
    }

    pub(super) fn primary(self) -> Self {
        Self {
            style: "primary",
            ..self
        }
    }

    pub(super) fn danger(self) -> Self {
        Self {
            style: "danger",
            ..self
        }
    }

    pub(super) fn asks(self, question: &'b str) -> Self {
        Self {
            question: Some(question),
            ..self
        }
    }

    pub(super) fn show(&self, view: &View<'_>) -> Markup {
        html! {
            form method="post" action=(self.to) data-question=[self.question] {
                (form_token(view))
                button .(self.style) type="submit" { (self.label) }
            }
        }
    }
}

/// The hidden field that every form must include.
pub(super) fn form_token(view: &View<'_>) -> Markup {
    html! { input type="hidden" name=(FORM_TOKEN) value=(view.form_token); }
}

/// Whether an operator has to sign in before the server starts.
pub(super) fn needs_login(server: &ServerStatus) -> bool {
    let connection = server.connection.as_ref();
    connection.is_some_and(|it| it.needs_login)
}

/// Buttons that may help a server in its current state.
pub(super) fn remedies(server: &ServerStatus, view: &View<'_>) -> Markup {
    let to = |verb: &str| format!("/ui/servers/{}/{verb}", server.name);
    html! {
        @match server.state.as_str() {
            "misconfigured" => { a .button href=(to("edit")) { "Edit" } }
            "disabled" => {}
            "stopped" => { (Button::new(&to("start"), "Start").primary().show(view)) }
            _ if needs_login(server) => { (Button::new(&to("login"), "Sign in").primary().show(view)) }
            _ if server.open_breakers().next().is_some() => {
                (Button::new(&to("reset"), "Resume traffic").primary().show(view))
            }
            "up" | "idle" | "stopping" => {}
            _ => { (Button::new(&to("restart"), "Restart now").show(view)) }
        }
    }
}

/// Text to copy. The id must be unique within the page.
pub(super) fn snippet(id: &str, content: &str) -> Markup {
    html! {
        div .snippet {
            pre tabindex="0" { code id=(id) { (text::whole(content)) } }
            button type="button" hidden data-script data-copy=(id) { "Copy" }
        }
    }
}

/// A text filter.
pub(super) fn search(label: &str, view: &View<'_>) -> Markup {
    html! {
        div {
            label for="text" { (label) }
            input #text name="text" type="search" value=[view.query("text")] maxlength="256";
        }
    }
}

/// The end of a filter form: a text field and the submit button.
pub(super) fn text_filter(view: &View<'_>) -> Markup {
    html! {
        (search("Text", view))
        div .submit { button type="submit" { "Filter" } }
    }
}

/// A filter with a choice of values.
pub(super) fn choice(name: &str, label: &str, values: &[&str], view: &View<'_>) -> Markup {
    let chosen = view.query(name);
    html! {
        div {
            label for=(name) { (label) }
            select id=(name) name=(name) {
                option value="" { "All" }
                @for value in values {
                    option value=(value) selected[chosen == Some(value)] { (value.replace('_', " ")) }
                }
            }
        }
    }
}

/// A filter by server, with all servers to choose from.
pub(super) fn server_filter(view: &View<'_>) -> Markup {
    let names = view.operator.server_names();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    server_filter_among(&names, view)
}

/// A choice among these servers, or a text field if there are many.
pub(super) fn server_filter_among(names: &[&str], view: &View<'_>) -> Markup {
    if names.len() <= ROWS {
        return choice("server", "Server", names, view);
    }
    html! {
        div {
            label for="server" { "Server" }
            input #server name="server" type="search" value=[view.query("server")]
                maxlength=(ServerName::LENGTH_MAX) placeholder="its name";
        }
    }
}

/// A placeholder for a list that is still empty.
pub(super) fn empty(title: &str, hint: Markup) -> Markup {
    html! {
        div .empty {
            p .strong { (title) }
            p { (hint) }
        }
    }
}

/// A number with a label.
pub(super) fn figure(name: &str, number: &str, remark: &str) -> Markup {
    html! {
        div .figure {
            dt { (name) }
            dd { (number) @if !remark.is_empty() { small { (remark) } } }
        }
    }
}
