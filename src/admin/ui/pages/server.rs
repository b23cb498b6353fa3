//! `/ui/servers/NAME`: one server and the actions for it.

use actix_web::http::StatusCode;
use maud::{Markup, html};
use serde_json::{Map, Value as Json, json};

use super::config::written_tables;
use super::confirm::{confirm, is_sure};
use super::server_life::{crashes, time_line};
use super::server_limits::limits;
use super::server_rows::memory;
use super::tools::of_server;
use crate::admin::config_order::EntryOrder;
use crate::admin::operator::{Inoperable, LoginOrigin};
use crate::admin::render::{attempts, breaker_text, pressure_text, reason, sandbox_text};
use crate::admin::status::{ServerStatus, Status};
use crate::admin::ui::fields::{Fields, field};
use crate::admin::ui::page::{FormOutcome, Page, Section, View};
use crate::admin::ui::parts::Button;
use crate::admin::ui::{parts, plots, text};
use crate::downstream::{BreakerState, ServerOrder, ServerStatusView};
use crate::id::ViewId;
use crate::protocol::{ErrorKind, Failure};

/// Maximum log lines on a server's page.
const LINES_MAX: usize = 200;

/// The parts of the page: the value of `tab` in the query, and the name.
const TABS: [(&str, &str); 6] = [
    ("", "Overview"),
    ("tools", "Tools"),
    ("calls", "Calls"),
    ("logs", "Logs"),
    ("crashes", "Crashes"),
    ("settings", "Settings"),
];

/// # Errors
///
/// Returns an error when no such server exists.
pub(super) async fn page(view: &View<'_>, name: &str) -> Result<Page, Failure> {
    let (server, started_at) = find(view, name)?;
    let name = server.name.as_str();
    let tab = view.query("tab").unwrap_or_default();
    let page = Page::new(Section::Servers, name)
        .live("server-head", head(&server))
        .fixed(tabs(name, tab));
    Ok(match tab {
        "tools" => page.fixed(of_server(view, name)),
        "calls" => return super::calls::of_server(view, name, page).await,
        "logs" => page.live("server-log", log(&server, view)),
        "crashes" => page.once(view, crashes(view, name)).await,
        "settings" => page.once(view, settings(view, name)).await,
        _ => page
            .live("server-facts", facts(&server, view).await)
            .once(view, plots::section(view, Some(name)))
            .await
            .live("server-life", time_line(view, name, started_at)),
    })
}

fn tabs(name: &str, current: &str) -> Markup {
    let path = |tab: &str| match tab {
        "" => format!("/ui/servers/{name}"),
        tab => format!("/ui/servers/{name}?tab={tab}"),
    };
    let paths = TABS.map(|(tab, _)| path(tab));
    let tabs: Vec<(&str, &str)> = paths
        .iter()
        .map(String::as_str)
        .zip(TABS.map(|it| it.1))
        .collect();
    parts::tabs(&format!("Parts of {name}"), &tabs, &path(current))
}

/// The server with a name or id, and the start time of the gateway.
fn find(view: &View<'_>, name: &str) -> Result<(ServerStatus, u64), Failure> {
    let Status {
        started_at,
        mut servers,
        ..
    } = view.operator.status();
    let by_name = servers.iter().position(|it| it.name == name);
    match by_name.or_else(|| servers.iter().position(|it| it.id == name)) {
        Some(found) => Ok((servers.swap_remove(found), started_at)),
        None => {
            let known: Vec<&str> = servers.iter().map(|it| it.name.as_str()).collect();
            Err(Inoperable::Unknown(&known).failure(name))
        }
    }
}

/// Actions on a server that are possible in most states.
fn orders(server: &ServerStatus) -> Markup {
    let name = &server.name;
    let to = |verb: &str| format!("/ui/servers/{name}/{verb}");
    let runs = !matches!(
        server.state.as_str(),
        "stopped" | "disabled" | "misconfigured"
    );
    let connection = server.connection.as_ref();
    let is_tripped = connection.is_some_and(|it| it.breaker.state == BreakerState::Tripped);
    html! {
        @if runs {
            (Button::new(&to("restart"), "Restart").show())
            @if !is_tripped {
                (Button::new(&to("trip"), "Pause traffic").asks().show())
            }
            (Button::new(&to("stop"), "Stop").asks().show())
        }
        a .button href=(to("edit")) { "Edit" }
    }
}

fn remove_button(name: &str) -> Markup {
    let to = format!("/ui/servers/{name}/remove");
    Button::new(&to, "Remove").danger().asks().show()
}

/// The menu of a server in a list.
pub(super) fn actions(server: &ServerStatus) -> Markup {
    let name = &server.name;
    html! {
        a .button href=(format!("/ui/servers/{name}?tab=logs")) { "Logs" }
        (orders(server))
        (remove_button(name))
    }
}

