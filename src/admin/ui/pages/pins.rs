//! `/ui/pins`: the tools whose definition nobody approved, with what changed.

use maud::{Markup, html};
use serde_json::Value;

use crate::admin::ui::fields::{Fields, field};
use crate::admin::ui::page::{Outcome, Page, Section, View};
use crate::admin::ui::{parts, text};
use crate::protocol::{ErrorKind, Failure};

/// Tools on the page.
const SHOWN_MAX: usize = 50;

/// The member of a form that names a definition: its digest, a space, and the tool.
const DEFINITION: &str = "definition";

/// The differences stay as they are, so that a definition is approved only as it was read.
pub(super) fn page(view: &View<'_>) -> Page {
    let pins = view.operator.pins();
    let unapproved = unapproved(&pins);
    let mut shown: Vec<(&str, Vec<Value>)> = Vec::new();
    for pin in unapproved.iter().take(SHOWN_MAX) {
        let (server, tool) = (word(pin, "server"), word(pin, "tool"));
        // One that is gone meanwhile needs nothing any more.
        let Ok(pin) = view.operator.pin(server, tool) else {
            continue;
        };
        match shown.last_mut() {
            Some((last, tools)) if *last == server => tools.push(pin),
            _ => shown.push((server, vec![pin])),
        }
    }
    Page::new(Section::Tools, "Changed tools").fixed(html! {
        p .crumb { a href="/ui/tools" { "Tools" } }
        (parts::heading("Changed tools", None))
        @if pins.is_empty() {
            (parts::empty("No tool is pinned",
                html! { "With " code { "pin_tools" } " in the configuration, tools wait here when their definition changes." }))
        } @else if shown.is_empty() {
            (parts::empty("Every tool is as it was approved",
                html! { (text::many(pins.len() as u64, "tool is", "tools are")) " pinned." }))
        }
        @if !shown.is_empty() {
            p .hint { "These definitions are not the ones that were approved. Read them first: a model does what a tool says of itself." }
        }
        @for (server, tools) in &shown { (of_server(server, tools, view)) }
        @if unapproved.len() > SHOWN_MAX {
            p .hint.after { (unapproved.len() - SHOWN_MAX) " more: they appear when these are approved." }
        }
    })
}

fn word<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
}

/// The pins with a definition that nobody approved.
pub(super) fn unapproved(pins: &[Value]) -> Vec<&Value> {
    let is_other = |pin: &&Value| matches!(word(pin, "state"), "changed" | "new");
    pins.iter().filter(is_other).collect()
}

fn of_server(server: &str, tools: &[Value], view: &View<'_>) -> Markup {
    let all: Vec<String> = tools.iter().flat_map(definitions).collect();
    html! {
        section aria-label=(server) {
            header .heading.after {
                h2 .title { a href=(format!("/ui/servers/{server}")) { (text::line(server)) } }
                @if all.len() > 1 { (approval(server, &all, &format!("Approve all {} of {server}", all.len()), view)) }
            }
            @for pin in tools { (one(server, pin, view)) }
        }
    }
}

/// The definitions of a tool that nobody approved, as forms name them.
fn definitions(pin: &Value) -> Vec<String> {
    let tool = word(pin, "tool");
    let listed = pin["listed"].as_array().into_iter().flatten();
    let listed = listed.filter(|it| it["state"] != "pinned");
    listed
        .map(|it| format!("{} {tool}", word(it, "digest")))
        .collect()
}

fn approval(server: &str, definitions: &[String], label: &str, view: &View<'_>) -> Markup {
    html! {
        form method="post" action="/ui/pins" {
            (parts::form_token(view))
            input type="hidden" name="server" value=(server);
            @for definition in definitions { input type="hidden" name=(DEFINITION) value=(definition); }
            button type="submit" { (text::line(label)) }
        }
    }
}

fn one(server: &str, pin: &Value, view: &View<'_>) -> Markup {
    let tool = word(pin, "tool");
    let listed = pin["listed"].as_array().into_iter().flatten();
    html! {
        @for definition in listed.filter(|it| it["state"] != "pinned") {
            div .card.padded.after {
                p .title {
                    (text::code(tool)) " "
                    (parts::badge("warn", word(definition, "state")))
                    @if pin["suspended"] == true { " " (parts::badge("bad", "withheld from clients")) }
                }
                @if let Some(hidden) = definition["hidden"].as_str() {
                    p .notice.bad.after { "It has " (text::line(hidden)) "." }
                }
                @match definition["diff"].as_str() {
                    Some(diff) => { (text::diff(diff)) }
                    None => {
                        p .hint.after { "It was not there when the tools of this server were pinned." }
                        (text::block(&serde_json::to_string_pretty(&definition["definition"]).unwrap_or_default()))
                    }
                }
                div .actions.after {
                    @let named = format!("{} {tool}", word(definition, "digest"));
                    (approval(server, &[named], &format!("Approve {tool}"), view))
                }
            }
        }
    }
}

/// Approves the definitions that the form names, and no others.
///
/// # Errors
///
/// Says that the form names none, or that one is not listed any more.
pub(super) async fn approve(view: &View<'_>, form: &Fields) -> Result<Outcome, Failure> {
    let server = field(form, "server").unwrap_or_default();
    let named = form.iter().filter(|(name, _)| name == DEFINITION);
    let named: Vec<(&str, &str)> = named.filter_map(|(_, it)| it.split_once(' ')).collect();
    if named.is_empty() {
        let message = "form: `definition` is missing";
        return Err(Failure::new(ErrorKind::InvalidRequest, message));
    }
    let mut refused = Vec::new();
    for (digest, tool) in &named {
        let approved = view.operator.approve_pins(
            server,
            Some((*tool).to_owned()),
            Some((*digest).to_owned()),
        );
        refused.extend(approved.await.err());
    }
    let approved = named.len() - refused.len();
    let message = match (named.as_slice(), refused.pop()) {
        (_, Some(failure)) if approved == 0 => return Err(failure),
        (all, Some(failure)) => {
            let message = failure.message;
            format!(
                "{approved} of {} definitions are approved, the others not: {message}",
                all.len()
            )
        }
        ([(_, tool)], None) => format!("{tool} of {server} is approved."),
        (all, None) => format!("{} definitions of {server} are approved.", all.len()),
    };
    Ok(Outcome::Done {
        to: "/ui/pins".to_owned(),
        message,
    })
}
