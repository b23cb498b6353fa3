//! Interprets HTTP error responses: when to retry, and whether they reject the session. Pure.

use std::time::Duration;

use awc::http::header::{HeaderMap, RETRY_AFTER};
use bytes::Bytes;

use crate::protocol::{Envelope, RequestId};
use crate::telemetry::http_date;

/// Longest `Retry-After` that is honored.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60 * 60);

/// How long the server asks clients to wait: seconds or a date (RFC 9110, section 10.2.3).
pub(in crate::transport) fn retry_after(headers: &HeaderMap, now: u64) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) if is_number(text) => RETRY_AFTER_MAX,
        Err(_) => Duration::from_millis(http_date(text)?.saturating_sub(now)),
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

/// Whether the text is a number, even one too large to parse.
fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether the status and body are of the kind with which servers reject an unknown session: 404
/// (C-HTTP-15), 410, 401, or any other 4xx that mentions the session. The request did not run then.
pub(in crate::transport) fn refuses_session(status: u16, body: &[u8]) -> bool {
    match status {
        401 | 404 | 410 => true,
        400..=499 => names_session(body),
        _ => false,
    }
}

/// Whether the body is the server's own error for this call, which proves that it knows the
/// session: some servers derive the status from the error code.
pub(in crate::transport) fn is_own_answer(status: u16, body: &Bytes, call: u64) -> bool {
    let is_about_session = matches!(status, 401 | 410) || names_session(body);
    let Ok(Envelope::Response(response)) = Envelope::parse(body.clone()) else {
        return false;
    };
    let id = response.id.as_ref().and_then(RequestId::as_number);
    !is_about_session && id == Some(call)
}

/// Whether any other refusal raises doubt that the server knows the session.
pub(in crate::transport) fn puts_session_in_doubt(status: u16) -> bool {
    !matches!(status, 408 | 429)
}

/// Whether a refusal mentions the session, which the SDKs word in several ways.
pub(in crate::transport) fn names_session(text: &[u8]) -> bool {
    text.windows(b"session".len())
        .any(|word| word.eq_ignore_ascii_case(b"session"))
}

#[cfg(test)]
mod tests {
    use awc::http::header::HeaderValue;

    use super::*;

    #[test]
    fn seconds_and_dates_are_read_and_bounded() {
        let now = 784_111_777_000;
        let table = [
            ("0", Some(0)),
            ("7", Some(7)),
            (" 7 ", Some(7)),
            ("7200", Some(3600)),
            ("99999999999999999999999", Some(3600)),
            ("Sun, 06 Nov 1994 08:49:47 GMT", Some(10)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", Some(0)),
            ("Sun Nov  6 08:49:47 1994", Some(10)),
            ("Sat, 06 Nov 2094 08:49:47 GMT", Some(3600)),
            ("-1", None),
            ("soon", None),
            ("", None),
        ];
        for (text, expected) in table {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_static(text));
            let expected = expected.map(Duration::from_secs);
            assert_eq!(retry_after(&headers, now), expected, "{text}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }

    #[test]
    fn every_way_to_refuse_a_session_is_known() {
        let table = [
            (404, "", true),
            (410, "{}", true),
            (401, "Unauthorized", true),
            (400, "Bad Request: No valid session ID provided", true),
            (400, "Invalid or missing session ID", true),
            (400, r#"{"error":"Session expired"}"#, true),
            (403, "unknown SESSION", true),
            (400, "name is missing", false),
            (400, "", false),
            (422, "", false),
            (500, "session expired", false),
            (503, "session store is away", false),
        ];
        for (status, body, expected) in table {
            let found = refuses_session(status, body.as_bytes());
            assert_eq!(found, expected, "{status} {body}");
        }
    }
}
