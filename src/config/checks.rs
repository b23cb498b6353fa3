//! Validators for single values, each with the description of valid input that errors quote.

use std::net::IpAddr;
use std::path::PathBuf;

use globset::Glob;
use ipnet::IpNet;
use url::Url;

use super::declaration::texts::{NamedSecrets, SecretText};
use super::section::{Section, ValueError};
use crate::bridge::headers::UserClaim;
use crate::credentials::is_loopback;
use crate::id::ServerName;
use crate::transport::ProxyChoice;

/// Headers that the gateway or the connection sets itself.
const RESERVED_HEADERS: [&str; 14] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "keep-alive",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

fn checked(text: &str, is_right: bool) -> Result<String, ValueError> {
    let value = is_right.then(|| text.to_owned());
    value.ok_or_else(ValueError::as_declared)
}

/// Refuses two keys whose first value is smaller than the second.
pub(crate) fn is_at_least<T: PartialOrd>(
    section: &Section<'_>,
    larger: (&str, T),
    smaller: (&str, T),
    help: Option<&str>,
) {
    if larger.1 < smaller.1 {
        let (one, other) = (section.path(larger.0), section.path(smaller.0));
        let message = format!("`{one}` must be at least `{other}`");
        section.refuse(&[larger.0, smaller.0], message, help.map(str::to_owned));
    }
}

pub(crate) const ENDPOINT: &str = "a path such as `\"/mcp\"`: letters, digits and `-_.~/`, no \
                                   trailing slash, and not one of the gateway's own paths, such as \
                                   `/health` or `/api`";

/// Paths that the gateway uses itself, including everything below them.
const TAKEN: [&str; 13] = [
    "/api",
    "/config",
    "/health",
    "/healthz",
    "/help",
    "/livez",
    "/messages",
    "/metrics",
    "/oauth",
    "/openapi.json",
    "/readyz",
    "/sse",
    "/ui",
];

pub(crate) fn endpoint(path: &str) -> Result<String, ValueError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.' | '~');
    let is_well_formed = path.starts_with('/')
        && path.len() <= 256
        && path.chars().all(plain)
        && !path.contains("//")
        && !path.contains("/.")
        && (path == "/" || !path.ends_with('/'));
    let top = path.split_inclusive('/').take(2).collect::<String>();
    let is_free = !TAKEN.contains(&top.trim_end_matches('/'));
    checked(path, is_well_formed && is_free)
}

pub(crate) const ORIGIN: &str = "an origin such as `\"https://app.example.com\"`, without a path";

pub(crate) fn origin(text: &str) -> Result<String, ValueError> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || b"+-.".contains(&b);
    let is_right = text.split_once("://").is_some_and(|(scheme, host)| {
        !scheme.is_empty() && scheme.bytes().all(legal) && is_host(host)
    });
    checked(text, text == "*" || is_right)
}

pub(crate) const HOST: &str = "a host such as `\"mcp.example.com\"`, without scheme or path";

pub(crate) fn host(text: &str) -> Result<String, ValueError> {
    checked(text, is_host(text))
}

fn is_host(text: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || b"-._:*[]".contains(&b);
    !text.is_empty() && text.len() <= 256 && text.bytes().all(legal)
}

pub(crate) const NETWORK: &str = "an IP address, or a network such as `\"10.0.0.0/8\"`";

pub(crate) fn network(text: &str) -> Result<IpNet, ValueError> {
    let alone = || {
        text.parse()
            .map(|address: IpAddr| IpNet::from(address.to_canonical()))
    };
    let network = text.parse().or_else(|_| alone());
    network.map_err(|_| ValueError::as_declared())
}

pub(crate) const ID: &str = "1 to 64 characters of A-Z, a-z, 0-9, `-`, `_` and `.`";

pub(crate) fn id(text: &str) -> Result<String, ValueError> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    checked(
        text,
        matches!(text.len(), 1..=64) && text.bytes().all(legal),
    )
}

pub(crate) const DIRECTORY: &str = "a directory path";

pub(crate) fn directory(text: &str) -> Result<PathBuf, ValueError> {
    not_empty(text).map(PathBuf::from)
}

pub(crate) const FILE: &str = "a file path";

pub(crate) fn file(text: &str) -> Result<PathBuf, ValueError> {
    not_empty(text).map(PathBuf::from)
}

pub(crate) const NOT_EMPTY: &str = "a non-empty string";

pub(crate) fn not_empty(text: &str) -> Result<String, ValueError> {
    checked(text, !text.is_empty() && !text.contains('\0'))
}

/// Whether the URL sends data unencrypted to another machine.
pub(crate) fn is_plain_http(url: &Url) -> bool {
    url.scheme() == "http" && !is_loopback(url)
}

pub(crate) fn secret(text: &str) -> Result<SecretText, ValueError> {
    not_empty(text).map(|text| SecretText::new(&text))
}

pub(crate) const NO_NUL: &str = "a string without NUL characters";

pub(crate) fn no_nul(text: &str) -> Result<(), ValueError> {
    if text.contains('\0') {
        return Err(NO_NUL.into());
    }
    Ok(())
}

