//! A validated request to the API, and the errors of invalid ones.

use std::ops::RangeInclusive;

use actix_web::HttpRequest;
use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use url::form_urlencoded;

use crate::admin::messages::PagePosition;
use crate::admin::operator::Operator;
use crate::history::OFFSET_MAX;
use crate::protocol::{ErrorKind, Failure, sole_header};

/// Maximum length of a query, in bytes.
const QUERY_MAX: usize = 16 * 1024;

/// Maximum length of a server name in a query, in characters.
const SERVER_MAX: usize = 256;

/// Maximum length of an error message about a body, in characters.
const ERROR_MAX: usize = 200;

/// Default and maximum number of entries in a page.
const PAGE: usize = 100;
const PAGE_MAX: usize = 1000;

/// The channel of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Over TCP, with the token or the credentials of an operator.
    Network,
    /// Over the socket that only the owner of the data directory can use.
    Owner,
}

/// Whether a request has a body, which must be a JSON object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyRule {
    None,
    Optional,
    Required,
}

pub(super) struct ApiRequest<'a> {
    pub(super) operator: &'a Operator,
    pub(super) access: Access,
    /// Decoded path segments that match the route's braces.
    pub(super) segments: Vec<String>,
    pub(super) query: Query,
    pub(super) body: Option<Map<String, Value>>,
    /// The entity tag that the resource must have.
    pub(super) if_match: Option<String>,
    /// The last event that a reconnecting client received.
    pub(super) last_event_id: Option<String>,
}

impl ApiRequest<'_> {
    /// The path segment for the route's first braces.
    pub(super) fn name(&self) -> &str {
        self.segments.first().map_or("", String::as_str)
    }

    /// The body; an absent body counts as an empty object.
    ///
    /// # Errors
    ///
    /// Returns a 400 when a member is unknown or has the wrong type.
    pub(super) fn read_body<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let body = Value::Object(self.body.take().unwrap_or_default());
        T::deserialize(body).map_err(|error| {
            let error: String = error.to_string().chars().take(ERROR_MAX).collect();
            invalid(format!("body: {error}"))
        })
    }

    /// The part of a list that the query selects. Without a limit in the query, the owner of the
    /// data directory gets the whole list.
    ///
    /// # Errors
    ///
    /// Returns a 400 when a parameter is invalid.
    pub(super) fn page(&self) -> Result<PageRange, Failure> {
        let limit = match self.access {
            Access::Network => PAGE,
            Access::Owner => usize::MAX,
        };
        self.query.page(limit)
    }

    /// The user of the login; `None` for the gateway's own login.
    pub(super) fn principal(&self) -> Option<&str> {
        self.query.text("principal")
    }
}

