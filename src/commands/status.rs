//! `mcpvisor status`.

use std::io::IsTerminal as _;
use std::path::Path;
use std::time::Duration;

use mcpvisor::admin::{AlternateScreen, Screen, Status, ask_status, tree};
use mcpvisor::cli::StatusArguments;
use mcpvisor::telemetry::printable;
use tokio::signal::unix::{SignalKind, signal};

use super::key_reader::KeyReader;
use super::output::{CliError, current_thread_runtime, pretty, print};
use super::running_gateway::gateway_data_dir;

/// Refresh interval of a watched status.
const WATCH_EVERY: Duration = Duration::from_secs(1);

pub(crate) fn show_status(
    path: Option<&Path>,
    arguments: &StatusArguments,
) -> Result<(), CliError> {
    let data_dir = gateway_data_dir(path)?;
    current_thread_runtime()?.block_on(async {
        if arguments.watch {
            return watch(&data_dir, arguments).await;
        }
        let status = ask_status(&data_dir).await?;
        print(&shown(&status, arguments, &Screen::of_stdout())?)
    })
}

fn shown(
    status: &Status,
    arguments: &StatusArguments,
    screen: &Screen,
) -> Result<String, CliError> {
    match arguments.json {
        true => pretty(status),
        false => Ok(tree(status, screen, arguments.all)),
    }
}

/// Shows the status repeatedly; on a terminal in place, with keys to scroll.
async fn watch(data_dir: &Path, arguments: &StatusArguments) -> Result<(), CliError> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut resized = signal(SignalKind::window_change())?;
    // The first request fails if no gateway is running.
    let mut status = Ok(ask_status(data_dir).await?);
    let stdout = std::io::stdout();
    let (mut alternate, mut keys) = match stdout.is_terminal() {
        true => (Some(AlternateScreen::enter(stdout)?), KeyReader::start()),
        false => (None, None),
    };
    let mut first = 0;
    let mut look_again = tokio::time::interval(WATCH_EVERY);
    look_again.reset();
    loop {
        let screen = Screen::of_stdout();
        let text = match &status {
            Ok(status) => shown(status, arguments, &screen)?,
            Err(error) => printable(&format!("{error}\n")),
        };
        let window = screen.window(&text, first);
        first = window.first;
        match &mut alternate {
            Some(alternate) => alternate.draw(&window.text)?,
            None => print(&text)?,
        }
        let pressed = async {
            match &mut keys {
                Some(keys) => keys.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = look_again.tick() => status = ask_status(data_dir).await,
            // Redraws immediately with the new size.
            _ = resized.recv(), if alternate.is_some() => {}
            key = pressed => match key.scrolled(first, window.page) {
                Some(wanted) => first = wanted,
                None => return Ok(()),
            },
            _ = interrupt.recv() => return Ok(()),
            _ = terminate.recv() => return Ok(()),
        }
    }
}
