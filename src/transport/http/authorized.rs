//! Sends requests with the server's token, follows redirects, and retries once when the token is
//! refused.

use std::sync::Arc;

use awc::error::SendRequestError;
use awc::http::StatusCode;
use awc::http::header::{
    AUTHORIZATION, COOKIE, HeaderMap, HeaderName, HeaderValue, WWW_AUTHENTICATE,
};
use awc::{Client, ClientResponse, FrozenClientRequest};
use bytes::Bytes;
use url::Url;

use super::cookies::CookieJar;
use super::dialer::{url_of_wire, wire_uri};
use super::redirect;
use crate::credentials::{AccessToken, Credential};

/// The proof of possession of a token's key (RFC 9449).
pub(super) const DPOP: HeaderName = HeaderName::from_static("dpop");

/// The nonce that the next proof has to contain.
pub(super) const DPOP_NONCE: HeaderName = HeaderName::from_static("dpop-nonce");

/// A request with additional headers, and the client that sends it. An empty `body` is not sent.
pub(in crate::transport) struct AuthorizedRequest<'a> {
    pub(in crate::transport) credential: Option<&'a Arc<Credential>>,
    pub(in crate::transport) cookies: &'a CookieJar,
    /// Sends the request again after a redirect.
    pub(in crate::transport) client: &'a Client,
    pub(in crate::transport) request: &'a FrozenClientRequest,
    pub(in crate::transport) extra: &'a HeaderMap,
    pub(in crate::transport) body: Bytes,
}

impl AuthorizedRequest<'_> {
    /// Sends the request with the server's token, if any, until the answer is final. Returns the
    /// answer, and its URL if a redirect changed it.
    ///
    /// # Errors
    ///
    /// Returns [`SendRequestError`] if sending failed.
    pub(in crate::transport) async fn send(
        self,
    ) -> Result<(ClientResponse, Option<Url>), SendRequestError> {
        let token = self.credential.and_then(Credential::token);
        let response = self.send_once(token.as_deref()).await?;
        self.settle(token, response).await
    }

    /// Continues after the first answer: follows redirects, and renews a refused token. A request
    /// with a refused token did not run, so it is sent once more.
    ///
    /// # Errors
    ///
    /// Returns [`SendRequestError`] if sending failed.
    pub(in crate::transport) async fn settle(
        self,
        sent: Option<Arc<AccessToken>>,
        response: ClientResponse,
    ) -> Result<(ClientResponse, Option<Url>), SendRequestError> {
        let answer = self.follow(sent.as_deref(), response).await?;
        let Some(credential) = self.credential.filter(|_| is_refusal(&answer.0)) else {
            return Ok(answer);
        };
        let challenge = challenge(&answer.0);
        if let Err(error) = credential.renew(sent, challenge.as_deref()).await {
            log::debug!(error:%; "refused token could not be renewed");
            return Ok(answer);
        }
        let token = credential.token();
        let response = self.send_once(token.as_deref()).await?;
        self.follow(token.as_deref(), response).await
    }

    async fn send_once(
        &self,
        token: Option<&AccessToken>,
    ) -> Result<ClientResponse, SendRequestError> {
        let response = self.send_proven(token).await?;
        let nonce = response.headers().get(DPOP_NONCE);
        let nonce = nonce.and_then(|nonce| nonce.to_str().ok());
        let is_bound = token
            .zip(nonce)
            .is_some_and(|(it, nonce)| it.set_nonce(nonce));
        // The server accepts the same token in a proof with its nonce (RFC 9449, section 9).
        match is_bound && wants_nonce(&response) {
            true => self.send_proven(token).await,
            false => Ok(response),
        }
    }

    async fn send_proven(
        &self,
        token: Option<&AccessToken>,
    ) -> Result<ClientResponse, SendRequestError> {
        let headers = self.headers(token, None);
        let response = match (headers.is_empty(), self.body.is_empty()) {
            (true, true) => self.request.send().await,
            (true, false) => self.request.send_body(self.body.clone()).await,
            (false, true) => self.request.extra_headers(headers).send().await,
            (false, false) => {
                let request = self.request.extra_headers(headers);
                request.send_body(self.body.clone()).await
            }
        }?;
        self.cookies
            .absorb(self.request.get_uri(), response.headers());
        Ok(response)
    }

    /// The headers of the request, which a redirect can have led to another URL.
    fn headers(&self, token: Option<&AccessToken>, other_url: Option<&Url>) -> HeaderMap {
        let mut headers = with_token(self.extra, token);
        if let Some(token) = token.filter(|it| it.is_bound())
            && let Some(proof) = self.proof(token, other_url)
        {
            headers.insert(DPOP, proof);
        }
        // Configured cookies are looked up last, because most servers set no cookie.
        let configured = || self.request.headers().get(COOKIE);
        if let Some(cookie) = self.cookies.header(self.request.get_uri(), configured) {
            headers.insert(COOKIE, cookie);
        }
        headers
    }

    fn proof(&self, token: &AccessToken, other_url: Option<&Url>) -> Option<HeaderValue> {
        let method = self.request.get_method().as_str();
        let proof = match other_url {
            Some(url) => token.proof(method, url),
            None => token.proof(method, &url_of_wire(self.request.get_uri())?),
        };
        HeaderValue::from_str(&proof?).ok()
    }

    async fn follow(
        &self,
        token: Option<&AccessToken>,
        response: ClientResponse,
    ) -> Result<(ClientResponse, Option<Url>), SendRequestError> {
        if !redirect::leads_on(&response) {
            return Ok((response, None));
        }
        let headers = |url: &Url| self.headers(token, Some(url));
        let body = self.body.clone();
        let followed = redirect::follow(self.client, self.request, headers, body, response);
        let (response, url) = followed.await?;
        if let Some(uri) = url.as_ref().and_then(|url| wire_uri(url).ok()) {
            self.cookies.absorb(&uri, response.headers());
        }
        Ok((response, url))
    }
}

/// Whether an answer needs no redirect and no new token.
pub(in crate::transport) fn is_final(response: &ClientResponse) -> bool {
    !redirect::leads_on(response) && !is_refusal(response)
}

/// Whether the server asks for another token (RFC 6750, section 3.1).
pub(in crate::transport) fn is_refusal(response: &ClientResponse) -> bool {
    match response.status() {
        StatusCode::UNAUTHORIZED => true,
        StatusCode::FORBIDDEN => {
            challenge(response).is_some_and(|text| text.contains("insufficient_scope"))
        }
        _ => false,
    }
}

/// Whether the server accepts the token only in a proof with the nonce that it sends.
fn wants_nonce(response: &ClientResponse) -> bool {
    response.status() == StatusCode::UNAUTHORIZED
        && challenge(response).is_some_and(|text| text.contains("use_dpop_nonce"))
}

/// All challenges as one list, because a server can send several headers (RFC 9110, section 5.3).
fn challenge(response: &ClientResponse) -> Option<String> {
    let lines = response.headers().get_all(WWW_AUTHENTICATE);
    let lines: Vec<&str> = lines.filter_map(|line| line.to_str().ok()).collect();
    (!lines.is_empty()).then(|| lines.join(", "))
}

fn with_token(extra: &HeaderMap, token: Option<&AccessToken>) -> HeaderMap {
    let mut headers = extra.clone();
    // This cannot fail: tokens are checked to be visible ASCII when they are received.
    if let Some(token) = token
        && let Ok(mut value) = HeaderValue::from_str(token.expose())
    {
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    headers
}
