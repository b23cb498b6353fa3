//! Opens the client's own session at a server before its first call, where something else needs it.

use actix::fut::wrap_future;
use actix::{ActorFutureExt, AsyncContext, Context};
use futures_util::future::LocalBoxFuture;
use tokio::time::{Instant, timeout_at};

use crate::calls::{ClientRequest, call_target};
use crate::downstream::Server;
use crate::protocol::{Method, Notification, Request};
use crate::sessions::session::Session;
use crate::supervision::ChildPhase;

impl Session {
    /// Takes a notification of the client. One for the only server of the view waits until the client's
    /// session at the server is open.
    pub(super) fn notify(&mut self, notification: Notification, ctx: &mut Context<Self>) {
        let opening = match self.opening_for(&notification) {
            Some(opening) if self.waiting < self.context.calls.settings.load().calls_max => opening,
            _ => return self.on_notification(&notification, ctx),
        };
        self.waiting += 1;
        ctx.spawn(
            wrap_future::<_, Self>(opening).map(move |(), session, ctx| {
                session.waiting -= 1;
                session.on_notification(&notification, ctx);
            }),
        );
    }

    fn opening_for(&self, notification: &Notification) -> Option<LocalBoxFuture<'static, ()>> {
        let is_for_server = matches!(
            notification.method,
            Method::Progress | Method::RootsListChanged | Method::Other(_)
        );
        let catalog = self.catalog();
        let server = catalog.one_server().filter(|_| is_for_server)?;
        self.opening(&*self.context.calls.downstreams.get(server.part.server())?)
    }

    /// A subscription is registered for the connection that serves the client, so that connection must be
    /// known first. Returns the request if it does not have to wait.
    pub(super) fn subscribe_later(
        &mut self,
        request: ClientRequest,
        ctx: &mut Context<Self>,
    ) -> Option<ClientRequest> {
        let Some(opening) = self.opening_of_subscription(&request.request) else {
            return Some(request);
        };
        if self.waiting >= self.context.calls.settings.load().calls_max {
            return Some(request);
        }
        self.waiting += 1;
        ctx.spawn(
            wrap_future::<_, Self>(opening).map(move |(), session, ctx| {
                session.waiting -= 1;
                let catalog = session.catalog();
                session.call(request, &catalog, ctx);
            }),
        );
        None
    }

    fn opening_of_subscription(&self, request: &Request) -> Option<LocalBoxFuture<'static, ()>> {
        if request.method != Method::ResourcesSubscribe {
            return None;
        }
        let target = call_target::target(request, &self.catalog(), None).ok()?;
        self.opening(&*self.context.calls.downstreams.get(&target.server)?)
    }

    /// Opens the connection that serves the client at a server, unless it is open. Ends when it is open or
    /// failed, at the latest after half of `request_timeout`.
    fn opening(&self, server: &Server) -> Option<LocalBoxFuture<'static, ()>> {
        let key = server.unopened_key_for(&self.caller)?;
        let until = Instant::now() + server.settings().limits.request_timeout / 2;
        let (downstreams, name) = (
            self.context.calls.downstreams.clone(),
            server.name().clone(),
        );
        let (arbiter, session) = (self.arbiter, Some(self.id));
        let opening = async move {
            let opened = downstreams.open(name, key, arbiter, session);
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
        };
        Some(Box::pin(opening))
    }
}
