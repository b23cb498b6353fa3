//! The lists of all servers as they were heard last, and who sees which.

use std::collections::HashMap;
use std::sync::Arc;

use crate::catalog::{self, CatalogSettings, NameSettings, ServerPart, Snapshot};
use crate::downstream::{ConnectionKey, ConnectionOwner, Viewer};
use crate::id::ServerName;
use crate::publisher::first_listing::FirstListWait;
use crate::publisher::freshness::{FreshnessMeta, PartAge, PartSource};
use crate::publisher::own_part::own_part;

/// The servers in config order, with their names; those that are missing are gone.
#[derive(Clone, Default)]
pub struct Arrangement {
    pub servers: Vec<(ServerName, NameSettings)>,
    pub catalog: CatalogSettings,
    pub first_list_wait: FirstListWait,
}

#[derive(Default)]
pub(super) struct ServerParts {
    /// `None` until the servers are known.
    arrangement: Option<Arrangement>,
    shared: HashMap<ServerName, SharedPart>,
    /// Lists of connections that do not belong to everybody, where they differ from the shared.
    own: HashMap<(ServerName, ConnectionKey), Arc<ServerPart>>,
}

/// Lists that everybody sees.
struct SharedPart {
    part: Arc<ServerPart>,
    age: PartAge,
}

/// The input of a merge.
pub(super) struct VisibleParts {
    parts: Vec<(Arc<ServerPart>, NameSettings)>,
    settings: CatalogSettings,
}

impl ServerParts {
    fn named(&self) -> impl Iterator<Item = &(ServerName, NameSettings)> {
        self.arrangement.iter().flat_map(|it| &it.servers)
    }

    fn servers(&self) -> impl Iterator<Item = &ServerName> {
        self.named().map(|(name, _)| name)
    }

    pub(super) fn knows(&self, server: &ServerName) -> bool {
        self.servers().any(|name| name == server)
    }

    /// Whether the servers are known, and each of them was listed.
    pub(super) fn are_complete(&self) -> bool {
        self.arrangement.is_some() && self.missing().next().is_none()
    }

    /// Servers that were never listed.
    pub(super) fn missing(&self) -> impl Iterator<Item = &ServerName> {
        self.servers()
            .filter(|name| !self.shared.contains_key(*name))
    }

    pub(super) fn arrange(&mut self, arrangement: Arrangement) {
        let servers = &arrangement.servers;
        let known = |name: &ServerName| servers.iter().any(|(known, _)| known == name);
        self.shared.retain(|name, _| known(name));
        self.own.retain(|(name, _), _| known(name));
        self.arrangement = Some(arrangement);
    }

    /// Whether this is something else than what the server listed to everybody before.
    pub(super) fn is_changed(&self, part: &ServerPart) -> bool {
        let before = self.shared.get(part.server());
        before.is_none_or(|before| *before.part != *part)
    }

    /// The process before this one listed it last at `listed_at`.
    pub(super) fn restore(&mut self, part: Arc<ServerPart>, listed_at: u64) {
        self.put(part, PartSource::Stored, Some(listed_at));
    }

    /// A server listed this now to everybody.
    pub(super) fn listed(&mut self, part: Arc<ServerPart>, now: Option<u64>) {
        self.put(part, PartSource::Live, now);
    }

    fn put(&mut self, part: Arc<ServerPart>, source: PartSource, listed_at: Option<u64>) {
        let age = PartAge { source, listed_at };
        let server = part.server().clone();
        self.shared.insert(server, SharedPart { part, age });
    }

    /// The connection that everybody shares was lost.
    pub(super) fn away(&mut self, server: &ServerName) {
        if let Some(SharedPart { age, .. }) = self.shared.get_mut(server)
            && age.source == PartSource::Live
        {
            age.source = PartSource::Away;
        }
    }

    /// The age that lists state; `None` when everything is live.
    pub(super) fn freshness(&self) -> Option<FreshnessMeta> {
        let missing = PartAge {
            source: PartSource::Missing,
            listed_at: None,
        };
        let age = |name| self.shared.get(name).map_or(missing, |shared| shared.age);
        FreshnessMeta::of(&self.servers().map(|name| (name, age(name))).collect())
    }

    /// A server listed this on a connection that is not everybody's; whether anything is different.
    pub(super) fn own_listed(&mut self, key: &ConnectionKey, part: &Arc<ServerPart>) -> bool {
        let whose = (part.server().clone(), key.clone());
        if !self.is_changed(part) {
            return self.own.remove(&whose).is_some();
        }
        // Many connections list the same: they share one part.
        let known = self.own.values().find(|known| *known == part);
        let known = known.unwrap_or(part).clone();
        let before = self.own.insert(whose, known);
        before.as_ref() != Some(part)
    }

