//! Header names of the protocol, and which of them web pages may read.

use std::sync::Arc;

use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::{HttpMessage as _, HttpRequest};

use crate::auth::Identity;
use crate::bridge::headers::{self, ClientHeaders, UserClaims};
use crate::front::settings::FrontSettings;
use crate::masking::{LiveSecrets, secrets_in_header};
use crate::protocol::{ErrorKind, Failure, Revision, sole_header};

pub(in crate::front) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(in crate::front) const PROTOCOL_VERSION: HeaderName =
    HeaderName::from_static(headers::PROTOCOL_VERSION);
pub(in crate::front) const METHOD: HeaderName = HeaderName::from_static(headers::METHOD);
pub(in crate::front) const NAME: HeaderName = HeaderName::from_static(headers::NAME);
pub(in crate::front) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
pub(in crate::front) const ACCEL_BUFFERING: HeaderName =
    HeaderName::from_static("x-accel-buffering");

/// Headers that a web page may read.
pub(in crate::front) const EXPOSED: [&str; 5] = [
    "mcp-session-id",
    "mcp-protocol-version",
    "www-authenticate",
    "etag",
    "retry-after",
];

/// A value of ours, which is ASCII.
pub(in crate::front) fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
}

/// A header as text, which is ASCII.
pub(in crate::front) fn header_text<'a>(
    request: &'a HttpRequest,
    name: &HeaderName,
) -> Option<&'a str> {
    let value = request.headers().get(name)?.as_bytes();
    let text = value.is_ascii().then(|| str::from_utf8(value));
    text?.ok()
}

/// A header that decides what a request may do: what cannot be read must not count as absent.
///
/// # Errors
///
/// Returns the 400 that the client is to read when it came more than once, or is not ASCII.
pub(in crate::front) fn sole_text<'a>(
    request: &'a HttpRequest,
    name: &HeaderName,
) -> Result<Option<&'a str>, Failure> {
    let values = request.headers().get_all(name);
    sole_header(name.as_str(), values.map(HeaderValue::as_bytes))
}

/// The headers of a request that servers are to read.
///
/// # Errors
///
/// Returns the 400 that the client is to read.
pub(in crate::front) fn forwarded_headers(
    request: &HttpRequest,
    settings: &FrontSettings,
) -> Result<Option<Arc<ClientHeaders>>, Failure> {
    if settings.forwarded_headers.is_empty() && !settings.reads_users {
        return Ok(None);
    }
    let user = request.extensions().get::<UserClaims>().cloned();
    ClientHeaders::read(&settings.forwarded_headers, request.headers(), user)
}

/// Headers that identify requests and hold no secret.
const IDENTIFIERS: [&str; 5] = [
    "baggage",
    "traceparent",
    "tracestate",
    "x-correlation-id",
    "x-request-id",
];

/// Adds the key or token of a client, and the secrets in the headers that servers are to read, to those
/// that no text shows: a server may repeat what it gets. Called for clients that were let in.
pub(super) fn note_secrets(
    token: Option<&str>,
    request: &HttpRequest,
    forwarded: &[String],
    secrets: &LiveSecrets,
) {
    if let Some(token) = token {
        secrets.note(token);
    }
    let value = |name: &str| request.headers().get(name)?.to_str().ok();
    for name in forwarded {
        let is_identifier = IDENTIFIERS.iter().any(|it| name.eq_ignore_ascii_case(it));
        let value = value(name).filter(|_| !is_identifier).unwrap_or_default();
        for secret in secrets_in_header(name, value) {
            secrets.note(&secret);
        }
    }
}

/// Notes whose request it is where servers read that: beside the request, and not in its future,
/// which every request would pay for.
pub(in crate::front) fn note_user(
    identity: &Identity,
    request: &HttpRequest,
    settings: &FrontSettings,
) {
    if settings.reads_users {
        request.extensions_mut().insert(identity.user());
    }
}

/// The revision that `MCP-Protocol-Version` names (S-HDR-01).
///
/// # Errors
///
/// Returns the 400 that the client is to read.
pub(in crate::front) fn parse_revision(version: &str) -> Result<Revision, Failure> {
    version.parse().map_err(|error| {
        let message = format!("`MCP-Protocol-Version`: {error}");
        Failure::new(ErrorKind::UnsupportedRevision, message)
    })
}
