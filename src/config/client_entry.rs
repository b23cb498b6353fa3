//! Translates one server entry of an MCP client into the table `[servers.NAME]`.
//!
//! Clients agree on `command`, `args`, `env` and `url`, and on little else: this module knows the
//! names that each client uses for headers, timeouts, tool filters and variable references.

use serde_json::{Map, Value as Json};
use toml::{Table, Value as Toml};

/// Server keys with the same meaning here.
pub(super) const KEYS: [&str; 7] = ["id", "command", "args", "env", "cwd", "url", "headers"];

/// Member of a server entry that holds mcpvisor's own keys; other programs ignore it.
pub(super) const OWN_KEYS: &str = "x-mcpvisor";

/// Client keys and the names that mcpvisor uses for them.
pub(super) const RENAMED: [(&str, &str); 10] = [
    ("type", "transport"),
    ("transport", "transport"),
    ("transportType", "transport"),
    ("environment", "env"),
    ("http_headers", "headers"),
    ("envFile", "env_file"),
    ("env_vars", "inherit_env"),
    ("serverUrl", "url"),
    ("httpUrl", "url"),
    ("connectionMode", "connection_mode"),
];

/// Members that configure the client itself and have no meaning for a gateway.
const CLIENT_ONLY: [&str; 12] = [
    "name",
    "createdAt",
    "updatedAt",
    "description",
    "gallery",
    "icon",
    "trust",
    "dev",
    "settings",
    "source",
    "alwaysAllow",
    "autoApprove",
];

/// Values of `type` that repeat what `command` or `url` states already (OpenCode).
const IMPLIED: [&str; 2] = ["local", "remote"];

/// Names that clients use for a tool filter, and the key of `tools` that each maps to.
const TOOL_FILTERS: [(&str, &str); 7] = [
    ("tools", "allow"),
    ("includeTools", "allow"),
    ("enabled_tools", "allow"),
    ("enabledTools", "allow"),
    ("excludeTools", "deny"),
    ("disabled_tools", "deny"),
    ("disabledTools", "deny"),
];

/// `timeout` has no common unit: Cline and Roo write seconds, Gemini CLI and OpenCode milliseconds.
/// A value below this limit is read as seconds, because timeouts below a second are not in use.
const SECONDS_MAX: f64 = 1000.0;

/// Translates a client's server entry into the table `[servers.NAME]`. Each key without a
/// counterpart adds a warning.
pub fn server_table(name: &str, server: &Json, warnings: &mut Vec<String>) -> Toml {
    let Json::Object(server) = server else {
        return to_value(server).unwrap_or_else(|| Toml::Table(Table::new()));
    };
    let mut entry = ClientEntry::default();
    for (key, value) in server {
        if !entry.read(key, value) {
            warnings.push(format!(
                "`{key}` of server `{name}` has no counterpart here and is ignored"
            ));
        }
    }
    Toml::Table(entry.table)
}

#[derive(Default)]
struct ClientEntry {
    table: Table,
}

