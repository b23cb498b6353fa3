//! `mcpvisor ui`, and the browser that pages are opened in.

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::{Command, Stdio};

use mcpvisor::admin::{ControlRequest, ask};
use mcpvisor::cli::UiArguments;

use super::output::{CliError, current_thread_runtime, print};
use super::running_gateway::gateway_data_dir;

/// Prints a link to the dashboard that signs in, and opens it.
pub(crate) fn show_dashboard(path: Option<&Path>, arguments: &UiArguments) -> Result<(), CliError> {
    let data_dir = gateway_data_dir(path)?;
    let runtime = current_thread_runtime()?;
    let answer = runtime.block_on(async { ask(&data_dir, &ControlRequest::LoginLink).await })?;
    let link = answer["link"].as_str().unwrap_or_default();
    print(&format!("{link}\n"))?;
    if !arguments.no_browser {
        open_browser(link);
    }
    Ok(())
}

/// Where there is a desktop; nothing is said if it does not work, as the page is printed.
pub(crate) fn open_browser(page: &str) {
    let has_desktop = ["DISPLAY", "WAYLAND_DISPLAY"]
        .iter()
        .any(|it| std::env::var_os(it).is_some());
    let program = match cfg!(target_os = "macos") {
        true => "open",
        false if has_desktop => "xdg-open",
        false => return,
    };
    if !std::io::stderr().is_terminal() {
        return;
    }
    let mut command = Command::new(program);
    let silent = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let _ = silent.arg(page).spawn();
}
