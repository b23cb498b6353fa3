//! The actor behind one connection to a server: opens it, performs the handshake, starts the senders
//! of calls.
//!
//! The pool starts it under a supervisor, from a [`ConnectionSpec`]. It fetches the server's lists,
//! pings the server, and publishes the server's events outside of calls. Calls do not pass through
//! it: callers send them to its senders, which pass it only what belongs to no call.
//!
//! - `spec`: the data that every incarnation is built from, and the messages to and from it
//! - `control`: what the other parts use: state, own requests, the end of the incarnation
//! - `state`: the stages of a connection
//! - `opening`, `era_probe`, `handshake`: from the start to an answer that proves the era
//! - `ready`: senders and subscriptions after the handshake
//! - `own_requests`: the gateway's own requests: handshake, lists, pings
//! - `probing`: the configured probe, which decides about readiness and liveness
//! - `list_fetch`, `list_refresh`: fetch a list page by page; keep all lists up to date
//! - `listen_stream`, `listen_filter`: the event stream of a sessionless server
//! - `liveness`, `session_watch`: pings, whether the server still knows the session, and a new
//!   handshake if it does not
//! - `measurement`: durations for the metrics
//! - `ending`, `crash_report`: the end of an incarnation, and its report
//!
//! The connection does not know about HTTP clients, other servers, or its own restarts.

mod control;
pub(crate) mod crash_report;
mod ending;
mod era_probe;
pub(crate) mod handshake;
mod list_fetch;
pub(crate) mod list_refresh;
mod listen_filter;
mod listen_stream;
mod liveness;
mod measurement;
mod opening;
mod own_requests;
mod probing;
mod ready;
mod session_watch;
pub(crate) mod spec;
mod state;

use std::sync::Arc;

use actix::fut::wrap_future;
use actix::{
    Actor, ActorContext as _, ActorFutureExt as _, Addr, AsyncContext as _, Context, Handler,
};
use tokio::time::Instant;

use crate::catalog::ItemKind;
use crate::downstream::call_sender::SenderEvent;
use crate::downstream::cause::error_kind;
use crate::downstream::connection::control::{Control, Due};
use crate::downstream::connection::measurement::error_of_response;
use crate::downstream::connection::own_requests::OwnRequest;
use crate::downstream::connection::spec::{CallSenders, ConnectionCommand, ConnectionSpec};
use crate::downstream::era::{KnownEra, LiveConnection, modern};
use crate::downstream::in_flight::UnhandledEvent;
use crate::downstream::list_changes::changed_kinds;
use crate::downstream::starting::StartPlace;
use crate::metrics::ErrorType;
use crate::protocol::{Era, ErrorKind, LogLevel, Method, Notification, Response};
use crate::supervision::{Shutdown, SupervisorLink, Timer};
use crate::telemetry::{Cause, Reason};
use crate::transport::LinkError;
use list_refresh::ServerLists;
use listen_stream::{ListenStreams, ended};
use probing::Probing;
use session_watch::SessionWatch;
use state::ConnectionState;

pub(crate) struct Connection {
    spec: Arc<ConnectionSpec>,
    control: Control,
    address: Addr<Self>,
    timer: Timer,
    /// Era in which a process is started again that exited because of `server/discover`.
    reopen: Option<KnownEra>,
    /// Counts the connection as live until it is dropped.
    living: Option<LiveConnection>,
    /// Slot in the start queue.
    place: Option<StartPlace>,
    lists: ServerLists,
    listening: ListenStreams,
    /// The log level that was last sent to the server.
    sent_log_level: Option<LogLevel>,
    session: SessionWatch,
    probing: Probing,
}

impl Connection {
    pub(crate) fn new(
        spec: Arc<ConnectionSpec>,
        birth: SupervisorLink<CallSenders>,
        address: Addr<Self>,
    ) -> Self {
        spec.begin_recording();
        spec.client_tasks.forget_all();
        spec.session.begin();
        Self {
            lists: ServerLists::new(&spec),
            control: Control::new(spec.clone(), birth),
            spec,
            address,
            timer: Timer::default(),
            reopen: None,
            living: None,
            place: None,
            listening: ListenStreams::default(),
            sent_log_level: None,
            session: SessionWatch::default(),
            probing: Probing::default(),
        }
    }

