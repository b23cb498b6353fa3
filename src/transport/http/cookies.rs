//! The cookies of one connection, which sticky load balancers use to find a session's node.
//!
//! A connection sends requests to one host only, so every cookie is host-only, whatever its
//! `Domain` (RFC 6265).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use awc::http::Uri;
use awc::http::header::{HeaderMap, HeaderValue, SET_COOKIE};
use parking_lot::Mutex;

use super::dialer::OVER_TLS;
use crate::telemetry::{http_date, unix_millis};

/// Maximum cookies per connection; beyond it, the oldest is removed.
const COOKIES_MAX: usize = 32;

/// Longest cookie, name and value, in bytes; longer ones are ignored.
const COOKIE_MAX: usize = 4096;

/// Maximum bytes of cookies in one request; the oldest are omitted.
const HEADER_MAX: usize = 8 * 1024;

/// The cookies that a server set. Clones share them across links and threads.
#[derive(Clone, Default)]
pub struct CookieJar(Arc<JarState>);

#[derive(Default)]
struct JarState {
    /// Whether any cookie was set; requests without cookies take no lock.
    is_used: AtomicBool,
    cookies: Mutex<Vec<Cookie>>,
}

#[derive(Clone, PartialEq, Eq)]
struct Cookie {
    name: String,
    value: String,
    path: String,
    /// Expiry in milliseconds since 1970.
    expires: Option<u64>,
    is_secure: bool,
}

/// All jars compare equal, because a jar belongs to a session and does not identify it.
impl PartialEq for CookieJar {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for CookieJar {}

impl fmt::Debug for CookieJar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.masked()).finish()
    }
}

impl CookieJar {
    /// Stores the cookies from the answer to a request for `uri`.
    pub(in crate::transport) fn absorb(&self, uri: &Uri, headers: &HeaderMap) {
        if !headers.contains_key(SET_COOKIE) {
            return;
        }
        let now = unix_millis();
        let lines = headers.get_all(SET_COOKIE).take(COOKIES_MAX);
        let mut cookies = self.0.cookies.lock();
        for cookie in lines.filter_map(|line| Cookie::parse(line.as_bytes(), uri, now)) {
            cookies.retain(|it| it.name != cookie.name || it.path != cookie.path);
            cookies.push(cookie);
        }
        cookies.retain(|cookie| !cookie.is_expired(now));
        let surplus = cookies.len().saturating_sub(COOKIES_MAX);
        cookies.drain(..surplus);
        self.0.is_used.store(!cookies.is_empty(), Ordering::Release);
    }

    /// Whether there are any cookies.
    pub(in crate::transport) fn is_used(&self) -> bool {
        self.0.is_used.load(Ordering::Acquire)
    }

    /// The `Cookie` header of a request for `uri`, with the `configured` cookies first.
    pub(in crate::transport) fn header<'v>(
        &self,
        uri: &Uri,
        configured: impl FnOnce() -> Option<&'v HeaderValue>,
    ) -> Option<HeaderValue> {
        if !self.is_used() {
            return None;
        }
        let now = unix_millis();
        let mut pairs: Vec<String> = Vec::new();
        let mut length = 0;
        for cookie in self.0.cookies.lock().iter().rev() {
            let pair = format!("{}={}", cookie.name, cookie.value);
            if cookie.is_for(uri) && !cookie.is_expired(now) && length + pair.len() <= HEADER_MAX {
                length += pair.len() + 2;
                pairs.push(pair);
            }
        }
        let configured = configured().and_then(|value| value.to_str().ok());
        pairs.extend(configured.map(str::to_owned));
        pairs.reverse();
        if pairs.is_empty() {
            return None;
        }
        let mut value = HeaderValue::from_str(&pairs.join("; ")).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Removes all cookies, because a new session starts without them.
    pub(in crate::transport) fn clear(&self) {
        self.0.cookies.lock().clear();
        self.0.is_used.store(false, Ordering::Release);
    }

    /// The cookies with masked values, for operators.
    pub fn masked(&self) -> Vec<String> {
        let cookies = self.0.cookies.lock();
        let masked = cookies.iter().map(|cookie| format!("{}=***", cookie.name));
        masked.collect()
    }
}

impl Cookie {
    /// Parses a `Set-Cookie` header (RFC 6265, section 5.2); `None` if the cookie is not kept.
    fn parse(line: &[u8], uri: &Uri, now: u64) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?;
        let mut parts = line.split(';').map(str::trim);
        let (name, value) = parts.next()?.split_once('=')?;
        let (name, value) = (name.trim(), value.trim());
        let is_plain = |text: &str| text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        if name.is_empty() || name.len() + value.len() > COOKIE_MAX || !is_plain(line) {
            return None;
        }
        let mut cookie = Self {
            name: name.to_owned(),
            value: value.to_owned(),
            path: default_path(uri.path()).to_owned(),
            expires: None,
            is_secure: false,
        };
        let mut max_age = None;
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let value = value.trim();
            match key.trim().to_ascii_lowercase().as_str() {
                "path" if value.starts_with('/') => cookie.path = value.to_owned(),
                "domain" if !covers(value, uri.host()?) => return None,
                "expires" => cookie.expires = http_date(value).or(cookie.expires),
                "max-age" => max_age = age(value).or(max_age),
                "secure" => cookie.is_secure = true,
                _ => {}
            }
        }
        if let Some(age) = max_age {
            cookie.expires = match age {
                0 => Some(0),
                seconds => Some(now.saturating_add(seconds.saturating_mul(1000))),
            };
        }
        (!cookie.is_secure || is_https(uri)).then_some(cookie)
    }

    fn is_expired(&self, now: u64) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    /// Whether the cookie is sent with a request for `uri` (section 5.1.4).
    fn is_for(&self, uri: &Uri) -> bool {
        let rest = uri.path().strip_prefix(self.path.as_str());
        let is_path = rest.is_some_and(|rest| {
            rest.is_empty() || rest.starts_with('/') || self.path.ends_with('/')
        });
        is_path && (!self.is_secure || is_https(uri))
    }
}

