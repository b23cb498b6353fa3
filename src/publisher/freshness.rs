//! The age of the lists that clients see, stated in a list's `_meta` while a server's part of it is
//! not live.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::id::ServerName;
use crate::protocol::RawJson;

/// Key of the metadata in `_meta`.
pub(super) const KEY: &str = "io.mcpvisor/freshness";

/// Origin of a server's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum PartSource {
    /// It was never listed.
    Missing,
    /// Listed by the previous process.
    Stored,
    /// Listed by this process; the server is connected.
    Live,
    /// Listed by this process before its connection was lost.
    Away,
    /// Listed by this process before its idle connection was closed. Clients read the older word.
    #[serde(rename = "resting")]
    Idle,
}

/// Origin and time of a server's part.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartAge {
    pub(super) source: PartSource,
    /// Milliseconds since 1970.
    pub(super) listed_at: Option<u64>,
}

/// The members that lists carry while some part is not live.
#[derive(Debug)]
pub(crate) struct FreshnessMeta {
    /// An object that contains only the `_meta`.
    pub(crate) result: RawJson,
    /// The end of a response with a list, starting at the brace that closes the list's own members.
    pub(crate) tail: Bytes,
    /// The names of the servers that were never listed.
    pub(crate) missing: String,
    parts: BTreeMap<ServerName, PartAge>,
}

impl FreshnessMeta {
    /// Builds the metadata from the parts of all servers; `None` if all of them are live.
    pub(super) fn of(parts: BTreeMap<ServerName, PartAge>) -> Option<Self> {
        let is_live = |part: &PartAge| part.source == PartSource::Live;
        if parts.values().all(is_live) {
            return None;
        }
        let server = |(name, part): (&ServerName, &PartAge)| {
            let mut shown = json!({ "state": part.source });
            let listed_at = part.listed_at.and_then(|at| {
                let at = UNIX_EPOCH.checked_add(Duration::from_millis(at))?;
                Some(humantime::format_rfc3339_millis(at).to_string())
            });
            if let Some(listed_at) = listed_at {
                shown["listedAt"] = json!(listed_at);
            }
            (name.to_string(), shown)
        };
        let servers: Map<String, Value> = parts.iter().map(server).collect();
        let missing = parts
            .iter()
            .filter(|(_, part)| part.source == PartSource::Missing);
        let missing: Vec<&str> = missing.map(|(name, _)| name.as_str()).collect();
        let result = RawJson::from_value(&json!({ "_meta": { KEY: servers } }));
        let members = result.as_str().strip_prefix('{').unwrap_or_default();
        let tail = Bytes::from(format!(",{members}}}"));
        Some(Self {
            result,
            tail,
            missing: missing.join(", "),
            parts,
        })
    }

    /// Restricts the metadata to the visible servers.
    pub(super) fn within(&self, shows: impl Fn(&ServerName) -> bool) -> Option<Self> {
        let parts = self.parts.iter().filter(|(name, _)| shows(name));
        Self::of(parts.map(|(name, age)| (name.clone(), *age)).collect())
    }
}
