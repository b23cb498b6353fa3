//! What a client accepts, and what it sends. Pure.

/// Whether the media ranges of `Accept` allow a type. A missing header and `*/*` allow all.
pub(super) fn accepts(accept: Option<&str>, wanted: &str) -> bool {
    let Some(accept) = accept else { return true };
    let group = wanted.split('/').next().unwrap_or_default();
    let mut ranges = accept.split(',').filter_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let range = parts.next()?;
        let refused = parts.any(|parameter| matches!(parameter, "q=0" | "q=0.0" | "q=0.00"));
        (!refused).then_some(range)
    });
    ranges.any(|range| {
        range == "*/*"
            || range.eq_ignore_ascii_case(wanted)
            || range
                .strip_suffix("/*")
                .is_some_and(|prefix| prefix.eq_ignore_ascii_case(group))
    })
}

/// Whether a `Content-Type` is JSON.
pub(super) fn is_json(content_type: Option<&str>) -> bool {
    let media = content_type.and_then(|value| value.split(';').next());
    media.is_some_and(|media| media.trim().eq_ignore_ascii_case("application/json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_ranges_are_understood() {
        let (json, sse) = ("application/json", "text/event-stream");
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
        for (accept, takes_json, takes_sse) in table {
            assert_eq!(accepts(accept, json), takes_json, "{accept:?}");
            assert_eq!(accepts(accept, sse), takes_sse, "{accept:?}");
        }
        assert!(is_json(Some("application/json; charset=utf-8")));
        assert!(!is_json(Some("text/plain")) && !is_json(None));
    }
}