impl ClientEntry {
    /// Reads one member; returns whether it is known.
    fn read(&mut self, key: &str, value: &Json) -> bool {
        let renamed = RENAMED.iter().find(|(other, _)| *other == key);
        let known = KEYS.iter().find(|known| **known == key);
        let known = known.or(renamed.map(|(_, known)| known)).copied();
        match (known, key, value) {
            (Some("transport"), _, Json::String(kind)) => self.transport(kind),
            (Some("command"), _, Json::Array(words)) => {
                let (program, args) = words.split_first().unwrap_or((&Json::Null, &[]));
                self.put("command", program);
                self.put("args", &texts(&args.into()));
            }
            // Zed nests the program and its arguments in an object.
            (Some("command"), _, Json::Object(command)) => {
                let program = command.get("path").or(command.get("command"));
                self.put("command", program.unwrap_or(&Json::Null));
                for key in ["args", "env"] {
                    self.put(key, &texts(command.get(key).unwrap_or(&Json::Null)));
                }
            }
            (Some("url"), _, Json::String(url)) => self.put("url", &url.trim().into()),
            (Some("headers"), _, Json::Object(headers)) => self.add_headers(headers),
            (Some("inherit_env"), _, Json::Array(names)) => {
                let names = names.iter().map(|name| name.get("name").unwrap_or(name));
                self.put("inherit_env", &names.cloned().collect());
            }
            (Some(key @ ("args" | "env" | "headers")), _, value) => self.put(key, &texts(value)),
            (Some(key), _, value) => self.put(key, value),
            (None, "disabled", Json::Bool(disabled)) => self.put("enabled", &(!disabled).into()),
            (None, "enabled", Json::Bool(_)) => self.put("enabled", value),
            (None, "oauth", Json::Object(oauth)) => self.put("oauth", &oauth_members(oauth)),
            (None, OWN_KEYS, Json::Object(own)) => {
                own.iter().for_each(|(key, value)| self.put(key, value));
            }
            (None, key, value) => {
                return self.read_headers(key, value)
                    || self.read_tools(key, value)
                    || self.read_timeout(key, value)
                    || CLIENT_ONLY.contains(&key);
            }
        }
        true
    }

    fn put(&mut self, key: &str, value: &Json) {
        if let Some(value) = to_value(value) {
            self.table.insert(key.to_owned(), value);
        }
    }

    /// Returns the table below a key, creating it if it is missing.
    fn table(&mut self, key: &str) -> Option<&mut Table> {
        let entry = self.table.entry(key);
        entry.or_insert_with(|| Table::new().into()).as_table_mut()
    }

    fn transport(&mut self, kind: &str) {
        let kind = kind.trim().to_lowercase();
        if !IMPLIED.contains(&kind.as_str()) {
            let kind = if kind == "streamablehttp" {
                "http"
            } else {
                &kind
            };
            self.put("transport", &kind.into());
        }
    }

    fn add_headers(&mut self, headers: &Map<String, Json>) {
        let headers = texts(&Json::Object(headers.clone()));
        if let (Some(table), Some(Toml::Table(headers))) =
            (self.table("headers"), to_value(&headers))
        {
            table.extend(headers);
        }
    }

    /// Reads headers under client-specific names: Codex names environment variables, and the
    /// TypeScript SDK nests them.
    fn read_headers(&mut self, key: &str, value: &Json) -> bool {
        match (key, value) {
            ("bearer_token_env_var", Json::String(variable)) => {
                let header = Json::from(format!("Bearer ${{{variable}}}"));
                self.add_headers(&Map::from_iter([("Authorization".to_owned(), header)]));
            }
            ("env_http_headers", Json::Object(variables)) => {
                let header = |(name, variable): (&String, &Json)| {
                    let variable = variable.as_str()?;
                    Some((name.clone(), Json::from(format!("${{{variable}}}"))))
                };
                self.add_headers(&variables.iter().filter_map(header).collect());
            }
            ("requestInit", Json::Object(request)) => match request.get("headers") {
                Some(Json::Object(headers)) => self.add_headers(headers),
                _ => return request.is_empty(),
            },
            _ => return false,
        }
        true
    }

    fn read_tools(&mut self, key: &str, value: &Json) -> bool {
        let filter = TOOL_FILTERS.iter().find(|(other, _)| *other == key);
        let Some(((_, filter), Json::Array(names))) = filter.map(|filter| (filter, value)) else {
            return false;
        };
        let names = Json::Array(names.clone());
        if let (Some(tools), Some(names)) = (self.table("tools"), to_value(&names)) {
            tools.insert((*filter).to_owned(), names);
        }
        true
    }

