//! A message with the headers that go with it alone.

use std::borrow::Cow;

use awc::error::SendRequestError;
use awc::http::header::{HeaderName, HeaderValue};
use awc::{ClientResponse, FrozenClientRequest};
use bytes::Bytes;

use super::requests::PROTOCOL_VERSION;
use crate::bridge::headers::{self, Header};
use crate::protocol::Method;

const METHOD: HeaderName = HeaderName::from_static(headers::METHOD);
const NAME: HeaderName = HeaderName::from_static(headers::NAME);

#[derive(Clone)]
pub(super) struct Message {
    pub(super) frame: Bytes,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// It says of itself what it is, and belongs to no session.
    pub(super) is_sessionless: bool,
}

impl Message {
    /// A header that HTTP cannot carry is left out: the server says what it misses.
    pub(super) fn new(frame: Bytes, headers: &[Header]) -> Self {
        let parse = |(name, value): &Header| {
            let value = match value {
                Cow::Borrowed(word) => Some(HeaderValue::from_static(word)),
                Cow::Owned(text) => HeaderValue::from_str(text).ok(),
            };
            let parsed = header_name(name).zip(value);
            if parsed.is_none() {
                log::warn!(header = &**name; "header cannot be sent");
            }
            parsed
        };
        Self {
            frame,
            headers: headers.iter().filter_map(parse).collect(),
            is_sessionless: !headers.is_empty(),
        }
    }

    /// Whether its answer is a stream that stays open.
    pub(super) fn stays_open(&self) -> bool {
        let method = self.headers.iter().find(|(name, _)| *name == METHOD);
        method.is_some_and(|(_, value)| value == Method::Listen.as_str())
    }

    pub(super) async fn post(
        &self,
        request: &FrozenClientRequest,
    ) -> Result<ClientResponse, SendRequestError> {
        let frame = self.frame.clone();
        let mut headers = self.headers.iter().cloned();
        let Some(first) = headers.next() else {
            return request.send_body(frame).await;
        };
        let mut request = request.extra_header(first);
        for header in headers {
            request = request.extra_header(header);
        }
        request.send_body(frame).await
    }
}

/// Those that every message has are known beforehand: to read one anew is to check and copy it.
fn header_name(name: &str) -> Option<HeaderName> {
    match name {
        headers::METHOD => Some(METHOD),
        headers::NAME => Some(NAME),
        headers::PROTOCOL_VERSION => Some(PROTOCOL_VERSION),
        other => other.parse().ok(),
    }
}
