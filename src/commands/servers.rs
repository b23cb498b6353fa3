//! `mcpvisor servers`.

use std::path::Path;

use mcpvisor::admin::{
    ControlError, ControlRequest, Screen, ask, crash_text, last_sequence, log_lines, server_table,
};
use mcpvisor::cli::{LogsArguments, ServersArguments, ServersVerb};
use mcpvisor::config::{Config, Lookup, ProcessEnvironment};
use mcpvisor::telemetry::one_line;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use super::add::run_add_command;
use super::output::{CliError, FOLLOW_EVERY, current_thread_runtime, pretty, print};
use super::running_gateway::gateway_data_dir;

pub(crate) fn run_servers_command(
    path: Option<&Path>,
    arguments: ServersArguments,
) -> Result<(), CliError> {
    let screen = Screen::of_stdout();
    let ask = |request| -> Result<Value, CliError> {
        let data_dir = gateway_data_dir(path)?;
        let asked: Result<Value, ControlError> =
            current_thread_runtime()?.block_on(async { ask(&data_dir, &request).await });
        Ok(asked?)
    };
    let request = match arguments.verb {
        None => {
            let status = &ask(ControlRequest::Status)?["status"];
            return print(&if arguments.json {
                pretty(&status["servers"])?
            } else {
                server_table(status, &screen)
            });
        }
        Some(ServersVerb::Logs(logs)) => {
            let data_dir = gateway_data_dir(path)?;
            return current_thread_runtime()?.block_on(show_logs(&data_dir, logs));
        }
        Some(ServersVerb::Crashes { name, json }) => {
            let crashes = &ask(ControlRequest::Crashes { server: name })?;
            return print(&if json {
                pretty(crashes)?
            } else {
                crash_text(crashes, &screen)
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
    let done = ask(request)?;
    let done = done["done"].as_str().unwrap_or("done");
    print(&format!("{}\n", one_line(done)))
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
        let lines = &ask(data_dir, &request).await?["logs"];
        print(&if arguments.json {
            pretty(lines)?
        } else {
            log_lines(lines, &screen)
        })?;
        if !arguments.follow {
            return Ok(());
        }
        match last_sequence(lines) {
            0 => {}
            last => seen = last,
        }
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