    fn read_timeout(&mut self, key: &str, value: &Json) -> bool {
        let (request, connection) = match (key, value) {
            ("timeouts", Json::Object(times)) => {
                let time = |member: &str| times.get(member).and_then(Json::as_f64);
                (time("request"), time("connection"))
            }
            ("timeout", value) => {
                let time = value.as_f64();
                let is_seconds = |time: &f64| *time < SECONDS_MAX;
                (
                    time.map(|it| if is_seconds(&it) { it * 1e3 } else { it }),
                    None,
                )
            }
            ("tool_timeout_sec", value) => (value.as_f64().map(|it| it * 1e3), None),
            ("startup_timeout_sec", value) => (None, value.as_f64().map(|it| it * 1e3)),
            ("startup_timeout_ms", value) => (None, value.as_f64()),
            _ => return false,
        };
        let written = |time: f64| Toml::String(format!("{time:.0}ms"));
        if let Some(time) = request {
            let entry = self.table.entry("request_timeout");
            entry.or_insert_with(|| written(time));
        }
        if let Some(time) = connection
            && let Some(supervision) = self.table("supervision")
        {
            let entry = supervision.entry("connect_timeout");
            entry.or_insert_with(|| written(time));
        }
        request.is_some() || connection.is_some()
    }
}

/// Members of `oauth` in MCP Inspector and other clients, and the keys of `[servers.NAME.oauth]`
/// that they map to.
pub(super) const OAUTH_RENAMED: [(&str, &str); 4] = [
    ("clientId", "client_id"),
    ("clientSecret", "client_secret"),
    ("authorizationUrl", "authorization_url"),
    ("tokenUrl", "token_url"),
];

/// Client-side name of an `oauth` key.
pub(super) fn oauth_member(key: &str) -> &str {
    let renamed = OAUTH_RENAMED.iter().find(|(_, known)| *known == key);
    renamed.map_or(key, |(member, _)| member)
}

/// Renames the members of a client's `oauth` to the keys of `[servers.NAME.oauth]`. Unknown members
/// are refused when the table is read.
fn oauth_members(oauth: &Map<String, Json>) -> Json {
    let key = |member: &str| {
        let renamed = OAUTH_RENAMED.iter().find(|(other, _)| *other == member);
        renamed.map_or(member, |(_, key)| key).to_owned()
    };
    let members = oauth.iter();
    Json::Object(members.map(|(k, value)| (key(k), value.clone())).collect())
}

/// Turns numbers and flags inside a list or table into strings, as a program receives them.
fn texts(value: &Json) -> Json {
    let text = |value: &Json| match value {
        Json::Number(_) | Json::Bool(_) => Json::String(value.to_string()),
        other => other.clone(),
    };
    match value {
        Json::Array(values) => values.iter().map(text).collect(),
        Json::Object(values) => values.iter().map(|(k, v)| (k.clone(), text(v))).collect(),
        other => other.clone(),
    }
}

/// Converts a JSON value to TOML; `None` for `null`, which TOML lacks.
fn to_value(json: &Json) -> Option<Toml> {
    Some(match json {
        Json::Null => return None,
        Json::Bool(flag) => Toml::Boolean(*flag),
        Json::Number(number) => match number.as_i64() {
            Some(number) => Toml::Integer(number),
            None => Toml::Float(number.as_f64()?),
        },
        Json::String(text) => Toml::String(with_toml_dollars(text)),
        Json::Array(values) => Toml::Array(values.iter().filter_map(to_value).collect()),
        Json::Object(values) => {
            let values = values.iter();
            let values = values.filter_map(|(key, value)| Some((key.clone(), to_value(value)?)));
            Toml::Table(values.collect())
        }
    })
}

/// In JSON a dollar is literal unless it opens `${…}`, and only `$${` is an escape, because clients
/// know no escape. In `config.toml`, `$$` is a literal dollar wherever it occurs.
fn with_toml_dollars(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        written.push_str(before);
        let (token, tail) = match (after.strip_prefix("${"), after.strip_prefix('{')) {
            (Some(tail), _) => ("$${", tail),
            (None, Some(tail)) => ("${", tail),
            (None, None) => ("$$", after),
        };
        written.push_str(token);
        rest = tail;
    }
    written + rest
}

