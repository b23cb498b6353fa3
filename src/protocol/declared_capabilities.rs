//! The capabilities that a client declares.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::extension::{TASKS_EXTENSION, UI_EXTENSION};

/// Maximum length of a client's capabilities, in bytes. They are stored for the client's lifetime.
pub const CAPABILITIES_BYTES_MAX: usize = 8 * 1024;

/// The capabilities that a client declared in `initialize`, verbatim. Cloning is cheap.
///
/// The gateway declares exactly these to a downstream server (B-CAP-01), or everything that it can
/// pass on to some client ([`DeclaredCapabilities::all`]) to a process that clients of any
/// capabilities share (B-SHARE-01).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredCapabilities(Arc<HashedMembers>);

#[derive(Debug, PartialEq, Eq)]
struct HashedMembers {
    /// Comes first because comparing hashes settles most comparisons.
    hash: u64,
    members: Map<String, Value>,
}

impl DeclaredCapabilities {
    /// Keeps the capabilities that affect server requests; everything else in `declared` is between
    /// the client and the gateway.
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
        Self::new(kept.into_iter().collect())
    }

    /// Everything that the gateway can pass on to some client: the union of what clients declare,
    /// except for extensions that are not widely known.
    pub fn all() -> Self {
        static ALL: LazyLock<DeclaredCapabilities> = LazyLock::new(|| {
            let all = json!({
                "elicitation": {"form": {}, "url": {}},
                "extensions": {UI_EXTENSION: {"mimeTypes": ["text/html;profile=mcp-app"]}},
                "roots": {"listChanged": true},
                "sampling": {"context": {}, "tools": {}},
            });
            let members = all.as_object().cloned();
            members.map_or_else(DeclaredCapabilities::default, DeclaredCapabilities::new)
        });
        ALL.clone()
    }

    fn new(members: Map<String, Value>) -> Self {
        let hash = BuildHasherDefault::<DefaultHasher>::new().hash_one(&members);
        Self(Arc::new(HashedMembers { hash, members }))
    }

    pub fn has_sampling(&self) -> bool {
        self.as_map().contains_key("sampling")
    }

    pub fn has_elicitation(&self) -> bool {
        self.as_map().contains_key("elicitation")
    }

    pub fn has_roots(&self) -> bool {
        self.as_map().contains_key("roots")
    }

    /// Whether a server can send requests to this client, which must then reach exactly this
    /// client.
    pub fn can_be_asked(&self) -> bool {
        self.has_sampling() || self.has_elicitation() || self.has_roots()
    }

    /// Whether the declaration is empty from a server's point of view: no requests can be sent to
    /// the client, and it declares no extension that affects them.
    pub fn is_plain(&self) -> bool {
        !self.can_be_asked() && self.extensions().next().is_none()
    }

    /// Whether a server to which [`Self::all`] was declared knows everything that this client
    /// declares.
    pub fn is_within_all(&self) -> bool {
        self.extensions().all(|name| name == UI_EXTENSION)
    }

    /// Whether this client declares everything that [`Self::all`] declares.
    pub fn covers_all(&self) -> bool {
        let all = Self::all();
        let mut all = all.as_map().iter();
        all.all(|(name, wanted)| self.as_map().get(name).is_some_and(|it| covers(it, wanted)))
    }

    /// The extensions that affect what a server offers. Tasks can also be followed on a shared
    /// connection.
    fn extensions(&self) -> impl Iterator<Item = &str> {
        let declared = |name| self.as_map().get(name).and_then(Value::as_object);
        let declared = [declared("extensions"), declared("experimental")];
        let names = declared.into_iter().flatten().flat_map(Map::keys);
        names
            .map(String::as_str)
            .filter(|name| *name != TASKS_EXTENSION)
    }

    /// The capabilities object to declare to a downstream server.
    pub fn as_map(&self) -> &Map<String, Value> {
        &self.0.members
    }
}

/// Whether a declaration has all members and elements of another.
fn covers(declared: &Value, wanted: &Value) -> bool {
    match (declared, wanted) {
        (Value::Object(declared), Value::Object(wanted)) => {
            let mut wanted = wanted.iter();
            wanted.all(|(name, it)| declared.get(name).is_some_and(|has| covers(has, it)))
        }
        (Value::Array(declared), Value::Array(wanted)) => {
            wanted.iter().all(|it| declared.contains(it))
        }
        (declared, wanted) => declared == wanted,
    }
}

impl Default for DeclaredCapabilities {
    fn default() -> Self {
        Self::new(Map::new())
    }
}

impl Hash for DeclaredCapabilities {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash.hash(state);
    }
}

impl Serialize for DeclaredCapabilities {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_map().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for DeclaredCapabilities {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Map::deserialize(deserializer).map(Self::new)
    }
}

#[cfg(test)]
mod tests {
    use std::hash::RandomState;

    use serde_json::json;

    use super::*;

    fn declared(value: &Value) -> DeclaredCapabilities {
        DeclaredCapabilities::from_declared(value.as_object().unwrap())
    }

    #[test]
    fn equal_capabilities_have_equal_hashes_in_any_order() {
        let one = declared(&json!({"roots": {}, "sampling": {"tools": {}, "context": {}}}));
        let two = declared(&json!({"sampling": {"context": {}, "tools": {}}, "roots": {}}));
        let other = declared(&json!({"roots": {}}));
        assert_eq!(one, two);
        assert_ne!(one, other);
        let hashes = RandomState::new();
        assert_eq!(hashes.hash_one(&one), hashes.hash_one(&two));
        assert_ne!(hashes.hash_one(&one), hashes.hash_one(&other));
    }

    #[test]
    fn only_unknown_extensions_exceed_what_a_shared_process_is_declared() {
        let all = DeclaredCapabilities::all();
        assert!(all.is_within_all() && all.can_be_asked() && !all.is_plain());
        assert_eq!(all, DeclaredCapabilities::from_declared(all.as_map()));
        let table = [
            (json!({}), true, true),
            (
                json!({"sampling": {}, "roots": {}, "elicitation": {}}),
                false,
                true,
            ),
            (json!({"extensions": {UI_EXTENSION: {}}}), false, true),
            (json!({"extensions": {TASKS_EXTENSION: {}}}), true, true),
            (json!({"extensions": {"com.example/x": {}}}), false, false),
            (json!({"experimental": {"x": {}}}), false, false),
            (json!({"experimental": {}}), true, true),
        ];
        for (capabilities, is_plain, is_within) in table {
            let found = declared(&capabilities);
            let found = (found.is_plain(), found.is_within_all());
            assert_eq!(found, (is_plain, is_within), "{capabilities}");
            assert!(!declared(&capabilities).covers_all(), "{capabilities}");
        }
        let mut more = all.as_map().clone();
        more["sampling"]["images"] = json!({});
        let more = DeclaredCapabilities::from_declared(&more);
        assert!(all.covers_all() && more.covers_all());
    }

    #[test]
    fn copies_share_their_memory() {
        let one = declared(&json!({"sampling": {}}));
        let copy = one.clone();
        assert!(std::ptr::eq(one.as_map(), copy.as_map()));
    }
}
