//! A Streamable HTTP server forgot our session: a new handshake on the same link, which no
//! client notices (C-HTTP-15).

use actix::{Context, Handler};

use super::super::lane::FromLane;
use super::Connection;
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
        // On a lane only the lane forgot the old id: sent with `initialize`, it would be kept.
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
        for lane in &self.lanes {
            lane.renewed(session.clone());
        }
    }
}

impl Handler<FromLane> for Connection {
    type Result = ();

    fn handle(&mut self, message: FromLane, ctx: &mut Self::Context) {
        // Lanes end before the link is closed, which takes its time.
        if self.calls.is_none() {
            return;
        }
        match message {
            FromLane::Unhandled(unhandled) => self.on_unhandled(*unhandled, ctx),
            FromLane::SessionGone { arbiter, session } => {
                let current = self
                    .calls
                    .as_ref()
                    .and_then(|calls| calls.link().http_session());
                let lane = self.lanes.iter().find(|lane| lane.arbiter == arbiter);
                match (current, lane) {
                    // The lane spoke in a session that was replaced meanwhile.
                    (Some(current), Some(lane)) if current != session && !self.renewing => {
                        lane.renewed(current);
                    }
                    _ => self.renew(ctx),
                }
            }
            // While this connection closes, its lanes end as they were told.
            FromLane::Died(_) if self.calls.is_none() => {}
            FromLane::Died(why) => self.fail(format!("a lane {why}"), ctx),
        }
    }
}
