//! Forwards a request whose session is at another replica of the cluster, before authentication and
//! unchanged: the replica that owns the session checks everything.

mod answer;
mod forwarding;
mod headers;
mod interrupted;
mod known;

use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse, web};
use futures_util::future::{FutureExt as _, LocalBoxFuture};

use crate::cluster::OwnCopy;
use crate::front::http::headers::{PROTOCOL_VERSION, SESSION_ID, header_text, sole_text};
use crate::front::intake::RequestFailure;
use crate::front::settings::FrontSettings;
use crate::front::state::Front;
use crate::id::SessionId;
use crate::protocol::{Era, Revision};
use forwarding::Forwarding;
pub(super) use headers::{hopped, note};
pub(super) use known::KnownSessions;

/// The path at which a replica answers other replicas that it is alive.
pub(super) const PING: &str = "/ping";

/// The outcome of routing: an answer, or `None` if the request is served here.
pub(super) type Routed = Result<Option<HttpResponse>, RequestFailure>;

/// Returns the answer to a ping: this replica's number and incarnation.
pub type PingAnswer = Arc<dyn Fn() -> String + Send + Sync>;

/// Answers other replicas that this one is alive, also while it starts.
pub(super) async fn ping(answer: web::Data<PingAnswer>) -> HttpResponse {
    HttpResponse::Ok().body(answer())
}

/// Returns the failure of a request to a replica that has not joined its cluster yet.
pub(super) fn not_joined() -> RequestFailure {
    forwarding::unavailable("this replica has not joined the cluster yet")
}

/// Returns how to route a request of a session that is not served here; `None` if it is served
/// here, as every request without a session is.
pub(super) fn route<'a>(
    request: &'a HttpRequest,
    payload: &'a mut web::Payload,
    front: &'a Front,
    settings: &'a FrontSettings,
    known: &'a KnownSessions,
) -> Option<LocalBoxFuture<'a, Routed>> {
    if settings.stateless {
        return None;
    }
    // A repeated header is refused here.
    let id = SessionId::parse(sole_text(request, &SESSION_ID).ok()??)?;
    let revision = header_text(request, &PROTOCOL_VERSION);
    let revision = revision.and_then(|text| text.parse::<Revision>().ok());
    if revision.is_some_and(|revision| revision.era() == Era::Modern) {
        return None;
    }
    if front.sessions.context().own_copy(id) == OwnCopy::Confirmed {
        return None;
    }
    let forwarding = Forwarding {
        request,
        front,
        settings,
        known,
        id,
    };
    Some(forwarding.run(payload).boxed_local())
}