    /// Ends every handler: opens the connection again if it has to start over, and sets the timer
    /// for what is due next.
    fn settle(&mut self, ctx: &mut Context<Self>) {
        if let Some(known) = self.reopen.take() {
            self.open(known, ctx);
        }
        if self.control.has_ended {
            return ctx.stop();
        }
        let next = self.control.next_deadline();
        self.timer.set(next, ctx, |connection, ctx| {
            connection.timer.fired();
            connection.on_due();
            connection.opening_due();
            connection.expire();
            connection.settle(ctx);
        });
    }

    /// Does everything that is due.
    fn on_due(&mut self) {
        let now = Instant::now();
        while let Some((due, ())) = self.control.due.pop_due(now) {
            let control = &mut self.control;
            match due {
                Due::LeaveQueue => drop(self.place.take()),
                Due::LookWhetherRead => self.look_whether_read(),
                Due::PingIfSilent => self.ping_if_silent(),
                Due::PingAgain => self.ping(),
                Due::Renew if matches!(control.state, ConnectionState::Renewing(_)) => {
                    self.send_initialize();
                }
                Due::Renew => {}
                Due::RefreshAll => {
                    self.lists.refresh_all(control);
                    self.schedule_refresh();
                }
                Due::RefreshStale => self.lists.refresh_stale(control),
                Due::Expire(kind) => self.lists.refresh(&[kind], control),
                Due::RetryList(kind) => self.lists.changed(&[kind], control),
                Due::ReopenStream => self.listening.update(control),
                Due::Probe => self.probing.send(&self.lists, control),
            }
        }
    }

    /// Handles an event that belongs to no client's call, from the sender on this arbiter.
    fn on_unhandled(&mut self, arbiter: usize, unhandled: UnhandledEvent) {
        match unhandled {
            UnhandledEvent::Heard => {
                if let Some(era_probe) = self.control.state.era_probe() {
                    era_probe.on_heard(Instant::now());
                }
            }
            UnhandledEvent::Suspicion => self.suspect(),
            UnhandledEvent::Response(response) => self.on_response(&response),
            UnhandledEvent::Notification(notification) => self.on_notification(notification),
            UnhandledEvent::Unowned(message) => {
                if let Some(senders) = self.control.state.senders() {
                    senders.pass_on(arbiter, message);
                }
            }
            UnhandledEvent::Failed { number, error }
            | UnhandledEvent::SessionRefused {
                number: Some(number),
                error,
                ..
            } => self.on_failed(number, &error),
            UnhandledEvent::SessionRefused { session, error, .. } => {
                let senders = self.control.state.senders();
                let senders = senders.filter(|_| self.control.state.is_ready());
                if !senders.is_some_and(|it| it.update_session(arbiter, session.as_ref())) {
                    self.session_doubted(&error);
                }
            }
            UnhandledEvent::SignIn(place) => self.on_sign_in(place),
            UnhandledEvent::Closed(ending) if self.starts_over(&ending) => {}
            UnhandledEvent::Closed(ending) => self.control.closed(ending),
            UnhandledEvent::Subscription(exchange) => {
                self.listening.on_subscription(*exchange, &mut self.control)
            }
            UnhandledEvent::HeadersRefused => {
                self.lists.changed(&[ItemKind::Tools], &mut self.control)
            }
            UnhandledEvent::RevisionRefused => {
                self.spec.of_server.era.forget();
                let revision = modern::REVISION;
                self.control
                    .fail(format!("server no longer speaks {revision}"));
            }
        }
    }

    fn on_notification(&mut self, notification: Notification) {
        let control = &mut self.control;
        match notification.method {
            Method::SubscriptionsAcknowledged => {
                if self.listening.on_acknowledged(&notification, control) {
                    self.lists.changed(&ItemKind::ALL, control);
                }
            }
            _ if !self.listening.is_current(&notification) => {}
            _ => {
                let kinds = changed_kinds(&notification.method);
                if !kinds.is_empty() {
                    self.lists.changed(kinds, control);
                }
                // Skills have no notification of their own.
                if notification.method == Method::ResourcesListChanged {
                    self.lists.changed(&[ItemKind::Skills], control);
                }
                if let Some(event) = control.event_of(notification) {
                    control.send_event(event);
                }
            }
        }
    }

