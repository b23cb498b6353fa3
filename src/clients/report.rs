//! The output of `mcpvisor clients`.

use std::fmt::Write as _;

use crate::clients::{Change, Client, ClientStatus, Import};
use crate::telemetry::printable;

/// One line for each client that has a file, and the names of the others.
pub fn client_table(clients: &[ClientStatus]) -> String {
    let (there, absent): (Vec<_>, Vec<_>) = clients.iter().partition(|client| client.exists);
    let mut text = String::new();
    // Writing to a `String` cannot fail.
    for client in there {
        let state = match (&client.problem, &client.fault, client.connected) {
            (Some(problem), ..) => format!("cannot be read: {problem}"),
            (None, Some(fault), _) => {
                format!(
                    "does not work: {fault}; `mcpvisor clients connect {}`",
                    client.client
                )
            }
            (None, None, true) => "connected".to_owned(),
            (None, None, false) => "not connected".to_owned(),
        };
        let others = match client.servers.len() {
            0 => String::new(),
            others => format!(", {others} other servers"),
        };
        let file = client.file.display();
        let _ = writeln!(text, "{:<16}{state}{others} ({file})", client.client);
    }
    let absent: Vec<_> = absent.iter().map(|client| client.client).collect();
    if !absent.is_empty() {
        let _ = writeln!(text, "no file: {}", absent.join(", "));
    }
    printable(&text)
}

/// Which servers are imported, which are skipped, and why.
pub fn import_report(import: &Import) -> String {
    let mut text = String::new();
    for name in &import.added {
        let _ = writeln!(text, "added    {name}");
    }
    for (name, why) in &import.skipped {
        let _ = writeln!(text, "skipped  {name}: {why}");
    }
    for warning in &import.warnings {
        let _ = writeln!(text, "warning  {warning}");
    }
    if import.replaces_example && !import.added.is_empty() {
        text.push_str(
            "removed  example: the built-in server is only served without a configuration\n",
        );
    }
    printable(&text)
}

/// Which file was or would be changed.
pub fn change_report(client: &Client, change: Option<&Change>, dry_run: bool) -> String {
    let Some(change) = change else {
        return format!("nothing to do for {}\n", client.title);
    };
    let verb = match (dry_run, change.is_removal()) {
        (true, false) => "would write",
        (false, false) => "wrote",
        (true, true) => "would remove",
        (false, true) => "removed",
    };
    let mut text = format!("{verb} {}", change.path.display());
    if let Some(backup) = change.backup() {
        let _ = write!(text, " (backup: {})", backup.display());
    }
    if !dry_run {
        let _ = write!(text, "; restart {} if it is running", client.title);
    }
    printable(&(text + "\n"))
}
