//! Resolves the message address that a server sends in the stream's first event. Pure.

use url::Url;

/// Longest address that is accepted, in bytes.
const LENGTH_MAX: usize = 4096;

/// Resolves the content of an `endpoint` event against the URL of its stream (C-SSE-02).
///
/// # Errors
///
/// Returns what is wrong with the address. It is a credential, so the error omits its path and
/// query.
pub(super) fn resolve(stream: &Url, data: &[u8]) -> Result<Url, String> {
    if data.len() > LENGTH_MAX {
        return Err(format!(
            "the message address is longer than {LENGTH_MAX} bytes"
        ));
    }
    let text = std::str::from_utf8(data).ok().map(str::trim);
    let text = text.filter(|text| !text.is_empty());
    let text = text.ok_or("the message address is not text")?;
    let url = stream.join(text);
    let mut url = url.map_err(|error| format!("the message address is not a URL: {error}"))?;
    if url.origin() != stream.origin() {
        return Err(format!(
            "the server asks for messages to another origin, `{}`, which is not allowed",
            url.origin().ascii_serialization()
        ));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the message address contains credentials".to_owned());
    }
    url.set_fragment(None);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn c_sse_02_addresses_are_resolved_and_stay_at_their_origin() {
        let stream: Url = "http://host.example:8080/a/sse?key=1".parse().unwrap();
        let good = [
            ("/messages?sessionId=7", "/messages?sessionId=7"),
            ("messages", "/a/messages"),
            (" ?sessionId=7 ", "/a/sse?sessionId=7"),
            ("//host.example:8080/m#part", "/m"),
            ("http://HOST.example:8080/m", "/m"),
        ];
        for (data, expected) in good {
            let expected = format!("http://host.example:8080{expected}");
            assert_eq!(
                resolve(&stream, data.as_bytes()).unwrap().as_str(),
                expected
            );
        }
        let bad = [
            ("http://host.example/m", "another origin"),
            ("https://host.example:8080/m", "another origin"),
            ("//evil.example:8080/m", "another origin"),
            ("http://host.example:8080@evil.example/m", "another origin"),
            ("data:text/plain,x", "another origin"),
            ("http://user:secret@host.example:8080/m", "credentials"),
            ("http://[", "not a URL"),
            (" ", "not text"),
            ("", "not text"),
        ];
        for (data, expected) in bad {
            let error = resolve(&stream, data.as_bytes()).unwrap_err();
            assert!(error.contains(expected), "{data}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
        assert!(resolve(&stream, b"\xff").unwrap_err().contains("not text"));
        let long = vec![b'a'; LENGTH_MAX + 1];
        assert!(resolve(&stream, &long).unwrap_err().contains("longer"));
    }

    proptest! {
        #[test]
        fn c_sse_02_whatever_is_sent_stays_at_the_origin(data in ".{0,80}") {
            let stream: Url = "https://host.example/sse".parse().unwrap();
            if let Ok(url) = resolve(&stream, data.as_bytes()) {
                prop_assert_eq!(url.origin(), stream.origin());
            }
        }
    }
}