fn head(server: &ServerStatus) -> Markup {
    let name = &server.name;
    let to = |verb: &str| format!("/ui/servers/{name}/{verb}");
    html! {
        p .crumb { a href="/ui/servers" { "Servers" } }
        header .heading {
            h1 { (text::line(name)) (parts::state(server)) }
            div .actions {
                @if server.state == "stopped" { (Button::new(&to("start"), "Start").primary().show()) }
                @if parts::needs_login(server) {
                    (Button::new(&to("login"), "Sign in").primary().show())
                }
                @if server.open_breakers().next().is_some() {
                    (Button::new(&to("reset"), "Resume traffic").primary().show())
                }
                @if server.state == "up" && server.item_count("tools") > 0 {
                    a .button.primary href=(format!("/ui/servers/{name}?tab=tools")) { "Try a tool" }
                }
                (orders(server))
            }
        }
        @let why = reason(server);
        @if !why.is_empty() {
            p .notice.(parts::tone(server)) { (text::sentence(&why)) }
        }
    }
}

async fn facts(server: &ServerStatus, view: &View<'_>) -> Markup {
    let name = &server.name;
    let targets = view.known.targets(view.operator).await;
    let pids = server
        .connection
        .as_ref()
        .map_or(&[][..], |it| &it.process_groups);
    let connection = server.connection.as_ref();
    let exit = server.shared().and_then(|child| child.last_exit.as_deref());
    let faults = connection.and_then(|it| it.faults.as_deref());
    let offers = |kind: &str| text::count(server.item_count(kind) as u64);
    html! {
        @if let Some(connection) = connection { (figures(server, connection, view)) }
        div .card {
            dl .facts {
                @if let Some(target) = targets.get(name) {
                    dt { @if target.contains("://") { "URL" } @else { "Command" } }
                    dd { (text::code(target)) }
                }
                @if !pids.is_empty() {
                    dt { "Process" }
                    dd {
                        "pid " @for pid in pids { (pid) " " }
                        @let memory = memory(server, view);
                        @if memory > 0 { "· " (text::mebibytes(memory)) }
                    }
                }
                @if server.id != server.name { dt { "Id" } dd { (text::code(&server.id)) } }
                @if let Some(connection) = connection {
                    dt { "Transport" }
                    dd { (connection.transport) @if let Some(era) = connection.era { ", " (era.as_str()) " protocol" } }
                }
                @if let Some(exit) = exit {
                    dt { "Last exit" } dd { (text::sentence(exit)) }
                }
                @if let Some(connection) = connection { (call_facts(connection)) }
                @for reason in connection.iter().flat_map(|it| &it.separation) {
                    dt { "Sharing" } dd { (text::sentence(reason.as_str())) }
                }
                @if let Some(rollout) = connection.and_then(|it| it.rollout.as_ref()) {
                    dt { "Rollout" } dd { (text::sentence(&rollout.to_string())) }
                }
                @if let Some(sandbox) = &server.sandbox {
                    dt { "Sandbox" } dd { (text::sentence(&sandbox_text(sandbox))) }
                }
                @if let Some(faults) = faults {
                    dt { "Injected faults" } dd { (text::line(faults)) }
                }
                dt { "Capabilities" }
                dd {
                    a href=(format!("/ui/servers/{name}?tab=tools")) { (offers("tools")) " tools" }
                    ", " (offers("prompts")) " prompts, " (offers("resources")) " resources"
                }
            }
        }
    }
}

fn figures(server: &ServerStatus, connection: &ServerStatusView, view: &View<'_>) -> Markup {
    let child = &connection.shared;
    let tools = view.operator.state.tools(&ViewId::Default);
    let tools = tools.iter().filter(|tool| tool.server == server.name);
    let tokens: usize = tools.map(|tool| tool.tokens).sum();
    let number = |number: usize| text::count(number as u64);
    html! {
        dl .figures {
            @match child.failing_ms {
                Some(time) => (parts::figure("Failing for", &text::age(time), &attempts(child))),
                None => (parts::figure("In this state for", &parts::since(child), "")),
            }
            (parts::figure("Restarts", &text::count(child.restarts),
                &format!("generation {}", text::count(child.generation))))
            (parts::figure("Calls in flight", &number(connection.in_flight),
                &format!("{} waiting", number(connection.queued))))
            (parts::figure("Tools", &number(server.item_count("tools")),
                &format!("{} tokens", number(tokens))))
        }
    }
}

/// Which calls reach the server, and over which connections.
fn call_facts(connection: &ServerStatusView) -> Markup {
    let own = connection.own.len();
    let of_tools = connection.open_breakers().filter(|it| it.tool.is_some());
    html! {
        dt { "Breaker" }
        dd {
            (breaker_text(&connection.breaker).trim_start_matches("breaker · "))
            @if connection.breaker.is_closed() { ": calls are sent" }
            @for breaker in of_tools { br; (text::line(&breaker_text(breaker))) }
        }
        @if let Some(pressure) = connection.pressure.and_then(pressure_text) {
            dt { "Pressure" } dd { (text::sentence(&pressure)) }
        }
        dt { "Connections" } dd { "one shared" @if own > 0 { ", " (own) " of single clients" } }
        @if connection.repeated != 0 { dt { "Retried calls" } dd { (text::count(connection.repeated)) } }
    }
}