/// The inverse of [`with_toml_dollars`], for text that is written into a client's file.
pub(super) fn with_json_dollars(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        written.push_str(before);
        written.push('$');
        rest = match after.strip_prefix('$') {
            Some(tail) if tail.starts_with('{') => {
                written.push('$');
                tail
            }
            tail => tail.unwrap_or(after),
        };
    }
    written + rest
}

/// Applies `change` to every string inside a value; member names stay the same.
pub fn map_texts(value: &mut Json, change: fn(&str) -> String) {
    match value {
        Json::String(text) => *text = change(text),
        Json::Array(values) => values.iter_mut().for_each(|it| map_texts(it, change)),
        Json::Object(members) => members.values_mut().for_each(|it| map_texts(it, change)),
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn table(server: &Json) -> (Json, Vec<String>) {
        let mut warnings = Vec::new();
        let table = server_table("x", server, &mut warnings);
        (serde_json::to_value(table).unwrap(), warnings)
    }

    #[test]
    fn every_clients_keys_are_translated() {
        let cases = [
            (
                json!({"command": {"path": "p", "args": ["a", 5], "env": {"K": true}}, "settings": {}}),
                json!({"command": "p", "args": ["a", "5"], "env": {"K": "true"}}),
            ),
            (
                json!({"command": ["p", "a"], "type": "local", "environment": {"K": null}}),
                json!({"command": "p", "args": ["a"], "env": {}}),
            ),
            (
                json!({"url": " http://h/ ", "type": "HTTP"}),
                json!({"url": "http://h/", "transport": "http"}),
            ),
            (
                json!({"serverUrl": "u", "transportType": "streamableHttp"}),
                json!({"url": "u", "transport": "http"}),
            ),
            (
                json!({"url": "u", "http_headers": {"A": 1}, "bearer_token_env_var": "T",
                       "env_http_headers": {"E": "V"}, "requestInit": {"headers": {"R": "r"}}}),
                json!({"url": "u", "headers": {"A": "1", "Authorization": "Bearer ${T}",
                       "E": "${V}", "R": "r"}}),
            ),
            (
                json!({"command": "p", "env_vars": ["A", {"name": "B", "source": "local"}],
                       "envFile": "${workspaceFolder}/.env"}),
                json!({"command": "p", "inherit_env": ["A", "B"],
                       "env_file": "${workspaceFolder}/.env"}),
            ),
            (
                json!({"command": "p", "disabled_tools": ["a"], "includeTools": ["b"]}),
                json!({"command": "p", "tools": {"deny": ["a"], "allow": ["b"]}}),
            ),
            (
                json!({"command": "p", "timeout": 60, "startup_timeout_sec": 1.5}),
                json!({"command": "p", "request_timeout": "60000ms",
                       "supervision": {"connect_timeout": "1500ms"}}),
            ),
            (
                json!({"command": "p", "timeout": 30000}),
                json!({"command": "p", "request_timeout": "30000ms"}),
            ),
        ];
        for (server, expected) in cases {
            assert_eq!(table(&server), (expected, Vec::new()), "{server}");
        }
        let (_, warnings) = table(&json!({"command": "p", "colour": "red", "timeout": "soon"}));
        assert_eq!(warnings.len(), 2, "{warnings:?}");
    }

    #[test]
    fn a_dollar_is_literal_unless_it_opens_a_reference() {
        let cases = [
            ("$HOME", "$$HOME"),
            ("a$$b", "a$$$$b"),
            ("cost: 5$", "cost: 5$$"),
            ("${VAR}", "${VAR}"),
            ("$${VAR}", "$${VAR}"),
            ("${A:-$B}", "${A:-$$B}"),
        ];
        for (json, toml) in cases {
            assert_eq!(with_toml_dollars(json), toml);
            assert_eq!(with_json_dollars(toml), json);
        }
    }
}
