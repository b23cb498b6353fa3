//! Builds the report to an API about its servers: their tools and resources.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::pluggedin::InactiveTools;
use crate::catalog::{Item, ItemKind, ServerPart};

/// The content of the reports about a server; equal content needs no new report.
#[derive(PartialEq)]
pub(super) struct Reported {
    part: Arc<ServerPart>,
    /// Native names of tools.
    hidden: HashSet<String>,
}

impl Reported {
    pub(super) fn new(part: Arc<ServerPart>, id: &str, inactive: &InactiveTools) -> Self {
        let hidden = inactive.get(id).cloned().unwrap_or_default();
        Self { part, hidden }
    }

    /// The reports about the server, which the API knows by `id`. Hidden tools are not reported:
    /// that would show them again.
    pub(super) fn reports(&self, id: &str) -> Vec<Report> {
        let items = |kind| self.part.items(kind).iter();
        let tools = items(ItemKind::Tools).filter(|tool| !self.hidden.contains(tool.native()));
        let tools = tools.filter_map(|tool| tool_report(tool, id)).collect();
        let resources = items(ItemKind::Resources).filter_map(|item| resource_report(item, id));
        let tools = batches("api/tools", "tools", tools);
        let resources = batches("api/resources", "resources", resources.collect());
        [tools, resources].concat()
    }
}

/// Maximum number of items in one request.
const ITEMS_MAX: usize = 100;

/// One request of a report.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Report {
    pub(super) path: &'static str,
    pub(super) body: Value,
}

fn tool_report(tool: &Item, id: &str) -> Option<Value> {
    let listed: Value = serde_json::from_slice(tool.raw().as_bytes()).ok()?;
    Some(json!({
        "name": tool.native(),
        "description": listed["description"],
        "toolSchema": listed["inputSchema"],
        "mcp_server_uuid": id,
        "status": "ACTIVE",
    }))
}

fn resource_report(resource: &Item, id: &str) -> Option<Value> {
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
