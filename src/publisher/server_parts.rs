//! The last known lists of all servers, and which viewer sees which.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::time::Instant;

use crate::auth::Policies;
use crate::catalog::{
    self, CatalogSettings, ItemKind, NameSettings, PinMode, ServerPart, Snapshot,
};
use crate::downstream::{ConnectionKey, ListTimes, Viewer};
use crate::id::ServerName;
use crate::publisher::first_listing::FirstListWait;
use crate::publisher::freshness::{FreshnessMeta, PartAge, PartSource};
use crate::publisher::known_lists::{KnownList, KnownLists, ReadList};
use crate::publisher::own_lists::OwnLists;
use crate::publisher::own_part::own_part;
use crate::publisher::pins::Pins;
use crate::publisher::views::{ArrangedViews, NamedViews};

/// The servers in config order, with their names. Servers that are missing here were removed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arrangement {
    pub servers: Vec<(ServerName, NameSettings)>,
    /// [`ServerSettings::identity`](crate::downstream::ServerSettings::identity) of each server, for
    /// the stored lists.
    pub identities: BTreeMap<ServerName, String>,
    pub catalog: CatalogSettings,
    pub views: NamedViews,
    pub first_list_wait: FirstListWait,
    /// The policies in force; `None` allows everything.
    pub policies: Option<Arc<Policies>>,
}

#[derive(Default)]
pub(super) struct ServerParts {
    /// `None` until the servers are known.
    arrangement: Option<Arrangement>,
    shared: HashMap<ServerName, SharedPart>,
    own: OwnLists,
    pins: Pins,
}

/// Lists that all clients share.
struct SharedPart {
    part: Arc<ServerPart>,
    age: PartAge,
    read_at: ListTimes,
}

/// Whether a part is the shared one itself.
fn is_shared(shared: &HashMap<ServerName, SharedPart>, part: &Arc<ServerPart>) -> bool {
    let shared = shared.get(part.server());
    shared.is_some_and(|shared| Arc::ptr_eq(&shared.part, part))
}

/// When the lists of each server were read, and whether the server reports changes.
pub(super) type PartAges = HashMap<ServerName, (PartSource, ListTimes)>;

/// The ages of lists.
#[derive(Default)]
pub(super) struct Ages {
    /// Ages of the shared lists.
    pub(super) shared: PartAges,
    /// The oldest list of each server, shared or not.
    pub(super) oldest: PartAges,
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

    /// Whether the servers are known and all were listed.
    pub(super) fn are_complete(&self) -> bool {
        self.arrangement.is_some() && self.missing().next().is_none()
    }

    /// Returns the servers that were never listed.
    pub(super) fn missing(&self) -> impl Iterator<Item = &ServerName> {
        self.servers()
            .filter(|name| !self.shared.contains_key(*name))
    }

    pub(super) fn arrange(&mut self, arrangement: Arrangement) {
        let servers = &arrangement.servers;
        let known = |name: &ServerName| servers.iter().any(|(known, _)| known == name);
        self.shared.retain(|name, _| known(name));
        self.own.retain(known);
        self.arrangement = Some(arrangement);
    }

    /// Returns the servers and settings that views are currently built from.
    pub(super) fn views(&self) -> ArrangedViews {
        let arranged = self.arrangement.clone().unwrap_or_default();
        ArrangedViews {
            servers: arranged.servers,
            catalog: CatalogSettings {
                pinned: self.pins.pinned(),
                ..arranged.catalog
            },
            named: arranged.views,
            policies: arranged.policies,
        }
    }

    pub(super) fn use_pins(&mut self, pins: Pins) {
        self.pins = pins;
    }

    pub(super) fn pins(&self) -> &Pins {
        &self.pins
    }

    /// How unapproved texts of a server are treated.
    pub(super) fn pin_mode(&self, server: &ServerName) -> PinMode {
        let names = self.named().find(|(name, _)| name == server);
        names.map_or(PinMode::Off, |(_, names)| names.pins)
    }

    /// Pins the items of a server that are seen for the first time since pinning was turned on.
    /// Returns whether anything was pinned. A `shared` list is seen by all clients.
    pub(super) fn pin_first_use(&self, part: &ServerPart, shared: bool) -> bool {
        let server = part.server();
        let is_pinned = self.pin_mode(server) != PinMode::Off
            && (self.pins).change(|pinned, now| pinned.pin_first_use(part, shared, now));
        if is_pinned {
            self.pins.keep_soon(server);
        }
        is_pinned
    }

    /// Like [`Self::pin_first_use`], for all servers with known lists.
    pub(super) fn pin_known(&self) {
        for shared in self.shared.values() {
            self.pin_first_use(&shared.part, true);
        }
    }

