//! `mcpvisor servers wait`, and the first seconds of a server that was added.

use std::path::Path;
use std::time::Duration;

use mcpvisor::admin::{OperatorClient, Screen, ServerStatus, Status, server_details};
use mcpvisor::telemetry::one_line;
use tokio::time::{Instant, sleep};

use super::output::{CliError, print};
use super::running_gateway::ask_here;

/// How often the state is asked for.
pub(super) const ASK_EVERY: Duration = Duration::from_millis(200);

/// The server with this name.
///
/// # Errors
///
/// Fails for an unknown name.
pub(super) fn server_of<'a>(status: &'a Status, name: &str) -> Result<&'a ServerStatus, String> {
    let mut servers = status.servers.iter();
    let found = servers.find(|server| server.name == name || server.id == name);
    found.ok_or_else(|| format!("there is no server `{}`", one_line(name)))
}

/// Waits until these servers, or all that are enabled, are up.
pub(super) fn ask_to_wait(
    path: Option<&Path>,
    names: &[String],
    timeout: Duration,
    screen: &Screen,
) -> Result<(), CliError> {
    let is_waited_for = |server: &ServerStatus| match names.is_empty() {
        true => server.state != "disabled",
        false => names.contains(&server.name),
    };
    // In these states, a server does not come up by itself.
    let is_still = ["misconfigured", "disabled", "stopped"];
    let is_settled =
        |server: &ServerStatus| is_ready(server) || is_still.contains(&server.state.as_str());
    let status = ask_here(path, async |client| {
        let status = client.status().await?;
        for name in names {
            if let Err(why) = server_of(&status, name) {
                return Ok(Err(why));
            }
        }
        let waited = wait(client, timeout, |server| {
            !is_waited_for(server) || is_settled(server)
        });
        waited.await.map(Ok)
    })??;
    let waited = status.servers.iter().filter(|server| is_waited_for(server));
    let missing: Vec<_> = waited.filter(|server| !is_ready(server)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    for server in &missing {
        print(&server_details(server, screen))?;
    }
    Err(format!("{} of the servers are not up", missing.len()).into())
}

/// Waits until each server meets a condition or the time is over, and returns the last status.
pub(super) async fn wait(
    client: &OperatorClient,
    timeout: Duration,
    is_settled: impl Fn(&ServerStatus) -> bool,
) -> Result<Status, mcpvisor::admin::ClientError> {
    let deadline = Instant::now() + timeout;
    loop {
        let status = client.status().await?;
        if status.servers.iter().all(&is_settled) || Instant::now() >= deadline {
            return Ok(status);
        }
        sleep(ASK_EVERY).await;
    }
}

/// Whether calls reach the server: it is up, or starts with its first call.
pub(super) fn is_ready(server: &ServerStatus) -> bool {
    matches!(server.state.as_str(), "up" | "idle")
}
