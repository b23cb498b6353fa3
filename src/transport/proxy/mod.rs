//! Chooses the proxy of a request: the one in the server's settings, or the one in the environment.
//! Only [`ProxyChoice::for_url`] reads the environment.

mod no_proxy;

use std::fmt;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use self::no_proxy::NoProxy;
use super::messages::excerpt;

/// The scheme of a URL that names a Unix socket: `unix:/socket`, or `unix:/socket:/path` with the
/// path of the requests. No proxy leads to one.
pub(in crate::transport) const UNIX: &str = "unix";

/// Longest response of a proxy to `CONNECT`, in bytes.
const TUNNEL_HEAD_MAX: usize = 16 * 1024;

/// Maximum bytes of a proxy's status line that an error shows.
const LINE_SHOWN_MAX: usize = 200;

/// An HTTP proxy.
#[derive(Clone)]
pub struct Proxy {
    pub host: String,
    pub port: u16,
    /// Value of `Proxy-Authorization`.
    authorization: Option<SecretString>,
    password: Option<SecretString>,
}

/// The text is not a usable proxy. The error omits it, because it can contain a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it must be the URL of an HTTP proxy, such as `http://proxy.example.com:3128`")]
pub struct InvalidProxy;

impl Proxy {
    /// Parses `http://user:password@host:port`. Without a scheme, HTTP is assumed, as in curl.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidProxy`] for another scheme and for an invalid URL.
    pub fn parse(text: &str) -> Result<Self, InvalidProxy> {
        let text = text.trim();
        let url = match text.contains("://") {
            true => Url::parse(text),
            false => Url::parse(&format!("http://{text}")),
        };
        let url = url.map_err(|_| InvalidProxy)?;
        let host = url.host_str().filter(|host| !host.is_empty());
        let is_bare = matches!(url.path(), "" | "/") && url.query().is_none();
        let (Some(host), "http", true) = (host, url.scheme(), is_bare) else {
            return Err(InvalidProxy);
        };
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let has_user = !url.username().is_empty() || url.password().is_some();
        let authorization = has_user.then(|| {
            let user = decoded(url.username());
            let password = decoded(url.password().unwrap_or_default());
            let pair = STANDARD.encode(format!("{user}:{password}"));
            SecretString::from(format!("Basic {pair}"))
        });
        let password = url.password().map(|text| SecretString::from(decoded(text)));
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: url.port().unwrap_or(80),
            authorization,
            password,
        })
    }

    /// Secrets in the proxy's settings, which must be masked.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &str> {
        let both = self.authorization.iter().chain(&self.password);
        both.map(|secret| secret.expose_secret().trim_start_matches("Basic "))
    }

    /// The request for a tunnel to a server (RFC 9110, section 9.3.6).
    pub(crate) fn tunnel_request(&self, host: &str, port: u16) -> String {
        let target = authority(host, port);
        format!(
            "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nUser-Agent: mcpvisor/{}\r\n{}\r\n",
            env!("CARGO_PKG_VERSION"),
            self.authorization_line(),
        )
    }

    /// Header line with the user's credentials for the proxy; empty without a user.
    pub(crate) fn authorization_line(&self) -> String {
        let line =
            |value: &SecretString| format!("Proxy-Authorization: {}\r\n", value.expose_secret());
        self.authorization.as_ref().map_or_else(String::new, line)
    }
}

/// Shows the URL without credentials.
impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = if self.authorization.is_some() {
            "***@"
        } else {
            ""
        };
        write!(f, "http://{user}{}", authority(&self.host, self.port))
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({self})")
    }
}

