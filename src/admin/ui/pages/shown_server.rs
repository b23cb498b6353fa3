//! A configured server as form fields.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::admin::ui::fields::Fields;

/// A configured server as returned by the API.
#[derive(Deserialize)]
#[serde(default)]
pub(super) struct ShownServer {
    pub(super) name: String,
    #[serde(alias = "type")]
    transport: String,
    command: String,
    args: Vec<String>,
    env: Map<String, Value>,
    url: String,
    headers: Map<String, Value>,
    timeouts: ShownTimeouts,
    enabled: bool,
}

/// Timeouts in milliseconds.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ShownTimeouts {
    connection: Option<u64>,
    request: Option<u64>,
}

impl Default for ShownServer {
    fn default() -> Self {
        Self {
            name: String::new(),
            transport: String::new(),
            command: String::new(),
            args: Vec::new(),
            env: Map::new(),
            url: String::new(),
            headers: Map::new(),
            timeouts: ShownTimeouts::default(),
            enabled: true,
        }
    }
}

/// Form fields for a server from the API.
pub(super) fn values(entry: &ShownServer) -> Fields {
    let lines = |pairs: &Map<String, Value>, between: &str| {
        let line = |(name, value): (&String, &Value)| {
            format!("{name}{between}{}\n", value.as_str().unwrap_or_default())
        };
        pairs.iter().map(line).collect()
    };
    let kind = match entry.transport.as_str() {
        "sse" => "sse",
        _ if entry.url.is_empty() => "stdio",
        _ => "http",
    };
    let number = |value: Option<u64>| value.map(|it| it.to_string()).unwrap_or_default();
    let timeouts = &entry.timeouts;
    let args = entry.args.iter();
    let mut values: Fields = [
        ("kind", kind.to_owned()),
        ("command", entry.command.clone()),
        ("args", args.map(|arg| format!("{arg}\n")).collect()),
        ("env", lines(&entry.env, "=")),
        ("url", entry.url.clone()),
        ("headers", lines(&entry.headers, ": ")),
        ("connection", number(timeouts.connection)),
        ("request", number(timeouts.request)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    if entry.enabled {
        values.push(("enabled".to_owned(), "on".to_owned()));
    }
    values
}
