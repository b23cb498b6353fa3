//! The gateway's answer to `initialize`.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::calls::tasks;
use crate::catalog::{EXTENSIONS, Snapshot};
use crate::protocol::{RawJson, Request, Revision};

/// The results of `initialize`, one for each revision, made anew when the catalog changes.
#[derive(Default)]
pub(crate) struct InitializeResults(ArcSwapOption<CachedResults>);

struct CachedResults {
    catalog: Arc<Snapshot>,
    results: [RawJson; Revision::LEGACY.len()],
}

impl InitializeResults {
    /// The answer to `initialize`.
    pub(crate) fn answer(
        &self,
        request: &Request,
        revision: Revision,
        catalog: Arc<Snapshot>,
    ) -> Bytes {
        let current = self.0.load_full();
        let current =
            current.filter(|initialize_result| Arc::ptr_eq(&initialize_result.catalog, &catalog));
        let initialize_result = current.unwrap_or_else(|| {
            let results = Revision::LEGACY.map(|revision| result(revision, &catalog));
            let initialize_result = Arc::new(CachedResults { catalog, results });
            self.0.store(Some(initialize_result.clone()));
            initialize_result
        });
        let index = Revision::LEGACY
            .iter()
            .position(|known| *known == revision)
            .unwrap_or(0);
        let (id, result) = (
            request.id.as_str(),
            initialize_result.results[index].as_str(),
        );
        Bytes::from(format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#
        ))
    }
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
pub(crate) fn capabilities(revision: Revision, catalog: &Snapshot) -> Value {
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
    initialize_result(revision, catalog, &capabilities)
}

/// Who the gateway is.
pub(crate) fn server_info(revision: Revision) -> Value {
    let mut info = json!({ "name": "mcpvisor", "version": env!("CARGO_PKG_VERSION") });
    if revision >= Revision::V2025_06_18 {
        info["title"] = json!("mcpvisor");
    }
    info
}

fn result(revision: Revision, catalog: &Snapshot) -> RawJson {
    initialize_result(revision, catalog, &capabilities(revision, catalog))
}

fn initialize_result(revision: Revision, catalog: &Snapshot, capabilities: &Value) -> RawJson {
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
    use crate::protocol::Envelope;

    #[test]
    fn each_revision_gets_only_what_it_knows() {
        let frame = r#"{"jsonrpc":"2.0","id":"a","method":"initialize"}"#;
        let Ok(Envelope::Request(request)) = Envelope::parse(Bytes::from(frame)) else {
            panic!()
        };
        let catalog = Arc::new(merge(&[], &CatalogSettings::default()));
        let initialize_results = InitializeResults::default();
        for revision in Revision::LEGACY {
            let answer = initialize_results.answer(&request, revision, catalog.clone());
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            assert_eq!(answer["id"], "a");
            let result = &answer["result"];
            assert_eq!(result["protocolVersion"], revision.as_str());
            let completions = !result["capabilities"]["completions"].is_null();
            assert_eq!(completions, revision >= Revision::V2025_03_26);
            let title = !result["serverInfo"]["title"].is_null();
            assert_eq!(title, revision >= Revision::V2025_06_18);
        }
    }
}
