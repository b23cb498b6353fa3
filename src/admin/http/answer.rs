//! Converts API answers to HTTP responses.

use std::convert::Infallible;
use std::pin::Pin;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use bytes::Bytes;
use futures_util::stream::Stream;
use serde::Serialize;
use serde_json::Value;

use super::with_title_case_headers;
use crate::admin::messages::{VERSION, VERSION_HEADER};
use crate::protocol::{ErrorKind, Failure, retry_after_seconds};

const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// A handler's answer.
pub(super) struct ApiAnswer {
    status: StatusCode,
    body: AnswerBody,
    etag: Option<HeaderValue>,
    location: Option<HeaderValue>,
}

enum AnswerBody {
    None,
    Json(Value),
    /// JSON produced elsewhere.
    Raw(Bytes),
    Events(Pin<Box<dyn Stream<Item = Result<Bytes, Infallible>>>>),
}

impl ApiAnswer {
    pub(super) fn json(body: impl Serialize) -> Self {
        Self {
            status: StatusCode::OK,
            body: AnswerBody::Json(serde_json::to_value(body).unwrap_or_default()),
            etag: None,
            location: None,
        }
    }

    /// JSON that is passed through unchanged.
    pub(super) fn raw(body: Bytes) -> Self {
        Self {
            status: StatusCode::OK,
            body: AnswerBody::Raw(body),
            etag: None,
            location: None,
        }
    }

    pub(super) fn no_content() -> Self {
        Self {
            status: StatusCode::NO_CONTENT,
            body: AnswerBody::None,
            etag: None,
            location: None,
        }
    }

    /// Redirects to another page.
    pub(super) fn redirect(url: &str) -> Self {
        Self {
            status: StatusCode::FOUND,
            location: HeaderValue::from_str(url).ok(),
            ..Self::no_content()
        }
    }

    /// A JSON answer with an entity tag. `null` becomes an empty body.
    pub(super) fn with_tag(status: StatusCode, body: Value, etag: &str) -> Self {
        Self {
            status,
            body: match body {
                Value::Null => AnswerBody::None,
                body => AnswerBody::Json(body),
            },
            etag: HeaderValue::from_str(etag).ok(),
            location: None,
        }
    }

    /// A stream of events that lasts until the client disconnects.
    pub(super) fn events(events: impl Stream<Item = Result<Bytes, Infallible>> + 'static) -> Self {
        Self {
            status: StatusCode::OK,
            body: AnswerBody::Events(Box::pin(events)),
            etag: None,
            location: None,
        }
    }

    /// Removes the events, for the answer to HEAD.
    pub(super) fn without_events(mut self) -> Self {
        if matches!(self.body, AnswerBody::Events(_)) {
            self.body = AnswerBody::Events(Box::pin(futures_util::stream::empty()));
        }
        self
    }

    pub(super) fn into_response(self) -> HttpResponse {
        let mut response = HttpResponse::build(self.status);
        // The answer describes the current moment, and only the token's owner may see it.
        response.insert_header((header::CACHE_CONTROL, HeaderValue::from_static("no-store")));
        response.insert_header((VERSION_HEADER, HeaderValue::from_static(VERSION)));
        if let Some(location) = self.location {
            response.insert_header((header::LOCATION, location));
        }
        if let Some(etag) = self.etag {
            response.insert_header((header::ETAG, etag));
        }
        let response = match self.body {
            AnswerBody::Json(body) => response.json(body),
            AnswerBody::Raw(body) => response.content_type("application/json").body(body),
            AnswerBody::None => response.finish(),
            AnswerBody::Events(events) => {
                let media = HeaderValue::from_static("text/event-stream");
                response.insert_header((header::CONTENT_TYPE, media));
                // Stops nginx from buffering the events.
                response.insert_header((BUFFERING, HeaderValue::from_static("no")));
                response.streaming(events)
            }
        };
        with_title_case_headers(response)
    }
}

/// Converts a failure to the API's error object. `base` is the URL of this gateway.
pub(super) fn failure_response(failure: &Failure, base: &str) -> HttpResponse {
    let kind = failure.exact_kind();
    let status = StatusCode::from_u16(kind.http_status());
    let mut response = HttpResponse::build(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR));
    response.insert_header((header::CACHE_CONTROL, HeaderValue::from_static("no-store")));
    response.insert_header((VERSION_HEADER, HeaderValue::from_static(VERSION)));
    if kind == ErrorKind::SessionInvalid {
        let challenge = HeaderValue::from_static("Bearer realm=\"mcpvisor API\"");
        response.insert_header((header::WWW_AUTHENTICATE, challenge));
    }
    if let Some(milliseconds) = failure.retry_after_ms {
        let seconds = HeaderValue::from(retry_after_seconds(milliseconds));
        response.insert_header((header::RETRY_AFTER, seconds));
    }
    with_title_case_headers(response.json(failure.api_object(base)))
}
