//! `mcpvisor stdio --connect`.

use std::io::IsTerminal as _;

use mcpvisor::cli::Header;
use mcpvisor::config::{ProcessEnvironment, fill_in};
use mcpvisor::front::{Relay, RelaySettings};
use mcpvisor::{telemetry, transport};
use secrecy::SecretString;
use tokio::signal::unix::{SignalKind, signal};
use url::Url;

use super::output::CliError;

/// Relays one client on stdin and stdout to a remote server.
pub(crate) fn relay(url: Url, headers: Vec<Header>) -> Result<(), CliError> {
    transport::install_crypto_provider();
    telemetry::init_logging(!std::io::stderr().is_terminal());
    let environment = ProcessEnvironment::new();
    let headers: Result<Vec<_>, String> = headers
        .into_iter()
        .map(|Header { name, value }| {
            let filled_in = fill_in(&value, &environment);
            let value = filled_in.map_err(|why| format!("header `{name}`: {why}"))?;
            Ok((name, SecretString::from(value)))
        })
        .collect();
    let settings = RelaySettings::new(url, headers?);
    actix::System::new().block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let stopped = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        };
        Ok(Relay::run(settings, stopped).await?)
    })
}
