//! Finds the running gateway for a command.

use std::path::{Path, PathBuf};

use mcpvisor::admin::{ClientError, Instances, OperatorClient, is_served, other_gateway};
use mcpvisor::config::{Config, Lookup, ProcessEnvironment};

use super::output::{CliError, current_thread_runtime};

/// The data directory of the gateway to use: the one of this configuration, or, if none runs with
/// it, the user's only running gateway.
pub(crate) fn gateway_data_dir(path: Option<&Path>) -> Result<PathBuf, CliError> {
    let environment = ProcessEnvironment::new();
    let here = Config::data_dir_of(path, &environment)?;
    if is_served(&here) {
        return Ok(here);
    }
    let is_named = path.is_some()
        || std::env::var_os("MCPVISOR_DATA").is_some()
        || Lookup::WorkingDirectory.finds_any(&environment);
    let running = Instances::of_user().map_or_else(|_| Vec::new(), |found| found.running());
    let other = other_gateway(&running, &here, !is_named)?;
    let config = other.config.as_ref();
    let config = config.map_or("built in".to_owned(), |path| path.display().to_string());
    eprintln!("gateway with pid {}, configuration {config}", other.pid);
    Ok(other.data_dir.clone())
}

/// Sends a request to the gateway of this configuration.
pub(crate) fn ask_here<T>(
    path: Option<&Path>,
    ask: impl AsyncFnOnce(&OperatorClient) -> Result<T, ClientError>,
) -> Result<T, CliError> {
    let data_dir = gateway_data_dir(path)?;
    let asked = async { ask(&OperatorClient::open(&data_dir)?).await };
    Ok(current_thread_runtime()?.block_on(asked)?)
}
