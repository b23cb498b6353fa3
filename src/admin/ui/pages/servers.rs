//! `/ui/servers`: all servers, those in trouble first.

use maud::{Markup, html};

use super::calls::duration;
use super::server::actions;
use super::server_rows::{filter, memory, none_fits, page_of, place};
use crate::admin::render::{Trouble, reason};
use crate::admin::status::ServerStatus;
use crate::admin::ui::page::{Page, Section, View};
use crate::admin::ui::paging::{PageLinks, Paged};
use crate::admin::ui::parts::{Column, ROW_ACTIONS, SORT};
use crate::admin::ui::pieces::Row;
use crate::admin::ui::recent::Pace;
use crate::admin::ui::{parts, text};

/// The number of servers above which they can be searched.
const SEARCHED: usize = 8;

/// Facts that a row shows beside the status of its server.
struct Facts {
    target: String,
    pace: Option<Pace>,
    memory: u64,
}

pub(super) async fn page(view: &View<'_>) -> Page {
    let servers = view.operator.status().servers;
    let count = servers.len();
    let paces = view.known.paces(view.operator).await;
    let targets = view.known.targets(view.operator).await;
    let facts = |server: &ServerStatus| Facts {
        target: targets.get(&server.name).cloned().unwrap_or_default(),
        pace: paces.get(&server.name).copied(),
        memory: memory(server, view),
    };
    let paged = page_of(servers, view, |server| sort_key(server, view, &facts));
    let rows = paged.rows.iter();
    let rows = rows.map(|server| row(server, &facts(server))).collect();
    Page::new(Section::Servers, "Servers")
        .fixed(html! { (parts::heading("Servers", Some(add()))) (tabs(view)) })
        .fixed(filter(count, SEARCHED, view))
        .live_list("servers", rows, |rows| table(count, &paged, rows, view))
}

/// The key that the chosen column sorts by. Keys are compared as texts, so numbers have all their
/// digits, and those of a descending order are counted down.
fn sort_key(
    server: &ServerStatus,
    view: &View<'_>,
    facts: &impl Fn(&ServerStatus) -> Facts,
) -> String {
    let sort = view.query(SORT).unwrap_or_default();
    let (column, is_reverse) = match sort.strip_prefix('-') {
        Some(column) => (column, true),
        None => (sort, false),
    };
    let number = match column {
        "calls" => facts(server).pace.map_or(0.0, |it| it.per_minute * 1e3) as u64,
        "p95" => facts(server)
            .pace
            .and_then(|it| it.p95)
            .map_or(0.0, |it| it * 1e3) as u64,
        "memory" => facts(server).memory,
        "tools" => server.item_count("tools") as u64,
        "state" => u64::from(Trouble::of(server).place()),
        _ => return place(server),
    };
    let number = if is_reverse {
        u64::MAX - number
    } else {
        number
    };
    format!("{number:020}.{}", server.name)
}

/// The action of both tabs.
pub(super) fn add() -> Markup {
    html! { a .button.primary href="/ui/servers/new" { (parts::icon("plus")) "Add a server" } }
}

pub(super) fn tabs(view: &View<'_>) -> Markup {
    let tabs = [("/ui/servers", "List"), ("/ui/tree", "Supervision tree")];
    parts::tabs("Servers", &tabs, view.path)
}

const COLUMNS: [Column; 7] = [
    ("Server", "", ""),
    ("State", "", "state"),
    ("Calls/min", "number extra", "-calls"),
    ("p95", "number extra", "-p95"),
    ("Memory", "number extra", "-memory"),
    ("Tools", "number extra", "-tools"),
    ROW_ACTIONS,
];

fn table(count: usize, paged: &Paged<ServerStatus>, rows: Markup, view: &View<'_>) -> Markup {
    if count == 0 {
        return parts::empty(
            "No server is configured",
            html! { "A server is a program that the gateway starts, or a URL." },
        );
    }
    if paged.total == 0 {
        return none_fits(view);
    }
    html! {
        (parts::table(view, ("servers", "Servers"), &COLUMNS, &rows))
        (PageLinks::of(paged, ("server", "servers")).show(view))
    }
}

fn row(server: &ServerStatus, facts: &Facts) -> Row {
    let name = &server.name;
    let since = server.shared().map(parts::since).unwrap_or_default();
    let why = reason(server);
    let id = format!("server-{name}");
    let to = |verb: &str| format!("/ui/servers/{name}/{verb}");
    let is_on = server.state != "disabled";
    let verb = if is_on { "disable" } else { "enable" };
    let row = html! {
        tr #(id) {
            td .wide {
                a href=(format!("/ui/servers/{name}")) { (text::line(name)) }
                @if !facts.target.is_empty() { p .target title=(text::plain(&facts.target)) { (text::line(&facts.target)) } }
                @if !parts::is_well(server) && !why.is_empty() { p .why { (text::sentence(&why)) } }
            }
            td { (parts::state(server)) @if !since.is_empty() { p .why.nowrap { (since) } } }
            td .number.extra { @if let Some(pace) = facts.pace { (format!("{:.0}", pace.per_minute)) } }
            td .number.extra { (facts.pace.and_then(|it| it.p95).map(duration).unwrap_or_default()) }
            td .number.extra { @if facts.memory > 0 { (text::mebibytes(facts.memory)) } }
            td .number.extra { (text::count(server.item_count("tools") as u64)) }
            td .tail {
                div .actions {
                    span .actions.extra { (parts::remedies(server)) }
                    (parts::switch(&to(verb), &format!("{name} is enabled"), is_on))
                    (parts::menu(&format!("menu-{name}"), &format!("Actions for {name}"), actions(server)))
                }
            }
        }
    };
    Row::new(id, row)
}
