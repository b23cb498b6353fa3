//! Normalizes URIs, so that conditions see all spellings alike (RFC 3986, section 6.2.2).

use std::borrow::Cow;

use super::fact::Unclear;

const RELATIVE: Unclear = "the URI has no scheme";
const ENCODED: Unclear = "the URI encodes a slash, a backslash or a control character";
const TWICE: Unclear = "the URI is encoded twice";
const MALFORMED: Unclear = "the URI has a `%` that does not encode text";
const PLAIN: Unclear = "the URI has a backslash, a space or a control character";
const DOTS: Unclear = "the URI has a `..` that is encoded or leads above its root";
const OTHER_FILE: Unclear = "the URI names a file on another host, or without its full path";
const FILE_QUERY: Unclear = "the URI of a file has a `?` or `#`, which some servers ignore";

/// Returns the normal form: lower case where case is insignificant, only necessary encoding, and
/// neither dot segments nor empty ones.
///
/// # Errors
///
/// Returns why servers could interpret the URI in more than one way.
pub(super) fn normal(uri: &str) -> Result<Cow<'_, str>, Unclear> {
    if uri.contains(|c: char| c == '\\' || c.is_whitespace() || c.is_control()) {
        return Err(PLAIN);
    }
    let (scheme, rest) = split_scheme(uri).ok_or(RELATIVE)?;
    let scheme = scheme.to_ascii_lowercase();
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    let (hierarchy, query) = rest.split_at(end);
    let (authority, path) = match hierarchy.strip_prefix("//") {
        Some(after) => {
            let (authority, path) = after.split_at(after.find('/').unwrap_or(after.len()));
            (
                Some(decoded(authority, b"%/?#[]@: ")?.to_ascii_lowercase()),
                path,
            )
        }
        None => (None, hierarchy),
    };
    let authority = match (scheme.as_str(), authority.as_deref()) {
        ("file", Some("" | "localhost")) => Some(""),
        ("file", None) if path.starts_with('/') => Some(""),
        ("file", _) => return Err(OTHER_FILE),
        (_, authority) => authority,
    };
    if scheme == "file" && !query.is_empty() {
        return Err(FILE_QUERY);
    }
    let slashes = if authority.is_some() { "//" } else { "" };
    let (path, query) = (without_dots(path)?, decoded(query, b"%#&=+? ")?);
    let normal = [
        &scheme,
        ":",
        slashes,
        authority.unwrap_or_default(),
        &path,
        &query,
    ]
    .concat();
    Ok(match normal == uri {
        true => Cow::Borrowed(uri),
        false => Cow::Owned(normal),
    })
}

fn split_scheme(uri: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = uri.split_once(':')?;
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let begins = scheme.starts_with(|c: char| c.is_ascii_alphabetic());
    (begins && scheme.bytes().all(is_legal)).then_some((scheme, rest))
}

/// A path without empty segments and dot segments.
fn without_dots(path: &str) -> Result<String, Unclear> {
    let mut segments: Vec<String> = Vec::new();
    let mut is_folder = false;
    for written in path.split('/') {
        let segment = decoded(written, b"%/?# ")?;
        is_folder = matches!(segment.as_str(), "" | "." | "..");
        match segment.as_str() {
            "." | ".." if written != segment => return Err(DOTS),
            // Some servers cut parameters off before they look for dots.
            dots if dots.starts_with("..;") => return Err(DOTS),
            "" | "." => {}
            ".." => drop(segments.pop().ok_or(DOTS)?),
            _ => segments.push(segment),
        }
    }
    let root = if path.starts_with('/') { "/" } else { "" };
    let end = if is_folder && !segments.is_empty() {
        "/"
    } else {
        ""
    };
    Ok([root, &segments.join("/"), end].concat())
}

/// Decodes a part, except for characters that would change its meaning.
fn decoded(part: &str, kept: &[u8]) -> Result<String, Unclear> {
    let mut pieces = part.split('%');
    let mut text = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let byte = encoded_byte(piece).ok_or(MALFORMED)?;
        let rest = piece.get(2..).unwrap_or_default();
        match byte {
            b'/' if !kept.contains(&b'/') => text.push(byte),
            b'/' | b'\\' | 0..0x20 | 0x7f => return Err(ENCODED),
            byte if kept.contains(&byte) => text.extend(format!("%{byte:02X}").bytes()),
            byte => text.push(byte),
        }
        text.extend(rest.bytes());
    }
    let text = String::from_utf8(text).map_err(|_| MALFORMED)?;
    if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(ENCODED);
    }
    let mut after_signs = text.split("%25").skip(1);
    if after_signs.any(|after| encoded_byte(after).is_some()) {
        return Err(TWICE);
    }
    Ok(text)
}

