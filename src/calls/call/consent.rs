//! A call whose user has to sign in to its server first: the page, in the words of the client.

use serde_json::{Value, json};

use super::{Call, CallOwner, CallState, OpeningCall};
use crate::bridge::question::{RequiredCapability, url_elicitations};
use crate::calls::client_reply::ClientReply;
use crate::calls::consent;
use crate::history::CallEnding;
use crate::protocol::{ErrorKind, Failure, RawJson, Revision, code, error_frame};

impl Call {
    /// Whether the call did not run because the sign-in of its user is over; then the user is asked
    /// for another.
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

    /// Shows the user the page to sign in at: as an elicitation, where the client takes one, or as a
    /// link to read.
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
                    "{}: open {page} and sign in there, then call again. The link is good once, \
                     for ten minutes",
                    failure.message
                );
                let decorator = self.context.decorator(&self.caller);
                decorator.failed(&self.method, &self.id, &readable, to)
            }
        };
        self.reply(reply, CallEnding::Failed(&recorded), owner);
    }
}

/// The error of 2025-11-25 that demands a visit to a page (S-REQ-05).
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
