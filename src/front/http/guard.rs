//! Checks `Host`, `Origin` and the authority of an absolute URI, to prevent DNS rebinding attacks
//! (S-HTTP-03). Pure.

use crate::front::settings::FrontSettings;
use crate::protocol::{ErrorKind, Failure};

/// Checks the host, the authority and the origin of a request against the settings.
///
/// # Errors
///
/// Returns the 403 that the client reads (S-HTTP-04).
pub(in crate::front) fn check(
    settings: &FrontSettings,
    host: Option<&str>,
    authority: Option<&str>,
    origin: Option<&str>,
) -> Result<(), Failure> {
    let is_allowed = |host| host_is_allowed(settings, host);
    if !host.is_some_and(is_allowed) || !authority.is_none_or(is_allowed) {
        let message = "Host not allowed; add it to `gateway.allowed_hosts`";
        return Err(Failure::new(ErrorKind::Forbidden, message));
    }
    match origin {
        // Only browsers send `Origin`.
        None => Ok(()),
        Some(origin) if origin_is_allowed(&settings.allowed_origins, origin) => Ok(()),
        Some(_) => {
            let message = "Origin not allowed; add it to `gateway.allowed_origins`";
            Err(Failure::new(ErrorKind::Forbidden, message))
        }
    }
}

/// Returns whether an origin matches one of the patterns. In a pattern, `*` matches any text
/// without `/`, or any port; the pattern `*` matches every origin.
pub(in crate::front) fn origin_is_allowed(patterns: &[String], origin: &str) -> bool {
    patterns
        .iter()
        .any(|pattern| pattern == "*" || matches_pattern(pattern, origin))
}

fn host_is_allowed(settings: &FrontSettings, host: &str) -> bool {
    if settings
        .allowed_hosts
        .iter()
        .any(|pattern| matches_pattern(pattern, host))
    {
        return true;
    }
    if settings.listen.ip().is_loopback() {
        return matches!(without_port(host), "localhost" | "127.0.0.1" | "[::1]");
    }
    settings.allowed_hosts.is_empty()
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

fn matches_pattern(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(first) = parts.next() else {
        return false;
    };
    let Some(mut rest) = strip_prefix_ignoring_case(text, first) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        let Some((skipped, after)) = rest.split_once(part) else {
            return false;
        };
        if skipped.contains('/') {
            return false;
        }
        rest = after;
    }
    let is_port = pattern.ends_with(":*");
    rest.strip_suffix(last).is_some_and(|wild| match is_port {
        true => wild.bytes().all(|byte| byte.is_ascii_digit()),
        false => !wild.contains('/'),
    })
}

fn strip_prefix_ignoring_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix)
        .then(|| text.get(prefix.len()..))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_origins_may_call() {
        let patterns = [
            "http://localhost:*".to_owned(),
            "https://*.example.com".to_owned(),
            "null".to_owned(),
        ];
        let table = [
            ("http://localhost:3000", true),
            ("HTTP://LOCALHOST:3000", true),
            ("http://localhost", false),
            ("http://localhost.evil.com:80", false),
            ("http://localhost:80/evil", false),
            ("http://localhost:80.evil.com", false),
            ("http://localhost:80@evil.com", false),
            ("https://a.example.com", true),
            ("https://a.example.com.evil", false),
            ("https://evil/x.example.com", false),
            ("null", true),
            ("", false),
        ];
        for (origin, allowed) in table {
            assert_eq!(origin_is_allowed(&patterns, origin), allowed, "{origin}");
            let every = ["*".to_owned()];
            assert!(origin_is_allowed(&every, origin), "{origin}");
        }
    }

    #[test]
    fn loopback_listeners_serve_loopback_names_only() {
        let mut settings = FrontSettings::for_tests();
        let check = |settings: &FrontSettings, host| check(settings, host, None, None).is_ok();
        for host in ["localhost:12006", "127.0.0.1", "[::1]:80"] {
            assert!(check(&settings, Some(host)), "{host}");
        }
        for host in [
            Some("evil.com"),
            Some("localhost.evil.com:12006"),
            Some(""),
            None,
        ] {
            assert!(!check(&settings, host), "{host:?}");
        }
        for (authority, allowed) in [
            ("localhost:12006", true),
            ("evil.com", false),
            ("localhost@evil.com", false),
            ("evil.com@localhost", false),
        ] {
            let checked = super::check(&settings, Some("localhost"), Some(authority), None);
            assert_eq!(checked.is_ok(), allowed, "{authority}");
        }
        settings.listen = ([10, 0, 0, 1], 80).into();
        assert!(check(&settings, Some("any.example")));
        settings.allowed_hosts = vec!["mcp.example".to_owned()];
        assert!(check(&settings, Some("mcp.example")));
        assert!(!check(&settings, Some("any.example")));
    }
}
