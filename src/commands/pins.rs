//! `mcpvisor pins`.

use std::path::Path;

use mcpvisor::admin::{OperatorClient, pin_table, pin_text};
use mcpvisor::cli::{PinsArguments, PinsVerb};
use mcpvisor::telemetry::one_line;

use super::output::{CliError, current_thread_runtime, pretty, print};
use super::running_gateway::gateway_data_dir;

pub(crate) fn run_pins_command(
    path: Option<&Path>,
    arguments: PinsArguments,
) -> Result<(), CliError> {
    let data_dir = gateway_data_dir(path)?;
    let list = PinsVerb::List {
        json: arguments.json,
    };
    current_thread_runtime()?.block_on(async {
        let client = OperatorClient::open(&data_dir)?;
        match arguments.verb.unwrap_or(list) {
            PinsVerb::List { json } => {
                let pins = client.pins().await?;
                print(&if json {
                    pretty(&pins)?
                } else {
                    pin_table(&pins)
                })
            }
            PinsVerb::Show {
                server,
                name,
                of,
                json,
            } => {
                let pin = client.pin(&server, (of.kind, &name)).await?;
                print(&if json { pretty(&pin)? } else { pin_text(&pin) })
            }
            PinsVerb::Approve {
                server,
                name,
                of,
                digest,
            } => {
                let item = name.as_deref().map(|name| (of.kind, name));
                let approved = client.approve(&server, item, digest).await?;
                print(&approved_text(&approved))
            }
        }
    })
}

fn approved_text(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| one_line(name)).collect();
    match names.as_slice() {
        [] => "nothing to approve: everything listed is already approved\n".to_owned(),
        names => format!("approved: {}\n", names.join(", ")),
    }
}
