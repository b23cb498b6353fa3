//! MCP clients on this machine and the files in which they keep their servers, for `mcpvisor
//! clients`.
//!
//! - `known`, `known_clients`: the known clients, their files, and the form of a gateway entry
//! - `json_file`, `toml_file`, `yaml_file`: edit entries in a client's file; everything else stays
//!   unchanged
//! - `link`: links that add the gateway to a client
//! - `files`: reads, backs up and atomically replaces files
//! - `report`: the command's output
//! - `command_line`: converts a pasted command line into an entry, and `pasted` any text
//! - `registry`, `server_json`: find a server in the MCP registry, and convert it into an entry
//! - `found`: a client's servers, with its variables and units translated
//! - `import`: imports servers as `[servers.NAME]` tables of the gateway's configuration

mod card;
mod command_line;
mod files;
mod found;
mod import;
mod json_file;
mod known;
mod known_clients;
mod link;
mod pasted;
mod registry;
mod report;
mod server_json;
mod toml_file;
mod yaml_file;

use std::path::{Path, PathBuf};

use secrecy::SecretString;
use serde_json::Value;
use url::{Host, Url};

pub use card::{card_url, read_card};
pub use command_line::{command_entry, split_command};
pub use files::Change;
pub use found::project_hints;
pub use import::{Import, add_servers, import};
pub use known::Client;
pub use known_clients::find;
pub use link::install_link;
pub use pasted::{pasted, url_entry};
pub use registry::{FoundServer, REGISTRY, document, registry_url, search_registry};
pub use report::{change_report, client_table, import_report};
pub use server_json::{Given, MissingValue, NoEntry, entry_of};

use crate::auth::{ApiKey, AuthSettings, TokenHash};
use crate::clients::files::Moved;
use crate::clients::known::ServersAt;
use crate::config::Environment;
use crate::telemetry::unix_millis;

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
    /// The client's key.
    pub key: Option<SecretString>,
}

/// A client, its file, and whether the gateway is in it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ClientStatus {
    pub client: &'static str,
    pub title: &'static str,
    pub file: PathBuf,
    /// Whether the file exists.
    pub exists: bool,
    /// Whether it has an entry that reaches the gateway.
    pub connected: bool,
    /// Why its entry for a gateway does not reach this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Names of its other servers.
    pub servers: Vec<String>,
    /// Why the file cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Every known client. `url` and `auth` are those of the gateway; without them, every entry counts
/// as connected.
///
/// # Errors
///
/// Fails if the home directory is unknown.
pub fn list(
    gateway: Option<(&str, &AuthSettings)>,
    environment: &dyn Environment,
) -> Result<Vec<ClientStatus>, ClientError> {
    known_clients::all()
        .map(|client| status(client, gateway, environment))
        .collect()
}

