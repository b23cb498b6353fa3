//! Events of servers that belong to no call, and their listener.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::bridge::seal::Digest;
use crate::catalog::{ItemKind, ServerPart};
use crate::downstream::call_request::Question;
use crate::downstream::connection_key::ConnectionKey;
use crate::id::ServerName;
use crate::protocol::Notification;

/// Receives servers' events outside of calls; must not block.
pub type ServerEventListener = Arc<dyn Fn(RoutedServerEvent) + Send + Sync>;

/// When each list of a server was read, by [`ItemKind::index`];
/// `None` if it was not read.
pub type ListTimes = [Option<Instant>; ItemKind::COUNT];

/// An event of a server that belongs to no call.
#[derive(Clone)]
pub struct RoutedServerEvent {
    pub server: ServerName,
    pub key: ConnectionKey,
    pub event: ServerEvent,
}

#[derive(Clone)]
pub enum ServerEvent {
    /// The server was listed; the part can be unchanged.
    Listed(Arc<ServerPart>, ListTimes),
    ResourceUpdated(Notification),
    Log(Notification),
    /// State of a task, from the sessionless server with this declaration.
    Task {
        declaration: Digest,
        notification: Notification,
    },
    /// A question outside of any call, for the session that owns the connection.
    Question(SharedQuestion),
    /// This connection was lost and is being reopened.
    Away,
    /// This connection is closed until it is needed.
    Idle,
    /// This connection, which did not serve all clients, is closed.
    Closed,
    /// The server restarts and may be a different one: lists from its closed connections must be
    /// read again.
    ListsOutdated,
    /// Another notification that clients may understand.
    Other(Notification),
}

/// A question with several holders, of which only one can take it.
#[derive(Clone)]
pub struct SharedQuestion(Arc<Mutex<Option<Question>>>);

impl SharedQuestion {
    pub(crate) fn new(question: Question) -> Self {
        Self(Arc::new(Mutex::new(Some(question))))
    }

    /// Takes the question; `None` if another holder took it.
    pub fn take(&self) -> Option<Question> {
        self.0.lock().take()
    }
}
