//! Requests with the server's token, and the second attempt when it is refused.

use std::sync::Arc;

use awc::error::SendRequestError;
use awc::http::header::{AUTHORIZATION, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use awc::http::{StatusCode, Uri};
use awc::{Client, ClientResponse, FrozenClientRequest};
use bytes::Bytes;

use super::redirect;
use crate::credentials::{AccessToken, Credential};

/// Sends a request with these headers of its own and the token of the server, if there is one; an
/// empty body is none. Redirects are followed, and a refused token is renewed: then the request did
/// not run, and is sent once more. Returns where the answer came from, if not from where the
/// request went.
///
/// # Errors
///
/// Returns [`SendRequestError`] when a request failed on its way.
pub(in crate::transport) async fn send(
    credential: Option<&Arc<Credential>>,
    client: &Client,
    request: &FrozenClientRequest,
    extra: &HeaderMap,
    body: Bytes,
) -> Result<(ClientResponse, Option<Uri>), SendRequestError> {
    let token = credential.and_then(Credential::token);
    let Some(token) = token else {
        let answer = send_once(client, request, extra, body.clone()).await?;
        return match credential {
            Some(credential) if is_refusal(&answer.0) => {
                let again = send_again(credential, client, request, extra, body, None, answer);
                Box::pin(again).await
            }
            _ => Ok(answer),
        };
    };
    let with_token = async {
        let headers = with_token(extra, &token);
        let answer = send_once(client, request, &headers, body.clone()).await?;
        match credential {
            Some(credential) if is_refusal(&answer.0) => {
                let sent = Some(Arc::clone(&token));
                send_again(credential, client, request, extra, body, sent, answer).await
            }
            _ => Ok(answer),
        }
    };
    Box::pin(with_token).await
}

/// Whether the server wants another token (RFC 6750, section 3.1).
pub(in crate::transport) fn is_refusal(response: &ClientResponse) -> bool {
    match response.status() {
        StatusCode::UNAUTHORIZED => true,
        StatusCode::FORBIDDEN => {
            challenge(response).is_some_and(|text| text.contains("insufficient_scope"))
        }
        _ => false,
    }
}

/// Sends the request again if another token is to be had; else the refusal stands.
async fn send_again(
    credential: &Arc<Credential>,
    client: &Client,
    request: &FrozenClientRequest,
    extra: &HeaderMap,
    body: Bytes,
    sent: Option<Arc<AccessToken>>,
    refusal: (ClientResponse, Option<Uri>),
) -> Result<(ClientResponse, Option<Uri>), SendRequestError> {
    if let Err(error) = credential.renew(sent, challenge(&refusal.0)).await {
        log::debug!(error:%; "the refused token stands");
        return Ok(refusal);
    }
    let Some(token) = credential.token() else {
        return Ok(refusal);
    };
    send_once(client, request, &with_token(extra, &token), body).await
}

async fn send_once(
    client: &Client,
    request: &FrozenClientRequest,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<(ClientResponse, Option<Uri>), SendRequestError> {
    let response = match (headers.is_empty(), body.is_empty()) {
        (true, true) => request.send().await?,
        (true, false) => request.send_body(body.clone()).await?,
        (false, true) => request.extra_headers(headers.clone()).send().await?,
        (false, false) => {
            let request = request.extra_headers(headers.clone());
            request.send_body(body.clone()).await?
        }
    };
    if !redirect::leads_on(&response) {
        return Ok((response, None));
    }
    let followed = redirect::follow(client, request, headers, body, response);
    let (response, uri) = Box::pin(followed).await?;
    Ok((response, Some(uri)))
}

fn challenge(response: &ClientResponse) -> Option<&str> {
    response.headers().get(WWW_AUTHENTICATE)?.to_str().ok()
}

fn with_token(extra: &HeaderMap, token: &AccessToken) -> HeaderMap {
    let mut headers = extra.clone();
    // Tokens are visible ASCII: they were checked when they came.
    if let Ok(mut value) = HeaderValue::from_str(token.expose()) {
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    headers
}
