//! MCP clients of this machine and the files in which they keep their servers: `mcpvisor clients`.
//!
//! - `known`: which clients there are, where their files lie, how an entry for the gateway reads
//! - `json_file`, `toml_file`: entries in the text of a client's file; everything else stays as it
//!   was written
//! - `files`: reading, the backup, replacing at once
//! - `report`: what the command says
//! - `server_json`: a server of the MCP registry as an entry
//! - `import`: a client's servers as `[servers.NAME]` tables of the gateway's configuration

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

pub use files::Change;
pub use import::{Import, add_servers, import};
pub use known::{Client, find};
pub use report::{change_report, client_table, import_report};
pub use server_json::{Given, MissingValue, NoEntry, entry_of, registry_url};

use crate::clients::known::ServersAt;
use crate::config::Environment;

/// The name of the gateway's entry in a client's file.
pub const ENTRY: &str = "mcpvisor";

/// Why a client's file cannot be read or changed. Never shows a value of the file.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("no client is called `{name}`; known are {known}")]
    Unknown { name: String, known: String },
    #[error("the home directory is not known: `HOME` is not set")]
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

/// How the gateway is reached.
#[derive(Clone, Debug)]
pub struct GatewayAddress {
    /// Its MCP endpoint.
    pub url: String,
    /// The program that clients start which know no URLs.
    pub program: PathBuf,
}

/// A client, its file, and whether the gateway is in it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ClientStatus {
    pub client: &'static str,
    pub title: &'static str,
    pub file: PathBuf,
    /// Whether the file is there.
    pub exists: bool,
    pub connected: bool,
    /// Names of the other servers that it has.
    pub servers: Vec<String>,
    /// Why the file cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Every known client.
///
/// # Errors
///
/// When the home directory is not known.
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

/// The change that lets a client use the gateway; `None` if it does already.
///
/// # Errors
///
/// When the client's file cannot be read.
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

/// The change that takes the gateway out of a client; `None` if it is not there.
///
/// # Errors
///
/// When the client's file cannot be read.
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

/// The servers of a client as its file says them; `None` without a file.
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
