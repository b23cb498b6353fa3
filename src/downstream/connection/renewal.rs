//! A Streamable HTTP server forgot our session: a new handshake on the same link, which no
//! client notices (C-HTTP-15).

use actix::{Context, Handler};

use crate::downstream::connection::Connection;
use crate::downstream::connection::state::{ConnectionState, OpenConnection};
use crate::downstream::worker_channel::{
    WorkerChannelCommand, WorkerChannelEvent, WorkerChannelHandle,
};
use crate::telemetry::Counter;
use crate::transport::HttpSession;

impl Connection {
    /// Starts a new handshake, unless one is in progress.
    pub(super) fn renew(&mut self, ctx: &mut Context<Self>) {
        let mut open = match self.state.end() {
            ConnectionState::Ready(open) => open,
            // The handshake that is in progress opens a new session.
            other => return self.state = other,
        };
        log::info!(server = self.spec.server().as_str(); "forgot our session: new handshake");
        self.spec.of_all.counters.add(Counter::ServersRenewed);
        self.own.clear();
        // When only a worker channel was refused, this link still has the old session's id, which
        // must not be sent with `initialize`.
        if let Some(session) = open.calls.link().http_session() {
            open.calls.hold();
            open.calls.link().set_session(HttpSession {
                id: None,
                ..session
            });
        }
        self.state = ConnectionState::Renewing(open);
        self.send_initialize(ctx);
    }
}

impl OpenConnection {
    fn channel(&self, arbiter: usize) -> Option<&WorkerChannelHandle> {
        let mut channels = self.worker_channels.iter();
        channels.find(|channel| channel.arbiter == arbiter)
    }

    /// The new handshake is done: requests that the server refused are sent again.
    pub(super) fn renewed(&mut self) {
        self.calls.resend();
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
        // Worker channels end before the link is closed, which takes its time.
        if self.state.is_ending() {
            return;
        }
        match message {
            WorkerChannelEvent::UnhandledEvent(unhandled) => self.on_unhandled(*unhandled, ctx),
            WorkerChannelEvent::SessionGone { arbiter, session } => {
                if let ConnectionState::Ready(open) = &self.state
                    && let Some(current) = open.calls.link().http_session()
                    && current != session
                    && let Some(channel) = open.channel(arbiter)
                {
                    // The worker channel spoke in a session that was replaced meanwhile.
                    let renewed = WorkerChannelCommand::Renewed(current);
                    return channel.address.do_send(renewed);
                }
                self.renew(ctx);
            }
            WorkerChannelEvent::Died(why) => self.fail(format!("a worker channel {why}"), ctx),
        }
    }
}