    /// The lists of a server, both shared and individual ones.
    pub(super) fn all_of(&self, server: &ServerName) -> impl Iterator<Item = &Arc<ServerPart>> {
        let shared = self.shared.get(server).map(|shared| &shared.part);
        shared.into_iter().chain(self.own.parts(server))
    }

    /// Whether a part differs from the server's previous shared list.
    pub(super) fn is_changed(&self, part: &ServerPart) -> bool {
        let before = self.shared.get(part.server());
        before.is_none_or(|before| *before.part != *part)
    }

    /// Restores a list that the previous process read at `listed_at`.
    pub(super) fn restore(
        &mut self,
        part: Arc<ServerPart>,
        listed_at: u64,
        read_at: Option<Instant>,
    ) {
        let age = PartAge {
            source: PartSource::Stored,
            listed_at: Some(listed_at),
        };
        self.put(part, age, [read_at; ItemKind::COUNT]);
    }

    /// Records a server's shared list.
    pub(super) fn listed(
        &mut self,
        part: Arc<ServerPart>,
        listed_at: Option<u64>,
        read_at: ListTimes,
    ) {
        let source = PartSource::Live;
        self.put(part, PartAge { source, listed_at }, read_at);
    }

    fn put(&mut self, part: Arc<ServerPart>, age: PartAge, read_at: ListTimes) {
        match self.shared.get_mut(part.server()) {
            Some(shared) if shared.part == part => (shared.age, shared.read_at) = (age, read_at),
            _ => {
                self.own.shared_changed(&part);
                let server = part.server().clone();
                self.shared
                    .insert(server, SharedPart { part, age, read_at });
            }
        }
    }

    /// Records that a server restarts.
    pub(super) fn lists_outdated(&mut self, server: &ServerName) {
        self.own.outdate(server);
    }

    /// Records that the shared connection was lost.
    pub(super) fn away(&mut self, server: &ServerName) {
        self.own.outdate(server);
        self.no_longer_live(server, PartSource::Away);
    }

    /// Records that the idle shared connection was closed.
    pub(super) fn idle(&mut self, server: &ServerName) {
        self.no_longer_live(server, PartSource::Idle);
    }

    fn no_longer_live(&mut self, server: &ServerName, to: PartSource) {
        if let Some(SharedPart { age, .. }) = self.shared.get_mut(server)
            && age.source == PartSource::Live
        {
            age.source = to;
        }
    }

    pub(super) fn ages(&self) -> Ages {
        let shared = self.shared.iter();
        let shared = shared.map(|(name, it)| (name.clone(), (it.age.source, it.read_at)));
        let shared: PartAges = shared.collect();
        let mut oldest = shared.clone();
        for (name, own) in self.own.read_at() {
            if let Some((_, read_at)) = oldest.get_mut(name) {
                // `None` sorts first: an unknown time counts as old.
                for (oldest, own) in read_at.iter_mut().zip(own) {
                    *oldest = own.min(*oldest);
                }
            }
        }
        Ages { shared, oldest }
    }

    /// The freshness metadata of lists; `None` if everything is live.
    pub(super) fn freshness(&self) -> Option<FreshnessMeta> {
        let missing = PartAge {
            source: PartSource::Missing,
            listed_at: None,
        };
        let age = |name| self.shared.get(name).map_or(missing, |shared| shared.age);
        FreshnessMeta::of(
            self.servers()
                .map(|name| (name.clone(), age(name)))
                .collect(),
        )
    }

    /// Records a list from a connection not shared by all clients; returns whether any client's
    /// view changed.
    pub(super) fn own_listed(
        &mut self,
        key: &ConnectionKey,
        part: &Arc<ServerPart>,
        read_at: ListTimes,
        now: Instant,
    ) -> bool {
        let server = part.server();
        let shared = self.shared.get(server).map(|shared| &shared.part);
        let part = shared.filter(|shared| *shared == part).unwrap_or(part);
        let part = part.clone();
        self.change_own(part.server(), key, |own| {
            own.listed(key, &part, read_at, now);
        })
    }

    /// Records that a connection not shared by all clients was closed; returns whether any client's
    /// view changed.
    pub(super) fn own_closed(
        &mut self,
        server: &ServerName,
        key: &ConnectionKey,
        now: Instant,
    ) -> bool {
        self.change_own(server, key, |own| own.closed(server, key, now))
    }

