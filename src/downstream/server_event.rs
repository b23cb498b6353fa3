//! Events of servers that belong to no call, and where they go.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::bridge::seal::Digest;
use crate::catalog::ServerPart;
use crate::downstream::call_request::Question;
use crate::downstream::connection_key::ConnectionKey;
use crate::id::ServerName;
use crate::protocol::Notification;

/// Where goes what servers say outside of calls; never waits.
pub type ServerEventListener = Arc<dyn Fn(RoutedServerEvent) + Send + Sync>;

/// When each list of a server was read, by [`ItemKind::index`](crate::catalog::ItemKind::index);
/// `None` if it was not.
pub type ListTimes = [Option<Instant>; 4];

/// An event of a server that belongs to no call.
#[derive(Clone)]
pub struct RoutedServerEvent {
    pub server: ServerName,
    pub key: ConnectionKey,
    pub event: ServerEvent,
}

#[derive(Clone)]
pub enum ServerEvent {
    /// The server was listed; the part may be equal to the one before.
    Listed(Arc<ServerPart>, ListTimes),
    ResourceUpdated(Notification),
    Log(Notification),
    /// The state of a task of the sessionless server of this declaration.
    Task {
        declaration: Digest,
        notification: Notification,
    },
    /// A question to the session that the connection belongs to, outside of any call.
    Question(SharedQuestion),
    /// This connection was lost; another one is on its way.
    Away,
    /// This connection is closed until somebody needs it.
    Resting,
    /// This connection, which was not everybody's, is closed.
    Closed,
    /// The server starts anew, perhaps as another: what its closed connections listed is to be
    /// read again.
    ListsOutdated,
    /// Another notification that clients may understand.
    Other(Notification),
}

/// A question that one of those who hold it may take.
#[derive(Clone)]
pub struct SharedQuestion(Arc<Mutex<Option<Question>>>);

impl SharedQuestion {
    pub(crate) fn new(question: Question) -> Self {
        Self(Arc::new(Mutex::new(Some(question))))
    }

    /// `None` if somebody else took it.
    pub fn take(&self) -> Option<Question> {
        self.0.lock().take()
    }
}
