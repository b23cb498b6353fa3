//! `mcpvisor servers`.

use std::path::Path;

use mcpvisor::admin::{
    ConfigOrder, EntryOrder, OperatorClient, Screen, Status, crash_text, log_lines, server_details,
    server_table,
};
use mcpvisor::cli::{LogsArguments, ServersArguments, ServersVerb};
use mcpvisor::config::{Config, Lookup, ProcessEnvironment, ServerFile};
use mcpvisor::downstream::ServerOrder;
use mcpvisor::supervision::RolloutState;
use mcpvisor::telemetry::one_line;
use serde_json::Map;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;
use uuid::Uuid;

use super::add::run_add_command;
use super::config_target::ConfigTarget;
use super::output::{CliError, FOLLOW_EVERY, current_thread_runtime, pretty, print};
use super::running_gateway::{ask_here, gateway_data_dir};
use super::search::run_search_command;
use super::wait::{ASK_EVERY, ask_to_wait, server_of};

pub(crate) fn run_servers_command(
    path: Option<&Path>,
    arguments: ServersArguments,
) -> Result<(), CliError> {
    let screen = Screen::of_stdout();
    let (name, order) = match arguments.verb {
        None => return list(path, arguments.json, &screen),
        Some(ServersVerb::Ls { json }) => return list(path, json, &screen),
        Some(ServersVerb::Show { name }) => {
            let status = ask_here(path, OperatorClient::status)?;
            let server = server_of(&status, &name)?;
            return print(&server_details(server, &screen));
        }
        Some(ServersVerb::Rm { name }) => {
            change_file(path, EntryOrder::Delete(name.clone()))?;
            return print(&format!("removed  {}\n", one_line(&name)));
        }
        Some(ServersVerb::Enable { name }) => return set_enabled(path, name, true),
        Some(ServersVerb::Disable { name }) => return set_enabled(path, name, false),
        Some(ServersVerb::Wait { names, timeout }) => {
            return ask_to_wait(path, &names, timeout, &screen);
        }
        Some(ServersVerb::Upgrade { name, to }) => return upgrade(path, &name, to),
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
        Some(ServersVerb::Add(add)) => return run_add_command(path, &add),
        Some(ServersVerb::Search(search)) => return run_search_command(&search),
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

/// `mcpvisor explain`.
pub(crate) fn explain(path: Option<&Path>, name: &str) -> Result<(), CliError> {
    let sentences = ask_here(path, async |client| client.explain(name).await)?;
    let lines = sentences.iter().map(|sentence| one_line(sentence) + "\n");
    print(&lines.collect::<String>())
}

fn list(path: Option<&Path>, json: bool, screen: &Screen) -> Result<(), CliError> {
    let status = ask_here(path, OperatorClient::status)?;
    print(&if json {
        pretty(&status.servers)?
    } else {
        server_table(&status, screen)
    })
}

/// Upgrades a server, and prints the outcome of its rollout.
fn upgrade(path: Option<&Path>, name: &str, to: Option<String>) -> Result<(), CliError> {
    let rollout_of = |status: &Status| {
        let server = server_of(status, name).ok()?;
        server.connection.as_ref()?.rollout.clone()
    };
    let outcome = ask_here(path, async |client| {
        let begun = client.order(name, ServerOrder::Upgrade(to.clone())).await?;
        let mut shown = format!("{}\n", one_line(&begun));
        loop {
            // The reader of a pipe can be gone; the rollout continues.
            let _ = print(&shown);
            let status = client.status().await?;
            match rollout_of(&status) {
                // The note follows once the configuration is written.
                Some(rollout) if rollout.state.is_final() && rollout.note.is_some() => {
                    return Ok(Some(rollout));
                }
                None => return Ok(None),
                Some(_) => shown.clear(),
            }
            sleep(ASK_EVERY).await;
        }
    })?;
    match outcome {
        Some(rollout) if rollout.state == RolloutState::Promoted => {
            print(&format!("{}\n", one_line(&rollout.to_string())))
        }
        Some(rollout) => Err(one_line(&rollout.to_string()).into()),
        None => Err(format!("server `{}` was changed or removed", one_line(name)).into()),
    }
}

fn set_enabled(path: Option<&Path>, name: String, is_enabled: bool) -> Result<(), CliError> {
    let verb = if is_enabled { "enabled" } else { "disabled" };
    let text = format!("{verb:<8} {}\n", one_line(&name));
    let enabled = Map::from_iter([("enabled".to_owned(), is_enabled.into())]);
    change_file(path, EntryOrder::Update(name, enabled))?;
    print(&text)
}

/// Changes the configuration file, and makes a running gateway read it.
pub(super) fn change_file(path: Option<&Path>, order: EntryOrder) -> Result<(), CliError> {
    let (target, environment) = (ConfigTarget::find(path)?, ProcessEnvironment::new());
    let file = ServerFile::new(Some(&target.file), &environment, Uuid::new_v4);
    let changed = file.and_then(|file| file.carry_out(ConfigOrder::Servers(order), None));
    changed.map_err(|failure| failure.message.to_string())?;
    target.reload()
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
