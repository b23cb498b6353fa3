//! The gateway's own items in the catalog.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;

use crate::catalog::{IngestLimits, ItemKind, NameSettings, ServerPart, Wrap};
use crate::id::ServerName;
use crate::protocol::RawJson;

/// The resource that shows the gateway's state.
pub const TREE_URI: &str = "mcpvisor://tree";

/// The gateway's own part of the catalog; a server with its name takes precedence.
pub(super) fn own_part() -> Option<(Arc<ServerPart>, NameSettings)> {
    let name = ServerName::try_new("mcpvisor").ok()?;
    let item = json!({
        "uri": TREE_URI,
        "name": "mcpvisor-tree",
        "title": "Supervision tree",
        "description": "What this gateway runs: its servers with their states, restarts, last exits, breakers and counters",
        "mimeType": "application/json",
    });
    let item = RawJson::try_new(Bytes::from(item.to_string())).ok()?;
    let part = ServerPart::new(name);
    let part = part.with_list(ItemKind::Resources, &[item], &IngestLimits::default());
    let names = NameSettings {
        wrap: Wrap::Never,
        ..NameSettings::default()
    };
    Some((Arc::new(part), names))
}
