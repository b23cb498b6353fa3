//! `mcpvisor servers`.

use std::path::Path;

use mcpvisor::admin::{
    ControlRequest, Crashes, Screen, Status, ask, crash_text, log_lines, server_table,
};
use mcpvisor::cli::{LogsArguments, ServersArguments, ServersVerb};
use mcpvisor::config::{Config, Lookup, ProcessEnvironment};
use mcpvisor::telemetry::{LogLine, one_line};
use tokio::signal::unix::{SignalKind, signal};

use super::add::run_add_command;
use super::output::{CliError, FOLLOW_EVERY, current_thread_runtime, pretty, print};
use super::running_gateway::{ask_here, gateway_data_dir};

pub(crate) fn run_servers_command(
    path: Option<&Path>,
    arguments: ServersArguments,
) -> Result<(), CliError> {
    let screen = Screen::of_stdout();
    let request = match arguments.verb {
        None => {
            let status: Status = ask_here(path, &ControlRequest::Status)?;
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
            let crashes: Crashes = ask_here(path, &ControlRequest::Crashes { server: name })?;
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
        Some(ServersVerb::Restart { name }) => ControlRequest::Restart { server: name },
        Some(ServersVerb::Stop { name }) => ControlRequest::Stop { server: name },
        Some(ServersVerb::Start { name }) => ControlRequest::Start { server: name },
        Some(ServersVerb::Kill { name }) => ControlRequest::Kill { server: name },
        Some(ServersVerb::Trip { name, tool }) => ControlRequest::Trip { server: name, tool },
        Some(ServersVerb::Reset { name, tool }) => ControlRequest::Reset { server: name, tool },
    };
    let done: String = ask_here(path, &request)?;
    print(&format!("{}\n", one_line(&done)))
}

async fn show_logs(data_dir: &Path, arguments: LogsArguments) -> Result<(), CliError> {
    let screen = Screen::of_stdout();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut request = ControlRequest::Logs {
        server: arguments.name.clone(),
        after: 0,
        last: arguments.lines,
    };
    let mut seen = 0;
    loop {
        let lines: Vec<LogLine> = ask(data_dir, &request).await?;
        print(&if arguments.json {
            pretty(&lines)?
        } else {
            log_lines(&lines, &screen)
        })?;
        if !arguments.follow {
            return Ok(());
        }
        seen = lines.last().map_or(seen, |last| last.sequence);
        request = ControlRequest::Logs {
            server: arguments.name.clone(),
            after: seen,
            last: None,
        };
        tokio::select! {
            () = tokio::time::sleep(FOLLOW_EVERY) => {}
            _ = interrupt.recv() => return Ok(()),
        }
    }
}