    fn on_response(&mut self, response: &Response) {
        let number = self.control.own.answered_by(response);
        let error = || error_of_response(response);
        let Some(own) = number.and_then(|number| self.control.take_own(number, error)) else {
            // The call was cancelled or timed out (C-CANC-03).
            return;
        };
        match own {
            OwnRequest::Initialize => self.on_initialized(response),
            OwnRequest::Discover => self.on_discovered(response),
            OwnRequest::Listen => {
                let number = number.unwrap_or_default();
                self.listening.refused(number, response, &self.control);
                self.listening
                    .ended(number, &ended(response), &mut self.control);
            }
            OwnRequest::Page(fetch) => self.lists.on_page(fetch, response, &mut self.control),
            // Even an error proves that the server is alive.
            OwnRequest::Ping => self.probe_answered(true),
            OwnRequest::Probe => self.probe_answered(false),
            OwnRequest::Health => {
                let outcome = probing::outcome_of(response);
                self.probing.on_outcome(outcome, &mut self.control);
            }
            OwnRequest::ConnectionCommand { .. } => {}
        }
    }

    fn on_failed(&mut self, number: u64, error: &LinkError) {
        let kind = error
            .cause()
            .and_then(error_kind)
            .unwrap_or(ErrorKind::ServerLost);
        let failed = || Some(ErrorType::Failure(kind, false));
        match self.control.take_own(number, failed) {
            Some(OwnRequest::Initialize) => self.opening_request_failed(Era::Legacy, error),
            Some(OwnRequest::Discover) => self.opening_request_failed(Era::Modern, error),
            Some(OwnRequest::Listen) => {
                self.listening
                    .ended(number, &error.to_string(), &mut self.control)
            }
            Some(own @ (OwnRequest::Ping | OwnRequest::Probe)) => match error {
                LinkError::Status { .. } => {
                    self.probe_refused(matches!(own, OwnRequest::Ping), error);
                }
                // The server answered, so it is alive.
                LinkError::Protocol(_) | LinkError::TooLarge { .. } | LinkError::NoRoom(_) => {}
                LinkError::NotSent(_) | LinkError::Lost(_) => {
                    self.control.fail(format!("`ping`: {error}"));
                }
            },
            Some(OwnRequest::Page(fetch)) => {
                self.lists
                    .page_failed(&fetch, &format!("{error:#}"), &mut self.control);
                match error {
                    LinkError::NotSent(_) | LinkError::Lost(_) => self.ping(),
                    LinkError::Status { .. } => self.session_doubted(error),
                    LinkError::TooLarge { .. } | LinkError::NoRoom(_) | LinkError::Protocol(_) => {}
                }
            }
            Some(OwnRequest::Health) => {
                let outcome = Err(format!("{error:#}"));
                self.probing.on_outcome(outcome, &mut self.control);
            }
            Some(OwnRequest::ConnectionCommand { name, .. }) => {
                let shown = self.spec.masked(&format!("{error:#}"));
                log::warn!(server = self.spec.server().as_str(), error:% = shown; "`{name}` could not be sent");
                if let LinkError::Status { .. } = error {
                    self.session_doubted(error);
                }
            }
            // A client's call could not be sent: check whether the server is alive.
            None => self.ping(),
        }
    }

