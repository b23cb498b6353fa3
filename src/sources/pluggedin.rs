//! Converts responses of the plugged.in API into servers in the format of a client's file.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use crate::id::ServerName;

/// Maximum number of servers in one response.
const SERVERS_MAX: usize = 1000;

/// The capability of a profile that shows and hides individual tools.
const TOOLS_MANAGEMENT: &str = "TOOLS_MANAGEMENT";

/// Hidden tools, by the id of their server.
pub(super) type InactiveTools = HashMap<String, HashSet<String>>;

/// The servers of a response.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ListedServers {
    /// In the format of a client's file: `{"mcpServers": {…}}`.
    pub(super) file: Value,
    /// One sentence for each skipped server, without any value of it.
    pub(super) left_out: Vec<String>,
}

/// Reads the list of servers. An invalid server does not affect the others.
///
/// # Errors
///
/// Returns why it is not a list of servers.
pub(super) fn servers(answer: &Value, inactive: &InactiveTools) -> Result<ListedServers, String> {
    let list = answer.as_array().or_else(|| answer["servers"].as_array());
    let list = list.ok_or("the response has no array of servers")?;
    if list.len() > SERVERS_MAX {
        return Err(format!("the response has more than {SERVERS_MAX} servers"));
    }
    let mut servers = Map::new();
    let mut left_out = Vec::new();
    for (index, entry) in list.iter().enumerate() {
        match server(entry, inactive) {
            Ok(server) => {
                if let Some(name) = free_name(entry, index, &servers) {
                    servers.insert(name, server);
                }
            }
            Err(why) => left_out.push(format!("server {} is skipped: {why}", index + 1)),
        }
    }
    let file = json!({ "mcpServers": servers });
    Ok(ListedServers { file, left_out })
}

/// A valid and unique name derived from a server's name.
fn free_name(entry: &Value, index: usize, taken: &Map<String, Value>) -> Option<String> {
    let is_taken = |name: &str| taken.contains_key(name);
    let named = entry["name"].as_str();
    let named = named.and_then(|name| ServerName::similar_free(name, is_taken));
    let name =
        named.or_else(|| ServerName::similar_free(&format!("server-{}", index + 1), is_taken));
    name.map(|name| name.to_string())
}

fn server(entry: &Value, inactive: &InactiveTools) -> Result<Value, String> {
    let entry = entry.as_object().ok_or("it is not an object")?;
    let id = text(entry, "uuid")?.ok_or("it has no `uuid`")?;
    let mut server = Map::from_iter([("id".to_owned(), json!(id))]);
    let kind = text(entry, "type")?.unwrap_or("STDIO");
    match kind.to_ascii_uppercase().as_str() {
        "STDIO" => {
            let command = text(entry, "command")?.ok_or("it has no `command`")?;
            server.insert("command".to_owned(), json!(command));
            server.insert("args".to_owned(), json!(texts(entry, "args")?));
            server.insert(
                "env".to_owned(),
                json!(named_texts(entry.get("env"), "env")?),
            );
        }
        kind @ ("SSE" | "STREAMABLE_HTTP") => {
            let transport = if kind == "SSE" { "sse" } else { "http" };
            let url = text(entry, "url")?.ok_or("it has no `url`")?;
            let options = entry.get("streamableHTTPOptions");
            let options = options.and_then(|options| options.get("headers"));
            let mut headers = named_texts(entry.get("headers"), "headers")?;
            headers.extend(named_texts(options, "streamableHTTPOptions.headers")?);
            server.insert("type".to_owned(), json!(transport));
            server.insert("url".to_owned(), json!(url));
            server.insert("headers".to_owned(), json!(headers));
        }
        _ => return Err("its `type` is not STDIO, SSE or STREAMABLE_HTTP".to_owned()),
    }
    if text(entry, "status")?.is_some_and(|status| !status.eq_ignore_ascii_case("active")) {
        server.insert("disabled".to_owned(), json!(true));
    }
    if let Some(hidden) = inactive.get(id) {
        let mut globs: Vec<String> = hidden.iter().map(|name| globset::escape(name)).collect();
        globs.sort();
        let own_keys = json!({ "tools": { "deny": globs } });
        server.insert("x-mcpvisor".to_owned(), own_keys);
    }
    Ok(server.into())
}

/// Returns an optional string member; `null` counts as absent.
fn text<'v>(entry: &'v Map<String, Value>, member: &str) -> Result<Option<&'v str>, String> {
    match entry.get(member) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("its `{member}` is not a string")),
    }
}

fn texts<'v>(entry: &'v Map<String, Value>, member: &str) -> Result<Vec<&'v str>, String> {
    let wrong = || format!("its `{member}` is not an array of strings");
    match entry.get(member) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(texts)) => {
            let texts = texts.iter().map(|text| text.as_str().ok_or_else(wrong));
            texts.collect()
        }
        Some(_) => Err(wrong()),
    }
}

fn named_texts(texts: Option<&Value>, member: &str) -> Result<Map<String, Value>, String> {
    match texts {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(texts)) if texts.values().all(Value::is_string) => Ok(texts.clone()),
        Some(_) => Err(format!(
            "its `{member}` is not an object with string values"
        )),
    }
}

