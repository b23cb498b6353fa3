//! Requests about the gateway itself that only the owner of the data directory may make.

use super::answer::ApiAnswer;
use super::request::ApiRequest;
use crate::admin::api_token::ApiToken;
use crate::admin::messages::{DashboardLink, Token};
use crate::admin::operator::no_api;
use crate::protocol::{ErrorKind, Failure};

/// `POST /api/config/reload`: reloads the configuration file and returns the result.
pub(super) async fn reload(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let view = call.operator.config_orders.reload().await?;
    Ok(ApiAnswer::json(view))
}

/// `GET /api/token`.
pub(super) async fn token(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    Ok(shown(token_of(&call)?))
}

/// `POST /api/token/rotate`: replaces the token.
pub(super) async fn rotate(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let token = token_of(&call)?;
    token.rotate().await.map_err(|error| {
        let message = format!("cannot store the new token; the old one stays valid: {error}");
        Failure::new(ErrorKind::Internal, message)
    })?;
    Ok(shown(token))
}

/// `POST /api/dashboard/link`.
pub(super) async fn dashboard_link(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let link = call.operator.login_link()?;
    Ok(ApiAnswer::json(DashboardLink { link }))
}

fn token_of<'a>(call: &ApiRequest<'a>) -> Result<&'a ApiToken, Failure> {
    call.operator
        .token
        .as_deref()
        .ok_or_else(|| no_api("API and no token"))
}

fn shown(token: &ApiToken) -> ApiAnswer {
    ApiAnswer::json(Token {
        token: token.expose(),
    })
}
