//! Authenticates requests without credentials by their session, which remembers the credentials of
//! `initialize` (`auth.remember`). Not available over HTTP+SSE, where URLs contain the session id.

use std::sync::Arc;

use actix_web::http::header;
use actix_web::{HttpMessage as _, HttpRequest};
use futures_util::future::{Either, FutureExt as _, ready};

use super::client_address::client_address;
use super::handler::{self, Identifying, check_host_and_origin};
use super::headers::{SESSION_ID, header_text};
use crate::auth::{Identity, SessionCredentials, presented_token};
use crate::front::intake::{Incoming, RequestFailure};
use crate::front::settings::FrontSettings;
use crate::front::state::Front;
use crate::id::SessionId;
use crate::protocol::{ErrorKind, Failure};
use crate::telemetry::unix_millis;

/// Marks a request that was authenticated by its session.
struct BySession;

/// The credentials of a request, until its session remembers them.
struct Presented(SessionCredentials);

/// Identifies the client of a request by the request's credentials, or else by the credentials that
/// its session remembers.
///
/// # Errors
///
/// Returns the failure that the client reads.
pub(super) fn authenticate(
    request: &HttpRequest,
    front: &Front,
    settings: &FrontSettings,
) -> Result<Identifying, Failure> {
    let found = find(request, front, settings);
    let Some((id, remembered)) = found else {
        return handler::authenticate(request, front, settings);
    };
    check_host_and_origin(request, settings)?;
    request.extensions_mut().insert(BySession);
    let now = unix_millis();
    let verifier = front.tokens.load_full();
    if let Some(known) = remembered.identify(&settings.auth, verifier.as_ref(), now)? {
        return Ok(Either::Left(ready(Ok(known))));
    }
    let verifier = verifier.ok_or_else(handler::no_tokens)?;
    let (sessions, from) = (front.sessions.clone(), client_address(request));
    let checking = async move {
        let checked = remembered.checked_again(&verifier, from, now).await;
        let checked = checked.inspect_err(|failure| {
            if failure.kind == ErrorKind::Unauthorized {
                sessions.registry().forget_credentials(id, &remembered);
            }
        })?;
        let identity = checked.identity().clone();
        sessions.registry().remember(id, Arc::new(checked));
        Ok(identity)
    };
    Ok(Either::Right(checking.boxed_local()))
}

/// Returns the credentials that the session of a request remembers, if the request has none of its
/// own.
fn find(
    request: &HttpRequest,
    front: &Front,
    settings: &FrontSettings,
) -> Option<(SessionId, Arc<SessionCredentials>)> {
    let has_own = request.headers().contains_key(header::AUTHORIZATION)
        || (settings.auth.certificates && handler::certified(request, front).is_some());
    if !settings.auth.remember.by_session || settings.stateless || has_own {
        return None;
    }
    let id = SessionId::parse(header_text(request, &SESSION_ID)?)?;
    Some((id, front.sessions.registry().credentials(id)?))
}

/// Refuses a message outside a session if it was authenticated by a session.
///
/// # Errors
///
/// Returns the failure that the client reads.
pub(super) fn checked(
    incoming: Incoming,
    request: &HttpRequest,
    settings: &FrontSettings,
) -> Result<Incoming, RequestFailure> {
    let is_in_session = matches!(incoming, Incoming::InSession(_) | Incoming::Batch(_));
    let is_remembered =
        settings.auth.remember.by_session && request.extensions().contains::<BySession>();
    if is_remembered && !is_in_session {
        let message = "this request does not belong to a session and requires its own credentials";
        return Err(Failure::new(ErrorKind::Unauthorized, message).into());
    }
    Ok(incoming)
}

/// Keeps the credentials of a request until its session is known.
pub(super) fn note(
    identity: &Identity,
    request: &HttpRequest,
    front: &Front,
    settings: &FrontSettings,
) {
    // The session's id does not prove that its user has the key of a bound token.
    if !settings.auth.remember.by_session || identity.key.is_some() {
        return;
    }
    let bearer = header_text(request, &header::AUTHORIZATION).and_then(presented_token);
    let verifier = front.tokens.load_full();
    let presented = bearer.and_then(|(_, bearer)| {
        SessionCredentials::new(bearer, identity.clone(), verifier.as_ref(), unix_millis())
    });
    if let Some(presented) = presented {
        request.extensions_mut().insert(Presented(presented));
    }
}

/// Makes the session of a request remember the request's credentials.
pub(super) fn keep(request: &HttpRequest, front: &Front, id: SessionId) {
    let presented = request.extensions_mut().remove::<Presented>();
    if let Some(Presented(presented)) = presented {
        front.sessions.registry().remember(id, Arc::new(presented));
    }
}
