//! The question before an irreversible action: a page, which the script shows as a dialog.

use actix_web::http::StatusCode;
use maud::html;

use crate::admin::ui::fields::{FORM_TOKEN, Fields, field};
use crate::admin::ui::page::{FormOutcome, Page, Section, View};
use crate::admin::ui::parts;

/// Form field that confirms the action.
const SURE: &str = "sure";

pub(super) fn is_sure(form: &Fields) -> bool {
    field(form, SURE) == Some("yes")
}

/// Asks before an action, whose name is the label of the button. The fields of the form are submitted
/// again with the answer.
pub(super) fn confirm(
    view: &View<'_>,
    form: &Fields,
    section: Section,
    (action, question): (&str, &str),
) -> FormOutcome {
    let again = form.iter();
    let again = again.filter(|(name, _)| name != FORM_TOKEN && name != SURE);
    let page = Page::new(section, "Are you sure?").fixed(html! {
        (parts::heading("Are you sure?", None))
        form #question .card.message method="post" action=(view.path) {
            (parts::form_token(view))
            @for (name, value) in again { input type="hidden" name=(name) value=(value); }
            p { (question) }
            div .actions {
                a .button href=(view.from) { "Cancel" }
                button .primary type="submit" name=(SURE) value="yes" { (action) }
            }
        }
    });
    FormOutcome::Page(StatusCode::OK, page)
}
