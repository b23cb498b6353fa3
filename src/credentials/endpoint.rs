//! A safe URL of an authorization server.

use std::fmt;
use std::str::FromStr;

use url::{Host, Url};

/// Maximum length of an authorization server's URL.
const URL_MAX: usize = 2048;

/// A URL that is `https://`, or `http://` on this machine, without user, password and fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(Url);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEndpoint {
    #[error("it is longer than {URL_MAX} bytes")]
    TooLong,
    #[error("it is not a URL")]
    NoUrl,
    #[error("it must be `https://`; `http://` is allowed only for this machine")]
    NotHttps,
    #[error("it contains a user name or password")]
    Credentials,
    #[error("it has a fragment")]
    Fragment,
}

impl FromStr for Endpoint {
    type Err = InvalidEndpoint;

    fn from_str(text: &str) -> Result<Self, InvalidEndpoint> {
        if text.len() > URL_MAX {
            return Err(InvalidEndpoint::TooLong);
        }
        let url = Url::parse(text).map_err(|_| InvalidEndpoint::NoUrl)?;
        let is_safe = match url.scheme() {
            "https" => true,
            "http" => is_loopback(&url),
            _ => false,
        };
        if !is_safe {
            return Err(InvalidEndpoint::NotHttps);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(InvalidEndpoint::Credentials);
        }
        if url.fragment().is_some() {
            return Err(InvalidEndpoint::Fragment);
        }
        Ok(Self(url))
    }
}

impl Endpoint {
    pub fn url(&self) -> &Url {
        &self.0
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether a URL names this machine.
pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_and_loopback_urls_are_accepted() {
        let table = [
            ("https://as.example.com/token?tenant=a", None),
            ("http://127.0.0.1:8080/token", None),
            ("http://[::1]/token", None),
            ("http://localhost/token", None),
            (
                "http://as.example.com/token",
                Some(InvalidEndpoint::NotHttps),
            ),
            (
                "http://localhost.example.com/",
                Some(InvalidEndpoint::NotHttps),
            ),
            ("http://10.0.0.1/token", Some(InvalidEndpoint::NotHttps)),
            ("javascript:alert(1)", Some(InvalidEndpoint::NotHttps)),
            ("file:///etc/passwd", Some(InvalidEndpoint::NotHttps)),
            (
                "https://a:b@as.example.com/",
                Some(InvalidEndpoint::Credentials),
            ),
            ("https://as.example.com/#f", Some(InvalidEndpoint::Fragment)),
            ("/token", Some(InvalidEndpoint::NoUrl)),
        ];
        for (text, expected) in table {
            assert_eq!(text.parse::<Endpoint>().err(), expected, "{text}");
        }
        let long = format!("https://as.example.com/{}", "a".repeat(URL_MAX));
        assert_eq!(long.parse::<Endpoint>(), Err(InvalidEndpoint::TooLong));
    }
}