pub(crate) fn secret_no_nul(text: &str) -> Result<SecretText, ValueError> {
    no_nul(text).map(|()| SecretText::new(text))
}

pub(crate) fn variable_name(name: &str, _: &NamedSecrets) -> Result<(), ValueError> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err("the name of an environment variable".into());
    }
    Ok(())
}

pub(crate) fn header_name(name: &str, taken: &NamedSecrets) -> Result<(), ValueError> {
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    if !is_header_name(name) {
        Err("named as an HTTP header: letters, digits and `-`".into())
    } else if RESERVED_HEADERS.iter().any(|reserved| is(reserved)) {
        Err("omitted: the gateway sets this header itself".into())
    } else if taken.iter().any(|(other, _)| is(other)) {
        Err("unique: header names are case-insensitive".into())
    } else {
        Ok(())
    }
}

/// Maximum number of client and user headers that a server can receive.
const FORWARDED_MAX: usize = 16;

/// Validates the name of a forwarded client header.
pub(crate) fn forwarded_name(name: &str, taken: &NamedSecrets) -> Result<(), ValueError> {
    if taken.len() >= FORWARDED_MAX {
        return Err(
            "omitted: a server receives at most 16 headers from clients and about users".into(),
        );
    }
    header_name(name, taken)?;
    forwardable(name)
}

/// Validates the name under which a server receives a forwarded header.
pub(crate) fn forwarded_to(name: &str) -> Result<(), ValueError> {
    header_name(name, &NamedSecrets::new())?;
    forwardable(name)
}

/// Parses the user claim that a header carries.
pub(crate) fn user_claim(text: &str) -> Result<(), ValueError> {
    let wrong = || "\"sub\", or \"claims.NAME\" where NAME is a claim".into();
    UserClaim::parse(text).map(drop).ok_or_else(wrong)
}

fn forwardable(name: &str) -> Result<(), ValueError> {
    let name = name.to_ascii_lowercase();
    if name.starts_with("mcp-") || matches!(name.as_str(), "expect" | "proxy-authorization") {
        return Err("a different header: this one is reserved by the protocol".into());
    }
    Ok(())
}

/// Whether the text is a token of RFC 9110, section 5.6.2.
fn is_header_name(name: &str) -> bool {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !name.is_empty() && name.len() <= 256 && name.bytes().all(token)
}

pub(crate) fn header_value(text: &str) -> Result<(), ValueError> {
    if !text.bytes().all(|b| matches!(b, b'\t' | 0x20..=0x7e)) {
        return Err("a header value: visible ASCII characters and spaces".into());
    }
    Ok(())
}

pub(crate) const PROXY: &str =
    "the URL of an HTTP proxy, such as `\"http://proxy.example.com:3128\"`, or `\"none\"`";

pub(crate) fn proxy(text: &str) -> Result<SecretText, ValueError> {
    let read = ProxyChoice::parse(text);
    read.map_err(|_| ValueError::as_declared())?;
    Ok(SecretText::new(text))
}

pub(crate) const URL: &str = "a URL with `http://` or `https://`, or `unix:/path/to/socket`";

pub(crate) fn url(text: &str) -> Result<SecretText, ValueError> {
    let Ok(url) = Url::parse(text) else {
        return Err("a URL such as `\"https://example.com/mcp\"`".into());
    };
    let is_socket = url.scheme() == "unix" && url.path().starts_with('/') && !url.has_host();
    let is_web = matches!(url.scheme(), "http" | "https") && url.host_str().is_some();
    if !is_web && (!is_socket || url.query().is_some()) {
        return Err(ValueError::as_declared());
    }
    if !url.username().is_empty() || url.password().is_some() {
        let help = "send them as a header: `headers = { Authorization = \"Bearer ${TOKEN}\" }`";
        return Err(ValueError::from("a URL without credentials").help(help));
    }
    if url.fragment().is_some() {
        return Err("a URL without a fragment (`#…`)".into());
    }
    Ok(SecretText::new(url.as_str()))
}

pub(crate) const ROOT: &str = "a `file://` URI such as `\"file:///home/me/project\"`";

pub(crate) fn root(text: &str) -> Result<String, ValueError> {
    let is_file = Url::parse(text).is_ok_and(|url| url.scheme() == "file");
    checked(text, is_file && text.starts_with("file://"))
}

pub(crate) const GLOB: &str = "a glob over tool names, such as `\"search*\"` or `\"{a,b}\"`";

pub(crate) const VARIABLES: &str = "a glob over variable names, such as `\"AWS_*\"`";

pub(crate) fn glob(text: &str) -> Result<String, ValueError> {
    let is_right = !text.is_empty() && text.len() <= 256 && Glob::new(text).is_ok();
    checked(text, is_right)
}

pub(crate) const PREFIX: &str = "at most 32 characters of A-Z, a-z, 0-9, `-` and single `_` inside";

pub(crate) fn prefix(text: &str) -> Result<String, ValueError> {
    checked(text, text.is_empty() || ServerName::try_new(text).is_ok())
}