/// Query parameters.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// # Errors
    ///
    /// Returns a 400 when a parameter is unknown or repeated.
    pub(super) fn read(text: &str, known: &[&str]) -> Result<Self, Failure> {
        if text.len() > QUERY_MAX {
            return Err(invalid(format!("query is longer than {QUERY_MAX} bytes")));
        }
        let mut read: Vec<(String, String)> = Vec::new();
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            let shown: String = name.chars().take(64).collect();
            if !known.contains(&name.as_ref()) {
                let known = match known {
                    [] => "none".to_owned(),
                    known => known.join(", "),
                };
                let message = format!("query: unknown parameter {shown:?}; known are: {known}");
                return Err(invalid(message));
            }
            if read.iter().any(|(other, _)| *other == name) {
                return Err(invalid(format!("query: `{shown}` is repeated")));
            }
            read.push((name.into_owned(), value.into_owned()));
        }
        Ok(Self(read))
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let mut read = self.0.iter();
        let found = read.find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The server that the list is limited to; `None` for all servers.
    ///
    /// # Errors
    ///
    /// Returns a 400 when the name is empty or too long.
    pub(super) fn server(&self) -> Result<Option<&str>, Failure> {
        match self.text("server") {
            Some(name) if name.is_empty() || name.chars().count() > SERVER_MAX => {
                let message = format!("query: `server` must have 1 to {SERVER_MAX} characters");
                Err(invalid(message))
            }
            named => Ok(named),
        }
    }

    /// All parameters, by name.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        let read = self.0.iter();
        read.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// An integer within these bounds.
    ///
    /// # Errors
    ///
    /// Returns a 400 when the value is not a number within the bounds.
    pub(super) fn number(
        &self,
        name: &str,
        bounds: RangeInclusive<u64>,
    ) -> Result<Option<u64>, Failure> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let number = text.parse().ok().filter(|number| bounds.contains(number));
        let number = number.ok_or_else(|| {
            let (first, last) = (bounds.start(), bounds.end());
            invalid(format!(
                "query: `{name}` must be a number from {first} to {last}"
            ))
        });
        number.map(Some)
    }

    /// The page given by `limit` and `offset`; `default` applies if the query has no limit.
    ///
    /// # Errors
    ///
    /// As [`Query::number`].
    fn page(&self, default: usize) -> Result<PageRange, Failure> {
        let limit = self.number("limit", 1..=PAGE_MAX as u64)?;
        let offset = self.number("offset", 0..=OFFSET_MAX as u64)?;
        let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Ok(PageRange {
            limit: limit.map_or(default, size),
            offset: offset.map_or(0, size),
        })
    }
}

/// A range of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageRange {
    pub(super) limit: usize,
    pub(super) offset: usize,
}

impl PageRange {
    /// The entries in this range, and its position in the list.
    pub(super) fn of<T>(self, all: Vec<T>) -> (Vec<T>, PagePosition) {
        let page = self.among(all.len());
        let shown = all.into_iter().skip(self.offset).take(self.limit);
        (shown.collect(), page)
    }

    /// The position of this range in a list of this length.
    pub(super) fn among(self, total: usize) -> PagePosition {
        PagePosition {
            total,
            limit: self.limit,
            offset: self.offset,
        }
    }
}

pub(super) fn invalid(message: impl Into<String>) -> Failure {
    Failure::new(ErrorKind::InvalidRequest, message)
}

/// A header as text.
///
/// # Errors
///
/// Returns a 400 when the header is repeated or not ASCII, so that it cannot count as absent.
pub(super) fn header_text<'a>(
    request: &'a HttpRequest,
    name: &HeaderName,
) -> Result<Option<&'a str>, Failure> {
    header_of(request.headers(), name)
}

/// As [`header_text`], for header maps outside of actix requests.
///
/// # Errors
///
/// As [`header_text`].
pub(super) fn header_of<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a str>, Failure> {
    let values = headers.get_all(name);
    sole_header(name.as_str(), values.map(HeaderValue::as_bytes))
}

/// Checks that the content type is JSON.
///
/// # Errors
///
/// Returns a 415 for other content types.
pub(super) fn check_json(content_type: Option<&str>) -> Result<(), Failure> {
    let media = content_type.and_then(|value| value.split(';').next());
    if media.is_some_and(|media| media.trim().eq_ignore_ascii_case("application/json")) {
        return Ok(());
    }
    let message = "`Content-Type` must be application/json";
    Err(Failure::new(ErrorKind::UnsupportedMediaType, message))
}

/// Parses the body as a JSON object.
///
/// # Errors
///
/// Returns a 400 or 415 when the body is invalid.
pub(super) fn object(
    rule: BodyRule,
    content_type: Option<&str>,
    body: &[u8],
) -> Result<Option<Map<String, Value>>, Failure> {
    match (rule, body.is_empty()) {
        (BodyRule::None | BodyRule::Optional, true) => return Ok(None),
        (BodyRule::Required, true) => return Err(invalid("body: a JSON object is missing")),
        (BodyRule::None, false) => return Err(invalid("body: must be empty for this request")),
        (BodyRule::Optional | BodyRule::Required, false) => {}
    }
    check_json(content_type)?;
    match serde_json::from_slice(body) {
        Ok(Value::Object(object)) => Ok(Some(object)),
        Ok(_) => Err(invalid("body: must be a JSON object")),
        Err(error) => {
            let (line, column) = (error.line(), error.column());
            let message = format!("body: invalid JSON at line {line}, column {column}");
            Err(Failure::new(ErrorKind::ParseError, message))
        }
    }
}