    /// A connection that was not everybody's is closed; whether it listed something else.
    pub(super) fn own_closed(&mut self, server: &ServerName, key: &ConnectionKey) -> bool {
        let whose = (server.clone(), key.clone());
        self.own.remove(&whose).is_some()
    }

    /// Who sees something else than everybody.
    pub(super) fn viewers(&self) -> impl Iterator<Item = Viewer> {
        self.own.keys().flat_map(|(_, key)| key.viewers())
    }

    /// The parts that everybody sees.
    pub(super) fn shared(&self) -> VisibleParts {
        self.visible(|name| Some(self.shared.get(name)?.part.clone()))
    }

    /// The parts that this viewer sees: of its own connections, of those of its audience, and of
    /// the shared ones, in this order.
    pub(super) fn visible_to(&self, viewer: &Viewer) -> VisibleParts {
        let audience = viewer.owner.audience().cloned();
        let audience = audience.map(|audience| Viewer {
            owner: ConnectionOwner::Audience(audience),
            era: viewer.era,
        });
        let own = |name: &ServerName, viewer: &Viewer| {
            let own = self.own.iter().filter(|((server, key), _)| {
                server == name && key.viewers().any(|one| one == *viewer)
            });
            // One of its era before one of the era that the server prefers.
            let found = own.max_by_key(|((_, key), _)| key.era.is_some());
            found.map(|(_, part)| part.clone())
        };
        self.visible(|name| {
            let of_audience = || own(name, audience.as_ref()?);
            let shared = || Some(self.shared.get(name)?.part.clone());
            own(name, viewer).or_else(of_audience).or_else(shared)
        })
    }

    fn visible(&self, part: impl Fn(&ServerName) -> Option<Arc<ServerPart>>) -> VisibleParts {
        let parts = (self.named()).filter_map(|(name, names)| Some((part(name)?, names.clone())));
        let settings = self.arrangement.as_ref().map(|it| it.catalog.clone());
        VisibleParts {
            parts: parts.collect(),
            settings: settings.unwrap_or_default(),
        }
    }
}

impl VisibleParts {
    /// Equal for those who see the same parts.
    pub(super) fn identity(&self) -> Vec<*const ServerPart> {
        self.parts
            .iter()
            .map(|(part, _)| Arc::as_ptr(part))
            .collect()
    }

    pub(super) fn merge(mut self) -> Arc<Snapshot> {
        if self.settings.tree_resource {
            self.parts.extend(own_part());
        }
        Arc::new(catalog::merge(&self.parts, &self.settings))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::publisher::freshness::KEY;

    fn shown(parts: &ServerParts) -> Option<Value> {
        let stale = parts.freshness()?;
        let meta = stale.result.parse::<Value>().unwrap()["_meta"].clone();
        let tail = format!("{{\"a\":{{\"b\":1{}", str::from_utf8(&stale.tail).unwrap());
        let whole: Value = serde_json::from_str(&tail).unwrap();
        assert_eq!(whole["a"]["_meta"], meta);
        Some(meta[KEY].clone())
    }

    #[test]
    fn each_part_says_where_it_comes_from_until_all_are_live() {
        let [a, b] = ["a", "b"].map(|name| ServerName::try_new(name).unwrap());
        let part = |name: &ServerName| Arc::new(ServerPart::new(name.clone()));
        let arrangement = |names: &[&ServerName]| Arrangement {
            servers: (names.iter())
                .map(|name| ((*name).clone(), NameSettings::default()))
                .collect(),
            ..Arrangement::default()
        };
        let mut parts = ServerParts::default();
        assert_eq!(shown(&parts), None);
        parts.restore(part(&a), 1_000);
        parts.arrange(arrangement(&[&a, &b]));
        let stored = json!({"state": "stored", "listedAt": "1970-01-01T00:00:01.000Z"});
        let expected = json!({"a": stored, "b": {"state": "missing"}});
        assert_eq!(shown(&parts), Some(expected));
        // Nothing is known yet that could have become old.
        parts.away(&b);
        parts.listed(part(&b), Some(3_000));
        let live = json!({"state": "live", "listedAt": "1970-01-01T00:00:03.000Z"});
        assert_eq!(shown(&parts), Some(json!({"a": stored, "b": live})));
        parts.listed(part(&a), Some(4_000));
        assert_eq!(shown(&parts), None);
        parts.away(&b);
        assert_eq!(shown(&parts).unwrap()["b"]["state"], "away");
        parts.arrange(arrangement(&[&a]));
        assert_eq!(shown(&parts), None);
    }
}
