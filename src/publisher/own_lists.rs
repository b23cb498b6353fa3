//! The lists of connections that are not shared by all clients. An audience's lists outlive its
//! connection, within limits.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio::time::Instant;

use crate::catalog::ServerPart;
use crate::downstream::{ConnectionKey, ConnectionOwner, ListTimes, Viewer};
use crate::id::ServerName;
use crate::publisher::known_lists::{KnownList, ReadList};

/// Maximum number of kept lists of closed connections, over all servers, that differ from the
/// shared list.
const KEPT_MAX: usize = 64;

/// Maximum total size of these, in bytes.
const KEPT_BYTES_MAX: usize = 8 << 20;

/// Maximum number of kept lists including those equal to the shared list, which need little memory.
const KEPT_WITH_EQUAL_MAX: usize = 1024;

#[derive(Default)]
pub(super) struct OwnLists {
    by_server: HashMap<ServerName, Vec<OwnList>>,
}

struct OwnList {
    key: ConnectionKey,
    part: Arc<ServerPart>,
    read_at: ListTimes,
    /// Set once the connection is closed.
    kept: Option<Kept>,
}

#[derive(Clone, Copy)]
struct Kept {
    since: Instant,
    is_outdated: bool,
}

impl OwnLists {
    pub(super) fn retain(&mut self, knows: impl Fn(&ServerName) -> bool) {
        self.by_server.retain(|server, _| knows(server));
    }

    /// Records the list of an open connection. The first list of a session's connection also
    /// becomes its audience's list if none is known, because the client's calls cannot have changed
    /// it yet.
    pub(super) fn listed(
        &mut self,
        key: &ConnectionKey,
        part: &Arc<ServerPart>,
        read_at: ListTimes,
        now: Instant,
    ) {
        let lists = self.by_server.entry(part.server().clone()).or_default();
        // Many connections list the same items, and share one part.
        let equal = lists.iter().find(|list| list.part == *part);
        let part = equal.map_or(part, |list| &list.part).clone();
        let list_key = key.list_key();
        let of_audience = key.audience_key().unwrap_or_else(ConnectionKey::shared);
        lists.retain(|list| list.kept.is_none() || list.key != list_key);
        let open = lists.iter_mut().find(|list| list.is_open(key));
        if let Some(list) = open {
            (list.part, list.read_at) = (part, read_at);
            return;
        }
        if key.session().is_some() && !key.profile().is_plain() {
            lists.retain(|list| list.key != of_audience || !list.is_outdated());
            if !lists.iter().any(|list| list.key.list_key() == of_audience) {
                lists.push(OwnList {
                    key: of_audience,
                    part: part.clone(),
                    read_at,
                    kept: Some(Kept::now(now)),
                });
            }
        }
        lists.push(OwnList {
            key: key.clone(),
            part,
            read_at,
            kept: None,
        });
    }

    /// Records that a connection was closed. An audience's list is kept.
    pub(super) fn closed(&mut self, server: &ServerName, key: &ConnectionKey, now: Instant) {
        let Some(lists) = self.by_server.get_mut(server) else {
            return;
        };
        let Some(place) = lists.iter().position(|list| list.is_open(key)) else {
            return;
        };
        let closed = lists.swap_remove(place);
        let list_key = key.list_key();
        let is_known = lists.iter().any(|list| list.key.list_key() == list_key);
        let is_kept = matches!(
            list_key.owner,
            ConnectionOwner::Audience(_) | ConnectionOwner::Plain
        );
        if !is_known && is_kept {
            lists.push(OwnList {
                key: list_key,
                kept: Some(Kept::now(now)),
                ..closed
            });
        }
    }

    /// Records a change of a server's shared list: kept lists are now older.
    pub(super) fn shared_changed(&mut self, shared: &Arc<ServerPart>) {
        let Some(lists) = self.by_server.get_mut(shared.server()) else {
            return;
        };
        lists.retain(|list| list.kept.is_none());
        for list in lists.iter_mut().filter(|list| list.part == *shared) {
            list.part = shared.clone();
        }
    }

    /// Records that a server was lost or restarted: its kept lists are shown until they are read
    /// again.
    pub(super) fn outdate(&mut self, server: &ServerName) {
        let lists = self.by_server.get_mut(server).into_iter().flatten();
        for kept in lists.filter_map(|list| list.kept.as_mut()) {
            kept.is_outdated = true;
        }
    }

