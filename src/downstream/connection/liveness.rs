//! Checks that the server is alive and still knows the session: pings after a silence, and at once
//! when a failed call raises doubt. Renews a session that a Streamable HTTP server lost: a new
//! handshake on the same link, unnoticed by clients (C-HTTP-15).

use serde_json::json;
use tokio::time::Instant;

use crate::downstream::call_sender::SenderCommand;
use crate::downstream::connection::Connection;
use crate::downstream::connection::control::Due;
use crate::downstream::connection::own_requests::OwnRequest;
use crate::downstream::connection::session_watch::SessionVerdict;
use crate::downstream::connection::state::ConnectionState;

use crate::protocol::Method;
use crate::telemetry::{Counter, LogSource, Reason};
use crate::transport::{HttpSession, LinkError};

/// Reason for ending a connection whose sessions do not last.
const SESSION_REFUSED: &str = "server refuses a session that it opened (do several replicas share the address without sticky routing?)";

impl Connection {
    pub(super) fn ping(&mut self) {
        // During a session renewal, nothing is answered.
        if self.control.state.is_ready() && !self.control.own.has_probe() {
            let method = if self.control.is_modern() {
                Method::Discover
            } else {
                Method::Ping
            };
            self.control
                .ask_server(&method, &json!({}), OwnRequest::Ping);
        }
    }

    /// Schedules pings and list refreshes with the current settings.
    pub(super) fn schedule_checks(&mut self) {
        self.control.due.remove(&Due::PingIfSilent);
        self.ping_if_silent();
        self.schedule_refresh();
    }

    pub(super) fn schedule_refresh(&mut self) {
        let every = self.spec.settings().limits.refresh_every;
        let due = &mut self.control.due;
        due.set(Due::RefreshAll, Instant::now() + every);
    }

    /// Pings if the server was silent for the whole interval, and schedules the next check.
    pub(super) fn ping_if_silent(&mut self) {
        let every = self.spec.settings().limits.ping_every;
        if every.is_zero() {
            return;
        }
        let received = (self.control.state.link()).map(|link| link.last_received.get());
        let silent = received.unwrap_or(self.control.began).elapsed();
        let wait = match silent >= every {
            true => {
                self.ping();
                every
            }
            false => every.saturating_sub(silent),
        };
        let due = &mut self.control.due;
        due.set(Due::PingIfSilent, Instant::now() + wait);
    }

    /// Pings the server because a call ended in a way that suggests a fault.
    pub(super) fn suspect(&mut self) {
        let may_ping = !self.spec.settings().limits.ping_every.is_zero();
        if may_ping && self.session.suspects(Instant::now()) {
            self.ping();
        }
    }

    pub(super) fn session_doubted(&mut self, error: &LinkError) {
        if self.control.is_modern() || !self.control.state.is_ready() {
            return;
        }
        if self.session.on_refused(error, self.control.own.has_probe()) {
            self.ping();
        }
    }

    pub(super) fn probe_answered(&mut self, is_ping: bool) {
        let verdict = self.session.on_probe_answered(is_ping, Instant::now());
        let error =
            LinkError::Protocol("the session works for some requests and not for others".into());
        self.judge_session(verdict, &error);
    }

    /// Handles a `ping`, or a list requested instead, that was refused with a status.
    pub(super) fn probe_refused(&mut self, is_ping: bool, error: &LinkError) {
        let settings = self.spec.settings();
        if self.spec.session.has_worked() {
            self.session.on_answer();
        }
        let has_list = !self.control.is_modern() && self.lists.read_kind().is_some();
        let times = (
            settings.supervision.stable_after,
            settings.limits.ping_timeout,
        );
        let verdict =
            self.session
                .on_probe_refused(error, (is_ping, has_list), Instant::now(), times);
        if self.session.is_away() {
            let again = Instant::now() + times.1;
            self.control.set_once(Due::PingAgain, again);
        }
        match verdict {
            // A sessionless server has no session to renew.
            SessionVerdict::Renew | SessionVerdict::GiveUp
                if self.control.is_modern() && !self.session.is_away() => {}
            verdict => self.judge_session(verdict, error),
        }
    }

    fn judge_session(&mut self, verdict: SessionVerdict, error: &LinkError) {
        match verdict {
            SessionVerdict::None => {}
            SessionVerdict::Exists => self.session_confirmed(),
            SessionVerdict::Ask => self.ping(),
            SessionVerdict::AskList => {
                if let Some(kind) = self.lists.read_kind() {
                    self.control
                        .ask_server(&kind.method(), &json!({}), OwnRequest::Probe);
                }
            }
            SessionVerdict::Renew => self.renew(error),
            SessionVerdict::GiveUp => {
                let reason = match self.session.is_away() {
                    true => Reason::of(error).map(|shown| format!("`ping`: {shown}")),
                    false => Reason::quoting(SESSION_REFUSED, &format!("{error:#}")),
                };
                self.control.fail(reason.not_before(error.retry_after()));
            }
        }
    }

    /// Lets the refused calls fail, because the session exists and the refusals concerned the
    /// calls.
    fn session_confirmed(&mut self) {
        self.control
            .tell_senders(|| SenderCommand::SessionConfirmed);
    }

    /// Starts a new handshake after the session was refused with `error`, unless one is in
    /// progress.
    pub(super) fn renew(&mut self, error: &LinkError) {
        let open = match self.control.state.end() {
            ConnectionState::Ready(open) => open,
            // The handshake in progress opens a new session.
            other => return self.control.state = other,
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
        self.control.own.clear();
        // When only a sender on another thread was refused, this link still has the old session's id,
        // which must not be sent with `initialize`.
        let link = &open.senders.link;
        link.awaits_handshake.set(true);
        if let Some(session) = link.http_session() {
            let unknown = HttpSession {
                id: None,
                ..session
            };
            link.with(|link| link.set_session(unknown));
        }
        self.control.state = ConnectionState::Renewing(open);
        if pause.is_zero() {
            return self.send_initialize();
        }
        self.control.due.set(Due::Renew, Instant::now() + pause);
    }
}
