//! A Streamable HTTP server forgot our session: a new handshake on the same link, which no
//! client notices (C-HTTP-15).

use actix::{Context, Handler};

use crate::downstream::connection::Connection;
use crate::downstream::worker_channel::WorkerChannelEvent;
use crate::telemetry::Counter;
use crate::transport::HttpSession;

impl Connection {
    /// Starts a new handshake unless one is under way.
    pub(super) fn renew(&mut self, ctx: &mut Context<Self>) {
        if self.renewing {
            return;
        }
        log::info!(server = self.spec.server().as_str(); "server forgot our session: new handshake");
        self.renewing = true;
        self.spec.counters.add(Counter::ServersRenewed);
        self.own.clear();
        // On a worker_channel only the worker_channel forgot the old id: sent with `initialize`, it would be kept.
        if let Some(calls) = &mut self.calls
            && let Some(session) = calls.link().http_session()
        {
            calls.hold();
            calls.link().set_session(HttpSession {
                id: None,
                ..session
            });
        }
        self.send_initialize(ctx);
    }

    /// The new handshake is done: what was refused is sent again.
    pub(super) fn renewed(&mut self) {
        self.renewing = false;
        let Some(calls) = &mut self.calls else { return };
        calls.resend();
        let Some(session) = calls.link().http_session() else {
            return;
        };
        for worker_channel in &self.worker_channels {
            worker_channel.renewed(session.clone());
        }
    }
}

impl Handler<WorkerChannelEvent> for Connection {
    type Result = ();

    fn handle(&mut self, message: WorkerChannelEvent, ctx: &mut Self::Context) {
        // Lanes end before the link is closed, which takes its time.
        if self.calls.is_none() {
            return;
        }
        match message {
            WorkerChannelEvent::UnhandledEvent(unhandled) => self.on_unhandled(*unhandled, ctx),
            WorkerChannelEvent::SessionGone { arbiter, session } => {
                let current = self
                    .calls
                    .as_ref()
                    .and_then(|calls| calls.link().http_session());
                let worker_channel = self
                    .worker_channels
                    .iter()
                    .find(|worker_channel| worker_channel.arbiter == arbiter);
                match (current, worker_channel) {
                    // The worker channel spoke in a session that was replaced meanwhile.
                    (Some(current), Some(worker_channel))
                        if current != session && !self.renewing =>
                    {
                        worker_channel.renewed(current);
                    }
                    _ => self.renew(ctx),
                }
            }
            // While this connection closes, its worker channels end as they were told.
            WorkerChannelEvent::Died(_) if self.calls.is_none() => {}
            WorkerChannelEvent::Died(why) => self.fail(format!("a worker_channel {why}"), ctx),
        }
    }
}
