//! What an API is told of the servers that come from it: their tools and resources. Pure.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::pluggedin::InactiveTools;
use crate::catalog::{Item, ItemKind, ServerPart};

/// Items of one request.
const ITEMS_MAX: usize = 100;

/// One request of a report.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Report {
    pub(super) path: &'static str,
    pub(super) body: Value,
}

/// The reports about a server, which the API knows by `id`. A tool that is hidden is not reported:
/// that would show it again.
pub(super) fn reports(part: &ServerPart, id: &str, inactive: &InactiveTools) -> Vec<Report> {
    let none = HashSet::new();
    let hidden = inactive.get(id).unwrap_or(&none);
    let items = |kind| part.items(kind).iter();
    let tools = items(ItemKind::Tools).filter(|tool| !hidden.contains(tool.native()));
    let tools = tools.filter_map(|tool| self::tool(tool, id)).collect();
    let resources = items(ItemKind::Resources).filter_map(|item| resource(item, id));
    let tools = batches("api/tools", "tools", tools);
    let resources = batches("api/resources", "resources", resources.collect());
    [tools, resources].concat()
}

fn tool(tool: &Item, id: &str) -> Option<Value> {
    let listed: Value = serde_json::from_slice(tool.raw().as_bytes()).ok()?;
    Some(json!({
        "name": tool.native(),
        "description": listed["description"],
        "toolSchema": listed["inputSchema"],
        "mcp_server_uuid": id,
        "status": "ACTIVE",
    }))
}

fn resource(resource: &Item, id: &str) -> Option<Value> {
    let listed: Value = serde_json::from_slice(resource.raw().as_bytes()).ok()?;
    Some(json!({
        "uri": resource.native(),
        "name": listed["name"],
        "description": listed["description"],
        "mime_type": listed["mimeType"],
        "mcp_server_uuid": id,
    }))
}

fn batches(path: &'static str, member: &str, items: Vec<Value>) -> Vec<Report> {
    let batches = items.chunks(ITEMS_MAX);
    let batches = batches.map(|items| Report {
        path,
        body: json!({ member: items }),
    });
    batches.collect()
}
