//! HTTP headers of the protocol: their names, and functions that read and validate them.

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
/// The proof that the sender has the key of its token (RFC 9449).
pub(in crate::front) const DPOP: HeaderName = HeaderName::from_static("dpop");
pub(in crate::front) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
pub(in crate::front) const ACCEL_BUFFERING: HeaderName =
    HeaderName::from_static("x-accel-buffering");

/// Response headers that web pages may read.
pub(in crate::front) const EXPOSED: [&str; 5] = [
    "mcp-session-id",
    "mcp-protocol-version",
    "www-authenticate",
    "etag",
    "retry-after",
];

/// Returns a header value for an ASCII text of the gateway.
pub(in crate::front) fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
}

/// Returns the text of a header; `None` if it is missing or not ASCII.
pub(in crate::front) fn header_text<'a>(
    request: &'a HttpRequest,
    name: &HeaderName,
) -> Option<&'a str> {
    let value = request.headers().get(name)?.as_bytes();
    let text = value.is_ascii().then(|| str::from_utf8(value));
    text?.ok()
}

/// Returns the text of a security-relevant header. An unreadable value must not count as absent.
///
/// # Errors
///
/// Returns the 400 that the client reads if the header is repeated or not ASCII.
pub(in crate::front) fn sole_text<'a>(
    request: &'a HttpRequest,
    name: &HeaderName,
) -> Result<Option<&'a str>, Failure> {
    let values = request.headers().get_all(name);
    sole_header(name.as_str(), values.map(HeaderValue::as_bytes))
}

/// Returns the headers and user claims of a request that are forwarded to servers.
///
/// # Errors
///
/// Returns the 400 that the client reads.
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

/// Headers that identify requests and contain no secrets.
const IDENTIFIERS: [&str; 5] = [
    "baggage",
    "traceparent",
    "tracestate",
    "x-correlation-id",
    "x-request-id",
];

/// Registers a client's key or token, and the secrets in its forwarded headers, for masking: a
/// server can repeat what it receives. Called only for authenticated clients.
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

/// Stores the user claims of a request if servers read them. They are stored in the request's
/// extensions, because a field in the handler's future would enlarge it for every request.
pub(in crate::front) fn note_user(
    identity: &Identity,
    request: &HttpRequest,
    settings: &FrontSettings,
) {
    if settings.reads_users {
        request.extensions_mut().insert(identity.user());
    }
}

/// Parses the revision in `MCP-Protocol-Version` (S-HDR-01).
///
/// # Errors
///
/// Returns the 400 that the client reads.
pub(in crate::front) fn parse_revision(version: &str) -> Result<Revision, Failure> {
    version.parse().map_err(|error| {
        let message = format!("`MCP-Protocol-Version`: {error}");
        Failure::new(ErrorKind::UnsupportedRevision, message)
    })
}
