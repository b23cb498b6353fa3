//! Opens connections to servers, directly or through a proxy. TLS is done here, so that awc reads
//! and writes plain HTTP bytes ([`WireStream`]).

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_service::Service;
use actix_tls::connect::{ConnectError, ConnectInfo, Connection};
use awc::http::Uri;
use awc::{Client, ClientBuilder, Connector};
use futures_util::future::{FutureExt as _, LocalBoxFuture};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio_rustls::TlsConnector;
use url::Url;

use super::decoding::Decoding;
use super::idle_socket::IdleSocket;
use super::no_date_timer::NoDateTimer;
use super::socket::Socket;
use super::wire_stream::{AbsoluteForm, WireStream};
use crate::transport::Proxy;
use crate::transport::proxy::UNIX;
use crate::transport::proxy::{authority, tunnel_answer};

/// Idle time after which a connection is closed. Common servers close theirs after 5 s (Node,
/// uvicorn), and a request that meets the close would be lost.
const KEEP_ALIVE: Duration = Duration::from_secs(4);

/// Age after which a connection is replaced, so that a changed address is noticed.
const LIFETIME: Duration = Duration::from_secs(300);

/// awc passes addresses with one of these schemes to the [`Dialer`], which does TLS for the second.
/// For `https`, awc would do TLS itself and hide the HTTP bytes.
const PLAIN: &str = "http";
pub(super) const OVER_TLS: &str = "ws";

/// Translates a URL into the address that awc receives.
///
/// # Errors
///
/// Returns why the URL cannot be used, without its credentials.
pub(super) fn wire_uri(url: &Url) -> Result<Uri, String> {
    if let Some((_, path)) = unix_target(url) {
        let uri = Uri::try_from(format!("{PLAIN}://localhost:80{path}"));
        return uri.map_err(|error| format!("url cannot be used: {error}"));
    }
    let scheme = match url.scheme() {
        "http" => PLAIN,
        "https" => OVER_TLS,
        other => return Err(format!("url scheme `{other}` is not http or https")),
    };
    if !url.username().is_empty() || url.password().is_some() {
        return Err("url contains a user name or password; use `headers` instead".to_owned());
    }
    let host = url.host_str().unwrap_or_default();
    let port = url.port_or_known_default().unwrap_or(80);
    let query = url
        .query()
        .map_or_else(String::new, |query| format!("?{query}"));
    let text = format!("{scheme}://{host}:{port}{}{query}", url.path());
    Uri::try_from(text).map_err(|error| format!("url cannot be used: {error}"))
}

/// The socket and the HTTP path of a `unix:/socket` or `unix:/socket:/path`; the path is `/mcp`
/// unless it is written.
pub(super) fn unix_target(url: &Url) -> Option<(Arc<Path>, &str)> {
    let path = url.path();
    let (socket, path) = match path.rfind(":/") {
        Some(end) => (path.get(..end)?, path.get(end + 1..)?),
        None => (path, "/mcp"),
    };
    let file = Url::parse(&format!("file://{socket}")).ok();
    let file = file.filter(|_| url.scheme() == UNIX)?.to_file_path().ok()?;
    Some((file.into(), path))
}

/// Translates an address of awc back into its URL.
pub(super) fn url_of_wire(uri: &Uri) -> Option<Url> {
    let scheme = match uri.scheme_str()? {
        OVER_TLS => "https",
        _ => "http",
    };
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    Url::parse(&format!("{scheme}://{}{path}", uri.authority()?)).ok()
}

/// Settings for the connections of one client.
#[derive(Clone)]
pub(super) struct Dialer {
    /// The Unix socket of the server, instead of an address.
    pub(super) socket: Option<Arc<Path>>,
    pub(super) proxy: Option<Arc<Proxy>>,
    /// `None` if no address is `https`.
    pub(super) tls: Option<Arc<ClientConfig>>,
}

impl Dialer {
    /// Creates a client with at most `limit` connections (0: unlimited), each opened within
    /// `within`. It sets no deadline for answers.
    pub(super) fn client(self, within: Duration, limit: usize) -> Client {
        let connector = Connector::new()
            .connector(self)
            .timeout(within)
            .conn_keep_alive(KEEP_ALIVE)
            .conn_lifetime(LIFETIME)
            .limit(limit);
        ClientBuilder::new()
            .connector(connector)
            .disable_redirects()
            .disable_timeout()
            .no_default_headers()
            .wrap(Decoding)
            .wrap(NoDateTimer)
            .finish()
    }

