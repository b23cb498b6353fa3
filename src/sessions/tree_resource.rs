//! `mcpvisor://tree`: the state of the gateway as a resource that clients can read.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use serde_json::{Value, json};

use crate::protocol::{Method, RawJson, Request};
use crate::publisher::TREE_URI;

const MIME: &str = "application/json";

/// Returns the state of the gateway, which must contain no secrets.
pub type TreeSource = Arc<dyn Fn() -> Value + Send + Sync>;

/// The source of the tree, if the resource is enabled.
#[derive(Default)]
pub(crate) struct TreeResource(ArcSwapOption<TreeSource>);

impl TreeResource {
    pub(crate) fn configure(&self, source: Option<TreeSource>) {
        self.0.store(source.map(Arc::new));
    }

    /// Returns the result of a request that reads the tree; `None` for other requests.
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
