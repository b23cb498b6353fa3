//! Confirmation page for irreversible actions, for browsers without JavaScript.

use actix_web::http::StatusCode;
use maud::html;

use crate::admin::ui::fields::{FORM_TOKEN, Fields, field};
use crate::admin::ui::page::{FormOutcome, Page, Section, View};
use crate::admin::ui::parts;

/// Form field that confirms the action.
const SURE: &str = "sure";

pub(super) struct Confirmation<'q> {
    pub(super) section: Section,
    pub(super) text: &'q str,
    /// Fields that are submitted again with the confirmation.
    pub(super) fields: &'q Fields,
}

pub(super) fn is_sure(form: &Fields) -> bool {
    field(form, SURE) == Some("yes")
}

pub(super) fn confirm(view: &View<'_>, question: Confirmation<'_>) -> FormOutcome {
    let again = question.fields.iter();
    let again = again.filter(|(name, _)| name != FORM_TOKEN && name != SURE);
    let page = Page::new(question.section, "Are you sure?").fixed(html! {
        (parts::heading("Are you sure?", None))
        form .card.message method="post" action=(view.path) {
            (parts::form_token(view))
            @for (name, value) in again { input type="hidden" name=(name) value=(value); }
            p { (question.text) }
            div .actions {
                button .primary type="submit" name=(SURE) value="yes" { "Yes" }
                a .button href=(view.from) { "No" }
            }
        }
    });
    FormOutcome::Page(StatusCode::OK, page)
}