    /// Drops the oldest kept lists until the limits hold; returns whether any was dropped.
    pub(super) fn trim(&mut self, is_shared: impl Fn(&Arc<ServerPart>) -> bool) -> bool {
        let mut trimmed = false;
        while let Some((server, key)) = self.surplus(&is_shared) {
            let lists = self.by_server.get_mut(&server).into_iter();
            lists.for_each(|lists| lists.retain(|list| list.kept.is_none() || list.key != key));
            trimmed = true;
        }
        trimmed
    }

    /// The kept list to drop next, if the limits are exceeded.
    fn surplus(
        &self,
        is_shared: impl Fn(&Arc<ServerPart>) -> bool,
    ) -> Option<(ServerName, ConnectionKey)> {
        let all = || self.all().filter(|(_, list)| list.kept.is_some());
        let differing = || all().filter(|(_, list)| !is_shared(&list.part));
        let bytes: usize = differing().map(|(_, list)| list.part.size()).sum();
        let since = |(_, list): &(&ServerName, &OwnList)| list.kept.map(|kept| kept.since);
        let oldest = if differing().count() > KEPT_MAX || bytes > KEPT_BYTES_MAX {
            differing().min_by_key(since)
        } else if all().count() > KEPT_WITH_EQUAL_MAX {
            all().min_by_key(since)
        } else {
            None
        };
        oldest.map(|(server, list)| (server.clone(), list.key.clone()))
    }

    /// The last list that a session's or audience's own connections read from a server.
    pub(super) fn part(&self, server: &ServerName, viewer: &Viewer) -> Option<&Arc<ServerPart>> {
        let lists = self.by_server.get(server)?.iter();
        let own = lists.filter(|list| list.key.viewers().any(|one| one == *viewer));
        // Prefers a list of its own era to one of the server's preferred era.
        let found = own.max_by_key(|list| list.key.era.is_some());
        found.map(|list| &list.part)
    }

    /// Whether this connection is open and has listed.
    pub(super) fn is_listed(&self, server: &ServerName, key: &ConnectionKey) -> bool {
        let mut lists = self.by_server.get(server).into_iter().flatten();
        lists.any(|list| list.is_open(key))
    }

    /// All lists of a server.
    pub(super) fn parts(&self, server: &ServerName) -> impl Iterator<Item = &Arc<ServerPart>> {
        let lists = self.by_server.get(server).into_iter().flatten();
        lists.map(|list| &list.part)
    }

    /// When each list was read.
    pub(super) fn read_at(&self) -> impl Iterator<Item = (&ServerName, ListTimes)> {
        self.all().map(|(server, list)| (server, list.read_at))
    }

    /// Viewers with lists of their own.
    pub(super) fn viewers(&self) -> HashSet<Viewer> {
        self.all()
            .flat_map(|(_, list)| list.key.viewers())
            .collect()
    }

    pub(super) fn known(
        &self,
        is_shared: impl Fn(&Arc<ServerPart>) -> bool,
    ) -> impl Iterator<Item = (ServerName, ConnectionKey, ReadList)> {
        self.all().map(move |(server, list)| {
            let known = list.kept.map_or(KnownList::Live, |kept| KnownList::Kept {
                since: kept.since,
                is_outdated: kept.is_outdated,
                is_different: !is_shared(&list.part),
            });
            let read = ReadList::new(known, &list.part, list.read_at);
            (server.clone(), list.key.list_key(), read)
        })
    }

    fn all(&self) -> impl Iterator<Item = (&ServerName, &OwnList)> {
        let servers = self.by_server.iter();
        servers.flat_map(|(server, lists)| lists.iter().map(move |list| (server, list)))
    }
}

impl OwnList {
    fn is_open(&self, key: &ConnectionKey) -> bool {
        self.kept.is_none() && self.key == *key
    }

    fn is_outdated(&self) -> bool {
        self.kept.is_some_and(|kept| kept.is_outdated)
    }
}

