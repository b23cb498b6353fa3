//! `mcpvisor servers search`.

use mcpvisor::cli::SearchArguments;
use mcpvisor::clients;
use mcpvisor::telemetry::one_line;
use serde_json::Value;

use super::add::fetch;
use super::output::{CliError, pretty, print};

pub(crate) fn run_search_command(arguments: &SearchArguments) -> Result<(), CliError> {
    let registry = &arguments.registry.url;
    let url = clients::search_url(registry, &arguments.word, arguments.limit)?;
    let answer = fetch(url).map_err(|why| {
        format!("the registry cannot be reached: {why}; `--registry URL` asks another one")
    })?;
    let answer: Value = serde_json::from_slice(&answer)
        .map_err(|_| format!("{registry} did not answer like an MCP registry"))?;
    let servers = clients::found_servers(&answer);
    let servers =
        servers.ok_or_else(|| format!("{registry} did not answer like an MCP registry"))?;
    if arguments.json {
        return print(&pretty(&servers)?);
    }
    if servers.is_empty() {
        return print(&format!(
            "no server's name contains {:?}\n",
            one_line(&arguments.word)
        ));
    }
    for server in servers {
        let (name, description) = (one_line(&server.name), one_line(&server.description));
        print(&format!(
            "{name}\n  {description}\n  mcpvisor servers add {name}\n"
        ))?;
    }
    Ok(())
}
