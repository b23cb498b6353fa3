//! `/oauth/…`: endpoints for signing the gateway in to servers.

use super::answer::ApiAnswer;
use super::request::{Access, ApiRequest};
use crate::admin::messages::{Forgotten, LoginRedirect, Logins, PastedAddress, SignedIn};
use crate::admin::operator::LoginOrigin;
use crate::credentials::Bearer;
use crate::protocol::Failure;

/// `GET /oauth/authorize/ID`: redirects to the sign-in page.
pub(super) async fn authorize(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let from = (call.query.text("redirect_uri"), LoginOrigin::Api);
    let begun = call
        .operator
        .begin_login(call.name(), call.principal(), from);
    Ok(ApiAnswer::redirect(&begun.await?.url))
}

/// `POST /api/servers/ID/login`: returns the sign-in page's URL, for programs.
pub(super) async fn login(mut call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let LoginRedirect { redirect_uri } = call.read_body()?;
    let origin = match call.access {
        Access::Network => LoginOrigin::Api,
        Access::Owner => LoginOrigin::CommandLine,
    };
    let from = (redirect_uri.as_deref(), origin);
    let begun = call
        .operator
        .begin_login(call.name(), call.principal(), from);
    begun.await.map(ApiAnswer::json)
}

pub(super) async fn refresh(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let refreshed = call.operator.refresh_login(call.name(), call.principal());
    refreshed.await.map(ApiAnswer::json)
}

pub(super) async fn forget(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let forgotten = call.operator.forget_login(call.name(), call.principal());
    forgotten.await.map(|_| ApiAnswer::no_content())
}

pub(super) async fn list(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let logins = call.operator.logins().await;
    Ok(ApiAnswer::json(Logins { logins }))
}

/// `POST /api/servers/ID/logout`: as [`forget`], and reports whether a login existed.
pub(super) async fn log_out(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let forgotten = call.operator.forget_login(call.name(), call.principal());
    let forgotten = forgotten.await?;
    Ok(ApiAnswer::json(Forgotten { forgotten }))
}

/// `GET /api/servers/ID/login`: the time of the last sign-in.
pub(super) async fn signed_in(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let signed_in_at = call.operator.signed_in_at(call.name(), call.principal());
    let signed_in_at = signed_in_at.await?;
    Ok(ApiAnswer::json(SignedIn { signed_in_at }))
}

/// `POST /api/logins/finish`: accepts the address that a browser was redirected to when it could
/// not reach this machine.
pub(super) async fn finish(mut call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let PastedAddress { address } = call.read_body()?;
    let query = pasted_query(&address);
    let finished = call.operator.finish_login(query, Bearer::Operator);
    finished.await.map(ApiAnswer::json)
}

/// The query of a pasted address, or the whole text if it contains no query.
fn pasted_query(address: &str) -> &str {
    let query = address.split_once('?').map_or(address, |(_, query)| query);
    query.split('#').next().unwrap_or_default()
}
