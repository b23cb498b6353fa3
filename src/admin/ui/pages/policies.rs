//! `/ui/policies`: what clients may use, and how changed policies decide on recorded calls.

use maud::{Markup, html};

use crate::admin::operator::TestedCalls;
use crate::admin::ui::fields::{Fields, field};
use crate::admin::ui::page::{Page, Section, View};
use crate::admin::ui::paging::ROWS;
use crate::admin::ui::parts::{self, Column, ROW_ACTIONS};
use crate::admin::ui::text;
use crate::auth::{Effect, Policies, PolicyRule};
use crate::id::Principal;

const EXAMPLE: &str =
    "[policies.careful]\nwhen = 'tool.annotations.destructiveHint'\neffect = \"deny\"";

const COLUMNS: [Column; 4] = [
    ("Policy", "", ""),
    ("Effect", "", ""),
    ("Condition", "", ""),
    ROW_ACTIONS,
];

pub(super) fn page(view: &View<'_>) -> Page {
    let policies = view.operator.state.catalog.policies().unwrap_or_default();
    let otherwise = match policies.default {
        Effect::Allow => "allowed",
        Effect::Deny => "denied",
    };
    let rows = html! { @for rule in &policies.rules { (row(view, rule)) } };
    let write = html! { a .button.primary href="/ui/config?at=policies" { "Edit policies" } };
    Page::new(Section::Policies, "Policies").fixed(html! {
        (parts::heading("Policies", Some(write)))
        @if policies.rules.is_empty() {
            (parts::empty("No policies yet", html! {
                "Every request of a client is " (otherwise) ". Write a policy into the "
                a href="/ui/config" { "configuration" } ":"
                (text::block(EXAMPLE))
            }))
        } @else {
            (parts::table(view, ("policies", "Policies"), &COLUMNS, &rows))
        }
        p .hint.after {
            "The first policy whose condition holds decides; otherwise a request is " (otherwise)
            ". The editor tests changed policies with recorded calls."
        }
    })
}

fn row(view: &View<'_>, rule: &PolicyRule) -> Markup {
    let when = String::from(rule.when.clone());
    let when = view.operator.state.log.secrets().masked(&when);
    html! {
        tr {
            td .strong { (text::line(&rule.name)) }
            td {
                @match rule.effect {
                    Effect::Allow => { (parts::badge("good", "allow")) }
                    Effect::Deny => { (parts::badge("bad", "deny")) }
                }
            }
            td .wide { (text::code(&when)) }
            td .tail { a .button href={ "/ui/config?at=policies." (rule.name) } { "Edit" } }
        }
    }
}

/// How policies would decide on recorded calls if the client of a form had made them.
pub(super) async fn tested(view: &View<'_>, policies: &Policies, form: &Fields) -> Markup {
    let keys = view.operator.state.keys.load();
    let key = keys.iter().find(|key| field(form, KEY) == Some(&key.name));
    let (principal, scopes) = match key {
        Some(key) => (key.principal.clone(), key.scopes.clone()),
        None => (Principal::default(), None),
    };
    let tested = view.operator.test_policies(policies, (&principal, &scopes));
    html! {
        h2 { "Policies" }
        @match tested.await {
            Ok(tested) => { (outcome(&tested)) }
            Err(why) => { p .hint { (text::full_sentence(&why.message)) } }
        }
    }
}

/// The form field with the name of the key whose client made the calls of a test.
const KEY: &str = "key";

/// A choice of the client for [`tested`].
pub(super) fn client_field(view: &View<'_>, form: &Fields) -> Markup {
    let keys = view.operator.state.keys.load();
    html! {
        @if !keys.is_empty() {
            label for=(KEY) { "Policies for" }
            select id=(KEY) name=(KEY) {
                option value="" { "clients without a key" }
                @for key in keys.iter() {
                    option value=(key.name) selected[field(form, KEY) == Some(&key.name)] { (text::line(&key.name)) }
                }
            }
            button type="submit" formaction="/ui/config/plan" { "Test" }
        }
    }
}

fn outcome(found: &TestedCalls) -> Markup {
    let changed = found.changed.iter();
    let count = |number: usize| text::many(number as u64, "recorded call", "recorded calls");
    html! {
        @if found.changed.is_empty() {
            p .notice.done { "Nothing changes for " (count(found.tested)) "." }
        } @else {
            p .notice.warn { (found.changed.len()) " of " (count(found.tested)) " would be decided differently." }
            ul .rows.card {
                @for (call, denial) in changed.take(ROWS) {
                    li .row {
                        div .grow {
                            a href={ "/ui/calls/" (call.id) } { (text::line(call.title())) }
                            @if let Some(denial) = denial { p .why { (text::full_sentence(denial)) } }
                        }
                        (text::moment(call.timestamp))
                        @if denial.is_some() { (parts::badge("bad", "denied")) } @else { (parts::badge("good", "allowed")) }
                    }
                }
            }
        }
        p .hint.after {
            "History keeps no principals: one client is taken for all. "
            @if found.skipped > 0 { (count(found.skipped)) " could not be tested, because history has not all of them, or no server has what they name." }
        }
    }
}
