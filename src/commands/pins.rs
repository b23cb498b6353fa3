//! `mcpvisor pins`.

use std::path::Path;

use mcpvisor::admin::{ControlRequest, PinApproval, ask, pin_table, pin_text};
use mcpvisor::cli::{PinsArguments, PinsVerb};
use mcpvisor::telemetry::one_line;
use serde_json::Value;

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
        match arguments.verb.unwrap_or(list) {
            PinsVerb::List { json } => {
                let pins: Value = ask(&data_dir, &ControlRequest::Pins).await?;
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
                let wanted = ControlRequest::Pin {
                    server,
                    kind: of.kind,
                    tool: name,
                };
                let pin: Value = ask(&data_dir, &wanted).await?;
                print(&if json { pretty(&pin)? } else { pin_text(&pin) })
            }
            PinsVerb::Approve {
                server,
                name,
                of,
                digest,
            } => {
                let order = ControlRequest::ApprovePins(PinApproval {
                    server,
                    kind: of.kind,
                    tool: name,
                    digest,
                });
                let done: Value = ask(&data_dir, &order).await?;
                print(&approved_text(&done))
            }
        }
    })
}

fn approved_text(done: &Value) -> String {
    let names = done["approved"].as_array().into_iter().flatten();
    let names: Vec<String> = names
        .filter_map(|name| Some(one_line(name.as_str()?)))
        .collect();
    match names.as_slice() {
        [] => "nothing to approve: what is listed is approved already\n".to_owned(),
        names => format!("approved: {}\n", names.join(", ")),
    }
}
