//! The settings of the client-facing edge.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use super::tls::TlsSettings;
use crate::auth::{AuthSettings, LimitsByClient};
use crate::calls::QuotaLimit;
use crate::id::Holder;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontSettings {
    pub listen: SocketAddr,
    /// Path of the MCP endpoint, which is also served at `/`.
    pub endpoint: String,
    /// Whether clients of revision 2024-11-05 are served at `/sse` and `/messages`.
    pub legacy_sse: bool,
    /// Whether clients with a handshake are served without sessions, too.
    pub stateless: bool,
    /// Whether such a client needs a session; otherwise a request that names none is served without.
    pub requires_session: bool,
    /// Origins that a browser may call from; `*` stands for any port or any host part.
    pub allowed_origins: Vec<String>,
    /// `Host` values accepted beyond loopback; without them a public listener accepts any.
    pub allowed_hosts: Vec<String>,
    /// How clients authenticate.
    pub auth: AuthSettings,
    /// Whether the gateway speaks HTTPS, and with which certificate.
    pub tls: TlsSettings,
    /// Headers of clients that servers are to read, in lower case.
    pub forwarded_headers: Vec<String>,
    /// Whether a server is to read whose call it is (`user_headers`).
    pub reads_users: bool,
    /// Whether a server gets tokens in exchange for those of clients.
    pub keeps_tokens: bool,
    /// Web worker threads.
    pub workers: usize,
    /// Largest request body, in bytes.
    pub body_max: usize,
    /// Bytes of all request bodies in flight; more are refused with 503.
    pub bytes_in_flight_max: usize,
    /// The share of these, in percent, that each client has of the last ones.
    pub peer_share: usize,
    /// Those of one client; 0: as many as its share allows.
    pub bytes_per_client: usize,
    /// The clients that may have another number of them.
    pub by_client: LimitsByClient,
    /// Bytes of answers that clients do not read, in all; while there are more, a client that
    /// reads nothing for a second is disconnected.
    pub unread_bytes_max: usize,
    /// Time for a request's head.
    pub head_timeout: Duration,
    /// Time for a request's body, and for a client to read on.
    pub body_timeout: Duration,
    /// Idle time after which a keep-alive connection is closed.
    pub keep_alive: Duration,
    /// A call that is silent for longer is answered as a stream.
    pub sse_after: Duration,
    /// Time between two comments on a silent stream.
    pub sse_comment_every: Duration,
    /// How long the calls of an HTTP+SSE client go on without its stream.
    pub sse_reconnect_within: Duration,
    /// Open client connections per worker; `None` follows the limit of open files.
    pub connections_max: Option<usize>,
}

impl Default for FrontSettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 12006)),
            endpoint: "/mcp".to_owned(),
            legacy_sse: true,
            stateless: false,
            requires_session: true,
            allowed_origins: ["http://localhost:*", "http://127.0.0.1:*"]
                .map(str::to_owned)
                .to_vec(),
            allowed_hosts: Vec::new(),
            auth: AuthSettings::default(),
            tls: TlsSettings::default(),
            forwarded_headers: Vec::new(),
            reads_users: false,
            keeps_tokens: false,
            workers: thread::available_parallelism().map_or(1, usize::from),
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
    /// Of the URLs of the gateway.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_on() { "https" } else { "http" }
    }

    /// Bytes of the request bodies of this client.
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

    /// The URL, without a path, under which clients on this machine find the gateway that listens
    /// at this address. With a certificate it has a name: the first of `allowed_hosts`.
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
