//! The media types that a client accepts and sends. Pure.

/// The `Accept` header that nearly every client sends, as written in the specification.
const USUAL: &str = "application/json, text/event-stream";

/// The media types that a client accepts for answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::front) struct AcceptedTypes {
    pub(in crate::front) json: bool,
    pub(in crate::front) events: bool,
}

impl AcceptedTypes {
    /// Parses an `Accept` header. A missing header and `*/*` allow all media types.
    pub(in crate::front) fn of(accept: Option<&str>) -> Self {
        let Some(accept) = accept.filter(|accept| *accept != USUAL) else {
            return Self {
                json: true,
                events: true,
            };
        };
        let mut accepted = Self::default();
        for range in accept.as_bytes().split(|byte| *byte == b',') {
            let mut parts = range.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            let range = parts.next().unwrap_or_default();
            if parts.any(|parameter| matches!(parameter, b"q=0" | b"q=0.0" | b"q=0.00")) {
                continue;
            }
            let is = |name: &[u8]| range.eq_ignore_ascii_case(name);
            accepted.json |= is(b"application/json") || is(b"application/*") || is(b"*/*");
            accepted.events |= is(b"text/event-stream") || is(b"text/*") || is(b"*/*");
        }
        accepted
    }
}

/// Returns whether a `Content-Type` header names JSON.
pub(in crate::front) fn is_json(content_type: Option<&str>) -> bool {
    const JSON: &str = "application/json";
    let media = |value: &str| {
        let media = value.split(';').next();
        media.is_some_and(|media| media.trim().eq_ignore_ascii_case(JSON))
    };
    content_type.is_some_and(|value| value == JSON || media(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_ranges_are_understood() {
        let table = [
            (None, true, true),
            (Some("*/*"), true, true),
            (Some("application/json, text/event-stream"), true, true),
            (
                Some("application/json;q=0.9,text/event-stream;q=0"),
                true,
                false,
            ),
            (Some("Application/JSON"), true, false),
            (Some("text/*"), false, true),
            (Some("text/html"), false, false),
            (Some(""), false, false),
        ];
        for (accept, json, events) in table {
            assert_eq!(
                AcceptedTypes::of(accept),
                AcceptedTypes { json, events },
                "{accept:?}"
            );
        }
        assert!(is_json(Some("application/json; charset=utf-8")));
        assert!(!is_json(Some("text/plain")) && !is_json(None));
    }
}
