//! Validates resource URIs, and wraps them if two servers use the same.
//!
//! `file:///a` of the server `git` becomes `mcpgw+git+file:///a`, and `ui://app` becomes
//! `ui://git/app`. The suffix stays unchanged, so that templates can still be expanded and
//! unwrapping yields the native URI. A scheme cannot contain `_`, so `.` replaces it, which no name
//! of a server contains.

use std::borrow::Cow;

use url::{ParseError, Url};

use super::IngestLimits;

const SCHEME: &str = "mcpgw+";
const INTERFACE: &str = "ui://";

/// Whether clients can fetch the URI themselves, so that it must stay unchanged.
pub(super) fn is_fixed(uri: &str) -> bool {
    matches!(scheme(uri), Some(scheme) if scheme.eq_ignore_ascii_case("http")
        || scheme.eq_ignore_ascii_case("https"))
}

/// Whether the URI already looks wrapped: by another gateway, or to deceive.
pub(super) fn is_reserved(uri: &str) -> bool {
    strip(uri, SCHEME).is_some()
}

/// Whether a template starts with an expression, so that it can match any URI of any server.
pub(super) fn is_open(template: &str) -> bool {
    template.starts_with('{')
}

/// The wrapped form of a native URI (or URI template).
pub(super) fn wrap(prefix: &str, native: &str) -> String {
    match native.strip_prefix(INTERFACE) {
        Some(rest) => format!("{INTERFACE}{prefix}/{rest}"),
        None => format!("{SCHEME}{}+{native}", prefix.replace('_', ".")),
    }
}

/// Splits a wrapped URI into prefix and native URI. A wrapped interface URI looks like a native
/// one, so the caller must check that the prefix is in use.
pub(super) fn unwrap(public: &str) -> Option<(String, Cow<'_, str>)> {
    if let Some(rest) = strip(public, SCHEME) {
        let (prefix, native) = rest.split_once('+')?;
        let prefix = prefix.to_ascii_lowercase().replace('.', "_");
        return Some((prefix, Cow::Borrowed(native)));
    }
    let (prefix, rest) = strip(public, INTERFACE)?.split_once('/')?;
    Some((
        prefix.to_ascii_lowercase(),
        Cow::Owned(format!("{INTERFACE}{rest}")),
    ))
}

/// Scheme and authority, if a URI (or the literal start of a template) has them completely:
/// `db://host`, `file://`, `urn:`. In lower case, as both are case-insensitive.
pub(super) fn origin(uri: &str) -> Option<String> {
    let scheme = scheme(uri)?;
    let rest = uri.get(scheme.len() + 1..)?;
    let Some(rest) = rest.strip_prefix("//") else {
        return Some(format!("{scheme}:").to_ascii_lowercase());
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or("");
    if authority.contains(['{', '}']) {
        return None;
    }
    Some(format!("{scheme}://{authority}").to_ascii_lowercase())
}

/// # Errors
///
/// Returns what is wrong with the URI (S-RES-07, S-RES-10).
pub(super) fn check(uri: &str, limits: &IngestLimits) -> Result<(), String> {
    check_text("uri", uri, limits)?;
    match Url::parse(uri) {
        // Some servers list resources without a scheme, and clients read them by the same text.
        Ok(_) | Err(ParseError::RelativeUrlWithoutBase) if !uri.is_empty() => Ok(()),
        Ok(_) => Err("`uri` is empty".to_owned()),
        Err(error) => Err(format!("`uri` is not a URI: {error}")),
    }
}

/// # Errors
///
/// Returns what is wrong with the literal part of the template.
pub(super) fn check_template(template: &str, limits: &IngestLimits) -> Result<(), String> {
    check_text("uriTemplate", template, limits)?;
    if template.is_empty() {
        return Err("`uriTemplate` is empty".to_owned());
    }
    Ok(())
}

fn check_text(member: &str, text: &str, limits: &IngestLimits) -> Result<(), String> {
    if text.len() > limits.uri_bytes {
        let most = limits.uri_bytes;
        return Err(format!("`{member}` is longer than {most} bytes"));
    }
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(format!("`{member}` has a space or control character"));
    }
    Ok(())
}

fn scheme(uri: &str) -> Option<&str> {
    let (scheme, _) = uri.split_once(':')?;
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    let starts = scheme.as_bytes().first()?.is_ascii_alphabetic();
    (starts && scheme.bytes().all(legal)).then_some(scheme)
}

fn strip<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let start = text.get(..prefix.len())?;
    start
        .eq_ignore_ascii_case(prefix)
        .then(|| text.get(prefix.len()..))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapping_a_uri_is_visible_and_reversible() {
        for (native, public) in [
            ("file:///a/b", "mcpgw+git+file:///a/b"),
            ("urn:isbn:1", "mcpgw+git+urn:isbn:1"),
            ("mcpgw+in+file:///a", "mcpgw+git+mcpgw+in+file:///a"),
            ("ui://app/x", "ui://git/app/x"),
            ("a+b://{x}", "mcpgw+git+a+b://{x}"),
            ("https://a.example/", "mcpgw+git+https://a.example/"),
        ] {
            assert_eq!(wrap("git", native), public);
            assert_eq!(
                unwrap(public),
                Some(("git".to_owned(), Cow::Borrowed(native)))
            );
        }
        assert_eq!(unwrap("MCPGW+Git+file:///a").unwrap().0, "git");
        let public = wrap("my_git", "file:///a");
        assert_eq!(public, "mcpgw+my.git+file:///a");
        assert_eq!(unwrap(&public).unwrap().0, "my_git");
        for native in ["file:///a", "mcpgw+git", "ui://app", "ü"] {
            assert_eq!(unwrap(native), None, "{native}");
        }
    }

    #[test]
    fn an_origin_is_scheme_and_whole_authority() {
        for (uri, expected) in [
            ("file:///a", Some("file://")),
            ("DB://Host:1/t?x", Some("db://host:1")),
            ("urn:isbn:1", Some("urn:")),
            ("db://{table}/x", None),
            ("{scheme}://x", None),
        ] {
            assert_eq!(origin(uri).as_deref(), expected, "{uri}");
        }
    }

    #[test]
    fn only_uris_pass() {
        let limits = IngestLimits::default();
        let named = ["config", "/etc/x", "docs/読む.md", "1a://x"];
        let uris = ["file:///a", "db://t/1", "urn:x:y", "note:1", "ui://app"];
        for good in uris.into_iter().chain(named) {
            assert_eq!(check(good, &limits), Ok(()), "{good}");
        }
        let long = format!("file:///{}", "x".repeat(5000));
        for bad in ["", "a b://c", "http://", "file:///\u{7}", &long] {
            assert!(check(bad, &limits).is_err(), "{bad}");
        }
    }
}
