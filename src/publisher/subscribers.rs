//! Who receives changes, as the publisher reaches them.

use std::collections::BTreeSet;

use actix::Message;
use bytes::Bytes;

use crate::bridge::seal::Digest;
use crate::catalog::Changes;
use crate::downstream::{Audience, Delivery, SubscriptionKey, TaskKey};
use crate::id::{ServerName, SessionId};
use crate::protocol::{LogLevel, RawJson};

/// Sessions, and clients that listen without one.
pub trait Subscribers: Send + Sync {
    /// Sends an event to all of them.
    fn broadcast(&self, event: &SessionEvent);

    /// Sends an event to one of them, if it is live.
    fn send_event(&self, id: SessionId, event: SessionEvent);

    /// Hands a question of a server to a session; it is dropped when the session is not live.
    fn deliver(&self, id: SessionId, delivery: Delivery);

    /// Who subscribed to an updated resource: the URI subscribed to, and the session.
    fn watchers(&self, updated: &SubscriptionKey) -> Vec<(String, SessionId)>;

    /// Who follows a task. With `has_ended` their subscriptions end.
    fn task_watchers(&self, task: &TaskKey, has_ended: bool) -> BTreeSet<SessionId>;

    /// How many bytes of one server's events may wait.
    fn server_events_max(&self) -> usize;
}

/// An event outside of the session's calls that concerns it.
#[derive(Message, Clone)]
#[rtype(result = "()")]
pub enum SessionEvent {
    /// The lists that this session sees are different now.
    ListsChanged(Changes),
    /// A server whose connection is this session's alone says that its lists changed.
    ListsAnnounced(Changes),
    /// Some sessions see another catalog of their own now.
    OwnViewsChanged,
    /// A frame for a client that subscribed to this public URI.
    ResourceUpdated { uri: String, frame: Bytes },
    /// A log line of no call, with its level, of a connection that these clients share; `None`
    /// is everybody.
    Log {
        level: Option<LogLevel>,
        audience: Option<Audience>,
        frame: Bytes,
    },
    /// The status of a task at the sessionless server of this declaration, under the server's id.
    Task {
        server: ServerName,
        declaration: Digest,
        state: RawJson,
    },
    /// An elicitation by URL is complete.
    ElicitationComplete {
        server: ServerName,
        id: String,
        /// Whether the connection is this session's alone.
        is_own: bool,
        frame: Bytes,
    },
    /// A notification of a server for this client alone, as the server sent it.
    Passed { frame: Bytes },
}
