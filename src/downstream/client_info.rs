//! `clientInfo` of a client, kept as the client wrote it.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::protocol::json;

/// Longest `clientInfo` that is kept, in bytes.
const CLIENT_INFO_MAX: usize = 4096;

/// Longest client name that is shown, in bytes.
const CLIENT_NAME_MAX: usize = 64;

/// `clientInfo` as the client wrote it: passed on and displayed, never used for decisions
/// (S-LIFE-18). All values compare equal, so that clients share connections regardless of their
/// names.
#[derive(Clone, Debug, Default)]
pub struct ClientInfo(Option<Arc<Known>>);

#[derive(Debug)]
struct Known {
    text: Box<RawValue>,
    /// The client's name, truncated.
    name: Option<Arc<str>>,
    /// Whether the object has the members that every revision requires.
    is_complete: bool,
}

impl ClientInfo {
    /// Keeps the object unless it is too long.
    pub fn new(text: Option<Box<RawValue>>) -> Self {
        let text = text.filter(|text| text.get().len() <= CLIENT_INFO_MAX);
        Self(text.map(|text| {
            let member = |name| json::member(text.get(), name).and_then(json::text);
            let name = member("name");
            let is_complete = name.is_some() && member("version").is_some();
            let name = name.and_then(|name| {
                let end = name.floor_char_boundary(CLIENT_NAME_MAX);
                name.get(..end).map(Arc::from)
            });
            Arc::new(Known {
                text,
                name,
                is_complete,
            })
        }))
    }

    /// The object exactly as the client sent it.
    pub fn as_str(&self) -> Option<&str> {
        self.0.as_ref().map(|known| known.text.get())
    }

    /// The object for servers, which may reject one without a name and version: `None` if
    /// incomplete.
    pub(crate) fn for_servers(&self) -> Option<&str> {
        let known = self.0.as_ref().filter(|known| known.is_complete);
        known.map(|known| known.text.get())
    }

    /// The client's name, truncated.
    pub fn name(&self) -> Option<Arc<str>> {
        self.0.as_ref()?.name.clone()
    }
}

impl PartialEq for ClientInfo {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ClientInfo {}

impl Hash for ClientInfo {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Serialize for ClientInfo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.0.as_ref().map(|known| &known.text);
        text.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ClientInfo {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(Self::new)
    }
}
