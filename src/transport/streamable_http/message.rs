//! A message with the headers that go with it alone.

use std::sync::Arc;

use awc::error::SendRequestError;
use awc::http::header::{HeaderMap, HeaderName, HeaderValue};
use awc::{ClientResponse, FrozenClientRequest};
use bytes::Bytes;

use super::link_state::HttpLinkState;
use super::requests::SessionRequests;
use crate::bridge::headers::{ClientHeaders, Headers, METHOD};
use crate::bridge::meta::TRACEPARENT;
use crate::transport::http::authorized::is_final;
use crate::transport::{HttpSettings, OutgoingFrame};

pub(super) struct HttpMessage {
    pub(super) frame: Bytes,
    headers: Option<Headers>,
    forwarded: Option<Arc<ClientHeaders>>,
}

impl HttpMessage {
    pub(super) fn new(outgoing: OutgoingFrame) -> Self {
        Self {
            frame: outgoing.frame,
            headers: outgoing.headers,
            forwarded: outgoing.forwarded,
        }
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
        let mut extra = self.forwarded(&link_state.settings);
        let Some(headers) = &self.headers else {
            // A server of the newer era may refuse the handshake of the older one without it.
            if !link_state.requests().has_session && is_handshake(&self.frame) {
                extra.insert(
                    HeaderName::from_static(METHOD),
                    HeaderValue::from_static("initialize"),
                );
            }
            return self.send(link_state, in_session, &extra).await;
        };
        let request = link_state.sessionless(&headers.standard)?;
        for (name, value) in headers.params.iter().filter_map(readable) {
            extra.append(name, value);
        }
        // A header of the gateway itself or of its operator is not changed by a client.
        let is_said = |name: &HeaderName| {
            let mut params = headers.params.iter();
            let is_param = params.any(|(said, _)| name.as_str().eq_ignore_ascii_case(said));
            is_param || request.headers().contains_key(name)
        };
        for (name, value) in headers.passed.iter().filter_map(readable) {
            if !is_said(&name) {
                extra.append(name, value);
            }
        }
        self.send(link_state, &request, &extra).await
    }

    /// The client's headers that this server is to read, and the context of its trace.
    fn forwarded(&self, settings: &HttpSettings) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let Some(said) = &self.forwarded else {
            return headers;
        };
        for forward in &settings.forward_headers {
            let Some(value) = said.get(&forward.from) else {
                continue;
            };
            insert_secret(&mut headers, &forward.to, value);
        }
        for (to, claim) in &settings.user_headers {
            if let Some(value) = claim.of(said.user()) {
                insert_secret(&mut headers, to, value);
            }
        }
        if let Some(context) = said.traceparent().map(HeaderValue::from_str)
            && let Ok(context) = context
        {
            headers.insert(HeaderName::from_static(TRACEPARENT), context);
        }
        headers
    }

    /// Most servers need no token, set no cookies and answer at once; the rest is boxed, since each call would pay
    /// for its size.
    async fn send(
        &self,
        link_state: &HttpLinkState,
        request: &FrozenClientRequest,
        extra: &HeaderMap,
    ) -> Result<ClientResponse, SendRequestError> {
        let whole = || link_state.authorized(request, extra, self.frame.clone());
        let has_token = link_state.credential().is_some_and(|it| it.has_token());
        if has_token || link_state.cookies().is_used() {
            let (response, _) = Box::pin(whole().send()).await?;
            return Ok(response);
        }
        let frame = self.frame.clone();
        let response = if extra.is_empty() {
            request.send_body(frame).await?
        } else {
            let request = request.extra_headers(extra.clone());
            request.send_body(frame).await?
        };
        link_state
            .cookies()
            .absorb(request.get_uri(), response.headers());
        if is_final(&response) {
            return Ok(response);
        }
        let (response, _) = Box::pin(whole().settle(None, response)).await?;
        Ok(response)
    }
}

/// Whether this is the gateway's `initialize`, which names its method at its beginning.
fn is_handshake(frame: &[u8]) -> bool {
    // After the version and an id, which is a number.
    let (head, _) = frame.split_at(frame.len().min(80));
    memchr::memmem::find(head, br#""method":"initialize""#).is_some()
}

fn insert_secret(headers: &mut HeaderMap, name: &str, value: &str) {
    if let Some((name, mut value)) = readable(&(name.to_owned(), value.to_owned())) {
        value.set_sensitive(true);
        headers.insert(name, value);
    }
}

/// As HTTP carries it; of one that cannot be sent the server says that it misses it.
fn readable((name, value): &(String, String)) -> Option<(HeaderName, HeaderValue)> {
    match (HeaderName::try_from(name), HeaderValue::from_str(value)) {
        (Ok(name), Ok(value)) => Some((name, value)),
        _ => {
            log::warn!(header = name.as_str(); "header cannot be sent");
            None
        }
    }
}
