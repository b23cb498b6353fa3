//! The receivers of events, behind a trait of the publisher.

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

    /// Delivers a server's question to a session; it is dropped if the session is not live.
    fn deliver(&self, id: SessionId, delivery: Delivery);

    /// The subscribers of an updated resource: the subscribed URI, and the session.
    fn watchers(&self, updated: &SubscriptionKey) -> Vec<(String, SessionId)>;

    /// The followers of a task. With `has_ended` their subscriptions end.
    fn task_watchers(&self, task: &TaskKey, has_ended: bool) -> BTreeSet<SessionId>;

    /// Maximum size of one server's queued events, in bytes.
    fn server_events_max(&self) -> usize;
}

/// An event outside of a session's calls that concerns it.
#[derive(Message, Clone)]
#[rtype(result = "()")]
pub enum SessionEvent {
    /// The lists that this session sees have changed.
    ListsChanged(Changes),
    /// A server whose connection belongs to this session alone reports that its lists changed.
    ListsAnnounced(Changes),
    /// The separate catalogs of some sessions have changed.
    OwnViewsChanged,
    /// A frame for a client that subscribed to this public URI.
    ResourceUpdated { uri: String, frame: Bytes },
    /// A log line, with its level, that belongs to no call, for the clients that share a
    /// connection; `None` is all clients.
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
    /// A URL elicitation is complete.
    ElicitationComplete {
        server: ServerName,
        id: String,
        /// Whether the connection belongs to this session alone.
        is_own: bool,
        frame: Bytes,
    },
    /// A server's notification for this client alone, verbatim.
    Passed { frame: Bytes },
}