impl Kept {
    fn now(now: Instant) -> Self {
        Self {
            since: now,
            is_outdated: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::catalog::{IngestLimits, ItemKind};
    use crate::downstream::{Audience, ClientInfo};
    use crate::id::{CredentialContext, Principal, SessionId};
    use crate::protocol::{DeclaredCapabilities, RawJson};

    /// The audience of clients that declare this number.
    fn audience(number: usize) -> Audience {
        let declared = json!({"elicitation": {"number": number}});
        Audience {
            principal: Principal::Anonymous,
            profile: DeclaredCapabilities::from_declared(declared.as_object().unwrap()),
            info: ClientInfo::default(),
        }
    }

    fn key(owner: ConnectionOwner) -> ConnectionKey {
        ConnectionKey {
            credentials: CredentialContext::Shared,
            owner,
            era: None,
        }
    }

    fn of_audience(number: usize) -> ConnectionKey {
        key(ConnectionOwner::Audience(audience(number)))
    }

    /// A part with one tool of this number, and a description of this many bytes.
    fn part(number: usize, bytes: usize) -> Arc<ServerPart> {
        let tool = json!({
            "name": number.to_string(), "inputSchema": {"type": "object"},
            "description": "x".repeat(bytes),
        });
        let tool = RawJson::try_new(Bytes::from(tool.to_string())).unwrap();
        let part = ServerPart::new(ServerName::try_new("a").unwrap());
        let limits = IngestLimits {
            item_bytes: usize::MAX,
            ..IngestLimits::default()
        };
        Arc::new(part.with_list(ItemKind::Tools, &[tool], &limits))
    }

    fn seen(lists: &OwnLists, key: &ConnectionKey) -> Option<Arc<ServerPart>> {
        let viewer = key.viewers().next().unwrap();
        lists
            .part(&ServerName::try_new("a").unwrap(), &viewer)
            .cloned()
    }

    /// Keeps this many lists of this size one after the other, and returns which remain.
    async fn left(count: usize, bytes: usize, shared: &Arc<ServerPart>) -> Vec<usize> {
        let mut lists = OwnLists::default();
        for number in 0..count {
            let key = of_audience(number);
            let listed = match bytes {
                0 => shared.clone(),
                _ => part(number, bytes),
            };
            lists.listed(&key, &listed, ListTimes::default(), Instant::now());
            lists.closed(shared.server(), &key, Instant::now());
            lists.trim(|part| Arc::ptr_eq(part, shared));
            tokio::time::advance(std::time::Duration::from_secs(1)).await;
        }
        let is_left = |number: &usize| seen(&lists, &of_audience(*number)).is_some();
        (0..count).filter(is_left).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_of_too_many_kept_lists_are_dropped() {
        let shared = part(0, 0);
        let range = |range: std::ops::Range<usize>| range.collect::<Vec<_>>();
        assert_eq!(left(KEPT_MAX, 1, &shared).await, range(0..KEPT_MAX));
        assert_eq!(left(KEPT_MAX + 2, 1, &shared).await, range(2..KEPT_MAX + 2));
        // A seventh of the bytes each, including the rest of the item.
        let bytes = KEPT_BYTES_MAX / 7;
        assert_eq!(left(9, bytes, &shared).await, range(3..9));
        assert!(left(1, KEPT_BYTES_MAX, &shared).await.is_empty());
        // Lists equal to the shared one cost nothing.
        let count = KEPT_WITH_EQUAL_MAX + 1;
        assert_eq!(left(count, 0, &shared).await, range(1..count));
    }

    #[tokio::test(start_paused = true)]
    async fn lists_changed_by_a_session_are_not_kept_for_its_audience() {
        let now = Instant::now();
        let (server, [one, two, three]) = (ServerName::try_new("a").unwrap(), [1, 2, 3]);
        let mut lists = OwnLists::default();
        let lease = |place| key(ConnectionOwner::Lease(audience(one), place));
        lists.listed(&lease(0), &part(one, 0), ListTimes::default(), now);
        lists.listed(&lease(1), &part(one, 0), ListTimes::default(), now);
        lists.closed(&server, &lease(0), now);
        assert!(lists.known(|_| true).all(|(_, _, read)| read.is_live()));
        lists.closed(&server, &lease(1), now);
        assert_eq!(seen(&lists, &of_audience(one)), Some(part(one, 0)));
        assert!(lists.known(|_| true).all(|(_, _, read)| !read.is_live()));
        // The first list of a session, not a later one that its calls could have changed.
        let id = SessionId::new(Uuid::from_u128(1));
        let session = key(ConnectionOwner::Session(id, audience(two)));
        lists.listed(&session, &part(two, 0), ListTimes::default(), now);
        lists.listed(&session, &part(three, 0), ListTimes::default(), now);
        assert_eq!(seen(&lists, &session), Some(part(three, 0)));
        assert_eq!(seen(&lists, &of_audience(two)), Some(part(two, 0)));
        lists.closed(&server, &session, now);
        assert_eq!(seen(&lists, &session), None);
        assert_eq!(seen(&lists, &of_audience(two)), Some(part(two, 0)));
        lists.outdate(&server);
        lists.listed(&session, &part(three, 0), ListTimes::default(), now);
        assert_eq!(seen(&lists, &of_audience(two)), Some(part(three, 0)));
        lists.shared_changed(&part(0, 0));
        assert_eq!(seen(&lists, &of_audience(two)), None);
    }
}
