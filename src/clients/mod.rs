//! MCP clients on this machine and the files in which they keep their servers, for `mcpvisor
//! clients`.
//!
//! - `known`: the known clients, their files, and the form of a gateway entry
//! - `json_file`, `toml_file`: edit entries in a client's file; everything else stays unchanged
//! - `files`: reads, backs up and atomically replaces files
//! - `report`: the command's output
//! - `command_line`: converts a pasted command line into an entry
//! - `server_json`: converts a server of the MCP registry into an entry
//! - `import`: imports a client's servers as `[servers.NAME]` tables of the gateway's configuration

mod command_line;
mod files;
mod import;
mod json_file;
mod known;
mod references;
mod report;
mod server_json;
mod toml_file;

use std::path::{Path, PathBuf};

use serde_json::Value;

pub use command_line::{command_entry, split_command};
pub use files::Change;
pub use import::{Import, add_servers, import};
pub use known::{Client, find};
pub use report::{change_report, client_table, import_report};
pub use server_json::{Given, MissingValue, NoEntry, entry_of, registry_url};

use crate::clients::known::ServersAt;
use crate::config::Environment;

/// The name of the gateway's entry in a client's file.
pub const ENTRY: &str = "mcpvisor";

/// Why a client's file cannot be read or changed. Never includes a value of the file.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("unknown client `{name}`; known are {known}")]
    Unknown { name: String, known: String },
    #[error("the home directory is unknown: `HOME` is not set")]
    NoHome,
    #[error("{client} has no file {}", path.display())]
    NoFile { client: &'static str, path: PathBuf },
    #[error("{}: {why}", path.display())]
    Malformed { path: PathBuf, why: String },
    #[error("{}: {source}", path.display())]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
}

/// How clients reach the gateway.
#[derive(Clone, Debug)]
pub struct GatewayAddress {
    /// The MCP endpoint.
    pub url: String,
    /// The program for clients that do not support URLs.
    pub program: PathBuf,
}

/// A client, its file, and whether the gateway is in it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ClientStatus {
    pub client: &'static str,
    pub title: &'static str,
    pub file: PathBuf,
    /// Whether the file exists.
    pub exists: bool,
    pub connected: bool,
    /// Names of its other servers.
    pub servers: Vec<String>,
    /// Why the file cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Every known client.
///
/// # Errors
///
/// Fails if the home directory is unknown.
pub fn list(environment: &dyn Environment) -> Result<Vec<ClientStatus>, ClientError> {
    known::all()
        .map(|client| status(client, environment))
        .collect()
}

fn status(
    client: &'static Client,
    environment: &dyn Environment,
) -> Result<ClientStatus, ClientError> {
    let file = client.file(environment)?;
    let entries = entries(client, &file);
    let exists = !matches!(entries, Ok(None));
    let (entries, problem) = match entries {
        Ok(entries) => (entries.unwrap_or_default(), None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let (own, others): (Vec<_>, Vec<_>) = entries
        .into_iter()
        .map(|(name, _)| name)
        .partition(|name| name == ENTRY);
    Ok(ClientStatus {
        client: client.name,
        title: client.title,
        file,
        exists,
        connected: !own.is_empty(),
        servers: others,
        problem,
    })
}

/// The change that connects a client to the gateway; `None` if it is connected already.
///
/// # Errors
///
/// Fails if the client's file cannot be read.
pub fn connect(
    client: &'static Client,
    gateway: &GatewayAddress,
    environment: &dyn Environment,
) -> Result<Option<Change>, ClientError> {
    let file = client.file(environment)?;
    let entry = client.entry(gateway);
    let there = entries(client, &file)?.unwrap_or_default();
    if there.contains(&(ENTRY.to_owned(), entry.clone())) {
        return Ok(None);
    }
    let before = files::read(&file)?;
    let text = before.as_deref().unwrap_or_default();
    let after = match client.servers_at {
        ServersAt::Json(key) => json_file::with(text, key, ENTRY, &entry),
        ServersAt::Toml(key) => toml_file::with(text, key, ENTRY, &entry),
    };
    let after = understood(&file, after)?;
    Ok(Some(Change::new(file, before, after)))
}

/// The change that removes the gateway from a client; `None` if it is not connected.
///
/// # Errors
///
/// Fails if the client's file cannot be read.
pub fn disconnect(
    client: &'static Client,
    environment: &dyn Environment,
) -> Result<Option<Change>, ClientError> {
    let file = client.file(environment)?;
    let there = entries(client, &file)?.unwrap_or_default();
    let Some(before) = files::read(&file)? else {
        return Ok(None);
    };
    if there.iter().all(|(name, _)| name != ENTRY) {
        return Ok(None);
    }
    let after = match client.servers_at {
        ServersAt::Json(key) => json_file::without(&before, key, ENTRY),
        ServersAt::Toml(key) => toml_file::without(&before, key, ENTRY),
    };
    let after = understood(&file, after)?;
    Ok(Some(Change::new(file, Some(before), after)))
}

/// The servers in a client's file; `None` without a file.
fn entries(
    client: &'static Client,
    path: &Path,
) -> Result<Option<Vec<(String, Value)>>, ClientError> {
    let Some(text) = files::read(path)? else {
        return Ok(None);
    };
    let entries = match client.servers_at {
        ServersAt::Json(key) => json_file::entries(&text, key),
        ServersAt::Toml(key) => toml_file::entries(&text, key),
    };
    understood(path, entries).map(Some)
}

fn understood<T>(path: &Path, outcome: Result<T, String>) -> Result<T, ClientError> {
    outcome.map_err(|why| ClientError::Malformed {
        path: path.to_owned(),
        why,
    })
}