fn log(server: &ServerStatus, view: &View<'_>) -> Markup {
    let Ok(lines) = view.operator.logs(&server.name) else {
        return Markup::default();
    };
    html! {
        @if lines.is_empty() {
            (parts::empty("Nothing so far", html! { "Lines that the server writes to stderr appear here." }))
        } @else {
            ul .card.log data-follow tabindex="0" aria-label="Logs" {
                @for line in lines.iter().rev().take(LINES_MAX) {
                    li id=(format!("line-{}", line.sequence)) {
                        (text::moment(line.at))
                        span .source { (line.source.as_str()) }
                        span .text { (text::line(&line.text)) }
                    }
                }
            }
        }
    }
}

/// The settings as in the file, with possible secrets masked, and the limits.
async fn settings(view: &View<'_>, name: &str) -> Markup {
    let own = written_tables(view, "servers").await.remove(name);
    let own = own.and_then(|own| toml::to_string_pretty(&json!({ "servers": { name: own } })).ok());
    html! {
        @if let Some(own) = own { (text::block(&own)) } @else {
            p .hint { "It is not in the main file, but in an included one or from a source." }
        }
        div .actions.after {
            a .button href=(format!("/ui/servers/{name}/edit")) { "Edit" }
            (remove_button(name))
        }
        (limits(view, name))
    }
}

/// Turns a server on or off in the configuration.
async fn enable(view: &View<'_>, name: &str, is_on: bool) -> Result<FormOutcome, Failure> {
    let value = if is_on { Json::Null } else { Json::Bool(false) };
    let members = Map::from_iter([("enabled".to_owned(), value)]);
    let order = EntryOrder::Update(name.to_owned(), members);
    view.operator.config_orders.ask(order, None).await?;
    let words = if is_on { "enabled" } else { "disabled" };
    Ok(FormOutcome::Done {
        to: view.from.clone(),
        message: format!("`{name}` is {words}"),
    })
}

/// Performs a button's action.
///
/// # Errors
///
/// Returns the reason why the action failed.
pub(super) async fn act(
    view: &View<'_>,
    name: &str,
    verb: &str,
    form: &Fields,
) -> Result<FormOutcome, Failure> {
    let tool = || {
        field(form, "tool")
            .filter(|tool| !tool.is_empty())
            .map(str::to_owned)
    };
    let order = match verb {
        "start" => ServerOrder::Start,
        "restart" => ServerOrder::Restart,
        "stop" => ServerOrder::Stop,
        "trip" => ServerOrder::Trip(tool()),
        "reset" => ServerOrder::Reset(tool()),
        "login" => return sign_in(view, name).await,
        "remove" => return remove(view, name, form).await,
        "enable" => return enable(view, name, true).await,
        "disable" => return enable(view, name, false).await,
        _ => return Err(Failure::new(ErrorKind::NotFound, "page not found")),
    };
    let question = match verb {
        "stop" => Some((
            "Stop",
            format!("Stop {name}? Its calls fail until it is started again."),
        )),
        "trip" => Some((
            "Pause traffic",
            format!(
                "Pause traffic to {name}? Calls fail immediately until you press “Resume traffic”."
            ),
        )),
        _ => None,
    };
    if let Some((action, text)) = question.filter(|_| !is_sure(form)) {
        return Ok(confirm(view, form, Section::Servers, (action, &text)));
    }
    let message = view.operator.order(name, order).await?;
    Ok(FormOutcome::Done {
        to: format!("/ui/servers/{name}"),
        message,
    })
}

async fn remove(view: &View<'_>, name: &str, form: &Fields) -> Result<FormOutcome, Failure> {
    if !is_sure(form) {
        let text =
            format!("Remove {name} from the configuration? Its calls get a few seconds to finish.");
        return Ok(confirm(view, form, Section::Servers, ("Remove", &text)));
    }
    let orders = &view.operator.config_orders;
    orders
        .ask(EntryOrder::Delete(name.to_owned()), None)
        .await?;
    Ok(FormOutcome::Done {
        to: "/ui/servers".to_owned(),
        message: format!("`{name}` was removed"),
    })
}

/// A page with a link, since a form must not redirect to another site.
async fn sign_in(view: &View<'_>, name: &str) -> Result<FormOutcome, Failure> {
    let (server, _) = find(view, name)?;
    let url = match server.connection.and_then(|it| it.sign_in) {
        Some(page) => page,
        None => {
            let from = (None, LoginOrigin::Dashboard);
            view.operator.begin_login(name, None, from).await?.url
        }
    };
    let is_web = url.starts_with("https://") || url.starts_with("http://");
    let page = Page::new(Section::Servers, format!("Sign in to {name}")).fixed(html! {
        (parts::heading(&format!("Sign in to {name}"), None))
        div .card.message {
            p { "The server is waiting for a sign-in on this page:" }
            p { (text::code(&url)) }
            @if is_web {
                p { a .button.primary href=(url) target="_blank" rel="noopener noreferrer" { "Open it" } }
            }
            p .hint { "It connects automatically when you are done." }
            p { a href=(format!("/ui/servers/{name}")) { "Back to the server" } }
        }
    });
    Ok(FormOutcome::Page(StatusCode::OK, page))
}
