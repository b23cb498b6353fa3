//! Connects the gateway to the operators' interface.

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use futures_util::FutureExt as _;
use rustix::process::{Resource, getrlimit};
use tokio::sync::mpsc;

use super::place::{callback_url, shown_address};
use crate::admin::{ApiToken, ConfigOrders, ConfigRequest, GatewayState, Operator};
use crate::config::{Config, limits_in_force};
use crate::front::{FrontServer, clients_max};
use crate::id::ViewId;

/// Creates a gateway's operator interface, and the receiver of its configuration requests.
pub(super) fn operator(
    state: &Arc<GatewayState>,
    config: &Config,
    token: Option<Arc<ApiToken>>,
    server: &FrontServer,
) -> (Arc<Operator>, mpsc::Receiver<ConfigRequest>) {
    let (config_orders, config_requests) = ConfigOrders::channel();
    let callback = callback_url(config, server.address);
    if let Some(callback) = &callback {
        state.credentials.set_callback(callback.clone());
    }
    let open_files = getrlimit(Resource::Nofile).current;
    let clients = server.local_clients();
    let operator = Operator {
        state: state.clone(),
        listen: shown_address(server.address),
        data_dir: config.data_dir.clone(),
        token,
        callback,
        own_url: server.address.map(|address| config.front.base_url(address)),
        config_orders,
        serve_client: Arc::new(move |view: ViewId, socket: UnixStream| {
            Ok(clients.serve_socket(view, socket)?.boxed_local())
        }),
        limits: limits_in_force,
        clients_max: server
            .address
            .map(|_| clients_max(&config.front, open_files)),
    };
    (Arc::new(operator), config_requests)
}
