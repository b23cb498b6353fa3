//! `mcpvisor ui`, and opening pages in the browser.

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::{Command, Stdio};

use mcpvisor::admin::OperatorClient;
use mcpvisor::cli::UiArguments;

use super::output::{CliError, print};
use super::running_gateway::ask_here;

/// Prints a link that signs in to the dashboard, and opens it.
pub(crate) fn show_dashboard(path: Option<&Path>, arguments: &UiArguments) -> Result<(), CliError> {
    let link = ask_here(path, OperatorClient::dashboard_link)?;
    print(&format!("{link}\n"))?;
    if !arguments.no_browser {
        open_browser(&link);
    }
    Ok(())
}

/// Opens a page if a desktop is available. Failures are ignored, because the link is printed as
/// well.
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