fn is_https(uri: &Uri) -> bool {
    matches!(uri.scheme_str(), Some("https" | OVER_TLS))
}

/// The path of a cookie that names none: the request's path up to the last slash.
fn default_path(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) | None => "/",
        Some(end) => path.get(..end).unwrap_or("/"),
    }
}

/// Whether a cookie for `domain` applies to `host`.
fn covers(domain: &str, host: &str) -> bool {
    let domain = domain.trim_start_matches('.').to_ascii_lowercase();
    let host = host.to_ascii_lowercase();
    domain.is_empty() || host == domain || host.ends_with(&format!(".{domain}"))
}

/// Lifetime of a cookie in seconds.
fn age(text: &str) -> Option<u64> {
    let seconds: i64 = text.parse().ok()?;
    Some(u64::try_from(seconds).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(text: &str) -> Uri {
        text.parse().unwrap()
    }

    /// The header after these cookies were set by `https://a.example/x/mcp`.
    fn sent(lines: &[&str], to: &str) -> Option<String> {
        let jar = CookieJar::default();
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(SET_COOKIE, HeaderValue::from_str(line).unwrap());
        }
        jar.absorb(&uri("https://a.example/x/mcp"), &headers);
        let value = jar.header(&uri(to), || None)?;
        Some(value.to_str().unwrap().to_owned())
    }

    #[test]
    fn a_cookie_goes_back_to_where_it_belongs() {
        const HERE: &str = "https://a.example/x/mcp";
        let table: &[(&[&str], &str, Option<&str>)] = &[
            (&["lb=1"], HERE, Some("lb=1")),
            (&["lb=1", "b=2"], HERE, Some("lb=1; b=2")),
            (&["lb=1", "lb=2; Path=/x"], HERE, Some("lb=2")),
            (&["lb=1; path=/"], "https://a.example/", Some("lb=1")),
            (&["lb=1"], "https://a.example/", None),
            (&["lb=1; Path=/x/m"], HERE, None),
            (&["lb=1; Path=/x/mcp"], HERE, Some("lb=1")),
            (&["lb=1; Domain=.Example"], HERE, Some("lb=1")),
            (&["lb=1; Domain=b.example"], HERE, None),
            (&["lb=1; Secure; Path=/"], "http://a.example/", None),
            (&["lb=1; Secure"], HERE, Some("lb=1")),
            (&["lb=1; Max-Age=0"], HERE, None),
            (&["lb=1", "lb=1; Max-Age=-1"], HERE, None),
            (&["lb=1; Max-Age=99999999999999"], HERE, Some("lb=1")),
            (&["lb=1; Expires=Wed, 01 Jan 2020 00:00:00 GMT"], HERE, None),
            (&["lb=1; Expires=Wed, 01-Jan-2020 00:00:00 GMT"], HERE, None),
            (
                &["lb=1; Expires=Wed, 01 Jan 2020 00:00:00 GMT; Max-Age=60"],
                HERE,
                Some("lb=1"),
            ),
            (&["lb=1; Expires=nonsense"], HERE, Some("lb=1")),
            (&["lb = a=b \t; HttpOnly; SameSite=None"], HERE, None),
            (
                &["lb = a=b ; HttpOnly; SameSite=None"],
                HERE,
                Some("lb=a=b"),
            ),
            (&["=1"], HERE, None),
            (&["lb"], HERE, None),
        ];
        for (lines, to, expected) in table {
            assert_eq!(sent(lines, to).as_deref(), *expected, "{lines:?} {to}");
        }
    }

    #[test]
    fn cookies_are_bounded_masked_and_follow_what_is_configured() {
        let jar = CookieJar::default();
        let here = uri("http://a.example/mcp");
        let long = format!("long={}", "x".repeat(COOKIE_MAX));
        let lines = (0..COOKIES_MAX + 5).map(|number| format!("c{number}={}", "v".repeat(300)));
        let mut headers = HeaderMap::new();
        for line in lines.chain([long]) {
            headers.append(SET_COOKIE, HeaderValue::from_str(&line).unwrap());
            jar.absorb(&here, &headers);
            headers.clear();
        }
        assert_eq!(jar.masked().len(), COOKIES_MAX);
        let configured = HeaderValue::from_static("own=1");
        let header = jar.header(&here, || Some(&configured)).unwrap();
        assert!(header.is_sensitive() && header.len() <= HEADER_MAX + 10);
        assert!(header.to_str().unwrap().starts_with("own=1; c"));
        assert!(!format!("{jar:?}").contains("vv"), "{jar:?}");
        jar.clear();
        assert_eq!(jar.header(&here, || Some(&configured)), None);
    }
}