fn status(
    client: &'static Client,
    gateway: Option<(&str, &AuthSettings)>,
    environment: &dyn Environment,
) -> Result<ClientStatus, ClientError> {
    let file = client.file(environment)?;
    let entries = entries(client, &file);
    let exists = !matches!(entries, Ok(None));
    let (entries, problem) = match entries {
        Ok(entries) => (entries.unwrap_or_default(), None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let (own, others): (Vec<_>, Vec<_>) = entries.into_iter().partition(|(name, _)| name == ENTRY);
    let fault = own.first().zip(gateway);
    let fault = fault.and_then(|((_, entry), (url, auth))| fault_of(entry, url, auth));
    Ok(ClientStatus {
        client: client.name,
        title: client.title,
        file,
        exists,
        connected: !own.is_empty() && fault.is_none(),
        fault,
        servers: others.into_iter().map(|(name, _)| name).collect(),
        problem,
    })
}

/// Why an entry does not reach the gateway at `url`.
fn fault_of(entry: &Value, url: &str, auth: &AuthSettings) -> Option<String> {
    let Some(found) = known::url_of(entry) else {
        // `mcpvisor stdio` is a gateway of its own.
        let is_program = entry.get("command").is_some();
        return (!is_program).then(|| "its entry has no URL".to_owned());
    };
    // Under another name, a proxy can lead to the gateway.
    if !is_same_gateway(found, url) && is_of_this_machine(found) {
        return Some("its entry has the address of another gateway".to_owned());
    }
    match known::key_of(entry) {
        _ if auth.keys.is_empty() => None,
        Some(key) if valid_key(key, auth).is_some() => None,
        // A key in a variable cannot be checked, and other tokens are not the gateway's.
        Some(key) if key.contains('$') || auth.tokens.is_enabled() => None,
        None if auth.tokens.is_enabled() || auth.lazy => None,
        Some(_) => Some("the gateway does not accept its key".to_owned()),
        None => Some("the gateway needs a key, and its entry has none".to_owned()),
    }
}

/// Whether a URL is an endpoint of the gateway: the same one, or the one of a view.
fn is_same_gateway(found: &str, url: &str) -> bool {
    let parts = |url: &str| {
        let url = Url::parse(url).ok()?;
        let host = url.host_str()?.replace("localhost", "127.0.0.1");
        let path = url.path().trim_end_matches('/').to_owned();
        Some((
            url.scheme().to_owned(),
            host,
            url.port_or_known_default(),
            path,
        ))
    };
    let (Some(found), Some(own)) = (parts(found), parts(url)) else {
        return false;
    };
    let rest = found.3.strip_prefix(own.3.as_str());
    (found.0, found.1, found.2) == (own.0, own.1, own.2)
        && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn is_of_this_machine(url: &str) -> bool {
    let url = Url::parse(url).ok();
    let host = url.as_ref().and_then(Url::host);
    host.is_none_or(|host| match host {
        Host::Domain(name) => name == "localhost",
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    })
}

/// The valid key of the gateway that a client sends.
fn valid_key<'a>(key: &str, auth: &'a AuthSettings) -> Option<&'a ApiKey> {
    let (hash, now) = (TokenHash::of(key), unix_millis());
    let mut keys = auth.keys.iter().filter(|key| key.hash == hash);
    keys.find(|key| key.expires_at.is_none_or(|expires| expires > now))
}

/// The key that a client's entry has, and its name in the configuration, if the gateway accepts it.
///
/// # Errors
///
/// Fails if the client's file cannot be read.
pub fn key_in_use(
    client: &'static Client,
    auth: &AuthSettings,
    environment: &dyn Environment,
) -> Result<Option<(String, SecretString)>, ClientError> {
    let there = entries(client, &client.file(environment)?)?.unwrap_or_default();
    let own = there.iter().find(|(name, _)| name == ENTRY);
    let key = own.and_then(|(_, entry)| known::key_of(entry));
    Ok(key.and_then(|key| Some((valid_key(key, auth)?.name.clone(), key.into()))))
}

/// Whether a client's own file has servers besides the gateway.
///
/// # Errors
///
/// Fails if the client's file cannot be read.
pub fn has_servers(
    client: &'static Client,
    environment: &dyn Environment,
) -> Result<bool, ClientError> {
    let there = entries(client, &client.file(environment)?)?.unwrap_or_default();
    Ok(there.iter().any(|(name, _)| name != ENTRY))
}

/// The change that connects a client to the gateway, and removes the servers that were moved to it;
/// `None` if there is nothing to change.
///
/// # Errors
///
/// Fails if the client's file cannot be read.
pub fn connect(
    client: &'static Client,
    gateway: &GatewayAddress,
    moved: &[String],
    environment: &dyn Environment,
) -> Result<Option<Change>, ClientError> {
    let file = client.file(environment)?;
    let entry = client.entry(gateway);
    let there = entries(client, &file)?.unwrap_or_default();
    let is_moved = |(name, _): &(String, Value)| moved.contains(name);
    let moves_any = there.iter().any(is_moved);
    if !moves_any && there.contains(&(ENTRY.to_owned(), entry.clone())) {
        return Ok(None);
    }
    let before = files::read(&file)?;
    let text = before.as_deref().unwrap_or_default();
    let after = understood(&file, connected(client, text, &entry, moved))?;
    let is_update = there.iter().any(|(name, _)| name == ENTRY);
    let record = match moves_any {
        true => Moved::Record(understood(
            &file,
            record(client, &file, text, &there, moved),
        )?),
        false => Moved::Kept,
    };
    let mut change = match is_update {
        true => Change::update(file, before.unwrap_or_default(), Some(after)),
        false => Change::new(file, before, after),
    };
    change.moved = record;
    Ok(Some(change))
}

/// The record of moved servers: a copy of the client's file, or an earlier record with more
/// servers.
fn record(
    client: &'static Client,
    file: &Path,
    text: &str,
    there: &[(String, Value)],
    moved: &[String],
) -> Result<String, String> {
    let earlier = files::read(&files::beside(file, files::MOVED));
    let Some(mut record) = earlier.map_err(|error| error.to_string())? else {
        return Ok(text.to_owned());
    };
    for (name, server) in there.iter().filter(|(name, _)| moved.contains(name)) {
        record = with(client, &record, name, server)?;
    }
    Ok(record)
}

/// The change that removes the gateway from a client, and restores the servers that were moved;
/// `None` if it is not connected. A file that nothing else changed becomes what it was.
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
    let own = there.iter().find(|(name, _)| name == ENTRY);
    let (Some(before), Some((_, entry))) = (files::read(&file)?, own) else {
        return Ok(None);
    };
    let moved = files::read(&files::beside(&file, files::MOVED))?;
    let backup = files::read(&files::beside(&file, files::BACKUP))?;
    let moved_servers = moved
        .as_deref()
        .map(|text| entries_in(client.servers_at, text));
    let moved_servers = understood(&file, moved_servers.transpose())?.unwrap_or_default();
    let is_missing = |(name, _): &&(String, Value)| {
        name != ENTRY && there.iter().all(|(known, _)| known != name)
    };
    let missing: Vec<_> = moved_servers.iter().filter(is_missing).collect();
    let names: Vec<String> = missing.iter().map(|(name, _)| name.clone()).collect();
    let made = |text: &str| connected(client, text, entry, &names);
    for original in [moved, backup].into_iter().flatten() {
        let is_original = entries_in(client.servers_at, &original)
            .is_ok_and(|servers| servers.iter().all(|(name, _)| name != ENTRY));
        if is_original && made(&original).is_ok_and(|text| text == before) {
            return Ok(Some(moved_back(file, before, Some(original))));
        }
    }
    if made("").is_ok_and(|text| text == before) {
        return Ok(Some(moved_back(file, before, None)));
    }
    let mut after = understood(&file, without(client, &before, ENTRY))?;
    for (name, server) in missing {
        after = understood(&file, with(client, &after, name, server))?;
    }
    Ok(Some(moved_back(file, before, Some(after))))
}

