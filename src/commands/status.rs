//! `mcpvisor status`.

use std::io::IsTerminal as _;
use std::path::Path;
use std::time::Duration;

use mcpvisor::admin::{AlternateScreen, Screen, ask_status, tree};
use mcpvisor::cli::StatusArguments;
use mcpvisor::telemetry::printable;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use super::output::{CliError, current_thread_runtime, pretty, print};
use super::running_gateway::gateway_data_dir;

/// How often a watched status is shown.
const WATCH_EVERY: Duration = Duration::from_secs(1);

pub(crate) fn show_status(
    path: Option<&Path>,
    arguments: &StatusArguments,
) -> Result<(), CliError> {
    let data_dir = gateway_data_dir(path)?;
    let shown = |status: &Value, screen: &Screen| {
        if arguments.json {
            pretty(status)
        } else {
            Ok(tree(status, screen))
        }
    };
    current_thread_runtime()?.block_on(async {
        let screen = Screen::of_stdout();
        if !arguments.watch {
            return print(&shown(&ask_status(&data_dir).await?, &screen)?);
        }
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        // The first answer tells whether there is anything to watch.
        let mut status = Ok(ask_status(&data_dir).await?);
        let stdout = std::io::stdout();
        let mut alternate = match stdout.is_terminal() {
            true => Some(AlternateScreen::enter(stdout)?),
            false => None,
        };
        loop {
            let screen = Screen::of_stdout();
            let text = match &status {
                Ok(status) => shown(status, &screen)?,
                Err(error) => printable(&format!("{error}\n")),
            };
            match &mut alternate {
                Some(alternate) => alternate.draw(&screen.cut_lines(&text))?,
                None => print(&text)?,
            }
            tokio::select! {
                () = tokio::time::sleep(WATCH_EVERY) => {}
                _ = interrupt.recv() => return Ok(()),
                _ = terminate.recv() => return Ok(()),
            }
            status = ask_status(&data_dir).await;
        }
    })
}
