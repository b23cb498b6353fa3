//! Connects the gateway to the operators' interface.

use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use rustix::process::{Resource, getrlimit};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use url::Url;

use super::place::{callback_url, shown_address};
use crate::admin::{ApiToken, ConfigOrders, ConfigRequest, GatewayState, Operator};
use crate::clients::{REGISTRY, document, pasted, registry_url, search_registry};
use crate::config::{Config, EXECUTABLE, Environment as _, ProcessEnvironment, limits_in_force};
use crate::front::{FrontServer, clients_max};
use crate::id::ViewId;

/// Maximum number of servers that a search in the registry finds.
const FOUND_MAX: u8 = 30;

/// Maximum wait for a command that reads or changes the file of a client.
const CLIENTS_WITHIN: Duration = Duration::from_secs(10);

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
        listen: shown_address(server, &config.front),
        data_dir: config.data_dir.clone(),
        token,
        callback,
        own_url: server.address.map(|address| config.front.base_url(address)),
        config_orders,
        serve_client: Arc::new(move |view: ViewId, socket: UnixStream| {
            Ok(clients.serve_socket(view, socket)?.boxed_local())
        }),
        limits: limits_in_force,
        described: |text| described(text).boxed_local(),
        search: |word| search(word).boxed_local(),
        clients: |arguments, config| run_clients(arguments, config).boxed_local(),
        clients_max: server
            .address
            .map(|_| clients_max(&config.front, open_files)),
    };
    (Arc::new(operator), config_requests)
}

/// The servers that a text describes, or that the registry has under this name.
async fn described(text: String) -> Result<Vec<(String, Value)>, String> {
    match registry_url(&registry()?, text.trim())? {
        Some(url) => pasted(&String::from_utf8_lossy(&document(url).await?)),
        None => pasted(&text),
    }
}

async fn search(word: String) -> Result<Vec<(String, String)>, String> {
    let found = search_registry(&registry()?, &word, FOUND_MAX).await?;
    let found = found.into_iter();
    Ok(found.map(|it| (it.name, it.description)).collect())
}

/// Runs this program as a person would: `mcpvisor clients` changes files of the gateway's user, and
/// gives the client a key if it needs one.
async fn run_clients(arguments: Vec<String>, config: Option<String>) -> Result<String, String> {
    let program = ProcessEnvironment::new().var(EXECUTABLE);
    let running = spawn_blocking(move || {
        let mut command = Command::new(program.unwrap_or_default());
        if let Some(config) = config {
            command.arg("--config").arg(config);
        }
        let command = command.arg("clients").args(arguments);
        command.stdin(Stdio::null()).output()
    });
    let output = timeout(CLIENTS_WITHIN, running).await;
    let output = output.map_err(|_| "the file system does not answer".to_owned())?;
    let output = output.map_err(|error| error.to_string())?;
    let output = output.map_err(|error| format!("`mcpvisor clients` cannot run: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&output.stderr)
            .trim_start_matches("error: ")
            .to_owned()),
    }
}

fn registry() -> Result<Url, String> {
    let named = ProcessEnvironment::new().var("MCPVISOR_REGISTRY");
    let named = named.map(|it| it.to_string_lossy().into_owned());
    let url = named.as_deref().unwrap_or(REGISTRY).parse();
    url.map_err(|error| format!("`MCPVISOR_REGISTRY`: {error}"))
}
