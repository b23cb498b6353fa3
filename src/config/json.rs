//! A configuration in JSON, as clients write it: its servers are read as `[servers.NAME]` tables.

use serde_json::{Map, Value as Json};
use toml::{Table, Value as Toml};

use crate::id::ServerName;

/// Where clients keep their servers: Claude Desktop, Cursor and others; VS Code; its settings.
const SERVERS_AT: [&str; 3] = ["/mcpServers", "/servers", "/mcp/servers"];

/// Keys of a server that mean the same here.
const KEYS: [&str; 6] = ["command", "args", "env", "cwd", "url", "headers"];

/// Keys that have another name here.
const RENAMED: [(&str, &str); 4] = [
    ("type", "transport"),
    ("transport", "transport"),
    ("serverUrl", "url"),
    ("httpUrl", "url"),
];

/// Whether a file is JSON: no TOML begins with a brace, or with a comment of JSON.
pub(super) fn is_json(text: &str) -> bool {
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
    let text = plain_json(text.trim_start_matches('\u{feff}'));
    let json: Json = serde_json::from_str(&text)
        .map_err(|error| format!("the file begins as JSON, and is no valid JSON: {error}"))?;
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
        let table = match server {
            Json::Object(server) => Toml::Table(table(name, server, &mut warnings)),
            other => to_value(other).unwrap_or_else(|| Toml::Table(Table::new())),
        };
        tables.insert(known_name, table);
    }
    let file = Table::from_iter([("servers".to_owned(), Toml::Table(tables))]);
    let file = toml::to_string(&file).map_err(|error| error.to_string())?;
    Ok((file, warnings))
}

/// JSON without the comments and trailing commas that editors allow. Spaces stand in their place,
/// so that errors name the right line and column.
fn plain_json(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    // A comma after a value, as long as nothing follows it.
    let mut comma = None;
    let mut before = ' ';
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let comment = comment_length(rest);
        let length = match first {
            '"' => string_length(rest),
            _ if comment > 0 => comment,
            _ => first.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        rest = after;
        if comment > 0 {
            let blank = |byte| if byte == b'\n' { '\n' } else { ' ' };
            plain.extend(token.bytes().map(blank));
            continue;
        }
        match (first, comma) {
            (',', _) => comma = (!"[{,:".contains(before)).then_some(plain.len()),
            ('}' | ']', Some(at)) => plain.replace_range(at..=at, " "),
            _ => {}
        }
        if !first.is_whitespace() {
            before = first;
            comma = comma.filter(|_| first == ',');
        }
        plain.push_str(token);
    }
    plain
}

/// Bytes of the comment that a text begins with; 0 if it begins with none.
fn comment_length(text: &str) -> usize {
    let end = if text.starts_with("//") {
        text.find('\n')
    } else if let Some(inside) = text.strip_prefix("/*") {
        inside.find("*/").map(|at| at + 4)
    } else {
        Some(0)
    };
    end.unwrap_or(text.len())
}

/// Bytes of the string that a text begins with, its quotes included.
fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    let end = text.bytes().skip(1).position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    });
    end.map_or(text.len(), |at| at + 2)
}

/// The name of a server with a `-` for every character that names may not have, unless another
/// server has that name.
fn free_name(name: &str, servers: &Map<String, Json>) -> String {
    match ServerName::similar(name) {
        Some(similar) if !servers.contains_key(similar.as_str()) => similar.to_string(),
        _ => name.to_owned(),
    }
}

fn table(name: &str, server: &Map<String, Json>, warnings: &mut Vec<String>) -> Table {
    let mut table = Table::new();
    for (key, value) in server {
        let renamed = RENAMED.iter().find(|(other, _)| other == key);
        let known = KEYS.iter().find(|known| *known == key);
        if let Some(known) = known.or(renamed.map(|(_, known)| known)) {
            let value = match *known {
                "args" | "env" | "headers" => to_value(&texts(value)),
                _ => to_value(value),
            };
            value.map(|value| table.insert((*known).to_owned(), value));
        } else if let ("disabled", Json::Bool(disabled)) = (key.as_str(), value) {
            table.insert("enabled".to_owned(), Toml::Boolean(!disabled));
        } else {
            warnings.push(format!("`{key}` of server `{name}` is not read from JSON"));
        }
    }
    table
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_trailing_commas_become_spaces() {
        let table = [
            ("{}", "{}"),
            (
                "{\"a\": 1, // one\n\"b\": 2}",
                "{\"a\": 1,       \n\"b\": 2}",
            ),
            ("// ä\n{}", "     \n{}"),
            ("{}//", "{}  "),
            ("{/* a,\n } */\"b\": 1}", "{     \n     \"b\": 1}"),
            ("[1,]", "[1 ]"),
            (
                "{\"a\": [1, 2 , /* x */ ], }",
                "{\"a\": [1, 2           ]  }",
            ),
            // Texts stay as they are.
            (
                "[\"// a\", \"/* b */\", \"c,]\"]",
                "[\"// a\", \"/* b */\", \"c,]\"]",
            ),
            ("[\"a\\\"//\", \"b\\\\\",]", "[\"a\\\"//\", \"b\\\\\" ]"),
            // Mistakes stay mistakes.
            ("[,]", "[,]"),
            ("[1,,]", "[1,,]"),
            ("{\"a\":,}", "{\"a\":,}"),
            ("{ / }", "{ / }"),
            ("{ /* }", "{     "),
            ("{\"a", "{\"a"),
            ("{\"a\\", "{\"a\\"),
        ];
        for (text, expected) in table {
            assert_eq!(plain_json(text), expected, "{text}");
        }
    }
}
