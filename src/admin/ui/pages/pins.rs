//! `/ui/pins`: server definitions that need approval, with their changes.

use maud::{Markup, html};

use crate::admin::ui::fields::{Fields, field};
use crate::admin::ui::page::{FormOutcome, Page, Section, View};
use crate::admin::ui::{parts, text};
use crate::catalog::{PinKind, PinState};
use crate::protocol::{ErrorKind, Failure};
use crate::publisher::{ListedDefinition, ListedState, PinDetail, PinView};

/// Maximum items on the page.
const SHOWN_MAX: usize = 50;

/// Form field that identifies a definition by digest, kind and name, separated by spaces.
const DEFINITION: &str = "definition";

/// The differences are not live, so that a definition is approved exactly as it was displayed.
pub(super) fn page(view: &View<'_>) -> Page {
    let pins = view.operator.pins();
    let unapproved = unapproved(&pins);
    let mut shown: Vec<(&str, Vec<PinDetail>)> = Vec::new();
    for pin in unapproved.iter().take(SHOWN_MAX) {
        let server = pin.server.as_str();
        // An item that disappeared meanwhile needs no approval.
        let Ok(pin) = view.operator.pin(server, (pin.kind, &pin.name)) else {
            continue;
        };
        match shown.last_mut() {
            Some((last, items)) if *last == server => items.push(pin),
            _ => shown.push((server, vec![pin])),
        }
    }
    Page::new(Section::Tools, "Changed definitions").fixed(html! {
        p .crumb { a href="/ui/tools" { "Tools" } }
        (parts::heading("Changed definitions", None))
        @if pins.is_empty() {
            (parts::empty("Nothing is pinned",
                html! { "With " code { "pin_tools" } " in the configuration, changed definitions of tools, prompts and resources wait here for approval." }))
        } @else if shown.is_empty() {
            (parts::empty("Everything is approved",
                html! { (text::many(pins.len() as u64, "definition is", "definitions are")) " pinned." }))
        }
        @if !shown.is_empty() {
            p .hint { "These definitions differ from the approved ones. Read them before you approve: models follow these texts." }
        }
        @for (server, items) in &shown { (of_server(server, items, view)) }
        @if unapproved.len() > SHOWN_MAX {
            p .hint.after { (unapproved.len() - SHOWN_MAX) " more appear when these are approved." }
        }
    })
}

/// Pins with a definition that no operator approved.
pub(super) fn unapproved(pins: &[PinView]) -> Vec<&PinView> {
    let is_other = |pin: &&PinView| matches!(pin.state, ListedState::Changed | ListedState::New);
    pins.iter().filter(is_other).collect()
}

fn of_server(server: &str, items: &[PinDetail], view: &View<'_>) -> Markup {
    let all: Vec<String> = items.iter().flat_map(definitions).collect();
    html! {
        section aria-label=(server) {
            header .heading.after {
                h2 .title { a href=(format!("/ui/servers/{server}")) { (text::line(server)) } }
                @if all.len() > 1 { (approval(server, &all, &format!("Approve all {} of {server}", all.len()), view)) }
            }
            @for pin in items { (one(server, pin, view)) }
        }
    }
}

/// A definition's identification in forms.
fn named(pin: &PinView, definition: &ListedDefinition) -> String {
    let (digest, kind) = (&definition.digest, pin.kind.as_str());
    format!("{digest} {kind} {}", pin.name)
}

/// The item's definitions that no operator approved.
fn unapproved_definitions(pin: &PinDetail) -> impl Iterator<Item = &ListedDefinition> {
    let listed = pin.listed.iter();
    listed.filter(|it| it.state != Some(PinState::Pinned))
}

/// Identifications of the unapproved definitions, for forms.
fn definitions(detail: &PinDetail) -> Vec<String> {
    let listed = unapproved_definitions(detail);
    listed.map(|it| named(&detail.pin, it)).collect()
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

fn one(server: &str, detail: &PinDetail, view: &View<'_>) -> Markup {
    let pin = &detail.pin;
    let (kind, name) = (pin.kind.as_str(), &pin.name);
    html! {
        @for definition in unapproved_definitions(detail) {
            div .card.padded.after {
                p .title {
                    (text::line(kind)) " " (text::code(name)) " "
                    (parts::badge("warn", definition.state.map_or("", |state| ListedState::from(state).as_str())))
                    @if pin.suspended { " " (parts::badge("bad", "withheld from clients")) }
                }
                @if let Some(hidden) = &definition.hidden {
                    p .notice.bad.after { "It has " (text::line(hidden)) "." }
                }
                @match &definition.diff {
                    Some(diff) => { (text::diff(diff)) }
                    None => {
                        p .hint.after { "It did not exist when this server was pinned." }
                        (text::block(&serde_json::to_string_pretty(&definition.definition).unwrap_or_default()))
                    }
                }
                div .actions.after {
                    (approval(server, &[named(pin, definition)], &format!("Approve {name}"), view))
                }
            }
        }
    }
}

/// Splits a definition's identification into digest, kind and name.
fn split(definition: &str) -> Option<(&str, PinKind, &str)> {
    let (digest, item) = definition.split_once(' ')?;
    let (kind, name) = item.split_once(' ')?;
    Some((digest, PinKind::named(kind)?, name))
}

/// Approves exactly the definitions in the form.
///
/// # Errors
///
/// Returns an error when the form contains no definition, or one that is no longer listed.
pub(super) async fn approve(view: &View<'_>, form: &Fields) -> Result<FormOutcome, Failure> {
    let server = field(form, "server").unwrap_or_default();
    let named = form.iter().filter(|(name, _)| name == DEFINITION);
    let named: Vec<(&str, PinKind, &str)> = named.filter_map(|(_, it)| split(it)).collect();
    if named.is_empty() {
        let message = "form: `definition` is missing";
        return Err(Failure::new(ErrorKind::InvalidRequest, message));
    }
    let mut refused = Vec::new();
    for (digest, kind, name) in &named {
        let of = Some((*kind, *name));
        let approved = view.operator.approve_pins(server, of, Some(digest));
        refused.extend(approved.await.err());
    }
    let approved = named.len() - refused.len();
    let message = match (named.as_slice(), refused.pop()) {
        (_, Some(failure)) if approved == 0 => return Err(failure),
        (all, Some(failure)) => {
            let message = failure.message;
            format!(
                "{approved} of {} definitions are approved; the others failed: {message}",
                all.len()
            )
        }
        ([(_, _, name)], None) => format!("{name} of {server} is approved."),
        (all, None) => format!("{} definitions of {server} are approved.", all.len()),
    };
    Ok(FormOutcome::Done {
        to: "/ui/pins".to_owned(),
        message,
    })
}
