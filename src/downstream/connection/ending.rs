//! Ends an incarnation of a connection: fails its calls at once and reports the reason.

use std::sync::Arc;

use crate::downstream::connection::control::Control;
use crate::downstream::connection::crash_report::ConnectionLife;
use crate::downstream::connection::state::ConnectionState;
use crate::downstream::server_event::ServerEvent;
use crate::downstream::worker_channel::{WorkerChannelCommand, WorkerChannelHandle};
use crate::supervision::ExitReason;
use crate::telemetry::{Counter, Reason};
use crate::transport::{Link, LinkEnd};

impl Control {
    /// Ends this incarnation with an error; the supervisor starts the next one.
    pub(super) fn fail(&mut self, reason: impl Into<Reason>) {
        self.closed(reason.into().into());
    }

    /// Ends this incarnation because its link closed. Callers get the reason at once, without the
    /// server's own text.
    pub(super) fn closed(&mut self, ending: LinkEnd) {
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
        self.has_ended = true;
    }

    fn end_calls(&mut self, reason: &str) {
        if let Some(calls) = self.state.calls_mut() {
            calls.fail_all(reason);
        }
        self.tell_worker_channels(|| WorkerChannelCommand::End(reason.to_owned()));
    }

    /// Counts the end of the connection while its state is still known.
    fn count_end(&mut self, ending: Option<&LinkEnd>) {
        (self.measurement).count_end(&self.spec, &self.state, ending);
    }

    /// Ends this incarnation because it shall end. Returns the link that has to be closed, if any.
    pub(super) fn close(&mut self) -> Option<(Box<dyn Link>, Vec<WorkerChannelHandle>)> {
        self.end_calls("the gateway closed the connection");
        self.count_end(None);
        let (calls, worker_channels) = match self.state.end() {
            ConnectionState::Handshaking { calls, .. } => (*calls, Vec::new()),
            ConnectionState::Ready(open) | ConnectionState::Renewing(open) => {
                (open.calls, open.worker_channels)
            }
            ConnectionState::Opening | ConnectionState::Ending => return None,
        };
        if self.spec.own_session.is_left_open() {
            // The session stays open at the server: another link will resume it.
            return None;
        }
        self.spec.own_session.lost();
        Some((calls.into_link(), worker_channels))
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

/// A connection that is dropped before it reached its ending state either panicked or was ended by
/// its supervisor.
impl Drop for Control {
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
