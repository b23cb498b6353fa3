//! Forwards a request whose session is at another replica of the cluster, before authentication and
//! unchanged: the replica that owns the session checks everything.

mod answer;
mod forwarding;
mod headers;
mod interrupted;
mod known;
mod sealed;
mod sending;

use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse, web};
use futures_util::future::{FutureExt as _, LocalBoxFuture};

use crate::cluster::OwnCopy;
use crate::front::http::headers::{PROTOCOL_VERSION, SESSION_ID, header_text, sole_text};
use crate::front::intake::RequestFailure;
use crate::front::settings::FrontSettings;
use crate::front::state::Front;
use crate::id::SessionId;
use crate::protocol::{Era, ErrorKind, Failure, Revision};
use crate::sessions::SessionlessRequest;
use forwarding::Forwarding;
pub(super) use headers::{hopped, note};
pub(super) use known::KnownSessions;
use sealed::SealedForwarding;
pub(super) use sending::Outgoing;

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
    unavailable("this replica has not joined the cluster yet")
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
    let outgoing = Outgoing::new(request, front, settings);
    forward(outgoing, payload, known, id)
}

/// Routes a request of HTTP+SSE, which is served here if its channel or session is, or if there is no
/// cluster.
pub(super) async fn route_channel(
    outgoing: Outgoing<'_>,
    payload: &mut web::Payload,
    id: Option<SessionId>,
) -> Routed {
    let (Some(known), Some(id)) = (outgoing.known(), id) else {
        return Ok(None);
    };
    match forward(outgoing, payload, known, id) {
        Some(routing) => routing.await,
        None => Ok(None),
    }
}

fn forward<'a>(
    outgoing: Outgoing<'a>,
    payload: &'a mut web::Payload,
    known: &'a KnownSessions,
    id: SessionId,
) -> Option<LocalBoxFuture<'a, Routed>> {
    let is_here = own_copy(outgoing.front, id) == OwnCopy::Confirmed;
    let forwarding = Forwarding {
        outgoing,
        known,
        id,
    };
    (!is_here).then(|| forwarding.run(payload).boxed_local())
}

/// This replica's copy of a session. A channel of HTTP+SSE has none until its client initializes it.
fn own_copy(front: &Front, id: SessionId) -> OwnCopy {
    match front.sessions.context().own_copy(id) {
        OwnCopy::None if front.channels.find(id).is_some() => OwnCopy::Confirmed,
        copy => copy,
    }
}

/// Returns how to route a request without a session whose state or task id names another replica;
/// `None` if it is served here.
pub(super) fn route_sealed<'a>(
    outgoing: Outgoing<'a>,
    sessionless: &SessionlessRequest<'_>,
) -> Option<LocalBoxFuture<'a, Routed>> {
    let forwarding = SealedForwarding {
        outgoing,
        known: outgoing.known()?,
        number: outgoing.front.sessions.elsewhere(sessionless)?,
    };
    let body = sessionless.request.frame.as_bytes().clone();
    Some(forwarding.run(body).boxed_local())
}

fn engine_unavailable() -> RequestFailure {
    unavailable("the engine of the cluster is unavailable")
}

fn unavailable(why: &str) -> RequestFailure {
    let message = format!("{why}; the request was not run: retry");
    let failure = Failure::new(ErrorKind::ReplicaUnavailable, message);
    failure.retry_after_ms(1000).into()
}
