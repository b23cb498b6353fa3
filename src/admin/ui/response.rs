//! Responses of the dashboard, with their common headers.

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::{HttpResponse, HttpResponseBuilder};
use bytes::Bytes;
use maud::Markup;

/// Allows no external resources, no inline code and no framing.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      connect-src 'self'; img-src 'self' data:; form-action 'self'; \
                      base-uri 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, HeaderValue); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(POLICY),
    ),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    // Hides the referrer from other sites. `no-referrer` would also hide the origin of our own
    // forms.
    (
        header::REFERRER_POLICY,
        HeaderValue::from_static("same-origin"),
    ),
    (
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    ),
    (
        header::CROSS_ORIGIN_RESOURCE_POLICY,
        HeaderValue::from_static("same-origin"),
    ),
    (
        header::CROSS_ORIGIN_OPENER_POLICY,
        HeaderValue::from_static("same-origin"),
    ),
    (header::VARY, HeaderValue::from_static("Cookie")),
];

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

fn builder(status: StatusCode) -> HttpResponseBuilder {
    let mut response = HttpResponse::build(status);
    for header in HEADERS {
        response.insert_header(header);
    }
    response
}

fn title_case(mut response: HttpResponse) -> HttpResponse {
    response.head_mut().set_camel_case_headers(true);
    response
}

/// A page that must not be cached.
pub(in crate::admin) fn page(status: StatusCode, page: Markup) -> HttpResponse {
    let mut response = builder(status);
    response.insert_header((header::CACHE_CONTROL, NO_STORE));
    response.content_type("text/html; charset=utf-8");
    title_case(response.body(page.into_string()))
}

/// A JSON answer for programs, from an address that otherwise serves pages.
pub(in crate::admin) fn json(status: StatusCode, body: &impl serde::Serialize) -> HttpResponse {
    let mut response = builder(status);
    response.insert_header((header::CACHE_CONTROL, NO_STORE));
    title_case(response.json(body))
}

/// Redirects to another page after a form.
pub(in crate::admin) fn see_other(path: &str) -> HttpResponse {
    let mut response = builder(StatusCode::SEE_OTHER);
    response.insert_header((header::CACHE_CONTROL, NO_STORE));
    response.insert_header((header::LOCATION, path));
    title_case(response.finish())
}

/// Adds a cookie to a response.
pub(in crate::admin) fn with_cookie(mut response: HttpResponse, cookie: &str) -> HttpResponse {
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

/// A file whose name changes with its content.
pub(super) fn file(content_type: &'static str, content: &'static str) -> HttpResponse {
    let forever = HeaderValue::from_static("public, max-age=31536000, immutable");
    let mut response = builder(StatusCode::OK);
    response.insert_header((header::CACHE_CONTROL, forever));
    response.content_type(content_type);
    title_case(response.body(content))
}

/// A stream of events that lasts until the page is closed.
pub(super) fn events<S>(events: S) -> HttpResponse
where
    S: futures_util::Stream<Item = Result<Bytes, std::convert::Infallible>> + 'static,
{
    let mut response = builder(StatusCode::OK);
    response.insert_header((header::CACHE_CONTROL, NO_STORE));
    // Stops nginx from buffering the events.
    response.insert_header(("x-accel-buffering", "no"));
    response.content_type("text/event-stream");
    title_case(response.streaming(events))
}
