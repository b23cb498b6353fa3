//! A message with its own HTTP headers.

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
    /// Whether it uses the connections for clients' calls.
    is_call: bool,
    headers: Option<Headers>,
    forwarded: Option<Arc<ClientHeaders>>,
}

impl HttpMessage {
    pub(super) fn new(outgoing: OutgoingFrame) -> Self {
        Self {
            is_call: outgoing.call.is_some() && !outgoing.is_own,
            frame: outgoing.frame,
            headers: outgoing.headers,
            forwarded: outgoing.forwarded,
        }
    }

    /// Whether the message describes itself and belongs to no session.
    pub(super) const fn is_sessionless(&self) -> bool {
        self.headers.is_some()
    }

    /// Whether the message is sent in a session.
    pub(super) const fn has_session(&self, requests: &SessionRequests) -> bool {
        requests.has_session() && !self.is_sessionless()
    }

    /// Sends the message, based on a request of the session unless it belongs to none.
    pub(super) async fn post(
        &self,
        link_state: &HttpLinkState,
        requests: &SessionRequests,
    ) -> Result<ClientResponse, SendRequestError> {
        let mut extra = self.forwarded(&link_state.settings);
        let Some(headers) = &self.headers else {
            // Some servers of the newer era refuse the older era's handshake without this header.
            if !requests.has_session() && is_handshake(&self.frame) {
                extra.insert(
                    HeaderName::from_static(METHOD),
                    HeaderValue::from_static("initialize"),
                );
            }
            let request = match self.is_call {
                true => requests.call()?,
                false => requests.note()?,
            };
            return self.send(link_state, request, &extra).await;
        };
        let request = link_state.sessionless(&headers.standard)?;
        for (name, value) in headers.params.iter().filter_map(readable) {
            extra.append(name, value);
        }
        // A client's header must not replace one of the gateway or its operator.
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

    /// Headers that are forwarded from the client to this server, and the trace context.
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

    /// Sends a request. The common case, a server that needs no token, sets no cookies and answers
    /// directly, is handled here; the rest is boxed, because every call would pay for its size.
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

/// Whether the frame is the gateway's `initialize`, which has its method near the start.
fn is_handshake(frame: &[u8]) -> bool {
    // The method follows the version and a numeric id.
    let (head, _) = frame.split_at(frame.len().min(80));
    memchr::memmem::find(head, br#""method":"initialize""#).is_some()
}

fn insert_secret(headers: &mut HeaderMap, name: &str, value: &str) {
    if let Some((name, mut value)) = readable(&(name.to_owned(), value.to_owned())) {
        value.set_sensitive(true);
        headers.insert(name, value);
    }
}

/// Converts a header for HTTP. One that HTTP cannot carry is dropped, and the server reports that
/// it is missing.
fn readable((name, value): &(String, String)) -> Option<(HeaderName, HeaderValue)> {
    match (HeaderName::try_from(name), HeaderValue::from_str(value)) {
        (Ok(name), Ok(value)) => Some((name, value)),
        _ => {
            log::warn!(header = name.as_str(); "header cannot be sent");
            None
        }
    }
}