/// Decodes the byte that the first two hexadecimal digits of a text encode.
fn encoded_byte(digits: &str) -> Option<u8> {
    let digits = digits.get(..2)?;
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| u8::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn all_spellings_of_a_uri_have_one_form() {
        let secret = "file:///secrets/key";
        for spelling in [
            secret,
            "FILE:///secrets/key",
            "File:/secrets/key",
            "file://localhost/secrets/key",
            "file://LOCAL%68ost/secrets/key",
            "file:///%73ecrets/key",
            "file:///%73%65%63%72%65%74%73/%6b%65%79",
            "file:////secrets/key",
            "file:///secrets//key",
            "file:///./secrets/key",
            "file:///secrets/./key",
            "file:///public/../secrets/key",
            "file:///a/b/../../secrets/key",
        ] {
            assert_eq!(normal(spelling).as_deref(), Ok(secret), "{spelling}");
        }
        for (uri, expected) in [
            ("DB://Host:1/Table", "db://host:1/Table"),
            ("db://h", "db://h"),
            ("db://h/", "db://h/"),
            ("x://h/a/", "x://h/a/"),
            ("x://h/a/.", "x://h/a/"),
            ("x://h/a/b/..", "x://h/a/"),
            ("x://h/a%3Ab%2ac", "x://h/a:b*c"),
            ("x://h/100%25", "x://h/100%25"),
            ("x://h/my%20file", "x://h/my%20file"),
            ("x://h/s%c3%a9crets", "x://h/s\u{e9}crets"),
            ("x://h/a%3fb", "x://h/a%3Fb"),
            ("x://h/a?p=%2Fb%7E#%63", "x://h/a?p=/b~#c"),
            ("x://h/?a=//b", "x://h/?a=//b"),
            ("urn:isbn:1", "urn:isbn:1"),
            ("URN:%69sbn:1", "urn:isbn:1"),
            ("note:a//b/./c", "note:a/b/c"),
            ("file:///{+path}", "file:///{+path}"),
        ] {
            assert_eq!(normal(uri).as_deref(), Ok(expected), "{uri}");
        }
    }

    #[test]
    fn a_uri_with_more_than_one_meaning_has_no_form() {
        for uri in [
            "file:///public/..%2fsecrets/key",
            "file:///public/..%2Fsecrets/key",
            "file:///public%2f..%2fsecrets",
            "file:///public/%2e%2e/secrets/key",
            "file:///public/.%2E/secrets/key",
            "file:///%2e/secrets/key",
            "file:///public/..%5csecrets",
            "file:///public\\..\\secrets",
            "file:///public/..;/secrets",
            "file:///../secrets",
            "file:///a/../../secrets",
            "x://public/../secrets",
            "file:///secrets/key%00",
            "file:///sec%0arets/key",
            "file:///sec\trets/key",
            " file:///secrets/key ",
            "file:///%2573ecrets/key",
            "file:///public/%252e%252e/secrets",
            "file:///a%",
            "file:///a%zz",
            "file:///a%+1",
            "file:///a%ff",
            "file://elsewhere/secrets/key",
            "file://user@localhost/secrets/key",
            "file:secrets/key",
            "file:///secrets/key?",
            "file:///secrets/key?x=1",
            "file:///secrets/key#x",
            "x://h%2f..%2fsecrets/key",
            "x://h/a?p=%00",
            "x://h/%25%37%33ecrets",
            "x://h/a%c2%a0b",
            "/secrets/key",
            "secrets",
            "",
        ] {
            assert!(normal(uri).is_err(), "{uri}");
        }
    }

    proptest! {
        /// Normalizing is idempotent, and no input makes it panic.
        #[test]
        fn a_form_is_stable(uri in "(file|X|a\\+b):[/a-z.%0-9A-F\\\\é?#@:;]{0,40}") {
            if let Ok(form) = normal(&uri) {
                let again = normal(&form).map(Cow::into_owned);
                prop_assert_eq!(again, Ok(form.into_owned()));
            }
        }
    }
}