    async fn dial(
        self,
        target: ConnectInfo<Uri>,
    ) -> Result<Connection<Uri, Box<WireStream>>, ConnectError> {
        if let Some(path) = &self.socket {
            let socket = UnixStream::connect(path).await.map_err(ConnectError::Io)?;
            let socket = IdleSocket::new(Socket::Unix(socket), KEEP_ALIVE);
            let stream = Box::new(WireStream::new(socket, None));
            return Ok(Connection::new(target.request().clone(), stream));
        }
        let is_tls = target.request().scheme_str() == Some(OVER_TLS);
        let host = target.hostname().trim_matches(['[', ']']).to_owned();
        let port = target.port();
        let socket = match &self.proxy {
            None => {
                let known: Vec<SocketAddr> = target.addrs().collect();
                connect(&host, port, known).await?
            }
            Some(proxy) => {
                let connected = connect(&proxy.host, proxy.port, Vec::new()).await;
                let mut socket = connected.map_err(|error| through(proxy, &error))?;
                if is_tls {
                    let tunnel = open_tunnel(&mut socket, proxy, &host, port).await;
                    tunnel.map_err(|error| through(proxy, &ConnectError::Io(error)))?;
                }
                socket
            }
        };
        let stream = if is_tls {
            let socket = self.secure(socket, host).await;
            let socket = IdleSocket::new(socket.map_err(ConnectError::Io)?, KEEP_ALIVE);
            WireStream::new(socket, None)
        } else {
            let absolute = self.proxy.as_ref().map(|proxy| AbsoluteForm {
                origin: format!("http://{}", authority(&host, port)),
                headers: proxy.authorization_line(),
            });
            let socket = IdleSocket::new(Socket::Plain(socket), KEEP_ALIVE);
            WireStream::new(socket, absolute)
        };
        // awc expects the request to be returned with the connection.
        Ok(Connection::new(target.request().clone(), Box::new(stream)))
    }

    async fn secure(&self, socket: TcpStream, host: String) -> io::Result<Socket> {
        let config = self.tls.clone();
        let config = config.ok_or_else(|| io::Error::other("TLS is not set up"))?;
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        let stream = TlsConnector::from(config).connect(name, socket).await?;
        Ok(Socket::Tls(Box::new(stream)))
    }
}

impl Service<ConnectInfo<Uri>> for Dialer {
    type Response = Connection<Uri, Box<WireStream>>;
    type Error = ConnectError;
    type Future = LocalBoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&self, target: ConnectInfo<Uri>) -> Self::Future {
        self.clone().dial(target).boxed_local()
    }
}

/// Connects to the first address that answers; `known` holds addresses that were already resolved.
async fn connect(
    host: &str,
    port: u16,
    mut known: Vec<SocketAddr>,
) -> Result<TcpStream, ConnectError> {
    if known.is_empty() {
        let found = lookup_host((host, port)).await;
        known = found
            .map_err(|error| ConnectError::Resolver(Box::new(error)))?
            .collect();
    }
    let mut last = ConnectError::NoRecords;
    for address in known {
        match TcpStream::connect(address).await {
            Ok(socket) => return Ok(socket),
            Err(error) => last = ConnectError::Io(error),
        }
    }
    Err(last)
}

/// Adds the proxy to a connection error.
fn through(proxy: &Proxy, error: &ConnectError) -> ConnectError {
    let (kind, error) = match error {
        ConnectError::Io(error) => (error.kind(), error.to_string()),
        ConnectError::Resolver(error) => (io::ErrorKind::Other, error.to_string()),
        error => (io::ErrorKind::Other, error.to_string()),
    };
    ConnectError::Io(io::Error::new(
        kind,
        format!("through the proxy {proxy}: {error}"),
    ))
}

async fn open_tunnel(
    socket: &mut TcpStream,
    proxy: &Proxy,
    host: &str,
    port: u16,
) -> io::Result<()> {
    let request = proxy.tunnel_request(host, port);
    socket.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    loop {
        // Reads one byte at a time, because later bytes belong to the server. This happens once per
        // connection.
        head.push(socket.read_u8().await?);
        if let Some(answer) = tunnel_answer(&head) {
            return answer.map_err(|why| io::Error::new(io::ErrorKind::ConnectionRefused, why));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_unix_socket_and_a_path() {
        let table = [
            ("unix:/run/a.sock", Some(("/run/a.sock", "/mcp"))),
            ("unix:/run/a%20b.sock:/x/y", Some(("/run/a b.sock", "/x/y"))),
            ("unix:/run/a:/b:/mcp", Some(("/run/a:/b", "/mcp"))),
            ("http://host.example/run/a.sock", None),
        ];
        for (url, expected) in table {
            let url = Url::parse(url).unwrap();
            let expected = expected.map(|(socket, path)| (Path::new(socket).into(), path));
            assert_eq!(unix_target(&url), expected, "{url}");
        }
        let url = Url::parse("unix:/run/a.sock").unwrap();
        assert_eq!(wire_uri(&url).unwrap(), "http://localhost:80/mcp");
    }

    #[test]
    fn a_url_survives_the_way_through_awc() {
        let urls = [
            "http://host.example/mcp",
            "https://host.example/mcp?key=1&x=%20",
            "https://host.example:8443/",
            "http://[::1]:8080/a/b",
            "https://192.0.2.1/mcp",
        ];
        for url in urls {
            let url = Url::parse(url).unwrap();
            let uri = wire_uri(&url).unwrap();
            assert!(uri.port_u16().is_some(), "{uri}");
            assert_eq!(url_of_wire(&uri), Some(url));
        }
        let with_fragment = Url::parse("http://host.example/mcp#part").unwrap();
        assert_eq!(
            wire_uri(&with_fragment).unwrap(),
            "http://host.example:80/mcp"
        );
    }
}
