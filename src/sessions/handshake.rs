//! The gateway's answer to `initialize`.

use serde_json::{Value, json};

use crate::calls::tasks;
use crate::catalog::{EXTENSIONS, Snapshot};
use crate::protocol::{RawJson, Revision};

/// The result of `initialize`.
pub(crate) fn initialize_result(revision: Revision, catalog: &Snapshot) -> RawJson {
    result(revision, catalog, &capabilities(revision, catalog))
}

/// The result of `server/discover` (S-LIFE-08).
pub(crate) fn discovery(catalog: &Snapshot) -> Value {
    let mut result = json!({
        "supportedVersions": [Revision::V2026_07_28],
        "capabilities": capabilities(Revision::V2026_07_28, catalog),
    });
    if let Some(instructions) = catalog.instructions() {
        result["instructions"] = json!(instructions);
    }
    result
}

/// The gateway offers every capability; what the owner of an item lacks is answered per request
/// (B-CAP-02).
fn capabilities(revision: Revision, catalog: &Snapshot) -> Value {
    let mut capabilities = json!({
        "tools": { "listChanged": true },
        "prompts": { "listChanged": true },
        "resources": { "listChanged": true, "subscribe": true },
        "logging": {},
    });
    if revision >= Revision::V2025_03_26 {
        capabilities["completions"] = json!({});
    }
    for member in EXTENSIONS {
        let declared = catalog.extensions(member);
        if !declared.is_empty() {
            capabilities[member] = Value::Object(declared);
        }
    }
    tasks::offer(&mut capabilities, catalog, revision);
    capabilities
}

/// The same for a client that gets no session: it receives no events.
pub(crate) fn sessionless_initialize_result(revision: Revision, catalog: &Snapshot) -> RawJson {
    let mut capabilities = json!({ "tools": {}, "prompts": {}, "resources": {} });
    if revision >= Revision::V2025_03_26 {
        capabilities["completions"] = json!({});
    }
    result(revision, catalog, &capabilities)
}

/// Who the gateway is.
pub(crate) fn server_info(revision: Revision) -> Value {
    let mut info = json!({ "name": "mcpvisor", "version": env!("CARGO_PKG_VERSION") });
    if revision >= Revision::V2025_06_18 {
        info["title"] = json!("mcpvisor");
    }
    info
}

fn result(revision: Revision, catalog: &Snapshot, capabilities: &Value) -> RawJson {
    let mut result = json!({
        "protocolVersion": revision,
        "capabilities": capabilities,
        "serverInfo": server_info(revision),
    });
    if let Some(instructions) = catalog.instructions() {
        result["instructions"] = json!(instructions);
    }
    RawJson::from_value(&result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{CatalogSettings, merge};

    #[test]
    fn each_revision_gets_only_what_it_knows() {
        let catalog = merge(&[], &CatalogSettings::default());
        for revision in Revision::LEGACY {
            let result: Value = initialize_result(revision, &catalog).parse().unwrap();
            assert_eq!(result["protocolVersion"], revision.as_str());
            let completions = !result["capabilities"]["completions"].is_null();
            assert_eq!(completions, revision >= Revision::V2025_03_26);
            let title = !result["serverInfo"]["title"].is_null();
            assert_eq!(title, revision >= Revision::V2025_06_18);
        }
    }
}
