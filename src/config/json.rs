//! A configuration in JSON, as clients write it: its servers are read as `[servers.NAME]` tables.

use jsonc_parser::{ParseOptions, parse_to_serde_value};
use serde_json::{Map, Value as Json};
use toml::{Table, Value as Toml};

use crate::id::ServerName;

/// Where clients keep their servers: Claude Desktop, Cursor and others; VS Code; its settings.
const SERVERS_AT: [&str; 3] = ["/mcpServers", "/servers", "/mcp/servers"];

/// Keys of a server that mean the same here.
const KEYS: [&str; 6] = ["command", "args", "env", "cwd", "url", "headers"];

/// Keys that have another name here.
const RENAMED: [(&str, &str); 6] = [
    ("type", "transport"),
    ("transport", "transport"),
    ("environment", "env"),
    ("http_headers", "headers"),
    ("serverUrl", "url"),
    ("httpUrl", "url"),
];

/// JSON with the comments and trailing commas that editors allow, and nothing else.
pub const JSON_OF_EDITORS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_loose_object_property_names: false,
    allow_trailing_commas: true,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// Values of `type` that say no more than `command` or `url` does (OpenCode).
const IMPLIED: [&str; 2] = ["local", "remote"];

/// Whether a file is JSON: no TOML begins with a brace, or with a comment of JSON.
pub fn is_json(text: &str) -> bool {
    let text = text.trim_start_matches('\u{feff}').trim_start();
    ["{", "//", "/*"]
        .iter()
        .any(|start| text.starts_with(start))
}

/// The same servers as the text of a TOML file, and a warning for everything that was left out.
///
/// # Errors
///
/// Says why there is nothing to read, without any value.
pub(super) fn to_toml(text: &str) -> Result<(String, Vec<String>), String> {
    let text = text.trim_start_matches('\u{feff}');
    let json: Json = parse_to_serde_value(text, &JSON_OF_EDITORS).map_err(|error| {
        let (line, column) = (error.line_display(), error.column_display());
        let what = error.kind();
        format!(
            "the file begins as JSON, and is no valid JSON: {what} at line {line} column {column}"
        )
    })?;
    let found = SERVERS_AT.iter().find_map(|at| {
        let servers = json.pointer(at)?.as_object()?;
        Some((*at, servers))
    });
    let Some((at, servers)) = found else {
        return Err("the file is JSON without `mcpServers` or `servers`".to_owned());
    };
    let at = at.trim_start_matches('/').replace('/', ".");
    let mut warnings = vec![format!(
        "the file is JSON: its `{at}` are read as [servers.NAME], everything else has its default"
    )];
    let mut tables = Table::new();
    for (name, server) in servers {
        let known_name = free_name(name, servers);
        if known_name != *name {
            warnings.push(format!(
                "server `{name}` is called `{known_name}`: names are made of A-Z, a-z, 0-9 and `-`"
            ));
        }
        tables.insert(known_name, server_table(name, server, &mut warnings));
    }
    let file = Table::from_iter([("servers".to_owned(), Toml::Table(tables))]);
    let file = toml::to_string(&file).map_err(|error| error.to_string())?;
    Ok((file, warnings))
}

/// The name of a server with a `-` for every character that names may not have, unless another
/// server has that name.
fn free_name(name: &str, servers: &Map<String, Json>) -> String {
    match ServerName::similar(name) {
        Some(similar) if !servers.contains_key(similar.as_str()) => similar.to_string(),
        _ => name.to_owned(),
    }
}

/// A server of a client as the table `[servers.NAME]`, and a warning for every key that is left out.
pub fn server_table(name: &str, server: &Json, warnings: &mut Vec<String>) -> Toml {
    let Json::Object(server) = server else {
        return to_value(server).unwrap_or_else(|| Toml::Table(Table::new()));
    };
    let mut table = Table::new();
    let mut put = |key: &str, value: Option<Toml>| {
        value.map(|value| table.insert(key.to_owned(), value));
    };
    for (key, value) in server {
        let renamed = RENAMED.iter().find(|(other, _)| other == key);
        let known = KEYS.iter().find(|known| *known == key);
        let known = known.or(renamed.map(|(_, known)| known)).copied();
        match (known, key.as_str(), value) {
            // It follows from the other keys.
            (Some("transport"), _, Json::String(kind)) if IMPLIED.contains(&kind.as_str()) => {}
            (Some("command"), _, Json::Array(words)) => {
                let (program, args) = words.split_first().unwrap_or((&Json::Null, &[]));
                put("command", to_value(program));
                put("args", to_value(&texts(&args.into())));
            }
            (Some(key @ ("args" | "env" | "headers")), _, value) => {
                put(key, to_value(&texts(value)));
            }
            (Some(key), _, value) => put(key, to_value(value)),
            (None, "disabled", Json::Bool(disabled)) => {
                put("enabled", Some(Toml::Boolean(!disabled)));
            }
            (None, "enabled", Json::Bool(enabled)) => put("enabled", Some(Toml::Boolean(*enabled))),
            _ => warnings.push(format!("`{key}` of server `{name}` is not read from JSON")),
        }
    }
    Toml::Table(table)
}

/// Numbers and flags inside a list or table as texts, which they become for a program anyway.
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

/// `None` for `null`, which TOML does not know.
fn to_value(json: &Json) -> Option<Toml> {
    Some(match json {
        Json::Null => return None,
        Json::Bool(flag) => Toml::Boolean(*flag),
        Json::Number(number) => match number.as_i64() {
            Some(number) => Toml::Integer(number),
            None => Toml::Float(number.as_f64()?),
        },
        Json::String(text) => Toml::String(text.clone()),
        Json::Array(values) => Toml::Array(values.iter().filter_map(to_value).collect()),
        Json::Object(values) => {
            let values = values.iter();
            let values = values.filter_map(|(key, value)| Some((key.clone(), to_value(value)?)));
            Toml::Table(values.collect())
        }
    })
}
