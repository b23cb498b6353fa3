//! Ends an incarnation of a connection: fails its calls at once and reports the reason.

use std::sync::Arc;

use actix::fut::wrap_future;
use actix::{ActorContext as _, ActorFutureExt as _, AsyncContext as _, Context, Handler};

use crate::downstream::connection::Connection;
use crate::downstream::connection::crash_report::ConnectionLife;
use crate::downstream::connection::state::ConnectionState;
use crate::downstream::server_event::ServerEvent;
use crate::downstream::worker_channel::WorkerChannelCommand;
use crate::supervision::{ExitReason, Shutdown};
use crate::telemetry::{Counter, Reason};
use crate::transport::LinkEnd;

impl Connection {
    /// Ends this incarnation with an error; the supervisor starts the next one.
    pub(super) fn fail(&mut self, reason: impl Into<Reason>, ctx: &mut Context<Self>) {
        self.closed(reason.into().into(), ctx);
    }

    /// Ends this incarnation because its link closed. Callers get the reason at once, without the
    /// server's own text.
    pub(super) fn closed(&mut self, ending: LinkEnd, ctx: &mut Context<Self>) {
        let ending = self.spec.shown(ending);
        if ending.limit.is_some() {
            let why = ExitReason::LimitReached(Arc::new(ending.reason.clone()));
            self.birth.exit().say(why);
        }
        self.report(&ending);
        self.spec.own_session.lost();
        self.count_end(Some(&ending));
        self.end_calls(&ending.reason.to_string());
        self.state.end();
        self.spec.of_all.counters.add(Counter::ServersLost);
        self.send_event(ServerEvent::Away);
        self.birth.exit().fail(ending.reason);
        ctx.stop();
    }

    pub(super) fn end_calls(&mut self, reason: &str) {
        if let Some(calls) = self.state.calls_mut() {
            calls.fail_all(reason);
        }
        for worker_channel in self.state.worker_channels() {
            let end = WorkerChannelCommand::End(reason.to_owned());
            worker_channel.address.do_send(end);
        }
    }

    fn report(&self, ending: &LinkEnd) {
        if self.state.is_ending() {
            return;
        }
        let life = ConnectionLife {
            generation: self.birth.generation(),
            began: self.began,
            was_open: self.state.calls().is_some(),
            was_up: self.state.negotiated().is_some(),
        };
        self.spec.report_crash(life, ending);
    }
}

impl Handler<Shutdown> for Connection {
    type Result = ();

    fn handle(&mut self, _: Shutdown, ctx: &mut Self::Context) {
        self.end_calls("the gateway closed the connection");
        self.count_end(None);
        // Worker channels stay until the link is closed, because they still have to answer their
        // calls.
        let (calls, worker_channels) = match self.state.end() {
            ConnectionState::Handshaking { calls, .. } => (*calls, Vec::new()),
            ConnectionState::Ready(open) | ConnectionState::Renewing(open) => {
                (open.calls, open.worker_channels)
            }
            ConnectionState::Opening | ConnectionState::Ending => return ctx.stop(),
        };
        if self.spec.own_session.is_left_open() {
            // The session stays open at the server: another link will resume it.
            return ctx.stop();
        }
        self.spec.own_session.lost();
        let grace = self.spec.settings().supervision.shutdown_timeout / 3;
        let closing = wrap_future::<_, Self>(calls.into_link().close(grace));
        ctx.spawn(closing.map(move |(), _, ctx| {
            drop(worker_channels);
            ctx.stop();
        }));
    }
}

/// A connection that is dropped before it reached its ending state either panicked or was ended by
/// its supervisor.
impl Drop for Connection {
    fn drop(&mut self) {
        self.spec.progress.set(None);
        let changes = &self.spec.of_all.list_changes;
        changes.forget(self.spec.server(), &self.spec.key);
        if self.state.is_ending() {
            return;
        }
        let reason = match self.birth.exit().reason() {
            Some(reason) => format!("connection {reason}"),
            None => "connection panicked".to_owned(),
        };
        let ending = reason.into();
        self.report(&ending);
        self.count_end(Some(&ending));
    }
}
