//! Ends an incarnation of a connection: fails its calls at once and reports the reason.

use std::sync::Arc;

use crate::downstream::call_sender::SenderCommand;
use crate::downstream::connection::control::Control;
use crate::downstream::connection::crash_report::ConnectionLife;
use crate::downstream::server_event::ServerEvent;
use crate::supervision::ExitReason;
use crate::telemetry::{Counter, Reason};
use crate::transport::{Link, LinkEnd, ProcessExit};

impl Control {
    /// Ends this incarnation with an error; the supervisor starts the next one.
    pub(super) fn fail(&mut self, reason: impl Into<Reason>) {
        self.closed(reason.into().into());
    }

    /// Ends this incarnation because its link closed. Callers get the reason at once, without the
    /// server's own text.
    pub(super) fn closed(&mut self, ending: LinkEnd) {
        let mut ending = self.spec.shown(ending);
        let limits = &self.spec.settings().limits;
        if let Some(ProcessExit::Code(code)) = ending.exit
            && limits.restart_on_exit.contains(&code)
        {
            ending.reason = ending.reason.as_planned();
        }
        if let Some(ProcessExit::Code(code)) = ending.exit
            && limits.stop_on_exit.contains(&code)
        {
            let stays = "it starts again when its configuration changes or an operator starts it, \
                         because `stop_on_exit` names this code";
            ending.reason = ending
                .reason
                .joined(&Reason::from(stays.to_owned()))
                .without_retry();
        }
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

    /// Ends this incarnation because a sender died. A panic of a sender counts as the connection's.
    pub(super) fn sender_died(&mut self, why: ExitReason) {
        let reason = Reason::quoting("a sender of its calls died", &why.to_string());
        if why.is_panic() {
            self.birth.exit().say(why);
        }
        self.fail(reason);
    }

    fn end_calls(&self, reason: &str) {
        self.tell_senders(|| SenderCommand::End(reason.to_owned()));
    }

    /// Counts the end of the connection while its state is still known.
    fn count_end(&mut self, ending: Option<&LinkEnd>) {
        (self.measurement).count_end(&self.spec, &self.state, ending);
    }

    /// Ends this incarnation because it shall end. Returns the link that has to be closed, if any.
    pub(super) fn close(&mut self) -> Option<Box<dyn Link>> {
        self.end_calls("the gateway closed the connection");
        self.count_end(None);
        let ended = self.state.end();
        let link = ended.link()?;
        if self.spec.own_session.is_left_open() {
            // The session stays open at the server: another link will resume it.
            return None;
        }
        self.spec.own_session.lost();
        link.take()
    }

    fn report(&self, ending: &LinkEnd) {
        if self.state.is_ending() {
            return;
        }
        let life = ConnectionLife {
            generation: self.birth.generation(),
            began: self.began,
            was_open: self.state.link().is_some(),
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
