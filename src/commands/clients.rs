//! `mcpvisor clients`.

use std::path::Path;

use mcpvisor::cli::{ClientArguments, ClientsArguments, ClientsVerb};
use mcpvisor::clients::{self, GatewayAddress};
use mcpvisor::config::{Config, Lookup, ProcessEnvironment};

use super::output::{CliError, pretty, print};

pub(crate) fn run_clients_command(
    path: Option<&Path>,
    arguments: ClientsArguments,
) -> Result<(), CliError> {
    let environment = ProcessEnvironment::new();
    let (ClientArguments { client, dry_run }, change) = match arguments.verb {
        None => {
            let clients = clients::list(&environment)?;
            return print(&if arguments.json {
                pretty(&serde_json::to_value(&clients)?)?
            } else {
                clients::client_table(&clients)
            });
        }
        Some(ClientsVerb::Connect(named)) => {
            let loaded = Config::load(path, Lookup::WorkingDirectory, &environment)?;
            let gateway = GatewayAddress {
                url: loaded.config.endpoint_url(),
                program: std::env::current_exe()?,
            };
            let client = clients::find(&named.client)?;
            (named, clients::connect(client, &gateway, &environment)?)
        }
        Some(ClientsVerb::Disconnect(named)) => {
            let client = clients::find(&named.client)?;
            (named, clients::disconnect(client, &environment)?)
        }
        Some(ClientsVerb::Import(named)) => {
            let file = Config::file_to_write(path, &environment)?;
            let import = clients::import(clients::find(&named.client)?, &file, &environment)?;
            print(&clients::import_report(&import))?;
            (named, import.change)
        }
    };
    if let Some(change) = change.iter().find(|_| !dry_run) {
        change.write()?;
    }
    print(&clients::change_report(
        clients::find(&client)?,
        change.as_ref(),
        dry_run,
    ))
}
