//! Where a gateway is found: the address that it listens on, and the list of those that run.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use tokio::net::TcpSocket;
use url::Url;

use super::StartError;
use super::stdio::STDIO_DIR;
use crate::admin::{Instance, Instances, Registration, address_in_use};
use crate::config::Config;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 4096;

/// Where authorization servers send browsers back to.
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

pub(super) fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
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

/// Gateways of this user that run.
fn running() -> Vec<Instance> {
    Instances::of_user().map_or_else(|_| Vec::new(), |instances| instances.running())
}

/// Lets commands find this gateway from other directories.
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
            log::warn!(error:%; "`mcpvisor status` finds this gateway with `--config` only");
            None
        }
    }
}

/// Where clients connect, in words.
pub(super) fn shown_address(address: Option<SocketAddr>) -> String {
    address.map_or_else(|| STDIO_DIR.to_owned(), |address| address.to_string())
}
