//! Building blocks that several pages share. Pure.

use maud::{Markup, html};

use super::fields::{FORM_TOKEN, Fields};
use super::page::View;
use super::paging::{AFTER, ROWS, link};
use super::text;
use crate::admin::render::{Trouble, attempts};
use crate::admin::status::ServerStatus;
use crate::id::ServerName;
use crate::protocol::{ErrorKind, Failure};
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
fn sorted(view: &View<'_>, first: &str, label: &str, class: &str) -> Markup {
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

/// A column of a table: its heading, its style, and what sorts by it, or nothing.
pub(super) type Column = (&'static str, &'static str, &'static str);

/// The last column of a table whose rows have buttons.
pub(super) const ROW_ACTIONS: Column = ("Actions", "", "");

/// The frame of a live list: `rows` with a heading above each column. The id is the list's.
pub(super) fn table(
    view: &View<'_>,
    (id, label): (&str, &str),
    columns: &[Column],
    rows: &Markup,
) -> Markup {
    html! {
        div .card.table tabindex="0" role="region" aria-label=(label) {
            table {
                thead {
                    tr {
                        @for column in columns {
                            @match *column {
                                ROW_ACTIONS => { th scope="col" { span .hidden { (ROW_ACTIONS.0) } } }
                                (name, class, "") => { th class=(class) scope="col" { (name) } }
                                (name, class, first) => { (sorted(view, first, name, class)) }
                            }
                        }
                    }
                }
                tbody id={ (id) "-rows" } data-rows { (rows) }
            }
        }
    }
}

/// The form of every page that [`Button`] and [`switch`] submit, so that rows need none of their own.
pub(super) const ACTIONS: &str = "act";

/// A switch that performs an action. `name` is the name of the item that it turns on or off.
pub(super) fn switch(to: &str, name: &str, is_on: bool) -> Markup {
    html! {
        button .switch form=(ACTIONS) formaction=(to) role="switch" aria-checked=(is_on) aria-label=(name) {}
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

/// A button that performs the action at a path.
pub(super) struct Button<'b> {
    to: &'b str,
    label: &'b str,
    style: Option<&'b str>,
    asks: bool,
}

impl<'b> Button<'b> {
    pub(super) fn new(to: &'b str, label: &'b str) -> Self {
        Self {
            to,
            label,
            style: None,
            asks: false,
        }
    }

    pub(super) fn primary(self) -> Self {
        Self {
            style: Some("primary"),
            ..self
        }
    }

    pub(super) fn danger(self) -> Self {
        Self {
            style: Some("danger"),
            ..self
        }
    }

    /// The action asks first: the script shows its question in a dialog.
    pub(super) fn asks(self) -> Self {
        Self { asks: true, ..self }
    }

    pub(super) fn show(&self) -> Markup {
        html! {
            button class=[self.style] form=(ACTIONS) formaction=(self.to) data-ask[self.asks] { (self.label) }
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
pub(super) fn remedies(server: &ServerStatus) -> Markup {
    let to = |verb: &str| format!("/ui/servers/{}/{verb}", server.name);
    html! {
        @match server.state.as_str() {
            "misconfigured" => { a .button href=(to("edit")) { "Edit" } }
            "disabled" => {}
            "stopped" => { (Button::new(&to("start"), "Start").primary().show()) }
            _ if needs_login(server) => { (Button::new(&to("login"), "Sign in").primary().show()) }
            _ if server.open_breakers().next().is_some() => {
                (Button::new(&to("reset"), "Resume traffic").primary().show())
            }
            "up" | "idle" | "stopping" => {}
            _ => { (Button::new(&to("restart"), "Restart now").show()) }
        }
    }
}

/// A button of the script that stops and continues live updates.
pub(super) fn pause() -> Markup {
    html! { button type="button" hidden data-script data-pause { "Pause" } }
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

/// A text field of a form, with a hint below it.
pub(super) fn input(name: &str, label: &str, value: &str, hint: Markup) -> Markup {
    text_field((name, label), (value, None), hint, None)
}

/// A text field of one line, or of this many rows, with a hint and an error message.
pub(super) fn text_field(
    (name, label): (&str, &str),
    (value, rows): (&str, Option<u8>),
    hint: Markup,
    error: Option<&str>,
) -> Markup {
    let described_by = match error {
        Some(_) => format!("{name}-error {name}-hint"),
        None => format!("{name}-hint"),
    };
    let is_invalid = error.map(|_| "true");
    html! {
        div .field {
            label for=(name) { (label) }
            @if let Some(rows) = rows {
                textarea id=(name) name=(name) rows=(rows) spellcheck="false" autocapitalize="off"
                    aria-describedby=(described_by) aria-invalid=[is_invalid] { "\n" (value) }
            } @else {
                input id=(name) name=(name) value=(value) spellcheck="false" autocapitalize="off"
                    autocomplete="off" aria-describedby=(described_by) aria-invalid=[is_invalid];
            }
            @if let Some(error) = error {
                p .error id={ (name) "-error" } role="alert" { (text::sentence(error)) }
            }
            p .hint id={ (name) "-hint" } { (hint) }
        }
    }
}

/// The form field with the name of a chosen server.
const SERVER: &str = "server";

/// A choice of servers; of many, their names are written.
pub(super) fn servers_field(names: &[String], values: &Fields, hint: &str) -> Markup {
    let chosen: Vec<&str> = named_servers(values).collect();
    html! {
        fieldset {
            legend { "Servers" }
            @if names.len() <= ROWS {
                div .choices {
                    @for name in names {
                        label { input type="checkbox" name=(SERVER) value=(name) checked[chosen.contains(&&**name)]; (text::line(name)) }
                    }
                }
            } @else {
                textarea name=(SERVER) rows="3" aria-label="Servers, one per line" spellcheck="false" { (chosen.join("\n")) }
            }
            p .hint { (hint) }
        }
    }
}

fn named_servers(form: &Fields) -> impl Iterator<Item = &str> {
    let fields = form.iter().filter(|(name, _)| name == SERVER);
    let lines = fields.flat_map(|(_, value)| value.lines());
    lines.map(str::trim).filter(|line| !line.is_empty())
}

/// The servers that a form chooses.
///
/// # Errors
///
/// Returns an error when one of them is unknown.
pub(super) fn chosen_servers(view: &View<'_>, form: &Fields) -> Result<Vec<ServerName>, Failure> {
    let known = view.operator.server_names();
    let server = |name: &str| {
        let is_known = known.iter().any(|it| it == name);
        let name = ServerName::try_new(name).ok().filter(|_| is_known);
        name.ok_or_else(|| {
            let message = "the form names a server that the configuration does not have";
            Failure::new(ErrorKind::ServerNotFound, message)
        })
    };
    named_servers(form).map(server).collect()
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
