//! Checks that the server is alive and still knows the session: pings after a silence, and at once
//! when a failed call raises doubt.

use actix::{AsyncContext, Context};
use serde_json::json;
use tokio::time::Instant;

use crate::catalog::ItemKind;
use crate::downstream::connection::Connection;
use crate::downstream::connection::own_requests::OwnRequest;
use crate::downstream::connection::session_watch::SessionVerdict;
use crate::downstream::worker_channel::WorkerChannelCommand;
use crate::protocol::Method;
use crate::telemetry::{Cause, Reason};
use crate::transport::LinkError;

/// Reason for ending a connection whose sessions do not last.
const SESSION_REFUSED: &str = "server refuses a session that it opened (do several replicas share the address without sticky routing?)";

impl Connection {
    pub(super) fn ping(&mut self, ctx: &mut Context<Self>) {
        // During a session renewal, nothing is answered.
        if self.state.is_ready() && !self.own.has_question() {
            let method = if self.is_modern() {
                Method::Discover
            } else {
                Method::Ping
            };
            self.ask_server(&method, &json!({}), OwnRequest::Ping, ctx);
        }
    }

    /// Schedules pings and list refreshes with the current settings.
    pub(super) fn schedule_checks(&mut self, ctx: &mut Context<Self>) {
        for timer in self
            .refreshes
            .take()
            .into_iter()
            .chain(self.next_ping.take())
        {
            ctx.cancel_future(timer);
        }
        self.schedule_ping(ctx);
        let every = self.spec.settings().limits.refresh_every;
        self.refreshes = Some(ctx.run_interval(every, |connection, ctx| {
            connection.refresh_all(ctx);
        }));
    }

    /// Pings if the server was silent for the whole interval, and schedules the next check.
    fn schedule_ping(&mut self, ctx: &mut Context<Self>) {
        let every = self.spec.settings().limits.ping_every;
        if every.is_zero() {
            return;
        }
        let silent = self.last_received.elapsed();
        let wait = match silent >= every {
            true => {
                self.ping(ctx);
                every
            }
            false => every.saturating_sub(silent),
        };
        self.next_ping = Some(ctx.run_later(wait, Self::schedule_ping));
    }

    /// Delivers the notifications of calls, and checks the server if a call failed.
    pub(super) fn after_calls(&mut self, ctx: &mut Context<Self>) {
        let Some(calls) = self.state.calls_mut() else {
            return;
        };
        calls.flush();
        if calls.take_suspicion() {
            self.suspect(ctx);
        }
        self.arm(ctx);
    }

    /// Pings the server because a call ended in a way that suggests a fault.
    pub(super) fn suspect(&mut self, ctx: &mut Context<Self>) {
        let may_ping = !self.spec.settings().limits.ping_every.is_zero();
        if may_ping && self.session.suspects(Instant::now()) {
            self.ping(ctx);
        }
    }

    /// Handles a full write queue, into which a ping does not fit: fails the connection if the
    /// queue stays full for the ping timeout.
    pub(super) fn unread(&mut self, ctx: &mut Context<Self>) {
        let within = self.spec.settings().limits.ping_timeout;
        let now = Instant::now();
        match self.unread_since {
            Some(since) if since + within <= now => {
                let reason = Reason::from("server does not read: its write queue is full");
                self.fail(reason.because(Cause::Unresponsive), ctx);
            }
            Some(_) => {}
            None => {
                self.unread_since = Some(now);
                ctx.run_later(within, Self::ping);
            }
        }
    }

    /// Handles a refused session; `number` is set if the refused request was our own.
    pub(super) fn session_refused(
        &mut self,
        number: Option<u64>,
        error: &LinkError,
        ctx: &mut Context<Self>,
    ) {
        if let Some(number) = number {
            return self.on_failed(number, error, ctx);
        }
        self.session_doubted(error, ctx);
    }

    pub(super) fn session_doubted(&mut self, error: &LinkError, ctx: &mut Context<Self>) {
        if self.is_modern() || !self.state.is_ready() {
            return;
        }
        if self.session.on_refused(error, self.own.has_question()) {
            self.ping(ctx);
        }
    }

    pub(super) fn question_answered(&mut self, is_ping: bool, ctx: &mut Context<Self>) {
        let verdict = self.session.on_question_answered(is_ping, Instant::now());
        let error =
            LinkError::Protocol("the session works for some requests and not for others".into());
        self.judge_session(verdict, &error, ctx);
    }

    /// Handles a `ping`, or a list requested instead, that was refused with a status.
    pub(super) fn question_refused(
        &mut self,
        is_ping: bool,
        error: &LinkError,
        ctx: &mut Context<Self>,
    ) {
        let settings = self.spec.settings();
        if self.spec.session.has_worked() {
            self.session.on_answer();
        }
        let has_list = !self.is_modern() && self.listed_kind().is_some();
        let times = (
            settings.supervision.stable_after,
            settings.limits.ping_timeout,
        );
        let verdict =
            self.session
                .on_question_refused(error, (is_ping, has_list), Instant::now(), times);
        if self.session.is_away() {
            ctx.run_later(times.1, Self::ping);
        }
        match verdict {
            // A sessionless server has no session to renew.
            SessionVerdict::Renew | SessionVerdict::GiveUp
                if self.is_modern() && !self.session.is_away() => {}
            verdict => self.judge_session(verdict, error, ctx),
        }
    }

    fn judge_session(
        &mut self,
        verdict: SessionVerdict,
        error: &LinkError,
        ctx: &mut Context<Self>,
    ) {
        match verdict {
            SessionVerdict::None => {}
            SessionVerdict::Exists => self.session_confirmed(ctx),
            SessionVerdict::Ask => self.ping(ctx),
            SessionVerdict::AskList => {
                if let Some(kind) = self.listed_kind() {
                    self.ask_server(&kind.method(), &json!({}), OwnRequest::Probe, ctx);
                }
            }
            SessionVerdict::Renew => self.renew(error, ctx),
            SessionVerdict::GiveUp => {
                let reason = match self.session.is_away() {
                    true => Reason::of(error).map(|shown| format!("`ping`: {shown}")),
                    false => Reason::quoting(SESSION_REFUSED, &format!("{error:#}")),
                };
                self.fail(reason.not_before(error.retry_after()), ctx);
            }
        }
    }

    /// Lets the refused calls fail, because the session exists and the refusals concerned the
    /// calls.
    fn session_confirmed(&mut self, ctx: &mut Context<Self>) {
        if let Some(calls) = self.state.calls_mut() {
            calls.session_confirmed(Instant::now());
        }
        for worker_channel in self.state.worker_channels() {
            let confirmed = WorkerChannelCommand::SessionConfirmed;
            worker_channel.address.do_send(confirmed);
        }
        self.arm(ctx);
    }

    /// A kind whose list was read in this session.
    fn listed_kind(&self) -> Option<ItemKind> {
        let kinds = ItemKind::ALL.into_iter();
        kinds.into_iter().find(|kind| self.lists.was_read(*kind))
    }
}
