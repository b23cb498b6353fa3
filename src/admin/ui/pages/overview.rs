//! `/ui`: what is wrong, since when, and how to fix it.

use maud::{Markup, html};

use super::server_rows::place;
use crate::admin::render::{Trouble, reason};
use crate::admin::status::{ConfigView, ServerStatus, Status};
use crate::admin::ui::page::{FormOutcome, Page, Section, View};
use crate::admin::ui::parts::Button;
use crate::admin::ui::pieces::Row;
use crate::admin::ui::{parts, plots, text};
use crate::id::ViewId;
use crate::protocol::Failure;

/// Maximum servers in trouble that are shown, and maximum other servers.
const SERVERS_MAX: usize = 20;

/// The servers, divided by whether they are in their intended state.
struct ByTrouble {
    troubled: Vec<ServerStatus>,
    well: Vec<ServerStatus>,
}

impl ByTrouble {
    fn of(mut all: Vec<ServerStatus>) -> Self {
        all.sort_by_cached_key(place);
        let is_well = |server: &ServerStatus| Trouble::of(server).is_well();
        let (well, troubled) = all.into_iter().partition(is_well);
        Self { troubled, well }
    }

    fn all(&self) -> impl Iterator<Item = &ServerStatus> {
        self.troubled.iter().chain(&self.well)
    }
}

pub(super) async fn page(view: &View<'_>) -> Page {
    let mut status = view.operator.status();
    let servers = ByTrouble::of(std::mem::take(&mut status.servers));
    let rows = |servers: &[ServerStatus], row: &dyn Fn(&ServerStatus) -> Row| {
        let shown = servers.iter().take(SERVERS_MAX);
        shown.map(row).collect::<Vec<Row>>()
    };
    let troubled = rows(&servers.troubled, &troubled_server);
    let well = rows(&servers.well, &well_server);
    Page::new(Section::Overview, "Overview")
        .live("headline", headline(&status, &servers))
        .live("first-steps", first_steps(&status, &servers, view))
        .live("remarks", remarks(&status, view))
        .live_list("troubled", troubled, |rows| {
            troubled_servers(&servers, rows)
        })
        .live("figures", figures(&status, &servers, view))
        .once(view, async {
            // Empty plots would hide the first step.
            match servers.all().next() {
                Some(_) => plots::section(view, None).await,
                None => Markup::default(),
            }
        })
        .await
        .live_list("others", well, |rows| others(&servers, rows))
}

fn headline(status: &Status, servers: &ByTrouble) -> Markup {
    let (tone, words) = match (servers.all().count(), servers.troubled.len()) {
        (0, _) => ("quiet", "No servers yet".to_owned()),
        (_, 0) => ("good", "Everything is up".to_owned()),
        (_, 1) => ("bad", "1 server needs attention".to_owned()),
        (_, many) => ("bad", format!("{many} servers need attention")),
    };
    html! {
        header .heading.headline {
            div {
                h1 .(tone) { span .dot.(tone) aria-hidden="true" {} (words) }
                p .hint {
                    "mcpvisor " (status.version) " · up for "
                    (text::age(status.uptime_seconds.saturating_mul(1000)))
                    " · " (text::code(&status.listen))
                }
            }
            div .actions { (super::servers::add()) }
        }
    }
}

/// The first steps of a new user, each with whether it is done; empty once all are.
fn first_steps(status: &Status, servers: &ByTrouble, view: &View<'_>) -> Markup {
    let count = |name: &str| status.counters.get(name).copied().unwrap_or(0);
    let opened = count("sessions_opened");
    // Sessions from before the last start were used before.
    let was_used = status.sessions > 0 && opened == 0;
    let done = [
        servers.all().next().is_some(),
        status.sessions > 0 || opened > 0,
        count("calls_answered") > 0,
    ];
    if was_used || done.iter().all(|it| *it) {
        return Markup::default();
    }
    let texts = [
        (
            "Add a server",
            html! { "A program that the gateway starts, or a URL. " a href="/ui/servers/new" { "Add a server" } },
        ),
        (
            "Connect a client",
            html! {
                "All servers are at one address. " a href="/ui/connect" { "Instructions for clients" }
                (parts::snippet("endpoint", &view.address(&ViewId::Default)))
            },
        ),
        (
            "Try a tool",
            html! { "Let a client call one, or " a href="/ui/tools" { "call it here" } "." },
        ),
    ];
    html! {
        section .first-steps aria-labelledby="steps" {
            h2 #steps { "First steps" }
            ol .card {
                @for (number, (is_done, (title, text))) in done.into_iter().zip(texts).enumerate() {
                    li .done[is_done] {
                        span .tick { @if is_done { (parts::icon("done")) } @else { (number + 1) } }
                        div {
                            p .strong { (title) @if is_done { span .hidden { " (done)" } } }
                            div .hint { (text) }
                        }
                    }
                }
            }
        }
    }
}

