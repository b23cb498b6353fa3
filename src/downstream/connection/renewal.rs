//! Renews a session that a Streamable HTTP server lost: a new handshake on the same link, unnoticed
//! by clients (C-HTTP-15).

use actix::{AsyncContext, Context, Handler};
use tokio::time::Instant;

use crate::downstream::connection::Connection;
use crate::downstream::connection::state::{ConnectionState, OpenConnection};
use crate::downstream::worker_channel::{
    WorkerChannelCommand, WorkerChannelEvent, WorkerChannelHandle,
};
use crate::telemetry::{Counter, LogSource};
use crate::transport::{HttpSession, LinkError};

impl Connection {
    /// Starts a new handshake after the session was refused with `error`, unless one is in
    /// progress.
    pub(super) fn renew(&mut self, error: &LinkError, ctx: &mut Context<Self>) {
        let mut open = match self.state.end() {
            ConnectionState::Ready(open) => open,
            // The handshake in progress opens a new session.
            other => return self.state = other,
        };
        let why = self.spec.masked(&format!("{error:#}"));
        log::warn!(server = self.spec.server().as_str(), why; "server lost the session; opening a new one");
        let remark = format!("server lost the session ({why}); opening a new one");
        self.spec.of_server.log.push(LogSource::Gateway, &remark);
        self.spec.session.renewing();
        self.spec.own_session.lost();
        let stable_after = self.spec.settings().supervision.stable_after;
        let pause = self.session.on_renewed(Instant::now(), stable_after);
        self.spec.of_all.counters.add(Counter::ServersRenewed);
        self.own.clear();
        // When only a worker channel was refused, this link still has the old session's id, which
        // must not be sent with `initialize`.
        open.calls.hold();
        if let Some(session) = open.calls.link().http_session() {
            open.calls.link().set_session(HttpSession {
                id: None,
                ..session
            });
        }
        self.state = ConnectionState::Renewing(open);
        if pause.is_zero() {
            return self.send_initialize(ctx);
        }
        ctx.run_later(pause, |connection, ctx| {
            if let ConnectionState::Renewing(_) = connection.state {
                connection.send_initialize(ctx);
            }
        });
    }
}

impl OpenConnection {
    fn channel(&self, arbiter: usize) -> Option<&WorkerChannelHandle> {
        let mut channels = self.worker_channels.iter();
        channels.find(|channel| channel.arbiter == arbiter)
    }

    /// Resends the requests that the server refused, now that the new handshake is done.
    pub(super) fn renewed(&mut self, wants_events: bool) {
        if !self.negotiated.is_modern() && wants_events {
            self.calls.link().listen();
        }
        self.calls.resend(Instant::now());
        if let Some(session) = self.calls.link().http_session() {
            for worker_channel in &self.worker_channels {
                let renewed = WorkerChannelCommand::Renewed(session.clone());
                worker_channel.address.do_send(renewed);
            }
        }
    }
}

impl Handler<WorkerChannelEvent> for Connection {
    type Result = ();

    fn handle(&mut self, message: WorkerChannelEvent, ctx: &mut Self::Context) {
        // Worker channels end before the link is closed, which takes a while.
        if self.state.is_ending() {
            return;
        }
        match message {
            WorkerChannelEvent::UnhandledEvent(unhandled) => self.on_unhandled(*unhandled, ctx),
            WorkerChannelEvent::SessionRefused {
                arbiter,
                session,
                error,
            } => {
                if let ConnectionState::Ready(open) = &self.state
                    && let Some(current) = open.calls.link().http_session()
                    && current != session
                    && let Some(channel) = open.channel(arbiter)
                {
                    // The worker channel used a session that has been replaced since.
                    let renewed = WorkerChannelCommand::Renewed(current);
                    return channel.address.do_send(renewed);
                }
                self.session_doubted(&error, ctx);
            }
            WorkerChannelEvent::Suspected => self.suspect(ctx),
            WorkerChannelEvent::Died(why) => self.fail(format!("a worker channel {why}"), ctx),
        }
    }
}
