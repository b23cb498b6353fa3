//! `mcpvisor://tree`: the state of the gateway as a resource that a client can read.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::catalog::{IngestLimits, ItemKind, NameSettings, ServerPart};
use crate::id::ServerName;
use crate::protocol::{Method, RawJson, Request};

pub const TREE_URI: &str = "mcpvisor://tree";

const MIME: &str = "application/json";

/// Tells the state of the gateway; nothing in it may be a secret.
pub type TreeSource = Arc<dyn Fn() -> Value + Send + Sync>;

/// Where the tree comes from, if it is offered.
#[derive(Default)]
pub(crate) struct TreeResource(ArcSwapOption<TreeSource>);

impl TreeResource {
    pub(crate) fn offer(&self, source: Option<TreeSource>) {
        self.0.store(source.map(Arc::new));
    }

    /// The result of a request that reads it; `None` for any other request.
    pub(crate) fn read(&self, request: &Request) -> Option<RawJson> {
        if request.method != Method::ResourcesRead || request.uri()? != TREE_URI {
            return None;
        }
        let source = self.0.load_full()?;
        let text = source().to_string();
        let content = json!({ "uri": TREE_URI, "mimeType": MIME, "text": text });
        Some(RawJson::from_value(&json!({ "contents": [content] })))
    }
}

/// The gateway's own share of the catalog; a server of its name wins over it.
pub(crate) fn own_part() -> Option<(Arc<ServerPart>, NameSettings)> {
    let name = ServerName::try_new("mcpvisor").ok()?;
    let item = json!({
        "uri": TREE_URI,
        "name": "mcpvisor-tree",
        "title": "Supervision tree",
        "description": "What this gateway runs: its servers with their states, restarts, last exits, breakers and counters",
        "mimeType": MIME,
    });
    let item = RawJson::try_new(Bytes::from(item.to_string())).ok()?;
    let part = ServerPart::new(name);
    let part = part.with_list(ItemKind::Resources, &[item], &IngestLimits::default());
    Some((Arc::new(part), NameSettings::default()))
}
