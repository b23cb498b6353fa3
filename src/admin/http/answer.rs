//! Answers of the API as HTTP responses.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use serde::Serialize;
use serde_json::Value;

use super::with_title_case_headers;
use crate::protocol::{ErrorKind, Failure};

/// The answer of a handler.
#[derive(Debug)]
pub(super) struct ApiAnswer {
    status: StatusCode,
    body: Option<Value>,
    etag: Option<HeaderValue>,
}

impl ApiAnswer {
    pub(super) fn json(body: impl Serialize) -> Self {
        Self {
            status: StatusCode::OK,
            body: Some(serde_json::to_value(body).unwrap_or_default()),
            etag: None,
        }
    }

    pub(super) fn no_content() -> Self {
        Self {
            status: StatusCode::NO_CONTENT,
            body: None,
            etag: None,
        }
    }

    /// With the tag of what it shows; `null` is no body.
    pub(super) fn with_tag(status: StatusCode, body: Value, etag: &str) -> Self {
        Self {
            status,
            body: (!body.is_null()).then_some(body),
            etag: HeaderValue::from_str(etag).ok(),
        }
    }

    pub(super) fn into_response(self) -> HttpResponse {
        let mut response = HttpResponse::build(self.status);
        // It holds for this moment only, and for who has the token.
        response.insert_header((header::CACHE_CONTROL, HeaderValue::from_static("no-store")));
        if let Some(etag) = self.etag {
            response.insert_header((header::ETAG, etag));
        }
        let response = match self.body {
            Some(body) => response.json(body),
            None => response.finish(),
        };
        with_title_case_headers(response)
    }
}

/// A failure as the error object of the API. `base` is the URL of this gateway.
pub(super) fn failure_response(failure: &Failure, base: &str) -> HttpResponse {
    let kind = failure.exact_kind();
    let status = StatusCode::from_u16(kind.http_status());
    let mut response = HttpResponse::build(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR));
    response.insert_header((header::CACHE_CONTROL, HeaderValue::from_static("no-store")));
    if kind == ErrorKind::SessionInvalid {
        let challenge = HeaderValue::from_static("Bearer realm=\"mcpvisor API\"");
        response.insert_header((header::WWW_AUTHENTICATE, challenge));
    }
    if let Some(milliseconds) = failure.retry_after_ms {
        let seconds = milliseconds.div_ceil(1000).max(1);
        response.insert_header((header::RETRY_AFTER, HeaderValue::from(seconds)));
    }
    with_title_case_headers(response.json(failure.api_object(base)))
}
