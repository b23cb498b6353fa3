//! Opens a client's own connection to a server before its first call, for notifications and
//! subscriptions.

use futures_util::future::LocalBoxFuture;
use tokio::time::{Instant, timeout_at};

use crate::calls::call_target;
use crate::downstream::Server;
use crate::protocol::{Method, Notification, Request};
use crate::sessions::session::Session;
use crate::supervision::ChildPhase;

/// A connection for one client that is being opened. Completes when it is open or has failed, at
/// the latest after half of `request_timeout`.
pub(super) struct Opening(pub(super) LocalBoxFuture<'static, ()>);

impl Opening {
    /// Returns the opening that a notification in a single-server view waits for, because it must
    /// reach the client's own session at that server.
    pub(super) fn for_notification(session: &Session, notification: &Notification) -> Option<Self> {
        let is_for_server = matches!(
            notification.method,
            Method::Progress | Method::RootsListChanged | Method::Other(_)
        );
        let catalog = session.catalog();
        let server = catalog.one_server().filter(|_| is_for_server)?;
        let downstreams = &session.context.calls.downstreams;
        Self::at(&*downstreams.get(server.part.server())?, session)
    }

    /// Returns the opening that a subscription waits for, because subscriptions are registered for
    /// the connection that serves the client.
    pub(super) fn for_subscription(session: &Session, request: &Request) -> Option<Self> {
        let target = call_target::target(request, &session.catalog(), None).ok()?;
        let downstreams = &session.context.calls.downstreams;
        Self::at(&*downstreams.get(&target.server)?, session)
    }

    /// Opens the connection; `None` if it is already open.
    fn at(server: &Server, session: &Session) -> Option<Self> {
        let key = server.unopened_key_for(&session.caller)?;
        let until = Instant::now() + server.settings().limits.request_timeout / 2;
        let downstreams = session.context.calls.downstreams.clone();
        let (name, arbiter, id) = (server.name().clone(), session.arbiter, session.id);
        Some(Self(Box::pin(async move {
            let opened = downstreams.open(name, key, arbiter, Some(id));
            // The request that follows reports why opening failed.
            let Ok(Ok(child)) = timeout_at(until, opened).await else {
                return;
            };
            let mut changes = child.subscribe();
            if child.phase() == ChildPhase::Idle {
                child.wake();
            }
            let is_settled = |phase| !matches!(phase, ChildPhase::Idle | ChildPhase::Starting);
            let settled = changes.wait_for(|snapshot| is_settled(snapshot.status.phase()));
            drop(timeout_at(until, settled).await);
        })))
    }
}
