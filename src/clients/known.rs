//! A known client: where its files are, and the form of a gateway entry.

use std::path::{Path, PathBuf};

use secrecy::ExposeSecret as _;
use serde_json::{Map, Value, json};

use crate::clients::{ClientError, ENTRY, GatewayAddress};
use crate::config::{Environment, References};

/// Variable in which an entry that starts a program carries its key.
const KEY_VARIABLE: &str = "MCPVISOR_KEY";

/// The servers in a client's file, by name.
pub(super) type Entries = Vec<(String, Value)>;

/// A client that keeps its servers in a file.
#[derive(Debug)]
pub struct Client {
    /// Name on the command line.
    pub name: &'static str,
    pub title: &'static str,
    /// Candidate files; the first existing one is used, else the first.
    pub(super) files: &'static [ClientFile],
    pub(super) servers_at: ServersAt,
    /// Further files of the user, which only an import reads.
    pub(super) also: &'static [(ClientFile, ServersAt)],
    /// Files with the servers of one project, which only an import reads.
    pub(super) project: &'static [(ClientFile, ServersAt)],
    pub(super) entry: EntryShape,
    /// Translates the client's variable references into `${…}`.
    pub(super) references: References,
    /// Unit of `timeout`.
    pub(super) timeout: TimeoutUnit,
    /// Link that adds a server to the client.
    pub(super) link: Option<Link>,
}

/// Where a file of a client is.
#[derive(Debug)]
pub(super) enum ClientFile {
    Home(&'static str),
    /// Where programs keep their data: `~/.config` or `XDG_CONFIG_HOME`; `~/Library/Application
    /// Support` on macOS.
    AppData(&'static str),
    /// Below the folder of a project.
    Project(&'static str),
}

/// The table of servers in a client's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServersAt {
    /// A member of a JSON object; comments are allowed.
    Json(&'static str),
    /// `projects.FOLDER.mcpServers` of a JSON object.
    JsonOfProject,
    /// A table of a TOML file.
    Toml(&'static str),
    /// A member of a YAML mapping.
    Yaml(&'static str),
}

/// How a client represents a server over Streamable HTTP.
#[derive(Debug)]
pub(super) enum EntryShape {
    Remote {
        kind: Option<&'static str>,
        url: &'static str,
        headers: &'static str,
    },
    /// With the list of tools that the client requires.
    RemoteWithTools,
    /// An extension of Goose.
    Extension,
    /// It supports only programs: uses one that relays to the gateway.
    Program,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeoutUnit {
    Seconds,
    Milliseconds,
}

/// Links by which a browser adds a server to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Cursor,
    LmStudio,
    VsCode,
}

impl Client {
    /// The file in which it keeps its servers, whether it exists or not.
    pub(super) fn file(&self, environment: &dyn Environment) -> Result<PathBuf, ClientError> {
        let paths = self.files.iter().map(|file| file.path(environment, None));
        let paths = paths.collect::<Result<Vec<_>, _>>()?;
        let there = paths.iter().find(|path| path.exists());
        Ok(there.or(paths.first()).cloned().unwrap_or_default())
    }

    /// An entry for the gateway.
    pub(super) fn entry(&self, gateway: &GatewayAddress) -> Value {
        let GatewayAddress { url, program, key } = gateway;
        let key = key.as_ref().map(|key| key.expose_secret());
        let headers = key.map(|key| json!({ "Authorization": format!("Bearer {key}") }));
        let with = |mut entry: Value, member: &str, value: Option<Value>| {
            if let Some(value) = value {
                entry[member] = value;
            }
            entry
        };
        match self.entry {
            EntryShape::Remote {
                kind,
                url: key,
                headers: member,
            } => {
                let kind = kind.map(|kind| ("type".to_owned(), Value::from(kind)));
                let members = kind
                    .into_iter()
                    .chain([(key.to_owned(), url.as_str().into())]);
                with(members.collect::<Map<_, _>>().into(), member, headers)
            }
            EntryShape::RemoteWithTools => {
                let entry = json!({ "type": "http", "url": url, "tools": ["*"] });
                with(entry, "headers", headers)
            }
            EntryShape::Extension => {
                let entry = json!({
                    "enabled": true, "type": "streamable_http", "name": ENTRY, "description": "",
                    "uri": url, "timeout": 300
                });
                with(entry, "headers", headers)
            }
            EntryShape::Program => {
                let mut args = vec!["stdio", "--connect", url];
                let header = format!("Authorization: Bearer ${{{KEY_VARIABLE}}}");
                args.extend(key.iter().flat_map(|_| ["--header", &header]));
                let entry = json!({ "command": program, "args": args });
                with(entry, "env", key.map(|key| json!({ KEY_VARIABLE: key })))
            }
        }
    }
}

impl ClientFile {
    /// The path of the file; `project` is the folder of a project.
    pub(super) fn path(
        &self,
        environment: &dyn Environment,
        project: Option<&Path>,
    ) -> Result<PathBuf, ClientError> {
        let home = absolute(environment, "HOME").ok_or(ClientError::NoHome)?;
        Ok(match self {
            Self::Home(below) => home.join(below),
            Self::AppData(below) if cfg!(target_os = "macos") => {
                home.join("Library/Application Support").join(below)
            }
            Self::AppData(below) => {
                let config = absolute(environment, "XDG_CONFIG_HOME");
                config.unwrap_or_else(|| home.join(".config")).join(below)
            }
            Self::Project(below) => project.unwrap_or(Path::new("")).join(below),
        })
    }
}

/// The URL in an entry for a gateway.
pub(super) fn url_of(entry: &Value) -> Option<&str> {
    let members = ["url", "httpUrl", "serverUrl", "uri"];
    let url = members.iter().find_map(|member| entry[*member].as_str());
    url.or_else(|| {
        let mut args = entry["args"].as_array()?.iter();
        args.find(|arg| *arg == "--connect")?;
        args.next()?.as_str()
    })
}

/// The key in an entry for a gateway.
pub(super) fn key_of(entry: &Value) -> Option<&str> {
    let members = ["headers", "http_headers"];
    let header = members
        .iter()
        .find_map(|it| entry[*it]["Authorization"].as_str());
    let of_header = header.and_then(|header| header.strip_prefix("Bearer "));
    of_header.or_else(|| entry["env"][KEY_VARIABLE].as_str())
}

fn absolute(environment: &dyn Environment, name: &str) -> Option<PathBuf> {
    let path = environment.var(name).map(PathBuf::from);
    path.filter(|path| path.is_absolute())
}
