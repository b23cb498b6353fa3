//! Opens the client's own session at a server before its first call, where something else needs it.

use futures_util::future::LocalBoxFuture;
use tokio::time::{Instant, timeout_at};

use crate::calls::call_target;
use crate::downstream::Server;
use crate::protocol::{Method, Notification, Request};
use crate::sessions::session::Session;
use crate::supervision::ChildPhase;

/// The opening of a connection that serves one client. Ends when the connection is open or failed,
/// at the latest after half of `request_timeout`.
pub(super) struct Opening(pub(super) LocalBoxFuture<'static, ()>);

impl Opening {
    /// A notification for the only server of the view goes to the client's session at that server.
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

    /// A subscription is registered for the connection that serves the client, so that connection
    /// must be known first.
    pub(super) fn for_subscription(session: &Session, request: &Request) -> Option<Self> {
        let target = call_target::target(request, &session.catalog(), None).ok()?;
        let downstreams = &session.context.calls.downstreams;
        Self::at(&*downstreams.get(&target.server)?, session)
    }

    /// `None` if the connection is open already.
    fn at(server: &Server, session: &Session) -> Option<Self> {
        let key = server.unopened_key_for(&session.caller)?;
        let until = Instant::now() + server.settings().limits.request_timeout / 2;
        let downstreams = session.context.calls.downstreams.clone();
        let (name, arbiter, id) = (server.name().clone(), session.arbiter, session.id);
        Some(Self(Box::pin(async move {
            let opened = downstreams.open(name, key, arbiter, Some(id));
            // The request that follows reports why there is none.
            let Ok(Ok(child)) = timeout_at(until, opened).await else {
                return;
            };
            let mut changes = child.subscribe();
            if child.snapshot().status.phase() == ChildPhase::Idle {
                child.wake();
            }
            let is_settled = |phase| !matches!(phase, ChildPhase::Idle | ChildPhase::Starting);
            let settled = changes.wait_for(|snapshot| is_settled(snapshot.status.phase()));
            drop(timeout_at(until, settled).await);
        })))
    }
}
