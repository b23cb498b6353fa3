//! Header names of the protocol, and what CORS has to say of them.

use actix_web::http::header::{HeaderName, HeaderValue};

use crate::bridge::headers;

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static(headers::PROTOCOL_VERSION);
pub(super) const METHOD: HeaderName = HeaderName::from_static(headers::METHOD);
pub(super) const NAME: HeaderName = HeaderName::from_static(headers::NAME);
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
pub(super) const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// What a web page may send.
pub(super) const ALLOWED: [&str; 8] = [
    "authorization",
    "content-type",
    "accept",
    "mcp-session-id",
    "mcp-protocol-version",
    "last-event-id",
    "mcp-method",
    "mcp-name",
];

/// What a web page may read.
pub(super) const EXPOSED: [&str; 3] =
    ["mcp-session-id", "mcp-protocol-version", "www-authenticate"];

/// A value for a header of ours, all of which are plain ASCII.
pub(super) fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
}
