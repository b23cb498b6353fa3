//! `/ui/keys`: the API keys of clients, and a form for a new one.

use actix_web::http::StatusCode;
use maud::{Markup, html};
use secrecy::{ExposeSecret as _, SecretString};

use super::confirm::{confirm, is_sure};
use crate::admin::ui::fields::{Fields, field};
use crate::admin::ui::page::{FormOutcome, Page, Section, View};
use crate::admin::ui::parts::{Button, Column, ROW_ACTIONS};
use crate::admin::ui::pieces::Row;
use crate::admin::ui::{parts, text};
use crate::auth::{ApiKey, KeyChange, NewKey};
use crate::protocol::{ErrorKind, Failure};
use crate::telemetry::{rfc3339, unix_millis};

/// Lifetimes to choose from, in days; 0 is unlimited.
const LIFETIMES: [(&str, &str); 3] = [("90", "90 days"), ("30", "30 days"), ("0", "no limit")];

const DAY_MS: u64 = 24 * 3600 * 1000;

pub(super) fn page(view: &View<'_>) -> Page {
    shown(view, &Fields::new(), Markup::default())
}

fn shown(view: &View<'_>, values: &Fields, first: Markup) -> Page {
    let keys = view.operator.state.keys.load();
    let rows = keys.iter().map(|key| row(key, view)).collect();
    Page::new(Section::Keys, "API keys")
        .fixed(html! { (parts::heading("API keys", None)) (first) })
        .live_list("keys", rows, |rows| table(view, keys.is_empty(), rows))
        .fixed(form(view, values))
}

const COLUMNS: [Column; 5] = [
    ("Key", "", ""),
    ("Scopes", "extra", ""),
    ("Expires", "", ""),
    ("Last used", "", ""),
    ROW_ACTIONS,
];

fn table(view: &View<'_>, is_empty: bool, rows: Markup) -> Markup {
    if is_empty {
        let hint =
            html! { "Clients need none. Once there is a key, clients without one are refused." };
        return parts::empty("No API keys", hint);
    }
    parts::table(view, ("keys", "API keys"), &COLUMNS, &rows)
}

fn row(key: &ApiKey, view: &View<'_>) -> Row {
    let name = &key.name;
    let id = format!("key-{name}");
    let to = |verb: &str| format!("/ui/keys/{name}/{verb}");
    let is_expired = key.expires_at.is_some_and(|at| at <= unix_millis());
    let rule = KeyChange::policy_name(name);
    let policies = view.operator.state.catalog.policies();
    let is_restricted = policies.is_some_and(|it| it.rules.iter().any(|it| *it.name == *rule));
    let calls = key.limits.as_ref().and_then(|limits| limits.rates.calls);
    let row = html! {
        tr #(id) {
            td {
                span .strong { (text::line(name)) }
                @if is_restricted { p .why { "some servers: policy " a href={ "/ui/config?at=policies." (rule) } { (text::code(&rule)) } } }
                @if let Some(calls) = calls { p .why { "at most " (calls) " calls" } }
            }
            td .extra { @if let Some(scopes) = &key.scopes { (text::line(&scopes.to_string())) } }
            td {
                @match key.expires_at {
                    Some(at) => { (text::moment(at)) @if is_expired { " " (parts::badge("bad", "expired")) } }
                    None => "never",
                }
            }
            td { @match key.last_use.get() { Some(at) => (text::moment(at)), None => "never" } }
            td .tail {
                div .actions {
                    (Button::new(&to("rotate"), "Replace").asks().show())
                    (Button::new(&to("revoke"), "Revoke").danger().asks().show())
                }
            }
        }
    };
    Row::new(id, row)
}

fn form(view: &View<'_>, values: &Fields) -> Markup {
    let value = |name: &str| field(values, name).unwrap_or_default();
    let servers = view.operator.server_names();
    html! {
        h2 { "New key" }
        form .card.padded.server-form method="post" action="/ui/keys" {
            (parts::form_token(view))
            div .pair {
                (parts::input("name", "Name", value("name"), html! { "Such as " code { "laptop" } }))
                div .field {
                    label for="days" { "Valid for" }
                    select #days name="days" {
                        @for (days, words) in LIFETIMES { option value=(days) selected[value("days") == days] { (words) } }
                    }
                }
            }
            (parts::servers_field(&servers, values, "None chosen: all servers."))
            details open[!value("scopes").is_empty() || !value("calls").is_empty()] {
                summary { "Scopes and limits" }
                (parts::input("scopes", "Scopes", value("scopes"), html! { "Separated by spaces, such as " code { "mcpvisor:admin" } "; policies can ask for them." }))
                (parts::input("calls", "Limit of calls", value("calls"), html! { "Such as " code { "600/minute" } "." }))
            }
            button .primary type="submit" { "Create key" }
        }
    }
}

/// Creates a key, and shows it this one time.
///
/// # Errors
///
/// Returns an error when a server is unknown.
pub(super) async fn create(view: &View<'_>, form: &Fields) -> Result<FormOutcome, Failure> {
    let text = |name: &str| field(form, name).unwrap_or_default().trim();
    let days: u64 = text("days").parse().unwrap_or(0);
    let expires = || rfc3339(unix_millis().saturating_add(days.saturating_mul(DAY_MS)));
    let new = NewKey {
        expires: (days > 0).then(expires),
        scopes: text("scopes")
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
        servers: parts::chosen_servers(view, form)?,
        calls: Some(text("calls").to_owned()).filter(|calls| !calls.is_empty()),
    };
    let orders = &view.operator.config_orders;
    let made = orders
        .change_key(text("name").to_owned(), KeyChange::Add(new))
        .await;
    Ok(match made {
        Ok(key) => once(view, text("name"), key),
        Err(failure) => {
            let why =
                html! { p .notice.bad role="alert" { (text::full_sentence(&failure.message)) } };
            FormOutcome::Page(StatusCode::UNPROCESSABLE_ENTITY, shown(view, form, why))
        }
    })
}

/// The page with a new key.
fn once(view: &View<'_>, name: &str, key: Option<SecretString>) -> FormOutcome {
    let header = key.map(|key| format!("Authorization: Bearer {}", key.expose_secret()));
    let first = html! {
        section .card.padded.made aria-label="New key" {
            p .strong { "Key " (text::code(name)) " is active. Copy it now: it is not shown again." }
            (parts::snippet("key", header.as_deref().unwrap_or_default()))
            p .hint.after { "Clients send this header with every request." }
        }
    };
    FormOutcome::Page(StatusCode::OK, shown(view, &Fields::new(), first))
}

/// Replaces or revokes a key.
///
/// # Errors
///
/// Returns the reason for a refusal.
pub(super) async fn change(
    view: &View<'_>,
    (name, verb): (&str, &str),
    form: &Fields,
) -> Result<FormOutcome, Failure> {
    let (change, action) = match verb {
        "rotate" => (KeyChange::Rotate(None), "Replace"),
        "revoke" => (KeyChange::Remove, "Revoke"),
        _ => return Err(Failure::new(ErrorKind::NotFound, "page not found")),
    };
    if !is_sure(form) {
        let text = format!("{action} the key {name}? Clients that use it are refused immediately.");
        return Ok(confirm(view, form, Section::Keys, (action, &text)));
    }
    let orders = &view.operator.config_orders;
    let made = orders.change_key(name.to_owned(), change).await?;
    Ok(match made {
        Some(key) => once(view, name, Some(key)),
        None => FormOutcome::Done {
            to: "/ui/keys".to_owned(),
            message: format!("key `{name}` is revoked"),
        },
    })
}
