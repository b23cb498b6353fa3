//! Checks whether the server at a URL is reachable: name, port, certificate and HTTP.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use secrecy::ExposeSecret as _;
use tokio::time::Instant;

use super::finding::Finding;
use crate::front::Lifetime;
use crate::masking::public_url;
use crate::telemetry::{one_line, unix_millis};
use crate::transport::{HttpSettings, Proxy, Tls, tunnel_answer};

const CHECK: &str = "url";

/// Timeout of each step: connecting to one address, and each read.
const STEP_TIMEOUT: Duration = Duration::from_secs(4);

/// Maximum time for the whole response head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(8);

/// Maximum size of a response head, in bytes.
const HEAD_MAX: usize = 32 * 1024;

/// Maximum addresses per name that are tried.
const ADDRESSES_MAX: usize = 4;

/// Days before expiry at which a certificate warning starts.
const DAYS_LOW: u64 = 14;

/// Tolerated clock difference in seconds, roughly what tokens and certificates allow for.
const CLOCK_SKEW_MAX: u64 = 60;

const DAY: u64 = 24 * 3600 * 1000;

/// Connects to a server step by step, and stops at the first failure. Sends the configured headers,
/// as the gateway does.
pub(super) fn findings(name: &str, settings: &HttpSettings, tls: &Tls) -> Vec<Finding> {
    let subject = format!("`{name}`, {}", public_url(&settings.url));
    match reach(&subject, settings, tls) {
        Ok(found) | Err(found) => found,
    }
}

/// The response head of a server.
struct Head {
    status: u16,
    /// The `Date` header in Unix seconds.
    date: Option<u64>,
}

fn reach(subject: &str, settings: &HttpSettings, tls: &Tls) -> Result<Vec<Finding>, Vec<Finding>> {
    let url = &settings.url;
    if !url.has_host() {
        return Ok(vec![Finding::note(
            CHECK,
            format!("{subject}: a Unix socket is not tried"),
        )]);
    }
    let proxy = settings.proxy.for_url(url);
    let proxy = proxy.map_err(|error| {
        let message = format!("{subject}: {error}");
        vec![Finding::error(CHECK, message).advice("correct it, or set `proxy` of the server")]
    })?;
    let proxy = proxy.as_ref();
    let shown = proxy.map_or_else(String::new, |proxy| format!(" through the proxy {proxy}"));
    let subject = &format!("{subject}{shown}");
    let failed =
        |step: &str, error: &dyn fmt::Display, advice: &str| failed(subject, step, error, advice);
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let server = (host, url.port_or_known_default().unwrap_or(80));
    let stream = way(server, proxy, url.scheme() == "https")
        .map_err(|(step, error, advice)| failed(step, &error, advice))?;
    let mut found = Vec::new();
    let mut facts = vec!["connected".to_owned()];
    let head = if url.scheme() == "https" {
        let mut stream = tls_stream(stream, host, tls)
            .map_err(|error| failed("TLS", &error, tls_advice(&error.to_string())))?;
        let certificates = stream.conn.peer_certificates();
        let lifetime = certificates.and_then(|them| Lifetime::of_certificate(them.first()?));
        if let Some(lifetime) = lifetime {
            let days = lifetime.not_after.saturating_sub(unix_millis()) / DAY;
            facts.push(format!("certificate for {days} more days"));
            if days < DAYS_LOW {
                let message = format!("{subject}: its certificate expires in {days} days");
                let advice = "ask the server's operator to renew the certificate";
                found.push(Finding::warning(CHECK, message).advice(advice));
            }
        }
        ask(&mut stream, settings, None)
    } else {
        ask(&mut { stream }, settings, proxy)
    };
    let advice = "check that it is an HTTP server, and that it answers other clients";
    let head = head.map_err(|error| failed("HTTP", &error, advice))?;
    facts.push(format!("HTTP {}", head.status));
    found.push(judged(
        subject,
        &facts.join(", "),
        head.status,
        settings.credential.is_some(),
    ));
    found.extend(
        head.date
            .and_then(|date| clock(subject, date, unix_millis() / 1000)),
    );
    Ok(found)
}

fn failed(subject: &str, step: &str, error: &dyn fmt::Display, advice: &str) -> Vec<Finding> {
    let message = format!("{subject}: {step}: {}", one_line(&error.to_string()));
    vec![Finding::error(CHECK, message).advice(advice)]
}

