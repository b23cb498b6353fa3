//! `mcpvisor servers`.

use std::path::Path;

use mcpvisor::admin::{OperatorClient, Screen, crash_text, log_lines, server_table};
use mcpvisor::cli::{LogsArguments, ServersArguments, ServersVerb};
use mcpvisor::config::{Config, Lookup, ProcessEnvironment};
use mcpvisor::downstream::ServerOrder;
use mcpvisor::telemetry::one_line;
use tokio::signal::unix::{SignalKind, signal};

use super::add::run_add_command;
use super::output::{CliError, FOLLOW_EVERY, current_thread_runtime, pretty, print};
use super::running_gateway::{ask_here, gateway_data_dir};

pub(crate) fn run_servers_command(
    path: Option<&Path>,
    arguments: ServersArguments,
) -> Result<(), CliError> {
    let screen = Screen::of_stdout();
    let (name, order) = match arguments.verb {
        None => {
            let status = ask_here(path, OperatorClient::status)?;
            return print(&if arguments.json {
                pretty(&status.servers)?
            } else {
                server_table(&status, &screen)
            });
        }
        Some(ServersVerb::Logs(logs)) => {
            let data_dir = gateway_data_dir(path)?;
            return current_thread_runtime()?.block_on(show_logs(&data_dir, logs));
        }
        Some(ServersVerb::Crashes { name, json }) => {
            let crashes = ask_here(path, async |client| client.crashes(name.as_deref()).await)?;
            return print(&if json {
                pretty(&crashes)?
            } else {
                crash_text(&crashes, &screen)
            });
        }
        Some(ServersVerb::Add(add)) => return run_add_command(path, add),
        Some(ServersVerb::Headers { name }) => {
            let environment = ProcessEnvironment::new();
            let loaded = Config::load(path, Lookup::WorkingDirectory, &environment)?;
            return print(&loaded.config.headers_to(&name)?);
        }
        Some(ServersVerb::Restart { name }) => (name, ServerOrder::Restart),
        Some(ServersVerb::Stop { name }) => (name, ServerOrder::Stop),
        Some(ServersVerb::Start { name }) => (name, ServerOrder::Start),
        Some(ServersVerb::Kill { name }) => (name, ServerOrder::Kill),
        Some(ServersVerb::Trip { name, tool }) => (name, ServerOrder::Trip(tool)),
        Some(ServersVerb::Reset { name, tool }) => (name, ServerOrder::Reset(tool)),
    };
    let done = ask_here(path, async |client| client.order(&name, order).await)?;
    print(&format!("{}\n", one_line(&done)))
}

async fn show_logs(data_dir: &Path, arguments: LogsArguments) -> Result<(), CliError> {
    let screen = Screen::of_stdout();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let client = OperatorClient::open(data_dir)?;
    let mut lines = client.logs(&arguments.name, 0).await?;
    let skipped = arguments
        .lines
        .map_or(0, |last| lines.len().saturating_sub(last));
    lines.drain(..skipped);
    let mut seen = 0;
    loop {
        print(&if arguments.json {
            pretty(&lines)?
        } else {
            log_lines(&lines, &screen)
        })?;
        if !arguments.follow {
            return Ok(());
        }
        seen = lines.last().map_or(seen, |last| last.sequence);
        tokio::select! {
            () = tokio::time::sleep(FOLLOW_EVERY) => {}
            _ = interrupt.recv() => return Ok(()),
        }
        lines = client.logs(&arguments.name, seen).await?;
    }
}