/// Formats host and port for a URI.
pub(crate) fn authority(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// Reads the response to [`Proxy::tunnel_request`]; `None` while it is incomplete.
///
/// # Errors
///
/// Returns why the proxy did not open a tunnel.
pub(crate) fn tunnel_answer(head: &[u8]) -> Option<Result<(), String>> {
    if !head.ends_with(b"\r\n\r\n") && !head.ends_with(b"\n\n") {
        let is_endless = head.len() >= TUNNEL_HEAD_MAX;
        return is_endless.then(|| Err("its response to CONNECT is too long".to_owned()));
    }
    let line = head.split(|byte| matches!(byte, b'\r' | b'\n')).next();
    let line = excerpt(line.unwrap_or_default(), LINE_SHOWN_MAX);
    let status = line.split(' ').nth(1).unwrap_or_default();
    if line.starts_with("HTTP/1.") && status.len() == 3 && status.starts_with('2') {
        return Some(Ok(()));
    }
    let advice = match status {
        "407" => "; put the user into its URL: `http://user:password@host:port`",
        _ => "",
    };
    Some(Err(format!("it refused the connection: {line}{advice}")))
}

/// Choice of the proxy for one server.
#[derive(Clone, Debug, Default)]
pub enum ProxyChoice {
    /// The variables `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`.
    #[default]
    Environment,
    Direct,
    Through(Proxy),
}

impl ProxyChoice {
    /// Parses the key `proxy` of a server: a URL, or `none`.
    ///
    /// # Errors
    ///
    /// Returns the error of [`Proxy::parse`].
    pub fn parse(text: &str) -> Result<Self, InvalidProxy> {
        match text {
            "none" => Ok(Self::Direct),
            text => Proxy::parse(text).map(Self::Through),
        }
    }

    /// The proxy for a request to `url`.
    ///
    /// # Errors
    ///
    /// Returns an error that names the environment variable with an invalid value.
    pub fn for_url(&self, url: &Url) -> Result<Option<Proxy>, String> {
        match self {
            _ if url.scheme() == UNIX => Ok(None),
            Self::Environment => of_variables(url, |name| std::env::var(name).ok()),
            Self::Direct => Ok(None),
            Self::Through(proxy) => Ok(Some(proxy.clone())),
        }
    }
}

/// The proxy that the environment specifies for `url`. Never used for loopback addresses, because a
/// proxy would look for the server on its own machine.
fn of_variables(
    url: &Url,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Proxy>, String> {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    if is_this_machine(host) {
        return Ok(None);
    }
    let first = |names: [&'static str; 2]| {
        let set = |name: &'static str| {
            let text = variable(name)?;
            (!text.trim().is_empty()).then_some((name, text))
        };
        names.into_iter().find_map(set)
    };
    let names = match url.scheme() {
        "https" => ["https_proxy", "HTTPS_PROXY"],
        _ => ["http_proxy", "HTTP_PROXY"],
    };
    let Some((name, text)) = first(names) else {
        return Ok(None);
    };
    let exceptions = first(["no_proxy", "NO_PROXY"]).map(|(_, list)| NoProxy::parse(&list));
    let port = url.port_or_known_default().unwrap_or(80);
    if exceptions.unwrap_or_default().covers(host, port) {
        return Ok(None);
    }
    let proxy = Proxy::parse(&text);
    proxy
        .map(Some)
        .map_err(|error| format!("the environment variable `{name}`: {error}"))
}

fn is_this_machine(host: &str) -> bool {
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    let address = name.parse::<IpAddr>().ok().map(|it| it.to_canonical());
    address.is_some_and(|it| it.is_loopback())
        || name == "localhost"
        || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(variables: &[(&str, &str)], url: &str) -> Result<Option<String>, String> {
        let find = |name: &str| {
            let found = variables.iter().find(|(own, _)| *own == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let proxy = of_variables(&Url::parse(url).unwrap(), find)?;
        Ok(proxy.map(|proxy| proxy.to_string()))
    }

    #[test]
    fn the_environment_names_a_proxy_by_scheme_and_never_for_this_machine() {
        let both = [("HTTP_PROXY", "http://p:1"), ("HTTPS_PROXY", "http://s:2")];
        let lower = [("http_proxy", "low:1"), ("HTTP_PROXY", "http://p:1")];
        let except = [
            ("HTTPS_PROXY", "s:2"),
            ("NO_PROXY", "a.example:8443,10.0.0.0/8"),
        ];
        type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, Option<&'a str>);
        let table: [Case<'_>; 14] = [
            (&[], "https://a.example/", None),
            (&both, "http://a.example/", Some("http://p:1")),
            (&both, "https://a.example/", Some("http://s:2")),
            (&lower, "http://a.example/", Some("http://low:1")),
            (&lower, "https://a.example/", None),
            (&except, "https://a.example/", Some("http://s:2")),
            (&except, "https://a.example:8443/", None),
            (&except, "https://10.1.2.3/", None),
            (&both, "http://localhost:1/", None),
            (&both, "http://LOCALHOST./", None),
            (&both, "http://x.localhost/", None),
            (&both, "http://127.0.0.9/", None),
            (&both, "https://[::1]/", None),
            (&[("HTTP_PROXY", " ")], "http://a.example/", None),
        ];
        for (variables, url, expected) in table {
            let chosen = chosen(variables, url).unwrap();
            assert_eq!(chosen.as_deref(), expected, "{variables:?} {url}");
        }
        let error = chosen(
            &[("HTTPS_PROXY", "socks5://u:secret@p:1")],
            "https://a.example/",
        );
        let error = error.unwrap_err();
        assert!(error.contains("`HTTPS_PROXY`"), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn a_proxy_is_a_plain_http_url_and_shows_no_password() {
        let table = [
            (
                "http://proxy.example:3128",
                Some("http://proxy.example:3128"),
            ),
            ("proxy.example", Some("http://proxy.example:80")),
            (
                "http://u:s%40cret@proxy.example:1/",
                Some("http://***@proxy.example:1"),
            ),
            ("http://[::1]:8080", Some("http://[::1]:8080")),
            ("https://proxy.example", None),
            ("socks5://proxy.example:1080", None),
            ("http://proxy.example/path", None),
            ("http://", None),
            ("", None),
        ];
        for (text, expected) in table {
            let shown = Proxy::parse(text).ok().map(|proxy| format!("{proxy}"));
            assert_eq!(shown.as_deref(), expected, "{text}");
        }
        let proxy = Proxy::parse("http://u:s%40cret@proxy.example").unwrap();
        let expected = format!(
            "Proxy-Authorization: Basic {}\r\n",
            STANDARD.encode("u:s@cret")
        );
        assert_eq!(proxy.authorization_line(), expected);
        assert!(!format!("{proxy:?}").contains("cret"));
    }

    #[test]
    fn a_tunnel_is_there_after_a_2xx_only() {
        let table = [
            ("HTTP/1.1 200 Connection established\r\n\r\n", Some(true)),
            ("HTTP/1.0 200 OK\r\nVia: x\r\n\r\n", Some(true)),
            ("HTTP/1.1 200 OK\r\n", None),
            (
                "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
                Some(false),
            ),
            ("HTTP/1.1 503 X\r\n\r\n", Some(false)),
            ("SSH-2.0\n\n", Some(false)),
            ("", None),
        ];
        for (head, expected) in table {
            let answer = tunnel_answer(head.as_bytes());
            assert_eq!(answer.map(|it| it.is_ok()), expected, "{head:?}");
        }
        assert_eq!(
            tunnel_answer(&[b'x'; TUNNEL_HEAD_MAX]).map(|it| it.is_ok()),
            Some(false)
        );
        let request = Proxy::parse("p:1").unwrap().tunnel_request("::1", 443);
        assert!(request.starts_with("CONNECT [::1]:443 HTTP/1.1\r\nHost: [::1]:443\r\n"));
        assert!(request.ends_with("\r\n\r\n"), "{request}");
    }

    #[test]
    fn the_choice_of_a_server_wins_over_the_environment() {
        let url = Url::parse("http://127.0.0.1:1/").unwrap();
        let through = ProxyChoice::parse("http://p:1")
            .unwrap()
            .for_url(&url)
            .unwrap();
        assert_eq!(through.unwrap().to_string(), "http://p:1");
        let direct = ProxyChoice::parse("none").unwrap().for_url(&url).unwrap();
        assert!(direct.is_none());
        assert_eq!(ProxyChoice::parse("ftp://p").unwrap_err(), InvalidProxy);
    }
}
