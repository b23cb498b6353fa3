//! `mcpvisor servers search`.

use mcpvisor::cli::SearchArguments;
use mcpvisor::clients;
use mcpvisor::telemetry::one_line;

use super::output::{CliError, pretty, print};

pub(crate) fn run_search_command(arguments: &SearchArguments) -> Result<(), CliError> {
    let SearchArguments { word, limit, .. } = arguments;
    let search = clients::search_registry(&arguments.registry.url, word, *limit);
    let servers = actix_rt::System::new().block_on(search);
    let servers = servers.map_err(|why| format!("{why}; `--registry URL` asks another one"))?;
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
