//! `mcpvisor token`.

use std::path::Path;

use mcpvisor::admin::{ApiToken, DataDir, OperatorClient};
use mcpvisor::cli::TokenArguments;
use mcpvisor::config::{Config, ProcessEnvironment};

use super::output::{CliError, current_thread_runtime, print};
use super::running_gateway::gateway_data_dir;

/// Shows the token of the running gateway, or else of the one that would use this configuration.
pub(crate) fn show_token(path: Option<&Path>, arguments: TokenArguments) -> Result<(), CliError> {
    let token = match gateway_data_dir(path) {
        Ok(running) => {
            let client = OperatorClient::open(&running)?;
            current_thread_runtime()?.block_on(client.token(arguments.rotate))?
        }
        Err(_) => {
            let data_dir = Config::data_dir_of(path, &ProcessEnvironment::new())?;
            let _locked = DataDir::lock(&data_dir)?;
            let token = ApiToken::open(&data_dir)?;
            if arguments.rotate {
                current_thread_runtime()?.block_on(token.rotate())?;
            }
            token.expose()
        }
    };
    print(&format!("{token}\n"))
}
