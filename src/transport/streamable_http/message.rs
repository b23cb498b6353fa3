//! A message with the headers that go with it alone.

use awc::error::SendRequestError;
use awc::http::header::{HeaderMap, HeaderName, HeaderValue};
use awc::{ClientResponse, FrozenClientRequest};
use bytes::Bytes;

use super::link_state::HttpLinkState;
use super::requests::SessionRequests;
use crate::bridge::headers::Headers;
use crate::transport::http::redirect;

pub(super) struct HttpMessage {
    pub(super) frame: Bytes,
    headers: Option<Headers>,
}

impl HttpMessage {
    pub(super) const fn new(frame: Bytes, headers: Option<Headers>) -> Self {
        Self { frame, headers }
    }

    /// It says of itself what it is, and belongs to no session.
    pub(super) const fn is_sessionless(&self) -> bool {
        self.headers.is_some()
    }

    /// It was sent in a session.
    pub(super) const fn has_session(&self, requests: &SessionRequests) -> bool {
        requests.has_session && !self.is_sessionless()
    }

    /// Sends it: as a part of the session, `in_session`, unless it belongs to none.
    pub(super) async fn post(
        &self,
        link_state: &HttpLinkState,
        in_session: &FrozenClientRequest,
    ) -> Result<ClientResponse, SendRequestError> {
        let none = HeaderMap::new();
        let Some(headers) = &self.headers else {
            return self.send(link_state, in_session, &none).await;
        };
        let request = link_state.sessionless(&headers.standard)?;
        if headers.params.is_empty() {
            return self.send(link_state, &request, &none).await;
        }
        let mut params = HeaderMap::with_capacity(headers.params.len());
        for (name, value) in &headers.params {
            match (HeaderName::try_from(name), HeaderValue::from_str(value)) {
                (Ok(name), Ok(value)) => params.append(name, value),
                // The server says what it misses.
                _ => log::warn!(header = name.as_str(); "header cannot be sent"),
            }
        }
        self.send(link_state, &request, &params).await
    }

    async fn send(
        &self,
        link_state: &HttpLinkState,
        request: &FrozenClientRequest,
        extra: &HeaderMap,
    ) -> Result<ClientResponse, SendRequestError> {
        let frame = self.frame.clone();
        let response = if extra.is_empty() {
            request.send_body(frame).await?
        } else {
            request
                .extra_headers(extra.clone())
                .send_body(frame)
                .await?
        };
        if !redirect::leads_on(&response) {
            return Ok(response);
        }
        let following = link_state.follow(request, extra, self.frame.clone(), response);
        Box::pin(following).await
    }
}
