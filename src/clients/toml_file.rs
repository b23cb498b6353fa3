//! Edits the servers in a client's TOML file.

use serde_json::Value;
use toml_edit::{DocumentMut, InlineTable, Item, Table, TableLike, Value as Toml};

use crate::config::json_of_toml;

fn parse(text: &str, key: &str) -> Result<DocumentMut, String> {
    let parsed: Result<DocumentMut, toml_edit::TomlError> = text.parse();
    let document = parsed.map_err(|error| format!("invalid TOML: {}", error.message()))?;
    match document.get(key) {
        Some(servers) if !servers.is_table_like() => Err(format!("`{key}` is not a table")),
        _ => Ok(document),
    }
}

pub(super) fn entries(text: &str, key: &str) -> Result<Vec<(String, Value)>, String> {
    let document = parse(text, key)?;
    let servers = document.get(key).and_then(Item::as_table_like);
    let servers = servers.into_iter().flat_map(TableLike::iter);
    Ok(servers
        .map(|(name, server)| (name.to_owned(), json_of_toml(server)))
        .collect())
}

/// A value without the members that TOML cannot represent.
fn toml_of(json: &Value) -> Option<Toml> {
    Some(match json {
        Value::Null => return None,
        Value::Bool(flag) => (*flag).into(),
        Value::Number(number) => match number.as_i64() {
            Some(number) => number.into(),
            None => number.as_f64()?.into(),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(values) => values.iter().filter_map(toml_of).collect(),
        Value::Object(members) => {
            let members = members.iter();
            let members = members.filter_map(|(name, value)| Some((name, toml_of(value)?)));
            Toml::InlineTable(members.collect::<InlineTable>())
        }
    })
}

pub(super) fn with(text: &str, key: &str, name: &str, entry: &Value) -> Result<String, String> {
    let mut document = parse(text, key)?;
    let mut server = Table::new();
    for (member, value) in entry.as_object().into_iter().flatten() {
        if let Some(value) = toml_of(value) {
            server.insert(member, Item::Value(value));
        }
    }
    let servers = document.entry(key).or_insert_with(|| {
        let mut servers = Table::new();
        servers.set_implicit(true);
        Item::Table(servers)
    });
    if let Some(servers) = servers.as_table_like_mut() {
        servers.insert(name, Item::Table(server));
    }
    Ok(document.to_string())
}

pub(super) fn without(text: &str, key: &str, name: &str) -> Result<String, String> {
    let mut document = parse(text, key)?;
    let servers = document.get_mut(key).and_then(Item::as_table_like_mut);
    if let Some(servers) = servers {
        servers.remove(name);
    }
    Ok(document.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const KEY: &str = "mcp_servers";

    #[test]
    fn an_entry_is_put_in_and_taken_out_and_nothing_else_changes() {
        let entry = json!({"url": "http://127.0.0.1:12006/mcp"});
        let added = "[mcp_servers.mcpvisor]\nurl = \"http://127.0.0.1:12006/mcp\"\n";
        let before =
            "# mine\nmodel = \"x\" # best\n\n[mcp_servers.a]\ncommand = \"b\"\nargs = [\"c\"]\n";
        for (before, expected) in [
            ("", added.to_owned()),
            (before, format!("{before}\n{added}")),
        ] {
            let after = with(before, KEY, "mcpvisor", &entry).unwrap();
            assert_eq!(after, expected);
            assert_eq!(with(&after, KEY, "mcpvisor", &entry).unwrap(), after);
            let found = entries(&after, KEY).unwrap();
            assert!(found.contains(&("mcpvisor".to_owned(), entry.clone())));
            assert_eq!(without(&after, KEY, "mcpvisor").unwrap(), before);
        }
        let a = json!({"command": "b", "args": ["c"]});
        assert_eq!(entries(before, KEY).unwrap(), [("a".to_owned(), a)]);
    }

    #[test]
    fn a_file_of_another_shape_is_refused_without_its_values() {
        for text in ["mcp_servers = \"hidden\"", "a = hidden", "[\"hidden"] {
            let refused = with(text, KEY, "mcpvisor", &json!({})).unwrap_err();
            assert!(!refused.contains("hidden"), "{refused}");
        }
    }
}
