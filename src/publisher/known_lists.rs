//! Tracks which lists of servers were read, for requests that need them.

use std::collections::HashMap;

use tokio::time::Instant;

use crate::catalog::{ItemKind, ServerPart};
use crate::downstream::{ConnectionKey, ListTimes, holds_for};
use crate::id::ServerName;

/// Origin of a connection's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KnownList {
    /// Read by this process from a connection that is open or idle.
    Live,
    /// Kept from a closed connection of its audience.
    Kept {
        since: Instant,
        /// The server was lost or restarted in the meantime.
        is_outdated: bool,
        /// It differs from the shared list, which is read again regularly.
        is_different: bool,
    },
}

/// The lists that were read, by server and connection.
#[derive(Debug, Default)]
pub(crate) struct KnownLists {
    lists: HashMap<(ServerName, ConnectionKey), ReadList>,
    /// When the first list of each kind becomes old.
    first_old: ListTimes,
}

/// The lists of a connection, and when their items were read.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadList {
    known: KnownList,
    read_at: ListTimes,
    /// When client requests can trigger another read.
    old_at: ListTimes,
}

impl ReadList {
    /// Whether the connection has listed its items and is not closed.
    pub(super) fn is_live(&self) -> bool {
        self.known == KnownList::Live
    }

    pub(super) fn new(known: KnownList, part: &ServerPart, read_at: ListTimes) -> Self {
        let old_at = ItemKind::ALL.map(|kind| {
            let holds = holds_for(part, kind);
            read_at[kind.index()].and_then(|at| at.checked_add(holds))
        });
        Self {
            known,
            read_at,
            old_at,
        }
    }
}

impl KnownLists {
    /// The lists that a client of this connection sees: the connection's own, or its audience's.
    /// `None` if neither was ever read.
    pub(crate) fn of(&self, server: &ServerName, key: &ConnectionKey) -> Option<KnownList> {
        let find = |key: ConnectionKey| Some(self.lists.get(&(server.clone(), key))?.known);
        find(key.list_key()).or_else(|| find(key.audience_key()?))
    }

    /// Whether this very connection has listed its items and is not closed.
    pub(crate) fn is_live(&self, server: &ServerName, key: &ConnectionKey) -> bool {
        let list = self.lists.get(&(server.clone(), key.list_key()));
        list.is_some_and(ReadList::is_live)
    }

    /// When the list of a connection was read, if it was.
    pub(crate) fn read_at(
        &self,
        server: &ServerName,
        key: &ConnectionKey,
        kind: ItemKind,
    ) -> Option<Instant> {
        self.lists.get(&(server.clone(), key.list_key()))?.read_at[kind.index()]
    }

    /// Whether the list of a connection is outdated.
    pub(crate) fn is_old(
        &self,
        server: &ServerName,
        key: &ConnectionKey,
        (kind, now): (ItemKind, Instant),
    ) -> bool {
        let list = self.lists.get(&(server.clone(), key.list_key()));
        let old_at = list.and_then(|list| list.old_at[kind.index()]);
        old_at.is_some_and(|at| at <= now)
    }

    /// Whether any list of this kind is outdated.
    pub(crate) fn has_old(&self, kind: ItemKind, now: Instant) -> bool {
        self.first_old[kind.index()].is_some_and(|at| at <= now)
    }
}

impl FromIterator<(ServerName, ConnectionKey, ReadList)> for KnownLists {
    fn from_iter<I: IntoIterator<Item = (ServerName, ConnectionKey, ReadList)>>(lists: I) -> Self {
        let mut known = Self::default();
        for (server, key, list) in lists {
            for (first, at) in known.first_old.iter_mut().zip(list.old_at) {
                *first = [*first, at].into_iter().flatten().min();
            }
            known.lists.insert((server, key), list);
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::catalog::ListCaching;

    #[tokio::test(start_paused = true)]
    async fn a_list_is_old_after_its_servers_ttl() {
        let [silent, minute] = ["silent", "minute"].map(|name| ServerName::try_new(name).unwrap());
        let (key, read_at) = (
            ConnectionKey::shared(),
            [Some(Instant::now()); ItemKind::COUNT],
        );
        let list = |name: &ServerName, ttl_ms: Option<u64>| {
            let mut part = ServerPart::new(name.clone());
            let is_public = true;
            let caching = ttl_ms.map(|ttl_ms| ListCaching { ttl_ms, is_public });
            part.set_caching(ItemKind::Tools, caching);
            let list = ReadList::new(KnownList::Live, &part, read_at);
            (name.clone(), key.clone(), list)
        };
        let forever = list(&minute, Some(u64::MAX));
        let never: KnownLists = [forever].into_iter().collect();
        let one: KnownLists = [list(&minute, Some(60_000))].into_iter().collect();
        let both = [list(&silent, None), list(&minute, Some(60_000))];
        let both: KnownLists = both.into_iter().collect();
        for (seconds, silent_is_old, minute_is_old) in [
            (9, false, false),
            (10, true, false),
            (59, true, false),
            (60, true, true),
        ] {
            let at = (
                ItemKind::Tools,
                Instant::now() + Duration::from_secs(seconds),
            );
            assert!(!never.has_old(at.0, at.1), "after {seconds} s");
            assert_eq!(one.has_old(at.0, at.1), minute_is_old, "after {seconds} s");
            assert_eq!(both.has_old(at.0, at.1), silent_is_old, "after {seconds} s");
            assert_eq!(
                both.is_old(&silent, &key, at),
                silent_is_old,
                "after {seconds} s"
            );
            assert_eq!(
                both.is_old(&minute, &key, at),
                minute_is_old,
                "after {seconds} s"
            );
        }
    }
}
