//! The places where a gateway can be found: its listen address, and the list of running gateways.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use tokio::net::TcpSocket;
use url::Url;

use super::StartError;
use super::stdio::STDIO_DIR;
use crate::admin::{Instance, Instances, Registration, address_in_use};
use crate::config::Config;
use crate::front::{FrontListener, FrontServer, FrontSettings};
use crate::store::SocketFile;

/// Maximum connections waiting to be accepted.
const BACKLOG: u32 = 4096;

/// Callback URL for authorization servers.
pub(super) fn callback_url(config: &Config, address: Option<SocketAddr>) -> Option<Url> {
    if let Some(url) = &config.credentials.callback_url {
        return url.parse().ok();
    }
    let base = config.front.base_url(address?);
    Url::parse(&format!("{base}/oauth/callback")).ok()
}

pub(super) fn listen_for_metrics(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).map_err(|error| {
        let why = format!("{error}: choose another address with `listen` under [metrics]");
        StartError::Listen { address, why }
    })
}

/// Opens the socket for clients.
pub(super) fn listen(front: &FrontSettings) -> Result<FrontListener, StartError> {
    match &front.socket {
        None => listen_at(front.listen).map(FrontListener::Tcp),
        Some(path) => SocketFile::listen(path)
            .map(|(listener, file)| FrontListener::Unix(listener, file))
            .map_err(|error| StartError::Socket {
                path: path.clone(),
                why: error.to_string(),
            }),
    }
}

/// Opens the socket for other replicas.
pub(super) fn listen_for_peers(address: SocketAddr) -> Result<TcpListener, StartError> {
    listen_at(address).map_err(|error| match error {
        StartError::Listen { address, why } => {
            let why = format!("{why} (`listen` under [cluster])");
            StartError::Listen { address, why }
        }
        other => other,
    })
}

fn listen_at(address: SocketAddr) -> Result<TcpListener, StartError> {
    let open = || {
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)?.into_std()
    };
    open().map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::AddrInUse => address_in_use(address, &running()),
            io::ErrorKind::AddrNotAvailable => {
                "this machine has no such address: choose another with `listen` under [gateway]"
                    .to_owned()
            }
            _ => error.to_string(),
        };
        StartError::Listen { address, why }
    })
}

/// Running gateways of this user.
fn running() -> Vec<Instance> {
    Instances::of_user().map_or_else(|_| Vec::new(), |instances| instances.running())
}

/// Registers the gateway, so that commands find it from other directories.
pub(super) fn register(config: &Config, path: Option<&Path>, listen: &str) -> Option<Registration> {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let instance = Instance {
        pid: std::process::id(),
        data_dir: absolute(&config.data_dir),
        config: path.map(absolute),
        listen: listen.to_owned(),
    };
    let registered = Instances::of_user().and_then(|instances| instances.register(&instance));
    match registered {
        Ok(registration) => Some(registration),
        Err(error) => {
            log::warn!(error:%; "could not register the gateway; `mcpvisor status` finds it only with `--config`");
            None
        }
    }
}

/// Where clients connect, for people: with a scheme, except for a Unix socket.
pub(super) fn shown_place(address: &str, front: &FrontSettings) -> String {
    match front.socket {
        Some(_) => address.to_owned(),
        None => format!("{}://{address}", front.scheme()),
    }
}

/// Address that clients connect to, as text.
pub(super) fn shown_address(server: &FrontServer, front: &FrontSettings) -> String {
    match (server.address, &front.socket) {
        (Some(address), _) => address.to_string(),
        (None, Some(path)) if server.is_http() => format!("unix:{}", path.display()),
        (None, _) => STDIO_DIR.to_owned(),
    }
}