/// The token in the request's headers.
///
/// # Errors
///
/// Returns a 400 when a header is malformed.
pub(super) fn presented_token(request: &HttpRequest) -> Result<Option<&str>, Failure> {
    const SESSION_TOKEN: HeaderName = HeaderName::from_static("x-session-token");
    if let Some(token) = header_text(request, &SESSION_TOKEN)? {
        return Ok(Some(token));
    }
    let authorization = header_text(request, &header::AUTHORIZATION)?;
    let words = authorization.and_then(|value| value.split_once(' '));
    let bearer = words.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    Ok(bearer.map(|(_, token)| token.trim()))
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn queries_have_known_parameters_once() {
        let read = |text: &str| Query::read(text, &["limit", "offset"]);
        let page = |text: &str| read(text).and_then(|query| query.page(PAGE));
        let table = [
            ("", Some((100, 0))),
            ("limit=3", Some((3, 0))),
            ("offset=7&limit=1000", Some((1000, 7))),
            ("limit=0", None),
            ("limit=1001", None),
            ("limit=-1", None),
            ("limit=", None),
            ("limit=1&limit=2", None),
            ("offset=99999999999999999999", None),
            ("colour=red", None),
            ("%ff=1", None),
        ];
        for (text, expected) in table {
            let found = page(text).ok().map(|page| (page.limit, page.offset));
            assert_eq!(found, expected, "{text}");
        }
        assert!(read(&"x".repeat(QUERY_MAX + 1)).is_err());
    }

    #[test]
    fn a_body_is_an_object_where_there_is_one() {
        use BodyRule::{None as NoBody, Optional, Required};
        const JSON: Option<&str> = Some("application/json; charset=utf-8");
        let table = [
            (NoBody, None, "", "none"),
            (NoBody, JSON, "{}", "invalid_request"),
            (Optional, None, "", "none"),
            (Optional, JSON, "{}", "some"),
            (Required, JSON, "", "invalid_request"),
            (Required, JSON, "[]", "invalid_request"),
            (Required, JSON, "{", "parse_error"),
            (Required, JSON, "\u{1}", "parse_error"),
            (Required, None, "{}", "unsupported_media_type"),
            (Required, Some("text/plain"), "{}", "unsupported_media_type"),
        ];
        for (rule, media, body, expected) in table {
            let found = match object(rule, media, body.as_bytes()) {
                Ok(Some(_)) => "some",
                Ok(None) => "none",
                Err(failure) => failure.kind.as_str(),
            };
            assert_eq!(found, expected, "{rule:?} {media:?} {body:?}");
        }
        let deep = "[".repeat(100_000);
        assert!(object(Required, JSON, deep.as_bytes()).is_err());
    }

    #[test]
    fn the_token_stands_in_one_of_two_headers() {
        let token = |name: &'static str, value: &str| {
            let request = TestRequest::default().insert_header((name, value));
            let request = request.to_http_request();
            presented_token(&request).unwrap().map(str::to_owned)
        };
        let table = [
            ("X-Session-Token", "abc", Some("abc")),
            ("Authorization", "Bearer abc", Some("abc")),
            ("Authorization", "bearer abc", Some("abc")),
            ("Authorization", "Basic abc", None),
            ("Authorization", "Bearer", None),
            ("X-Other", "abc", None),
        ];
        for (name, value, expected) in table {
            assert_eq!(token(name, value).as_deref(), expected, "{name}: {value}");
        }
        let twice = TestRequest::default()
            .append_header(("X-Session-Token", "a"))
            .append_header(("X-Session-Token", "b"))
            .to_http_request();
        assert!(presented_token(&twice).is_err());
    }
}
