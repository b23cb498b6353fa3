//! Which lists of servers were read, for requests that need them.

use std::collections::HashMap;

use tokio::time::Instant;

use crate::downstream::ConnectionKey;
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
pub(crate) struct KnownLists(HashMap<(ServerName, ConnectionKey), KnownList>);

impl KnownLists {
    /// The lists that a client of this connection sees: those of the connection, or of its
    /// audience. `None` if neither was ever read.
    pub(crate) fn of(&self, server: &ServerName, key: &ConnectionKey) -> Option<KnownList> {
        let find = |key: ConnectionKey| self.0.get(&(server.clone(), key)).copied();
        find(key.list_key()).or_else(|| find(key.audience_key()?))
    }

    /// Whether this very connection has listed and is not closed.
    pub(crate) fn is_live(&self, server: &ServerName, key: &ConnectionKey) -> bool {
        self.0.get(&(server.clone(), key.list_key())) == Some(&KnownList::Live)
    }
}

impl FromIterator<(ServerName, ConnectionKey, KnownList)> for KnownLists {
    fn from_iter<I: IntoIterator<Item = (ServerName, ConnectionKey, KnownList)>>(lists: I) -> Self {
        let lists = lists.into_iter();
        Self(
            lists
                .map(|(server, key, list)| ((server, key), list))
                .collect(),
        )
    }
}
