//! `mcpvisor notices`.

use std::path::Path;

use mcpvisor::admin::{Notice, OperatorClient};
use mcpvisor::cli::{NoticesArguments, NoticesVerb};
use mcpvisor::telemetry::one_line;

use super::output::{CliError, current_thread_runtime, pretty, print};
use super::running_gateway::gateway_data_dir;

pub(crate) fn run_notices_command(
    path: Option<&Path>,
    arguments: NoticesArguments,
) -> Result<(), CliError> {
    let data_dir = gateway_data_dir(path)?;
    let list = NoticesVerb::List {
        json: arguments.json,
    };
    current_thread_runtime()?.block_on(async {
        let client = OperatorClient::open(&data_dir)?;
        let (ids, dismissed) = match arguments.verb.unwrap_or(list) {
            NoticesVerb::List { json } => {
                let notices = client.notices().await?;
                return print(&if json {
                    pretty(&notices)?
                } else {
                    notice_table(&notices)
                });
            }
            NoticesVerb::Dismiss { ids } => (ids, true),
            NoticesVerb::Restore { ids } => (ids, false),
        };
        for id in &ids {
            let notice = client.set_dismissed(id, dismissed).await?;
            let done = if dismissed { "dismissed" } else { "restored" };
            print(&format!("{done}: {}\n", one_line(&notice.text)))?;
        }
        Ok(())
    })
}

fn notice_table(notices: &[Notice]) -> String {
    if notices.is_empty() {
        return "no notices\n".to_owned();
    }
    let lines = notices.iter().map(|notice| {
        let state = if notice.dismissed { "dismissed: " } else { "" };
        format!(
            "{}  {state}{}\n",
            one_line(&notice.id),
            one_line(&notice.text)
        )
    });
    lines.collect()
}