/// Whether the profile of the key hides individual tools, and expects reports of existing ones.
pub(super) fn manages_tools(capabilities: &Value) -> bool {
    let capabilities = capabilities["profileCapabilities"].as_array();
    let mut capabilities = capabilities.into_iter().flatten();
    capabilities.any(|capability| capability == TOOLS_MANAGEMENT)
}

/// Reads the list of hidden tools, under `results` or `tools`, or at the top level.
///
/// # Errors
///
/// Returns why it is not such a list.
pub(super) fn inactive_tools(answer: &Value) -> Result<InactiveTools, String> {
    let list = ["results", "tools"]
        .iter()
        .find_map(|at| answer[*at].as_array());
    let list = list.or_else(|| answer.as_array());
    let list = list.ok_or("the response has no array of tools")?;
    let mut inactive = InactiveTools::new();
    for tool in list {
        let is_active = tool["status"]
            .as_str()
            .is_some_and(|status| status == "ACTIVE");
        let named = tool["mcp_server_uuid"].as_str().zip(tool["name"].as_str());
        if let Some((server, name)) = named.filter(|_| !is_active) {
            let tools = inactive.entry(server.to_owned()).or_default();
            tools.insert(name.to_owned());
        }
    }
    Ok(inactive)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(list: Value) -> (Value, Vec<String>) {
        let servers = servers(&list, &InactiveTools::new()).unwrap();
        (servers.file["mcpServers"].clone(), servers.left_out)
    }

    #[test]
    fn each_kind_of_server_is_read() {
        let (servers, left_out) = file(json!([
            {"uuid": "u-1", "name": "my files", "command": "npx", "args": ["-y", "p"],
             "env": {"A": "${B}"}, "url": null, "type": null},
            {"uuid": "u-2", "name": "docs", "type": "STREAMABLE_HTTP", "url": "https://a.example/mcp",
             "streamableHTTPOptions": {"headers": {"X-A": "1"}, "sessionId": "s"}},
            {"uuid": "u-3", "name": "docs", "type": "SSE", "url": "https://a.example/sse",
             "status": "INACTIVE"},
        ]));
        assert_eq!(left_out, [""; 0]);
        let expected = json!({
            "my-files": {"id": "u-1", "command": "npx", "args": ["-y", "p"], "env": {"A": "${B}"}},
            "docs": {"id": "u-2", "type": "http", "url": "https://a.example/mcp",
                     "headers": {"X-A": "1"}},
            "docs-2": {"id": "u-3", "type": "sse", "url": "https://a.example/sse", "headers": {},
                       "disabled": true},
        });
        assert_eq!(servers, expected);
    }

    #[test]
    fn an_invalid_server_affects_no_other_and_reveals_no_value() {
        let (servers, left_out) = file(json!([
            "text",
            {"name": "a", "command": "x"},
            {"uuid": "1", "type": "SSE"},
            {"uuid": "2"},
            {"uuid": "3", "command": "x", "args": "SECRET"},
            {"uuid": "4", "command": "x", "env": {"K": ["SECRET"]}},
            {"uuid": "5", "type": "CARRIER PIGEON", "url": "https://a.example/"},
            {"uuid": 6, "command": "x"},
            {"uuid": "7", "name": "→", "command": "x"},
        ]));
        let names: Vec<&String> = servers.as_object().unwrap().keys().collect();
        assert_eq!(names, ["server-9"]);
        assert_eq!(left_out.len(), 8, "{left_out:?}");
        assert!(!left_out.concat().contains("SECRET"), "{left_out:?}");
    }

    #[test]
    fn a_response_that_is_not_a_list_is_refused() {
        for answer in [json!({}), json!(null), json!("a"), json!({"error": "x"})] {
            assert!(servers(&answer, &InactiveTools::new()).is_err(), "{answer}");
            assert!(inactive_tools(&answer).is_err(), "{answer}");
        }
        let many = Value::Array(vec![json!({}); SERVERS_MAX + 1]);
        assert!(servers(&many, &InactiveTools::new()).is_err());
    }

    #[test]
    fn inactive_tools_are_hidden_by_exact_name() {
        let answer = json!({"results": [
            {"mcp_server_uuid": "u", "name": "b*", "status": "INACTIVE"},
            {"mcp_server_uuid": "u", "name": "a", "status": "INACTIVE"},
            {"mcp_server_uuid": "u", "name": "c", "status": "ACTIVE"},
            {"name": "d"},
        ]});
        let inactive = inactive_tools(&answer).unwrap();
        let list = json!([{"uuid": "u", "name": "n", "command": "x"}]);
        let file = servers(&list, &inactive).unwrap().file;
        let own_keys = &file["mcpServers"]["n"]["x-mcpvisor"];
        assert_eq!(*own_keys, json!({"tools": {"deny": ["a", "b[*]"]}}));
    }

    #[test]
    fn the_profile_enables_tool_management() {
        assert!(manages_tools(
            &json!({"profileCapabilities": ["X", "TOOLS_MANAGEMENT"]})
        ));
        for without in [json!({"profileCapabilities": []}), json!({}), json!(null)] {
            assert!(!manages_tools(&without));
        }
    }
}
