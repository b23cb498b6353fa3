//! Why a session's actor ends, and what its calls in flight answer then.

use std::time::Duration;

use actix::{AsyncContext as _, Context};
use tokio::sync::oneshot;

use super::Session;
use crate::protocol::{ErrorKind, Failure};

/// How often a session that is to be released looks whether it is quiet: a client can send its next
/// call a few milliseconds after the answer to the last one.
const RELEASE_LOOK: Duration = Duration::from_millis(2);

/// How long a session that is released serves requests that found it before.
const RELEASE_DELAY: Duration = Duration::from_millis(100);

/// Why a session's actor ends.
pub(super) enum SessionEnding {
    /// The session has ended. The sender is notified once the record is deleted.
    ForGood(Option<oneshot::Sender<()>>),
    /// The gateway stops. The session continues in the next process.
    GatewayStops,
    /// The session continues with its owner, in a new actor.
    HandedOver,
    /// The session continues at another replica.
    Moved,
}

impl SessionEnding {
    /// Returns the failure for calls in flight; `None` if the client itself ended the session.
    pub(super) fn failure_of_calls(&self) -> Option<Failure> {
        let (kind, message) = match self {
            Self::ForGood(_) => return None,
            Self::GatewayStops => (
                ErrorKind::ShuttingDown,
                "the gateway stopped before the server answered; the call may have run",
            ),
            Self::HandedOver => (
                ErrorKind::Unauthorized,
                "the session has an owner now and needs credentials; the call may have run",
            ),
            Self::Moved => (
                ErrorKind::ReplicaLost,
                "the session continues at another replica; the call may have run",
            ),
        };
        Some(Failure::new(kind, message))
    }
}

/// Ends the actor as soon as it is quiet, unless the receiver gives up before. Requests that have
/// already found it are still served.
pub(super) fn release(
    session: &mut Session,
    done: oneshot::Sender<()>,
    ctx: &mut Context<Session>,
) {
    if done.is_closed() {
        return;
    }
    if !session.is_quiet() {
        ctx.run_later(RELEASE_LOOK, |session, ctx| release(session, done, ctx));
        return;
    }
    session.context.registry.remove(session.id);
    ctx.run_later(RELEASE_DELAY, |session, ctx| {
        finish_release(session, done, ctx)
    });
}

fn finish_release(session: &mut Session, done: oneshot::Sender<()>, ctx: &mut Context<Session>) {
    if !session.is_quiet() {
        ctx.run_later(RELEASE_DELAY, |session, ctx| {
            finish_release(session, done, ctx)
        });
        return;
    }
    session.context.unregister(session.id);
    session.end(SessionEnding::Moved, ctx);
    // A receiver that gave up has seen that the session is not registered any more.
    let _ = done.send(());
}