    fn change_own(
        &mut self,
        server: &ServerName,
        key: &ConnectionKey,
        change: impl FnOnce(&mut OwnLists),
    ) -> bool {
        let audience = key.audience_key();
        let viewers = || {
            key.viewers()
                .chain(audience.iter().flat_map(|it| it.viewers()))
        };
        let seen = |parts: &Self| -> Vec<_> {
            let part = |viewer| parts.part_for(server, &viewer).cloned();
            viewers().map(part).collect()
        };
        let before = seen(self);
        change(&mut self.own);
        let shared = &self.shared;
        let trimmed = self.own.trim(|part| is_shared(shared, part));
        trimmed || seen(self) != before
    }

    /// Whether a server has an open connection for clients without capabilities.
    pub(super) fn has_plain_list(&self, server: &ServerName) -> bool {
        self.own.is_listed(server, &ConnectionKey::plain())
    }

    /// Viewers that do not see the shared lists, or not their audience's lists.
    pub(super) fn viewers(&self) -> impl Iterator<Item = Viewer> {
        let differs = |viewer: &Viewer| {
            let others = viewer.audience().filter(|audience| audience != viewer);
            let others = others.map_or_else(|| self.shared(), |it| self.visible_to(&it));
            self.visible_to(viewer).identity() != others.identity()
        };
        self.own.viewers().into_iter().filter(differs)
    }

    /// Which lists this process has read.
    pub(super) fn known(&self) -> KnownLists {
        let is_read = |shared: &SharedPart| {
            let source = shared.age.source;
            matches!(
                source,
                PartSource::Live | PartSource::Away | PartSource::Idle
            )
        };
        let shared = self.shared.iter().filter(|(_, shared)| is_read(shared));
        let shared = shared.map(|(name, list)| {
            let read = ReadList::new(KnownList::Live, &list.part, list.read_at);
            (name.clone(), ConnectionKey::shared(), read)
        });
        let own = self.own.known(|part| is_shared(&self.shared, part));
        shared.chain(own).collect()
    }

    /// The shared parts.
    pub(super) fn shared(&self) -> VisibleParts {
        self.visible(|name| Some(self.shared.get(name)?.part.clone()))
    }

    /// The parts that this viewer sees.
    pub(super) fn visible_to(&self, viewer: &Viewer) -> VisibleParts {
        self.visible(|name| self.part_for(name, viewer).cloned())
    }

    /// The part of a server that this viewer sees: from its own connection, its audience's, the one
    /// of clients without capabilities, its era's shared connection, or the shared one, in this
    /// order.
    fn part_for(&self, server: &ServerName, viewer: &Viewer) -> Option<&Arc<ServerPart>> {
        let of_audience = || self.own.part(server, &viewer.audience()?);
        let of_plain_clients = || {
            let mut viewers = viewer.of_plain_clients();
            viewers.find_map(|viewer| self.own.part(server, &viewer))
        };
        let shared = || Some(&self.shared.get(server)?.part);
        let own = self.own.part(server, viewer);
        own.or_else(of_audience)
            .or_else(of_plain_clients)
            .or_else(shared)
    }

    fn visible(&self, part: impl Fn(&ServerName) -> Option<Arc<ServerPart>>) -> VisibleParts {
        let parts = (self.named()).filter_map(|(name, names)| Some((part(name)?, names.clone())));
        let settings = self.arrangement.as_ref().map(|it| it.catalog.clone());
        VisibleParts {
            parts: parts.collect(),
            settings: CatalogSettings {
                pinned: self.pins.pinned(),
                ..settings.unwrap_or_default()
            },
        }
    }
}

impl VisibleParts {
    /// A key that is equal for viewers of the same parts.
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
    fn parts_state_their_origin_until_all_are_live() {
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
        parts.restore(part(&a), 1_000, None);
        parts.arrange(arrangement(&[&a, &b]));
        let stored = json!({"state": "stored", "listedAt": "1970-01-01T00:00:01.000Z"});
        let expected = json!({"a": stored, "b": {"state": "missing"}});
        assert_eq!(shown(&parts), Some(expected));
        // No list is known yet that could be outdated.
        parts.away(&b);
        parts.listed(part(&b), Some(3_000), ListTimes::default());
        let live = json!({"state": "live", "listedAt": "1970-01-01T00:00:03.000Z"});
        assert_eq!(shown(&parts), Some(json!({"a": stored, "b": live})));
        parts.listed(part(&a), Some(4_000), ListTimes::default());
        assert_eq!(shown(&parts), None);
        parts.away(&b);
        assert_eq!(shown(&parts).unwrap()["b"]["state"], "away");
        parts.arrange(arrangement(&[&a]));
        assert_eq!(shown(&parts), None);
    }
}
