//! The settings of the client-facing edge.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use ipnet::IpNet;

use super::tls::TlsSettings;
use crate::auth::{AuthSettings, LimitsByClient};
use crate::calls::QuotaLimit;
use crate::id::Holder;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontSettings {
    /// A loopback address if clients connect to `socket`.
    pub listen: SocketAddr,
    /// The Unix socket at which clients connect, instead of `listen`.
    pub socket: Option<PathBuf>,
    /// Path of the MCP endpoint, which is also served at `/`.
    pub endpoint: String,
    /// Whether clients of revision 2024-11-05 are served at `/sse` and `/messages`.
    pub legacy_sse: bool,
    /// Whether clients with a handshake can also be served without a session (`gateway.stateless`).
    pub stateless: bool,
    /// Whether a client with a handshake needs a session. Otherwise a request that names no session
    /// is served without one.
    pub requires_session: bool,
    /// Allowed `Origin` values of web pages; `*` matches any port or any part of the host.
    pub allowed_origins: Vec<String>,
    /// `Host` values accepted in addition to loopback names. If empty, a public listener accepts
    /// any.
    pub allowed_hosts: Vec<String>,
    /// Proxies whose `X-Forwarded-For` names the client.
    pub trusted_proxies: Vec<IpNet>,
    /// How clients authenticate.
    pub auth: AuthSettings,
    /// Whether the gateway uses HTTPS, and with which certificate.
    pub tls: TlsSettings,
    /// Names of client headers that are forwarded to servers, in lower case.
    pub forwarded_headers: Vec<String>,
    /// Whether any server receives the identity of the calling user (`user_headers`).
    pub reads_users: bool,
    /// Whether any server receives exchanged tokens, for which client tokens must be kept.
    pub keeps_tokens: bool,
    /// Number of web worker threads.
    pub workers: usize,
    /// Maximum size of a request body, in bytes.
    pub body_max: usize,
    /// Maximum size of all request bodies in flight, in bytes; more are refused with 503.
    pub bytes_in_flight_max: usize,
    /// Each client's share of these bytes, in percent; the last bytes are reserved for clients
    /// below their share.
    pub peer_share: usize,
    /// Maximum size of one client's request bodies in flight, in bytes; 0: limited only by its
    /// share.
    pub bytes_per_client: usize,
    /// Clients with their own limits.
    pub by_client: LimitsByClient,
    /// Maximum size of all unread answers, in bytes. Above it, a client that reads nothing for a
    /// second is disconnected.
    pub unread_bytes_max: usize,
    /// Time limit for receiving the head of a request.
    pub head_timeout: Duration,
    /// Time limit for receiving the body of a request, and for a client that reads nothing.
    pub body_timeout: Duration,
    /// Idle time after which a keep-alive connection is closed.
    pub keep_alive: Duration,
    /// Time without a message after which a call is answered as a stream.
    pub sse_after: Duration,
    /// Interval between comments on a silent stream.
    pub sse_comment_every: Duration,
    /// How long the calls of an HTTP+SSE client continue after its stream broke.
    pub sse_reconnect_within: Duration,
    /// Maximum number of client connections per worker; `None` derives it from the limit of open
    /// files.
    pub connections_max: Option<usize>,
}

/// The processors that this process may use. The system reads several files to tell, and the
/// settings have defaults in many places.
static PROCESSORS: LazyLock<usize> =
    LazyLock::new(|| thread::available_parallelism().map_or(1, usize::from));

impl Default for FrontSettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 12006)),
            socket: None,
            endpoint: "/mcp".to_owned(),
            legacy_sse: true,
            stateless: false,
            requires_session: true,
            allowed_origins: ["http://localhost:*", "http://127.0.0.1:*"]
                .map(str::to_owned)
                .to_vec(),
            allowed_hosts: Vec::new(),
            trusted_proxies: Vec::new(),
            auth: AuthSettings::default(),
            tls: TlsSettings::default(),
            forwarded_headers: Vec::new(),
            reads_users: false,
            keeps_tokens: false,
            workers: *PROCESSORS,
            body_max: 16 << 20,
            bytes_in_flight_max: 256 << 20,
            peer_share: 10,
            bytes_per_client: 0,
            by_client: LimitsByClient::default(),
            unread_bytes_max: 64 << 20,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            keep_alive: Duration::from_secs(75),
            sse_after: Duration::from_secs(1),
            sse_comment_every: Duration::from_secs(15),
            sse_reconnect_within: Duration::from_secs(60),
            connections_max: None,
        }
    }
}

impl FrontSettings {
    /// Returns the scheme of the gateway's URLs.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_on() { "https" } else { "http" }
    }

    /// Whether clients of other machines can reach the gateway, directly or through a proxy.
    pub fn is_reached_by_others(&self) -> bool {
        !self.listen.ip().is_loopback() || !self.allowed_hosts.is_empty()
    }

    /// Returns the limit for this client's request bodies in flight.
    pub(super) fn body_bytes(&self, holder: &Holder) -> QuotaLimit {
        let own = self.by_client.find(holder);
        let (max, key) = match own.and_then(|own| own.bytes_in_flight) {
            Some(own) => (own, "auth.keys.NAME.limits.bytes_in_flight"),
            None => (self.bytes_per_client, "limits.bytes_per_client"),
        };
        QuotaLimit {
            of: "bytes of request bodies in flight",
            key: "limits.bytes_in_flight",
            max: self.bytes_in_flight_max,
            peer_share: self.peer_share,
            per_client: (max > 0).then_some((max, key)),
        }
    }

    /// Returns the URL, without a path, at which clients on this machine reach a gateway that
    /// listens at this address. With TLS, it uses a name that the certificate can contain: the
    /// first of `allowed_hosts`.
    pub fn base_url(&self, mut address: SocketAddr) -> String {
        let names = self.allowed_hosts.iter();
        let mut names = names.filter(|name| self.tls.is_on() && !name.contains('*'));
        if let Some(name) = names.next() {
            let has_port = name
                .rsplit_once(':')
                .is_some_and(|(_, port)| !port.ends_with(']'));
            return match (has_port, address.port()) {
                (true, _) | (false, 443) => format!("https://{name}"),
                (false, port) => format!("https://{name}:{port}"),
            };
        }
        if address.ip().is_unspecified() {
            address.set_ip(match address.ip() {
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        format!("{}://{address}", self.scheme())
    }
}

#[cfg(test)]
impl FrontSettings {
    pub(crate) fn for_tests() -> Self {
        Self {
            listen: ([127, 0, 0, 1], 0).into(),
            allowed_origins: vec!["http://localhost:*".to_owned()],
            workers: 1,
            body_max: 1024 * 1024,
            bytes_in_flight_max: 16 * 1024 * 1024,
            head_timeout: Duration::from_secs(5),
            body_timeout: Duration::from_secs(5),
            keep_alive: Duration::from_secs(5),
            connections_max: Some(100),
            ..Self::default()
        }
    }
}
