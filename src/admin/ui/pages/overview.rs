//! `/ui`: whether anything is wrong, since when, and what to press.

use maud::{Markup, html};
use serde_json::Value;

use crate::admin::render::{by_trouble, reason};
use crate::admin::ui::page::{Page, Section, View};
use crate::admin::ui::{parts, text};
use crate::id::ViewId;

pub(super) fn page(view: &View<'_>) -> Page {
    let status = view.status();
    let troubled: Vec<&Value> = by_trouble(&status)
        .into_iter()
        .filter(|server| !parts::is_well(server))
        .collect();
    Page::new(Section::Overview, "Overview")
        .live("headline", headline(&status, &troubled))
        .live("remarks", remarks(&status))
        .live("troubled", troubled_servers(&troubled, view))
        .live("figures", figures(&status, view))
        .live("traffic", view.traffic.plots())
        .live("others", others(&status))
}

fn headline(status: &Value, troubled: &[&Value]) -> Markup {
    let servers = status["servers"].as_array().map_or(0, Vec::len);
    let (tone, words) = match (servers, troubled.len()) {
        (0, _) => ("quiet", "No servers yet".to_owned()),
        (_, 0) => ("good", "Everything is up".to_owned()),
        (_, 1) => ("bad", "1 server needs attention".to_owned()),
        (_, many) => ("bad", format!("{many} servers need attention")),
    };
    let uptime = status["uptime_seconds"].as_u64().unwrap_or(0);
    let version = status["version"].as_str().unwrap_or_default();
    let listen = status["listen"].as_str().unwrap_or_default();
    html! {
        header .heading.headline {
            div {
                h1 .(tone) { span .dot.(tone) aria-hidden="true" {} (words) }
                p .hint {
                    "mcpvisor " (version) " · up for " (text::age(uptime.saturating_mul(1000)))
                    " · " (text::code(listen))
                }
            }
            div .actions { a .button href="/ui/servers/new" { "Add a server" } }
        }
    }
}

/// What an operator should know that is of no single server.
fn remarks(status: &Value) -> Markup {
    let config = &status["config"];
    let list = |value: &Value| -> Vec<String> {
        let texts = value.as_array().into_iter().flatten();
        texts.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let keys = list(&config["needs_restart"]);
    html! {
        @if let Some(refused) = config["refused"].as_str() {
            div .notice.bad {
                p .strong { "The last change of the configuration is not in force" }
                (text::block(refused))
            }
        }
        @if let Some(failure) = status["history_failure"].as_str() {
            p .notice.bad { "Calls are not recorded: " (text::sentence(failure)) }
        }
        @if !keys.is_empty() {
            p .notice.warn {
                "Changed, and in force after the next start: "
                @for key in &keys { (text::code(key)) " " }
            }
        }
        @let notices = list(&status["notices"]);
        @let warnings = list(&config["warnings"]);
        @if !(notices.is_empty() && warnings.is_empty()) {
            details .notice.warn {
                summary {
                    (text::many((notices.len() + warnings.len()) as u64, "remark", "remarks"))
                    " on the configuration and the lists"
                }
                ul {
                    @for remark in warnings.iter().chain(&notices).take(50) {
                        li { (text::sentence(remark)) }
                    }
                }
            }
        }
    }
}

fn figures(status: &Value, view: &View<'_>) -> Markup {
    let servers = status["servers"].as_array().map_or(&[][..], Vec::as_slice);
    let up = servers
        .iter()
        .filter(|server| server["state"] == "up")
        .count();
    let in_flight: u64 = servers
        .iter()
        .filter_map(|server| server["connection"]["in_flight"].as_u64())
        .sum();
    let queued: u64 = servers
        .iter()
        .filter_map(|server| server["connection"]["queued"].as_u64())
        .sum();
    let tools = view.operator.tools(&ViewId::Default);
    let tokens: usize = tools.iter().map(|tool| tool.tokens).sum();
    let counter = |name: &str| status["counters"][name].as_u64().unwrap_or(0);
    let waiting = match queued {
        0 => String::new(),
        queued => format!("{} waiting", text::count(queued)),
    };
    let (answered, failed) = (counter("calls_answered"), counter("calls_failed"));
    html! {
        dl .figures {
            (parts::figure("Servers up", &up.to_string(), &format!("of {}", servers.len())))
            (parts::figure("Tools", &text::count(tools.len() as u64),
                &format!("{} tokens", text::count(tokens as u64))))
            (parts::figure("Sessions", &text::count(status["sessions"].as_u64().unwrap_or(0)), ""))
            (parts::figure("Calls in flight", &text::count(in_flight), &waiting))
            (parts::figure("Calls answered", &text::count(answered), "in all"))
            (parts::figure("Calls failed", &text::count(failed), "in all"))
        }
    }
}

fn troubled_servers(troubled: &[&Value], view: &View<'_>) -> Markup {
    html! {
        @if !troubled.is_empty() {
            section aria-labelledby="attention" {
                h2 #attention .upper { "Needs attention" }
                ul .rows.card {
                    @for server in troubled { (troubled_server(server, view)) }
                }
            }
        }
    }
}

fn troubled_server(server: &Value, view: &View<'_>) -> Markup {
    let name = server["name"].as_str().unwrap_or_default();
    let child = &server["connection"]["shared"];
    let since = parts::since(child);
    html! {
        li .row {
            div .grow {
                p .title {
                    a href=(format!("/ui/servers/{name}")) { (text::line(name)) }
                    (parts::state(server))
                    @if !since.is_empty() { span .hint { "for " (since) } }
                }
                @let why = reason(server);
                @if !why.is_empty() { p .why { (text::sentence(&why)) } }
            }
            div .actions { (parts::remedies(server, view)) }
        }
    }
}

fn others(status: &Value) -> Markup {
    let servers = by_trouble(status);
    let well: Vec<&&Value> = servers
        .iter()
        .filter(|server| parts::is_well(server))
        .collect();
    html! {
        @if servers.is_empty() {
            (parts::empty("No server is configured", html! {
                a href="/ui/servers/new" { "Add the first one" }
                ", or write it into the configuration file."
            }))
        } @else if !well.is_empty() {
            section aria-labelledby="well" {
                h2 #well { @if well.len() < servers.len() { "Other servers" } @else { "Servers" } }
                ul .rows.card {
                    @for server in well {
                        @let name = server["name"].as_str().unwrap_or_default();
                        li .row {
                            p .title.grow {
                                a href=(format!("/ui/servers/{name}")) { (text::line(name)) }
                                (parts::state(server))
                                span .hint { (parts::since(&server["connection"]["shared"])) }
                            }
                            span .hint {
                                (text::many(server["items"]["tools"].as_u64().unwrap_or(0), "tool", "tools"))
                            }
                        }
                    }
                }
            }
        }
    }
}
