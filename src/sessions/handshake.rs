//! The gateway's answers to `initialize` and `server/discover`.

use serde_json::{Map, Value, json};

use crate::bridge::meta::SERVER_INFO;
use crate::bridge::projection::project_implementation;
use crate::calls::tasks;
use crate::catalog::{EXTENSIONS, ServerPart, Snapshot};
use crate::protocol::{RawJson, Revision};

/// Returns the result of `initialize`.
pub(crate) fn initialize_result(revision: Revision, catalog: &Snapshot) -> &RawJson {
    let build = || result(revision, catalog, &capabilities(revision, catalog));
    catalog.handshake(revision, build)
}

/// Returns the result of `server/discover` (S-LIFE-08).
pub(crate) fn discovery(catalog: &Snapshot) -> Value {
    let mut result = json!({
        "supportedVersions": [Revision::V2026_07_28],
        "capabilities": capabilities(Revision::V2026_07_28, catalog),
    });
    if let Some(instructions) = catalog.instructions() {
        result["instructions"] = json!(instructions);
    }
    let server = catalog.one_server();
    let mut meta = server.map(|it| it.part.meta.clone()).unwrap_or_default();
    meta.shift_remove(SERVER_INFO);
    let info = server.and_then(|it| project_implementation(&it.part.info, Revision::NEWEST));
    meta.extend(info.map(|info| (SERVER_INFO.to_owned(), info)));
    if !meta.is_empty() {
        result["_meta"] = Value::Object(meta);
    }
    result
}

/// Returns the capabilities of the gateway, or of the only server of the client's view. Requests
/// for a capability that the item's server lacks are refused individually (B-CAP-02).
fn capabilities(revision: Revision, catalog: &Snapshot) -> Value {
    let mut capabilities = match catalog.one_server() {
        Some(server) => declared(&server.part),
        None => offered(catalog),
    };
    if revision < Revision::V2025_03_26 {
        capabilities.shift_remove("completions");
    }
    let mut capabilities = Value::Object(capabilities);
    tasks::offer(&mut capabilities, catalog, revision);
    capabilities
}

/// Returns the gateway's capabilities: all standard ones, and the extensions of its servers.
fn offered(catalog: &Snapshot) -> Map<String, Value> {
    let own = [
        ("tools", json!({ "listChanged": true })),
        ("prompts", json!({ "listChanged": true })),
        (
            "resources",
            json!({ "listChanged": true, "subscribe": true }),
        ),
        ("logging", json!({})),
        ("completions", json!({})),
    ];
    let extensions = EXTENSIONS.map(|member| (member, Value::Object(catalog.extensions(member))));
    let extensions = extensions.into_iter().filter(|(_, all)| *all != json!({}));
    let all = own.into_iter().chain(extensions);
    all.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Returns the capabilities that a server declares, without tasks, which `tasks::offer` adds.
fn declared(part: &ServerPart) -> Map<String, Value> {
    let known = part
        .capabilities
        .iter()
        .filter(|(name, _)| *name != "tasks");
    let shown = known.map(|(name, value)| {
        let value = match (EXTENSIONS.contains(&&**name), value) {
            (true, _) => {
                let all = part.extensions(name);
                Value::Object(all.map(|(name, it)| (name.clone(), it.clone())).collect())
            }
            (false, Value::Object(_)) => value.clone(),
            // Some libraries write an empty object differently, which strict clients refuse.
            (false, _) => json!({}),
        };
        (name.clone(), value)
    });
    shown.collect()
}

/// Returns the result of `initialize` for a client that gets no session, without capabilities that
/// depend on events.
pub(crate) fn sessionless_initialize_result(revision: Revision, catalog: &Snapshot) -> RawJson {
    let all = capabilities(revision, catalog);
    let served = ["tools", "prompts", "resources", "completions"];
    let served = served.iter().filter(|name| all.get(**name).is_some());
    let served: Map<String, Value> = served.map(|name| ((*name).to_owned(), json!({}))).collect();
    result(revision, catalog, &Value::Object(served))
}

/// Returns the gateway's `serverInfo` for a revision.
pub(crate) fn server_info(revision: Revision) -> Value {
    let mut info = json!({ "name": "mcpvisor", "version": env!("CARGO_PKG_VERSION") });
    if revision >= Revision::V2025_06_18 {
        info["title"] = json!("mcpvisor");
    }
    info
}

fn result(revision: Revision, catalog: &Snapshot, capabilities: &Value) -> RawJson {
    let server = catalog.one_server();
    let info = server.and_then(|server| project_implementation(&server.part.info, revision));
    let mut result = json!({
        "protocolVersion": revision,
        "capabilities": capabilities,
        "serverInfo": info.unwrap_or_else(|| server_info(revision)),
    });
    if let Some(instructions) = catalog.instructions() {
        result["instructions"] = json!(instructions);
    }
    let mut meta = server.map(|it| it.part.meta.clone()).unwrap_or_default();
    // In the older era, `serverInfo` has this.
    meta.shift_remove(SERVER_INFO);
    if !meta.is_empty() {
        result["_meta"] = Value::Object(meta);
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
