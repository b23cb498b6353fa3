//! The capabilities that a client declares.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The extension by which clients without a session follow tasks.
pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// The capabilities that a client declared in `initialize`, as it wrote them.
///
/// A downstream server is told exactly these (B-CAP-01): they are part of
/// the key under which connections are shared, and two clients share one only if they declared
/// the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclaredCapabilities(Map<String, Value>);

impl DeclaredCapabilities {
    /// Keeps what concerns requests of a server; everything else in `declared` is between the
    /// client and the gateway.
    pub fn from_declared(declared: &Map<String, Value>) -> Self {
        let asks = [
            "sampling",
            "elicitation",
            "roots",
            "experimental",
            "extensions",
        ];
        let kept = declared
            .iter()
            .filter(|(name, value)| asks.contains(&name.as_str()) && value.is_object())
            .map(|(name, value)| (name.clone(), value.clone()));
        let mut kept: Vec<_> = kept.collect();
        kept.sort_by(|a, b| a.0.cmp(&b.0));
        Self(kept.into_iter().collect())
    }

    pub fn has_sampling(&self) -> bool {
        self.0.contains_key("sampling")
    }

    pub fn has_elicitation(&self) -> bool {
        self.0.contains_key("elicitation")
    }

    pub fn has_roots(&self) -> bool {
        self.0.contains_key("roots")
    }

    /// Whether a server may ask this client for anything, so that its requests must reach this
    /// very client.
    pub fn can_be_asked(&self) -> bool {
        self.has_sampling() || self.has_elicitation() || self.has_roots()
    }

    /// Whether a server serves this client as one that declares nothing: there is nothing to ask
    /// it for, and no extension that it knows.
    pub fn is_plain(&self) -> bool {
        let extends = |name: &str| {
            let declared = self.0.get(name).and_then(Value::as_object);
            let mut names = declared.into_iter().flat_map(Map::keys);
            // Tasks are followed on the connection of everybody as well.
            names.any(|name| name != TASKS_EXTENSION)
        };
        !self.can_be_asked() && !extends("extensions") && !extends("experimental")
    }

    /// The object to declare to a downstream server.
    pub fn as_map(&self) -> &Map<String, Value> {
        &self.0
    }
}

impl std::hash::Hash for DeclaredCapabilities {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        Value::Object(self.0.clone()).to_string().hash(state);
    }
}
