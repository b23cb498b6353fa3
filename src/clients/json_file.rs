//! Edits the servers in a client's JSON file, keeping comments if its editor allows them.

use jsonc_parser::cst::{CstObject, CstRootNode};
use serde_json::Value;

use crate::clients::known::Entries;
use crate::config::{JSON_OF_EDITORS, cst_input};

/// A parsed file.
struct JsonFile {
    root: CstRootNode,
    /// The object that contains the servers; `None` if there is none yet.
    servers: Option<CstObject>,
}

impl JsonFile {
    /// Parses a file; an empty text is an empty file.
    fn parse(text: &str, key: &str) -> Result<Self, String> {
        let root = CstRootNode::parse(text, &JSON_OF_EDITORS).map_err(|error| {
            let (line, column) = (error.line_display(), error.column_display());
            format!(
                "invalid JSON at line {line}, column {column}: {}",
                error.kind()
            )
        })?;
        let Some(whole) = root.value() else {
            return Ok(Self {
                root,
                servers: None,
            });
        };
        let whole = whole.as_object().ok_or("it is not a JSON object")?;
        let servers = match whole.get(key) {
            None => None,
            Some(servers) => {
                let servers = servers.object_value();
                Some(servers.ok_or_else(|| format!("`{key}` is not an object"))?)
            }
        };
        Ok(Self { root, servers })
    }
}

pub(super) fn entries(text: &str, key: &str) -> Result<Vec<(String, Value)>, String> {
    let file = JsonFile::parse(text, key)?;
    let servers = file.servers.iter().flat_map(CstObject::properties);
    let entry = |server: jsonc_parser::cst::CstObjectProp| {
        Some((server.decoded_name()?, server.value()?.to_serde_value()?))
    };
    Ok(servers.filter_map(entry).collect())
}

/// The servers of a project: `projects.FOLDER.mcpServers`.
pub(super) fn entries_of_project(text: &str, folder: &str) -> Result<Vec<(String, Value)>, String> {
    let projects = projects(text)?;
    let of_project = projects.into_iter().find(|(name, _)| name == folder);
    Ok(of_project.map(|(_, servers)| servers).unwrap_or_default())
}

/// Projects that have servers, and these.
pub(super) fn projects(text: &str) -> Result<Vec<(String, Entries)>, String> {
    let projects = entries(text, "projects")?.into_iter();
    let servers = |(folder, project): (String, Value)| {
        let servers = project["mcpServers"]
            .as_object()
            .filter(|it| !it.is_empty())?;
        let servers = servers
            .iter()
            .map(|(name, entry)| (name.clone(), entry.clone()));
        Some((folder, servers.collect()))
    };
    Ok(projects.filter_map(servers).collect())
}

/// Tools that OpenCode turns off for all agents, as `SERVER_TOOL` or a glob.
pub(super) fn tools_off(text: &str) -> Vec<String> {
    let tools = entries(text, "tools").unwrap_or_default().into_iter();
    let off = tools.filter(|(_, is_on)| *is_on == false);
    off.map(|(name, _)| name).collect()
}

pub(super) fn with(text: &str, key: &str, name: &str, entry: &Value) -> Result<String, String> {
    let file = JsonFile::parse(text, key)?;
    let servers = (file.servers).unwrap_or_else(|| {
        let whole = file.root.object_value_or_set();
        whole.object_value_or_set(key)
    });
    match servers.get(name) {
        Some(there) => there.set_value(cst_input(entry)),
        None => drop(servers.append(name, cst_input(entry))),
    }
    let text = file.root.to_string();
    Ok(if text.ends_with('\n') {
        text
    } else {
        text + "\n"
    })
}

pub(super) fn without(text: &str, key: &str, name: &str) -> Result<String, String> {
    let file = JsonFile::parse(text, key)?;
    let server = file.servers.and_then(|servers| servers.get(name));
    if let Some(server) = server {
        server.remove();
    }
    Ok(file.root.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_entry_is_put_in_and_taken_out_and_nothing_else_changes() {
        let entry = json!({"url": "http://127.0.0.1:12006/mcp"});
        let table = [
            (
                "",
                "{\n  \"mcpServers\": {\n    \"mcpvisor\": {\n      \"url\": \"http://127.0.0.1:12006/mcp\"\n    }\n  }\n}\n",
            ),
            (
                "{\n  // mine\n  \"a\": [1,\n 2],\n  \"mcpServers\": {\n    \"x\": { \"command\": \"y\" } // old\n  }\n}\n",
                "{\n  // mine\n  \"a\": [1,\n 2],\n  \"mcpServers\": {\n    \"x\": { \"command\": \"y\" }, // old\n    \"mcpvisor\": {\n      \"url\": \"http://127.0.0.1:12006/mcp\"\n    }\n  }\n}\n",
            ),
            (
                "{\"mcpServers\": {\"mcpvisor\": {\"command\": \"old\"}}}\n",
                "{\"mcpServers\": {\"mcpvisor\": {\n      \"url\": \"http://127.0.0.1:12006/mcp\"\n    }}}\n",
            ),
        ];
        for (before, expected) in table {
            let after = with(before, "mcpServers", "mcpvisor", &entry).unwrap();
            assert_eq!(after, expected);
            let again = with(&after, "mcpServers", "mcpvisor", &entry).unwrap();
            assert_eq!(again, after);
            let found = entries(&after, "mcpServers").unwrap();
            assert!(found.contains(&("mcpvisor".to_owned(), entry.clone())));
            let out = without(&after, "mcpServers", "mcpvisor").unwrap();
            let left: Vec<_> = entries(&out, "mcpServers").unwrap();
            assert!(left.iter().all(|(name, _)| name != "mcpvisor"), "{out}");
            assert_eq!(before.contains("// mine"), out.contains("// mine"));
        }
    }

    #[test]
    fn a_file_of_another_shape_is_refused_without_its_values() {
        let table = [
            ("[\"hidden\"]", "not a JSON object"),
            (
                "{\"mcpServers\": [\"hidden\"]}",
                "`mcpServers` is not an object",
            ),
            ("{\"mcpServers\": hidden}", "line 1, column 16"),
            ("{\"hidden\": 1", "line 1"),
        ];
        for (text, expected) in table {
            let refused = with(text, "mcpServers", "mcpvisor", &json!({})).unwrap_err();
            assert!(refused.contains(expected), "{refused}");
            assert!(!refused.contains("hidden"), "{refused}");
        }
    }
}
