//! What the gateway says of itself in `initialize`. Pure.

use bytes::Bytes;
use serde_json::json;

use super::record::SessionRecord;
use crate::catalog::Snapshot;
use crate::protocol::{Request, Revision};

/// The answer to `initialize`. The gateway offers every capability; what the owner of an item
/// lacks is answered per request (design: "Capabilities").
pub(crate) fn initialize_answer(
    request: &Request,
    record: &SessionRecord,
    catalog: &Snapshot,
) -> Bytes {
    let mut capabilities = json!({
        "tools": { "listChanged": true },
        "prompts": { "listChanged": true },
        "resources": { "listChanged": true, "subscribe": true },
        "logging": {},
    });
    if record.revision >= Revision::V2025_03_26 {
        capabilities["completions"] = json!({});
    }
    let mut result = json!({
        "protocolVersion": record.revision,
        "capabilities": capabilities,
        "serverInfo": { "name": "mcpvisor", "version": env!("CARGO_PKG_VERSION") },
    });
    if record.revision >= Revision::V2025_06_18 {
        result["serverInfo"]["title"] = json!("mcpvisor");
    }
    if let Some(instructions) = catalog.instructions() {
        result["instructions"] = json!(instructions);
    }
    let id = request.id.as_str();
    Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#
    ))
}
