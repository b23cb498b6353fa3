//! `/ui/servers/NAME`: one server and the actions for it.

use actix_web::http::StatusCode;
use maud::{Markup, html};

use super::confirm::{Confirmation, confirm, is_sure};
use super::server_life::{crashes, time_line};
use super::server_limits::limits;
use crate::admin::config_order::EntryOrder;
use crate::admin::operator::{Inoperable, LoginOrigin};
use crate::admin::render::{attempts, breaker_text, reason};
use crate::admin::status::{ServerStatus, Status};
use crate::admin::ui::fields::{Fields, field};
use crate::admin::ui::page::{FormOutcome, Page, Section, View};
use crate::admin::ui::parts::Button;
use crate::admin::ui::{parts, text};
use crate::downstream::{BreakerState, ServerOrder, ServerStatusView};
use crate::id::ViewId;
use crate::protocol::{ErrorKind, Failure};

/// Maximum log lines on a server's page.
const LINES_MAX: usize = 200;

/// # Errors
///
/// Returns an error when no such server exists.
pub(super) async fn page(view: &View<'_>, name: &str) -> Result<Page, Failure> {
    let (server, started_at) = find(view, name)?;
    let name = server.name.as_str();
    let log = log(&server, view);
    let page = Page::new(Section::Servers, name)
        .live("server-head", head(&server, view))
        .live("server-facts", facts(&server, view))
        .live("server-log", log)
        .live("server-life", time_line(view, name, started_at))
        .once(view, async {
            let crashes = crashes(view, name).await;
            html! { (crashes) (limits(view, name)) }
        })
        .await;
    Ok(page.once(view, configured(view, name)).await)
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

fn head(server: &ServerStatus, view: &View<'_>) -> Markup {
    let name = &server.name;
    let to = |verb: &str| format!("/ui/servers/{name}/{verb}");
    let state = server.state.as_str();
    let runs = !matches!(state, "stopped" | "disabled" | "misconfigured");
    let connection = server.connection.as_ref();
    let is_tripped = connection.is_some_and(|it| it.breaker.state == BreakerState::Tripped);
    let has_open = server.open_breakers().next().is_some();
    html! {
        p .crumb { a href="/ui/servers" { "Servers" } }
        header .heading {
            h1 { (text::line(name)) (parts::state(server)) }
            div .actions {
                @if state == "stopped" { (Button::new(&to("start"), "Start").primary().show(view)) }
                @if parts::needs_login(server) {
                    (Button::new(&to("login"), "Sign in").primary().show(view))
                }
                @if has_open { (Button::new(&to("reset"), "Resume traffic").primary().show(view)) }
                @if runs {
                    (Button::new(&to("restart"), "Restart").show(view))
                    @if !is_tripped {
                        (Button::new(&to("trip"), "Pause traffic")
                            .asks(&format!("Pause traffic to {name}? Calls fail immediately until you press “Resume traffic”."))
                            .show(view))
                    }
                    (Button::new(&to("stop"), "Stop")
                        .asks(&format!("Stop {name}? Its calls fail until it is started again."))
                        .show(view))
                }
                a .button href=(to("edit")) { "Edit" }
            }
        }
        @let why = reason(server);
        @if !why.is_empty() {
            p .notice.(parts::tone(server)) { (text::sentence(&why)) }
        }
    }
}

fn facts(server: &ServerStatus, view: &View<'_>) -> Markup {
    let name = &server.name;
    let connection = server.connection.as_ref();
    let exit = server.shared().and_then(|child| child.last_exit.as_deref());
    let faults = connection.and_then(|it| it.faults.as_deref());
    let offers = |kind: &str| text::count(server.item_count(kind) as u64);
    html! {
        @if let Some(connection) = connection { (figures(server, connection, view)) }
        div .card {
            dl .facts {
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
                @if let Some(faults) = faults {
                    dt { "Injected faults" } dd { (text::line(faults)) }
                }
                dt { "Offers" }
                dd {
                    a href=(format!("/ui/tools?server={name}")) { (offers("tools")) " tools" }
                    ", " (offers("prompts")) " prompts, " (offers("resources")) " resources"
                }
                dt { "Calls" } dd { a href=(format!("/ui/calls?server={name}")) { "History" } }
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
        dt { "Connections" } dd { "one shared" @if own > 0 { ", " (own) " of single clients" } }
        @if connection.repeated != 0 { dt { "Retried calls" } dd { (text::count(connection.repeated)) } }
    }
}

fn log(server: &ServerStatus, view: &View<'_>) -> Markup {
    let Ok(lines) = view.operator.logs(&server.name) else {
        return Markup::default();
    };
    html! {
        h2 #log-heading { "Logs" }
        @if lines.is_empty() {
            (parts::empty("Nothing so far", html! { "Lines that the server writes to stderr appear here." }))
        } @else {
            ul .card.log.short data-follow tabindex="0" aria-labelledby="log-heading" {
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

async fn configured(view: &View<'_>, name: &str) -> Markup {
    let orders = &view.operator.config_orders;
    let entry = orders.ask(EntryOrder::Get(name.to_owned()), None).await;
    let Ok(entry) = entry else {
        return Markup::default();
    };
    let shown = serde_json::to_string_pretty(&entry.body).unwrap_or_default();
    html! {
        h2 { "Configuration" }
        (text::block(&shown))
        div .actions.after {
            a .button href=(format!("/ui/servers/{name}/edit")) { "Edit" }
            (Button::new(&format!("/ui/servers/{name}/remove"), "Remove").danger()
                .asks(&format!("Remove {name} from the configuration? Its calls get a few seconds to finish."))
                .show(view))
        }
    }
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
        _ => return Err(Failure::new(ErrorKind::NotFound, "page not found")),
    };
    let question = match verb {
        "stop" => Some(format!(
            "Stop {name}? Its calls fail until it is started again."
        )),
        "trip" => Some(format!("Pause traffic to {name}?")),
        _ => None,
    };
    if let Some(question) = question.filter(|_| !is_sure(form)) {
        return Ok(confirm(
            view,
            Confirmation {
                section: Section::Servers,
                text: &question,
                fields: form,
            },
        ));
    }
    let message = view.operator.order(name, order).await?;
    Ok(FormOutcome::Done {
        to: format!("/ui/servers/{name}"),
        message,
    })
}

async fn remove(view: &View<'_>, name: &str, form: &Fields) -> Result<FormOutcome, Failure> {
    if !is_sure(form) {
        let text = format!("Remove {name} from the configuration?");
        return Ok(confirm(
            view,
            Confirmation {
                section: Section::Servers,
                text: &text,
                fields: form,
            },
        ));
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
