//! How old the lists are that clients see: said in a list's `_meta` while a server's part of it
//! is not live.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::id::ServerName;
use crate::protocol::RawJson;

/// Where it stands in `_meta`.
const KEY: &str = "io.mcpvisor/freshness";

/// How the part of a server came here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartSource {
    /// It was never listed.
    Missing,
    /// Listed by the process before this one.
    Stored,
    /// Listed by this process, and the server is there.
    Live,
    /// Listed by this process before its connection was lost.
    Away,
}

impl PartSource {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Stored => "stored",
            Self::Live => "live",
            Self::Away => "away",
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct PartAge {
    source: PartSource,
    /// In milliseconds since 1970.
    listed_at: Option<u64>,
}

/// The age of each server's part.
#[derive(Debug, Default)]
pub(crate) struct Freshness {
    parts: BTreeMap<ServerName, PartAge>,
}

/// The members that lists carry while some part is not live.
#[derive(Debug)]
pub(crate) struct FreshnessMeta {
    /// An object with nothing but the `_meta`.
    pub(crate) result: RawJson,
    /// The end of an answer with a list, from the brace on that ends the list's own members.
    pub(crate) tail: Bytes,
}

impl Freshness {
    /// The servers that there are from now on.
    pub(crate) fn arrange<'a>(&mut self, servers: impl Iterator<Item = &'a ServerName>) {
        let part = |name: &ServerName| {
            let known = self.parts.get(name).copied();
            let missing = PartAge {
                source: PartSource::Missing,
                listed_at: None,
            };
            (name.clone(), known.unwrap_or(missing))
        };
        self.parts = servers.map(part).collect();
    }

    /// The process before this one listed it last then.
    pub(crate) fn stored(&mut self, server: &ServerName, listed_at: u64) {
        let part = PartAge {
            source: PartSource::Stored,
            listed_at: Some(listed_at),
        };
        self.parts.insert(server.clone(), part);
    }

    /// It was listed now.
    pub(crate) fn listed(&mut self, server: &ServerName, listed_at: Option<u64>) {
        if let Some(part) = self.parts.get_mut(server) {
            let source = PartSource::Live;
            *part = PartAge { source, listed_at };
        }
    }

    /// Its connection is gone.
    pub(crate) fn away(&mut self, server: &ServerName) {
        if let Some(part) = self.parts.get_mut(server)
            && part.source == PartSource::Live
        {
            part.source = PartSource::Away;
        }
    }

    /// The members that lists carry; `None` when everything is live.
    pub(crate) fn stale(&self) -> Option<FreshnessMeta> {
        let is_live = |part: &PartAge| part.source == PartSource::Live;
        if self.parts.values().all(is_live) {
            return None;
        }
        let server = |(name, part): (&ServerName, &PartAge)| {
            let mut shown = json!({ "state": part.source.as_str() });
            let listed_at = part.listed_at.and_then(|at| {
                let at = UNIX_EPOCH.checked_add(Duration::from_millis(at))?;
                Some(humantime::format_rfc3339_millis(at).to_string())
            });
            if let Some(listed_at) = listed_at {
                shown["listedAt"] = json!(listed_at);
            }
            (name.to_string(), shown)
        };
        let servers: Map<String, Value> = self.parts.iter().map(server).collect();
        let result = RawJson::from_value(&json!({ "_meta": { KEY: servers } }));
        let members = result.as_str().strip_prefix('{').unwrap_or_default();
        let tail = Bytes::from(format!(",{members}}}"));
        Some(FreshnessMeta { result, tail })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(freshness: &Freshness) -> Option<Value> {
        let stale = freshness.stale()?;
        let meta = stale.result.parse::<Value>().unwrap()["_meta"].clone();
        let tail = format!("{{\"a\":{{\"b\":1{}", str::from_utf8(&stale.tail).unwrap());
        let whole: Value = serde_json::from_str(&tail).unwrap();
        assert_eq!(whole["a"]["_meta"], meta);
        Some(meta[KEY].clone())
    }

    #[test]
    fn each_part_says_where_it_comes_from_until_all_are_live() {
        let [a, b] = ["a", "b"].map(|name| ServerName::try_new(name).unwrap());
        let mut freshness = Freshness::default();
        assert_eq!(shown(&freshness), None);
        freshness.stored(&a, 1_000);
        freshness.arrange([&a, &b].into_iter());
        let stored = json!({"state": "stored", "listedAt": "1970-01-01T00:00:01.000Z"});
        let expected = json!({"a": stored, "b": {"state": "missing"}});
        assert_eq!(shown(&freshness), Some(expected));
        // Nothing is known yet that could have become old.
        freshness.away(&b);
        freshness.listed(&b, Some(3_000));
        let live = json!({"state": "live", "listedAt": "1970-01-01T00:00:03.000Z"});
        assert_eq!(shown(&freshness), Some(json!({"a": stored, "b": live})));
        freshness.listed(&a, Some(4_000));
        assert_eq!(shown(&freshness), None);
        freshness.away(&b);
        assert_eq!(shown(&freshness).unwrap()["b"]["state"], "away");
        freshness.arrange([&a].into_iter());
        assert_eq!(shown(&freshness), None);
    }
}
