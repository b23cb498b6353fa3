//! Output, prompts and errors of commands.

use std::io::Write as _;
use std::time::Duration;

use mcpvisor::telemetry::pretty_json;
use serde::Serialize;
use tokio::sync::mpsc;

/// Polling interval of commands that follow new lines.
pub(crate) const FOLLOW_EVERY: Duration = Duration::from_millis(500);

/// The error that ends a command, printed to stderr.
pub(crate) type CliError = Box<dyn std::error::Error>;

/// A runtime for commands that need only one thread.
pub(crate) fn current_thread_runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

pub(crate) fn pretty(value: &impl Serialize) -> Result<String, CliError> {
    Ok(pretty_json(value)? + "\n")
}

pub(crate) fn print(text: &str) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Lines typed at the terminal, trimmed. The reading thread ends with the process.
pub(crate) fn typed_lines() -> mpsc::Receiver<String> {
    let (lines, received) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if lines.blocking_send(line.trim().to_owned()).is_err() {
                return;
            }
        }
    });
    received
}