/// Connects to a server, directly or through its proxy. An error contains the failed step and
/// advice.
fn way(
    server: (&str, u16),
    proxy: Option<&Proxy>,
    is_tls: bool,
) -> Result<TcpStream, (&'static str, io::Error, &'static str)> {
    let first = proxy.map_or(server, |proxy| (proxy.host.as_str(), proxy.port));
    let addresses = first.to_socket_addrs().map_err(|error| {
        let advice = "check the URL for typos, and this machine's DNS";
        ("DNS", error, advice)
    })?;
    let addresses: Vec<SocketAddr> = addresses.take(ADDRESSES_MAX).collect();
    let mut stream = connect(&addresses).map_err(|error| {
        let advice = "check that the server is running, and that no firewall or proxy blocks it";
        ("TCP", error, advice)
    })?;
    if let Some(proxy) = proxy.filter(|_| is_tls) {
        open_tunnel(&mut stream, proxy, server).map_err(|error| {
            let advice =
                "check that this machine can use the proxy, and that the proxy reaches the server";
            ("CONNECT", error, advice)
        })?;
    }
    Ok(stream)
}

fn connect(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut last = io::Error::new(
        io::ErrorKind::NotFound,
        "the host name does not resolve to an address",
    );
    for address in addresses {
        match TcpStream::connect_timeout(address, STEP_TIMEOUT) {
            Ok(stream) => {
                stream.set_read_timeout(Some(STEP_TIMEOUT))?;
                stream.set_write_timeout(Some(STEP_TIMEOUT))?;
                return Ok(stream);
            }
            Err(error) => last = io::Error::new(error.kind(), format!("{address}: {error}")),
        }
    }
    Err(last)
}

/// Opens a tunnel to the server through a proxy.
fn open_tunnel(stream: &mut TcpStream, proxy: &Proxy, (host, port): (&str, u16)) -> io::Result<()> {
    stream.write_all(proxy.tunnel_request(host, port).as_bytes())?;
    let (begun, mut head) = (Instant::now(), Vec::new());
    let mut byte = [0];
    // Reads single bytes, because those after the head belong to the server.
    while stream.read(&mut byte)? > 0 {
        head.extend_from_slice(&byte);
        if let Some(answer) = tunnel_answer(&head) {
            return answer.map_err(io::Error::other);
        }
        if begun.elapsed() > HEAD_TIMEOUT {
            break;
        }
    }
    Err(io::Error::other("its answer to CONNECT is incomplete"))
}

/// The stream after the TLS handshake.
fn tls_stream(
    stream: TcpStream,
    host: &str,
    tls: &Tls,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let config = tls.read().map_err(io::Error::other)?;
    let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

fn tls_advice(error: &str) -> &'static str {
    if error.contains("Expired") || error.contains("NotValidYet") {
        "renew the server's certificate, unless this machine's clock is wrong"
    } else if error.contains("UnknownIssuer") {
        "name the file of its authority in `ca` of the server or in SSL_CERT_FILE, or add it to the \
         certificates of the system"
    } else if error.contains("NotValidForName") {
        "use the host name that its certificate was issued for"
    } else {
        "check that the port serves HTTPS, with TLS 1.2 or 1.3"
    }
}

/// Sends the request that clients open a stream with, and reads the response head.
fn ask(
    stream: &mut (impl Read + Write),
    settings: &HttpSettings,
    proxy: Option<&Proxy>,
) -> io::Result<Head> {
    let url = &settings.url;
    let query = url
        .query()
        .map_or_else(String::new, |query| format!("?{query}"));
    let host = match url.port() {
        Some(port) => format!("{}:{port}", url.host_str().unwrap_or_default()),
        None => url.host_str().unwrap_or_default().to_owned(),
    };
    let origin = proxy.map_or_else(String::new, |_| format!("http://{host}"));
    let of_proxy = proxy.map_or_else(String::new, Proxy::authorization_line);
    let mut request = format!(
        "GET {origin}{}{query} HTTP/1.1\r\nHost: {host}\r\nAccept: application/json, text/event-stream\r\n\
         User-Agent: mcpvisor-doctor/{}\r\nConnection: close\r\n{of_proxy}",
        url.path(),
        env!("CARGO_PKG_VERSION"),
    );
    for (name, value) in &settings.headers {
        request.push_str(&format!("{name}: {}\r\n", value.expose_secret()));
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes())?;
    stream.flush()?;
    let (begun, mut head, mut part) = (Instant::now(), Vec::new(), [0; 1024]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > HEAD_MAX || begun.elapsed() > HEAD_TIMEOUT {
            return Err(io::Error::other("the head of the answer is incomplete"));
        }
        match stream.read(&mut part)? {
            0 => break,
            read => head.extend_from_slice(part.get(..read).unwrap_or_default()),
        }
    }
    parse_head(&head).ok_or_else(|| io::Error::other("the answer is not HTTP"))
}