    fn expire(&mut self) {
        let now = Instant::now();
        let timeout = || Some(ErrorType::Failure(ErrorKind::Timeout, false));
        while let Some(number) = self.control.own.pop_due(now) {
            let sent = self.control.own.begun(number).map(|(_, sent)| sent);
            let Some(own) = self.control.take_own(number, timeout) else {
                continue;
            };
            self.control.forget(number);
            let last_large = (self.control.state.link()).and_then(|link| link.last_large.get());
            match own {
                OwnRequest::Initialize | OwnRequest::Discover => {
                    self.control.fail("`initialize` was not answered in time");
                }
                OwnRequest::Listen => {
                    self.control.take_back(number);
                    self.listening.ended(
                        number,
                        "it was not acknowledged in time",
                        &mut self.control,
                    );
                }
                // The answer can be queued behind large answers that had no room.
                OwnRequest::Ping | OwnRequest::Probe if last_large > sent => self.ping(),
                OwnRequest::Ping | OwnRequest::Probe => {
                    let late = Reason::from("`ping` was not answered in time");
                    self.control.fail(late.because(Cause::Unresponsive));
                }
                // The answer can be queued behind large answers here as well.
                OwnRequest::Health if last_large > sent => {
                    self.control.set_once(Due::Probe, now);
                }
                OwnRequest::Health => {
                    let outcome = Err("no answer in time".to_owned());
                    self.probing.on_outcome(outcome, &mut self.control);
                }
                OwnRequest::Page(fetch) => {
                    self.lists
                        .page_failed(&fetch, "no answer in time", &mut self.control)
                }
                OwnRequest::ConnectionCommand { name, .. } => {
                    log::warn!(server = self.spec.server().as_str(); "`{name}` was not answered in time");
                }
            }
        }
    }
}

impl Actor for Connection {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.start(ctx);
        self.schedule_checks();
        self.settle(ctx);
    }
}

impl Handler<SenderEvent> for Connection {
    type Result = ();

    fn handle(&mut self, event: SenderEvent, ctx: &mut Self::Context) {
        match event {
            // Senders end before the link is closed, which takes a while.
            _ if self.control.state.is_ending() => return,
            SenderEvent::Unhandled(arbiter, events) => {
                for event in events {
                    if !self.control.state.is_ending() {
                        self.on_unhandled(arbiter, event);
                    }
                }
            }

            SenderEvent::Died(why) => self.control.sender_died(why),
        }
        self.settle(ctx);
    }
}

impl Handler<ConnectionCommand> for Connection {
    type Result = ();

    fn handle(&mut self, command: ConnectionCommand, ctx: &mut Self::Context) {
        match command {
            ConnectionCommand::Level(_)
            | ConnectionCommand::LevelAtLeast(_)
            | ConnectionCommand::RootsChanged
                if self.control.is_modern() => {}
            ConnectionCommand::Subscribe(..) | ConnectionCommand::Unsubscribe(_)
                if self.control.is_modern() =>
            {
                self.listening.update(&mut self.control)
            }
            ConnectionCommand::Tasks if self.control.is_modern() => {
                self.listening.update(&mut self.control)
            }
            // A server with a handshake reports tasks without being asked.
            ConnectionCommand::Tasks => {}
            ConnectionCommand::Level(level) => self.request_log_level(level),
            ConnectionCommand::LevelAtLeast(level) => {
                if self.sent_log_level.is_none_or(|sent| level < sent) {
                    self.request_log_level(level);
                }
            }
            ConnectionCommand::Subscribe(uri, pending) => self.subscribe(&uri, pending),
            ConnectionCommand::Unsubscribe(uri) => self.unsubscribe(&uri),
            ConnectionCommand::Refresh => self.lists.changed(&ItemKind::ALL, &mut self.control),
            ConnectionCommand::Reread(kind) => self.lists.reread(kind, &mut self.control),
            ConnectionCommand::Relist(kind) => self.lists.refresh(&[kind], &mut self.control),
            ConnectionCommand::Listen => self.listen_for_client(),
            ConnectionCommand::RootsChanged => {
                self.control.notify_server(&Method::RootsListChanged)
            }
            ConnectionCommand::Check => self.ping(),
            ConnectionCommand::Retune => {
                self.schedule_checks();
                self.control.due.set(Due::Probe, Instant::now());
            }
            ConnectionCommand::Kill => {
                if let Some(link) = self.control.state.link() {
                    link.with(|link| link.kill());
                }
            }
        }
        self.settle(ctx);
    }
}

impl Handler<Shutdown> for Connection {
    type Result = ();

    fn handle(&mut self, _: Shutdown, ctx: &mut Self::Context) {
        let Some(link) = self.control.close() else {
            return ctx.stop();
        };
        let grace = self.spec.settings().supervision.shutdown_timeout / 3;
        let closing = wrap_future::<_, Self>(link.close(grace));
        ctx.spawn(closing.map(|(), _, ctx| ctx.stop()));
    }
}
