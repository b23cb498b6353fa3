//! Which lists of servers were read, for requests that need them.

use std::collections::HashMap;

use tokio::time::Instant;

use crate::catalog::ItemKind;
use crate::downstream::{ConnectionKey, ListTimes};
use crate::id::ServerName;

/// How the lists of a connection came here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KnownList {
    /// Read by this process from a connection that is not closed, or at rest.
    Live,
    /// Kept from a connection of its audience that is closed.
    Kept {
        since: Instant,
        /// Its server was lost or started anew meanwhile.
        is_outdated: bool,
        /// It is not what everybody sees, whose list is read again and again.
        is_different: bool,
    },
}

/// The lists that were read, by server and connection.
#[derive(Debug, Default)]
pub(crate) struct KnownLists {
    lists: HashMap<(ServerName, ConnectionKey), (KnownList, ListTimes)>,
    /// The oldest reading of each kind.
    oldest: ListTimes,
}

impl KnownLists {
    /// The lists that a client of this connection sees: those of the connection, or of its
    /// audience. `None` if neither was ever read.
    pub(crate) fn of(&self, server: &ServerName, key: &ConnectionKey) -> Option<KnownList> {
        let find = |key: ConnectionKey| Some(self.lists.get(&(server.clone(), key))?.0);
        find(key.list_key()).or_else(|| find(key.audience_key()?))
    }

    /// Whether this very connection has listed and is not closed.
    pub(crate) fn is_live(&self, server: &ServerName, key: &ConnectionKey) -> bool {
        let list = self.lists.get(&(server.clone(), key.list_key()));
        list.is_some_and(|(known, _)| *known == KnownList::Live)
    }

    /// When the list of a connection was read, if it was.
    pub(crate) fn read_at(
        &self,
        server: &ServerName,
        key: &ConnectionKey,
        kind: ItemKind,
    ) -> Option<Instant> {
        self.lists.get(&(server.clone(), key.list_key()))?.1[kind.index()]
    }

    /// When the list of this kind was read that was read first.
    pub(crate) fn oldest(&self, kind: ItemKind) -> Option<Instant> {
        self.oldest[kind.index()]
    }
}

/// A list with its server, its connection, and when its items were read.
pub(super) type ReadList = (ServerName, ConnectionKey, KnownList, ListTimes);

impl FromIterator<ReadList> for KnownLists {
    fn from_iter<I: IntoIterator<Item = ReadList>>(lists: I) -> Self {
        let mut known = Self::default();
        for (server, key, list, read_at) in lists {
            for (oldest, at) in known.oldest.iter_mut().zip(read_at) {
                *oldest = [*oldest, at].into_iter().flatten().min();
            }
            known.lists.insert((server, key), (list, read_at));
        }
        known
    }
}
