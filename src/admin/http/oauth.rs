//! `/oauth/…`: the gateway signs in to servers.

use serde_json::json;

use super::answer::ApiAnswer;
use super::request::ApiRequest;
use crate::admin::control_request::{LoginOrder, LoginOrigin};
use crate::protocol::Failure;

/// `GET /oauth/authorize/ID`: leads to the page to sign in at.
pub(super) async fn authorize(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let redirect_uri = call.query.text("redirect_uri").map(str::to_owned);
    let order = LoginOrder::Begin {
        redirect_uri,
        origin: LoginOrigin::Api,
    };
    let begun = call
        .parts
        .operator
        .login(call.name(), user(&call), order)
        .await?;
    Ok(ApiAnswer::redirect(
        begun["url"].as_str().unwrap_or_default(),
    ))
}

/// `POST /api/servers/ID/login`: the same page, for programs.
pub(super) async fn login(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let redirect_uri = call.sole_text("redirect_uri")?;
    let order = LoginOrder::Begin {
        redirect_uri,
        origin: LoginOrigin::Api,
    };
    let begun = call
        .parts
        .operator
        .login(call.name(), user(&call), order)
        .await?;
    Ok(ApiAnswer::json(begun))
}

pub(super) async fn refresh(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let operator = &call.parts.operator;
    let refreshed = operator
        .login(call.name(), user(&call), LoginOrder::Refresh)
        .await?;
    Ok(ApiAnswer::json(refreshed))
}

pub(super) async fn forget(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let operator = &call.parts.operator;
    operator
        .login(call.name(), user(&call), LoginOrder::Forget)
        .await?;
    Ok(ApiAnswer::no_content())
}

pub(super) async fn list(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let logins = call.parts.operator.logins().await;
    Ok(ApiAnswer::json(json!({ "logins": logins })))
}

/// The user whose login it is, if it is not that of the gateway.
fn user(call: &ApiRequest<'_>) -> Option<String> {
    call.query.text("principal").map(str::to_owned)
}