fn moved_back(file: PathBuf, before: String, after: Option<String>) -> Change {
    let mut change = Change::update(file, before, after);
    change.moved = Moved::Back;
    change
}

/// A client's text with the gateway, and without the servers that were moved to it.
fn connected(
    client: &Client,
    text: &str,
    entry: &Value,
    moved: &[String],
) -> Result<String, String> {
    let mut text = text.to_owned();
    for name in moved {
        text = without(client, &text, name)?;
    }
    with(client, &text, ENTRY, entry)
}

fn with(client: &Client, text: &str, name: &str, entry: &Value) -> Result<String, String> {
    match client.servers_at {
        ServersAt::Json(key) => json_file::with(text, key, name, entry),
        ServersAt::Toml(key) => toml_file::with(text, key, name, entry),
        ServersAt::Yaml(key) => yaml_file::with(text, key, name, entry),
        ServersAt::JsonOfProject => Err("it belongs to a project".to_owned()),
    }
}

fn without(client: &Client, text: &str, name: &str) -> Result<String, String> {
    match client.servers_at {
        ServersAt::Json(key) => json_file::without(text, key, name),
        ServersAt::Toml(key) => toml_file::without(text, key, name),
        ServersAt::Yaml(key) => yaml_file::without(text, key, name),
        ServersAt::JsonOfProject => Err("it belongs to a project".to_owned()),
    }
}

/// The servers in a client's own file; `None` without a file.
fn entries(
    client: &'static Client,
    path: &Path,
) -> Result<Option<Vec<(String, Value)>>, ClientError> {
    let Some(text) = files::read(path)? else {
        return Ok(None);
    };
    understood(path, entries_in(client.servers_at, &text)).map(Some)
}

fn entries_in(servers_at: ServersAt, text: &str) -> Result<Vec<(String, Value)>, String> {
    match servers_at {
        ServersAt::Json(key) => json_file::entries(text, key),
        ServersAt::Toml(key) => toml_file::entries(text, key),
        ServersAt::Yaml(key) => yaml_file::entries(text, key),
        ServersAt::JsonOfProject => Ok(Vec::new()),
    }
}

fn understood<T>(path: &Path, outcome: Result<T, String>) -> Result<T, ClientError> {
    outcome.map_err(|why| ClientError::Malformed {
        path: path.to_owned(),
        why,
    })
}
