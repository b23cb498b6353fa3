//! `mcpvisor://tree`: the state of the gateway as a resource that a client can read.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use serde_json::{Value, json};

use crate::protocol::{Method, RawJson, Request};
use crate::publisher::TREE_URI;

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