/// Notices for the operator that do not concern a single server.
fn remarks(status: &Status, view: &View<'_>) -> Markup {
    let ConfigView {
        refused,
        needs_restart,
        ..
    } = &status.config;
    let mut notices = view.operator.notices();
    notices.retain(|notice| !notice.dismissed);
    html! {
        @if let Some(refused) = refused {
            div .notice.bad {
                p .strong { "The last configuration change was rejected" }
                (text::block(refused))
            }
        }
        @if let Some(failure) = &status.history_failure {
            p .notice.bad { "Calls are not recorded: " (text::sentence(failure)) }
        }
        @if !needs_restart.is_empty() {
            p .notice.warn {
                "Changed; restart the gateway to apply: "
                @for key in needs_restart { (text::code(key)) " " }
            }
        }
        @if !notices.is_empty() {
            details .notice.warn {
                summary {
                    (text::many(notices.len() as u64, "notice", "notices"))
                    " on the configuration and the lists"
                }
                ul {
                    @for notice in notices.iter().take(50) {
                        li {
                            (text::sentence(&notice.text)) " "
                            (Button::new(&format!("/ui/notices/{}/dismiss", notice.id), "Dismiss").show())
                        }
                    }
                }
            }
        }
    }
}

/// Dismisses a notice.
///
/// # Errors
///
/// Returns an error when the notice is unknown, or when its dismissal cannot be stored.
pub(super) async fn dismiss(view: &View<'_>, id: &str) -> Result<FormOutcome, Failure> {
    view.operator.set_dismissed(id, true).await?;
    Ok(FormOutcome::Done {
        to: "/ui".to_owned(),
        message: "The notice is dismissed; `mcpvisor notices` still lists it.".to_owned(),
    })
}

fn figures(status: &Status, servers: &ByTrouble, view: &View<'_>) -> Markup {
    let up = servers.all().filter(|server| server.state == "up").count();
    let connections = || servers.all().filter_map(|it| it.connection.as_ref());
    let in_flight: usize = connections().map(|it| it.in_flight).sum();
    let queued: usize = connections().map(|it| it.queued).sum();
    let (tools, tokens) = view.operator.state.tools_cost(&ViewId::Default);
    let counter = |name: &str| status.counters.get(name).copied().unwrap_or(0);
    let waiting = match queued {
        0 => String::new(),
        queued => format!("{} waiting", text::count(queued as u64)),
    };
    let (answered, failed) = (counter("calls_answered"), counter("calls_failed"));
    let tool_errors = counter("tool_errors");
    html! {
        dl .figures {
            (parts::figure("Servers up", &up.to_string(), &format!("of {}", servers.all().count())))
            (parts::figure("Tools", &text::count(tools as u64),
                &format!("{} tokens", text::count(tokens as u64))))
            (parts::figure("Sessions", &text::count(status.sessions as u64), ""))
            (parts::figure("Calls in flight", &text::count(in_flight as u64), &waiting))
            (parts::figure("Calls answered", &text::count(answered), "since the start"))
            (parts::figure("Calls failed", &text::count(failed),
                &format!("and {}", text::many(tool_errors, "tool error", "tool errors"))))
        }
    }
}

fn troubled_servers(servers: &ByTrouble, rows: Markup) -> Markup {
    html! {
        @if !servers.troubled.is_empty() {
            section aria-labelledby="attention" {
                h2 #attention .upper { "Needs attention" }
                ul #troubled-rows .rows.card data-rows { (rows) }
                (more(&servers.troubled))
            }
        }
    }
}

/// A link to the servers that the list does not show.
fn more(servers: &[ServerStatus]) -> Markup {
    html! {
        @if servers.len() > SERVERS_MAX {
            p .hint.after {
                (text::count((servers.len() - SERVERS_MAX) as u64)) " more. "
                a href="/ui/servers" { "All servers" }
            }
        }
    }
}

fn troubled_server(server: &ServerStatus) -> Row {
    let name = &server.name;
    let since = server.shared().map(parts::since).unwrap_or_default();
    let id = format!("troubled-{name}");
    let row = html! {
        li #(id) .row {
            div .grow {
                p .title {
                    a href=(format!("/ui/servers/{name}")) { (text::line(name)) }
                    (parts::state(server))
                    @if !since.is_empty() { span .hint { "for " (since) } }
                }
                @let why = reason(server);
                @if !why.is_empty() { p .why { (text::sentence(&why)) } }
            }
            div .actions { (parts::remedies(server)) }
        }
    };
    Row::new(id, row)
}

fn well_server(server: &ServerStatus) -> Row {
    let name = &server.name;
    let id = format!("well-{name}");
    let row = html! {
        li #(id) .row {
            p .title.grow {
                a href=(format!("/ui/servers/{name}")) { (text::line(name)) }
                (parts::state(server))
                @let since = server.shared().map(parts::since).unwrap_or_default();
                @if !since.is_empty() { span .hint { "for " (since) } }
            }
            span .hint {
                (text::many(server.item_count("tools") as u64, "tool", "tools"))
            }
        }
    };
    Row::new(id, row)
}

fn others(servers: &ByTrouble, rows: Markup) -> Markup {
    html! {
        @if !servers.well.is_empty() {
            section aria-labelledby="well" {
                h2 #well { @if servers.troubled.is_empty() { "Servers" } @else { "Other servers" } }
                ul #others-rows .rows.card data-rows { (rows) }
                (more(&servers.well))
            }
        }
    }
}