fn parse_head(head: &[u8]) -> Option<Head> {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.lines();
    let status = lines.next()?.strip_prefix("HTTP/1.")?.split(' ').nth(1)?;
    let date = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("date").then_some(value.trim())
    });
    Some(Head {
        status: status.parse().ok()?,
        date: date.and_then(http_date),
    })
}

/// Parses an IMF-fixdate (RFC 9110, section 5.6.7) to Unix seconds.
fn http_date(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (_, date) = text.split_once(", ")?;
    let parts: Vec<&str> = date.split(' ').collect();
    let [day, month, year, time, "GMT"] = parts[..] else {
        return None;
    };
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    let time = humantime::parse_rfc3339(&format!("{year}-{month:02}-{day}T{time}Z")).ok()?;
    let since = time.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(since.as_secs())
}

/// Judges the HTTP status of a server's answer to a stream request without a session.
fn judged(subject: &str, facts: &str, status: u16, signs_in: bool) -> Finding {
    let message = format!("{subject}: {facts}");
    match status {
        401 if signs_in => Finding::note(CHECK, message).advice(
            "it requires a login: `mcpvisor auth status` shows whether the gateway has one",
        ),
        401 | 403 => Finding::error(CHECK, message)
            .advice("it rejects the configured `headers`: check the token"),
        404 | 410 => Finding::warning(CHECK, message).advice("check the path of the URL"),
        429 => Finding::warning(CHECK, message).advice("the server limits requests; retry later"),
        300..=399 => Finding::note(CHECK, message)
            .advice("it redirects; configure the URL that it redirects to"),
        500.. => Finding::error(CHECK, message).advice("the server fails: see its own log"),
        // 400, 405 and 406 are common answers to such a request.
        _ => Finding::good(CHECK, message),
    }
}

/// Compares a server's clock with the local clock, in Unix seconds.
fn clock(subject: &str, theirs: u64, ours: u64) -> Option<Finding> {
    let apart = theirs.abs_diff(ours);
    (apart > CLOCK_SKEW_MAX).then(|| {
        let word = if theirs > ours { "ahead of" } else { "behind" };
        let message = format!("{subject}: its clock is {apart} seconds {word} ours");
        Finding::warning("clock", message)
            .advice("if this machine's clock is wrong, synchronize it over NTP (`timedatectl`)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    #[test]
    fn the_head_of_an_answer_is_read() {
        let head =
            b"HTTP/1.1 405 Method Not Allowed\r\ndate: Tue, 24 Nov 2026 07:00:00 GMT\r\n\r\n";
        let read = parse_head(head).unwrap();
        assert_eq!((read.status, read.date), (405, Some(1_795_503_600)));
        for head in [&b""[..], b"SSH-2.0-x", b"HTTP/1.1", b"HTTP/1.1 x y\r\n"] {
            assert!(parse_head(head).is_none());
        }
        for date in [
            "",
            "x, y",
            "Tue, 24 Nov 2026 07:00:00 CET",
            "Tue, 24 X 2026 07:00:00 GMT",
        ] {
            assert_eq!(http_date(date), None, "{date}");
        }
    }

    #[test]
    fn a_status_is_judged() {
        let table = [
            (200, false, Level::Ok),
            (405, false, Level::Ok),
            (401, true, Level::Note),
            (401, false, Level::Error),
            (404, false, Level::Warning),
            (308, false, Level::Note),
            (503, true, Level::Error),
        ];
        for (status, signs_in, level) in table {
            assert_eq!(judged("x", "", status, signs_in).level, level, "{status}");
        }
    }

    #[test]
    fn clocks_may_differ_a_little() {
        assert_eq!(clock("x", 1000, 1060), None);
        let found = clock("x", 1000, 1100).unwrap();
        assert!(found.message.contains("100 seconds behind"), "{found:?}");
    }
}
