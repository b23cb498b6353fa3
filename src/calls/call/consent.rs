//! Answers a call whose user must first sign in to its server: shows the sign-in page in a form
//! that the client supports.

use serde_json::{Value, json};

use super::{Call, CallOwner, CallState, OpeningCall};
use crate::bridge::question::{RequiredCapability, url_elicitations};
use crate::calls::client_reply::ClientReply;
use crate::calls::consent;
use crate::history::CallEnding;
use crate::protocol::{ErrorKind, Failure, RawJson, Revision, code, error_frame};

impl Call {
    /// Returns whether the call did not run because its user's sign-in has expired, and in that
    /// case asks the user to sign in again.
    pub(super) fn turns_to_user(&mut self, failure: &Failure, owner: &mut impl CallOwner) -> bool {
        if failure.kind != ErrorKind::ServerUnavailable {
            return false;
        }
        let (downstreams, server) = (&self.context.downstreams, &self.target.server);
        let Some(asking) = consent::asking(downstreams, server, &self.caller) else {
            return false;
        };
        owner.on_call_returned(self, None);
        self.state = CallState::Opening(Box::new(OpeningCall {
            outgoing: None,
            opening: Some(asking),
        }));
        true
    }

    /// Shows the user the sign-in page: as an elicitation if the client supports URL elicitations,
    /// otherwise as a link in the error message.
    pub(super) fn answer_with_page(&mut self, failure: &Failure, owner: &mut impl CallOwner) {
        let Some(page) = failure.page() else {
            return self.answer_failure(failure, owner);
        };
        let elicitation_id = (self.context.mint)().to_string();
        let error = elicitation_required(failure, page, &elicitation_id);
        let url = RequiredCapability::Url;
        let takes_url = url.is_declared(self.caller.profile.as_map());
        let (to, recorded) = (self.caller.revision, failure.without_page());
        let reply = match takes_url && to >= Revision::V2025_11_25 {
            true if self.is_modern() => {
                let pages = url_elicitations(&error).unwrap_or_default();
                return self.ask_for_url_visits(pages, owner);
            }
            true => ClientReply::Json(error_frame(&self.id, &error)),
            false => {
                let mut readable = failure.clone();
                readable.message = format!(
                    "{}: open {page} and sign in there, then repeat the call. The link works once \
                     and expires after ten minutes",
                    failure.message
                );
                let decorator = self.context.decorator(&self.caller);
                decorator.failed(&self.method, &self.id, &readable, to)
            }
        };
        self.reply(reply, CallEnding::Failed(&recorded), owner);
    }
}

/// Returns the `URLElicitationRequiredError` of 2025-11-25 (S-REQ-05).
fn elicitation_required(failure: &Failure, page: &str, elicitation_id: &str) -> RawJson {
    let mut data: Value = failure.without_page().data();
    data["elicitations"] = json!([{
        "mode": "url",
        "elicitationId": elicitation_id,
        "url": page,
        "message": format!("{}: sign in there", failure.message),
    }]);
    RawJson::from_value(&json!({
        "code": code::URL_ELICITATION_REQUIRED,
        "message": failure.message,
        "data": data,
    }))
}
