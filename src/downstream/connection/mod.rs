//! The actor behind one connection to a server: opens it, performs the handshake, relays calls.
//!
//! The pool starts it under a supervisor, from a [`ConnectionSpec`]. Sessions send it
//! [`CallMessage`]s, which it passes to its calls in flight. It fetches the server's lists, pings
//! the server, and publishes the server's events outside of calls.
//!
//! - `spec`: the data that every incarnation is built from, and the messages to and from it
//! - `state`: the stages of a connection
//! - `opening`, `era_probe`, `handshake`: from the start to an answer that proves the era
//! - `ready`: worker channels and subscriptions after the handshake
//! - `own_requests`: the gateway's own requests: handshake, lists, pings
//! - `list_fetch`, `list_refresh`: fetch a list page by page; keep all lists up to date
//! - `listen_stream`, `listen_filter`: the event stream of a sessionless server
//! - `unowned_requests`: requests of the server that arrive outside of a call's stream
//! - `liveness`, `session_watch`: pings, and whether the server still knows the session
//! - `renewal`: a new handshake after an HTTP server lost the session
//! - `measurement`: durations for the metrics
//! - `ending`, `crash_report`: the end of an incarnation, and its report
//!
//! The connection does not know about HTTP clients, other servers, or its own restarts.

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
mod ready;
mod renewal;
mod server_events;
mod session_watch;
pub(crate) mod spec;
mod state;
mod unowned_requests;

use std::sync::Arc;

use actix::{Actor, Context, Handler, SpawnHandle};
use serde_json::Value;
use tokio::time::Instant;

use crate::catalog::{ItemKind, ServerPart};
use crate::downstream::call_request::{CallMessage, ClientAnswer};
use crate::downstream::cause::error_kind;
use crate::downstream::connection::measurement::error_of_response;
use crate::downstream::connection::own_requests::{OwnRequest, OwnRequests};
use crate::downstream::connection::spec::{CallSenders, ConnectionCommand, ConnectionSpec};
use crate::downstream::era::LiveConnection;
use crate::downstream::era::modern;
use crate::downstream::in_flight::{CallsInFlight, UnhandledEvent};
use crate::downstream::link_inbox::{EventsArrived, LinkInbox};
use crate::downstream::resilience::admission::QueueTurn;
use crate::downstream::starting::StartPlace;
use crate::downstream::timer::Timer;
use crate::metrics::{ErrorType, MethodLabel};
use crate::protocol::{
    Era, ErrorKind, LogLevel, Method, Outcome, RequestId, Response, notification, request,
};
use crate::supervision;
use crate::telemetry::{Cause, Reason};
use crate::transport::{LinkError, LinkEvent, OutgoingFrame, SendError};
use list_refresh::ListState;
use listen_stream::{ListenState, ended};
use session_watch::SessionWatch;
use state::ConnectionState;

pub(crate) struct Connection {
    spec: Arc<ConnectionSpec>,
    birth: supervision::SupervisorLink<CallSenders>,
    inbox: LinkInbox,
    state: ConnectionState,
    /// Counts the connection as live until it is dropped.
    living: Option<LiveConnection>,
    /// Slot in the start queue.
    place: Option<StartPlace>,
    own: OwnRequests,
    part: ServerPart,
    lists: ListState,
    listening: ListenState,
    /// The log level that was last sent to the server.
    sent_log_level: Option<LogLevel>,
    timer: Timer,
    refreshes: Option<SpawnHandle>,
    next_ping: Option<SpawnHandle>,
    session: SessionWatch,
    /// When the server's write queue became full.
    unread_since: Option<Instant>,
    last_received: Instant,
    /// When a large answer last arrived or was discarded.
    last_large: Option<Instant>,
    began: Instant,
    /// When the connection became ready.
    up_since: Option<Instant>,
    /// Whether this is one client's session. Its lists are the shared ones until calls of the
    /// client could have changed them.
    is_own_session: bool,
}

impl Connection {
    pub(crate) fn new(
        spec: Arc<ConnectionSpec>,
        birth: supervision::SupervisorLink<CallSenders>,
    ) -> Self {
        let part = spec.last_part.load_full();
        let part = part.map_or_else(
            || ServerPart::new(spec.server().clone()),
            |part| ServerPart::clone(&part),
        );
        spec.begin_recording();
        spec.client_tasks.forget_all();
        spec.session.begin();
        Self {
            spec,
            birth,
            inbox: LinkInbox::default(),
            state: ConnectionState::Opening,
            living: None,
            place: None,
            own: OwnRequests::default(),
            part,
            lists: ListState::default(),
            listening: ListenState::default(),
            sent_log_level: None,
            timer: Timer::default(),
            refreshes: None,
            next_ping: None,
            session: SessionWatch::default(),
            unread_since: None,
            last_received: Instant::now(),
            last_large: None,
            began: Instant::now(),
            up_since: None,
            is_own_session: false,
        }
    }

    /// Sends one of the gateway's own requests, and returns its number. A link that does not accept
    /// it counts as dead.
    fn ask_server(
        &mut self,
        method: &Method,
        params: &Value,
        own: OwnRequest,
        ctx: &mut Context<Self>,
    ) -> Option<u64> {
        let calls = self.state.calls()?;
        let number = self.spec.of_all.numbers.next();
        let settings = self.spec.settings();
        let within = match own {
            OwnRequest::Ping | OwnRequest::Probe => settings.limits.ping_timeout,
            OwnRequest::Initialize
            | OwnRequest::Discover
            | OwnRequest::Listen
            | OwnRequest::Page(_)
            | OwnRequest::ConnectionCommand(_) => settings.supervision.connect_timeout,
        };
        let outgoing = if matches!(own, OwnRequest::Discover) || self.is_modern() {
            modern::own(number, method, params)
        } else {
            OutgoingFrame::new(Some(number), request(number, method, params))
        };
        let outgoing = OutgoingFrame {
            is_own: true,
            ..outgoing
        };
        match calls.link().send(outgoing) {
            Ok(()) => {
                self.unread_since = None;
                let is_question = matches!(own, OwnRequest::Initialize | OwnRequest::Discover);
                let method = MethodLabel::of(method);
                self.own.add(number, (own, method), Instant::now(), within);
                if is_question && self.state.era_probe().is_some() {
                    // The opening has its own deadlines.
                    self.own.keep(number);
                }
                self.arm(ctx);
                Some(number)
            }
            Err(SendError::Full) if matches!(own, OwnRequest::Ping) => {
                self.unread(ctx);
                None
            }
            Err(error) => {
                self.fail(format!("`{method}` was not sent: {error}"), ctx);
                None
            }
        }
    }

    fn is_modern(&self) -> bool {
        self.state.is_modern()
    }

    fn notify_server(&self, method: &Method, params: Option<&Value>) {
        if let Some(calls) = self.state.calls() {
            // A dead link reports its own end.
            let _ = calls
                .link()
                .send(OutgoingFrame::new(None, notification(method, params)));
        }
    }

    fn on_event(&mut self, event: LinkEvent, now: Instant, ctx: &mut Context<Self>) {
        if matches!(event, LinkEvent::Received { .. }) {
            self.on_sign_of_life();
        }
        let Some(calls) = self.state.calls_mut() else {
            // Some links require a sign-in before they open.
            if let LinkEvent::SignIn(place) = event {
                self.on_sign_in(place, ctx);
            }
            return;
        };
        if let Some(unhandled) = calls.on_event(event, now) {
            self.on_unhandled(unhandled, ctx);
        }
    }

    /// Handles an event that belongs to no client's call, on this link or on a worker channel.
    fn on_unhandled(&mut self, unhandled: UnhandledEvent, ctx: &mut Context<Self>) {
        match unhandled {
            UnhandledEvent::Response(response) => self.on_response(&response, ctx),
            UnhandledEvent::Notification(notification) => self.on_notification(notification, ctx),
            UnhandledEvent::Request {
                request,
                of_ended_call,
            } => self.on_request(request, of_ended_call, ctx),
            UnhandledEvent::Failed { number, error } => self.on_failed(number, &error, ctx),
            UnhandledEvent::SessionRefused { number, error } => {
                self.session_refused(number, &error, ctx);
            }
            UnhandledEvent::SignIn(place) => self.on_sign_in(place, ctx),
            UnhandledEvent::Closed(ending) if self.starts_over(&ending, ctx) => {}
            UnhandledEvent::Closed(ending) => self.closed(ending, ctx),
            UnhandledEvent::Subscription(exchange) => self.on_subscription(*exchange, ctx),
            UnhandledEvent::HeadersRefused => self.list_changed(&[ItemKind::Tools], ctx),
            UnhandledEvent::RevisionRefused => {
                self.spec.of_server.era.forget();
                let revision = modern::REVISION;
                self.fail(format!("server no longer speaks {revision}"), ctx);
            }
        }
    }

    fn on_response(&mut self, response: &Response, ctx: &mut Context<Self>) {
        let number = response.id.as_ref().and_then(RequestId::as_number);
        let number = number.or_else(|| self.unread_question(response));
        let error = || error_of_response(response);
        let Some(own) = number.and_then(|number| self.take_own(number, error)) else {
            // The call was cancelled or timed out (C-CANC-03).
            return;
        };
        match own {
            OwnRequest::Initialize => self.on_initialized(response, ctx),
            OwnRequest::Discover => self.on_discovered(response, ctx),
            OwnRequest::Listen => {
                let number = number.unwrap_or_default();
                self.listen_refused(number, response);
                self.listen_ended(number, &ended(response), ctx);
            }
            OwnRequest::Page(fetch) => self.on_page(fetch, response, ctx),
            // Even an error proves that the server is alive.
            OwnRequest::Ping => self.question_answered(true, ctx),
            OwnRequest::Probe => self.question_answered(false, ctx),
            OwnRequest::ConnectionCommand(_) => {}
        }
    }

    /// The number of `server/discover`, if this is an error without an id from a server that could
    /// not parse the request.
    fn unread_question(&self, response: &Response) -> Option<u64> {
        let is_error = matches!(response.outcome, Outcome::Error(_)) && response.id.is_none();
        is_error.then(|| self.own.sole_discover()).flatten()
    }

    fn on_failed(&mut self, number: u64, error: &LinkError, ctx: &mut Context<Self>) {
        let kind = error
            .cause()
            .and_then(error_kind)
            .unwrap_or(ErrorKind::ServerLost);
        let failed = || Some(ErrorType::Failure(kind, false));
        match self.take_own(number, failed) {
            Some(OwnRequest::Initialize) => self.question_failed(Era::Legacy, error, ctx),
            Some(OwnRequest::Discover) => self.question_failed(Era::Modern, error, ctx),
            Some(OwnRequest::Listen) => self.listen_ended(number, &error.to_string(), ctx),
            Some(own @ (OwnRequest::Ping | OwnRequest::Probe)) => match error {
                LinkError::Status { .. } => {
                    self.question_refused(matches!(own, OwnRequest::Ping), error, ctx);
                }
                // The server answered, so it is alive.
                LinkError::Protocol(_) | LinkError::TooLarge { .. } | LinkError::NoRoom(_) => {}
                LinkError::NotSent(_) | LinkError::Lost(_) => {
                    self.fail(format!("`ping`: {error}"), ctx);
                }
            },
            Some(OwnRequest::Page(fetch)) => {
                self.page_failed(&fetch, &format!("{error:#}"), ctx);
                match error {
                    LinkError::NotSent(_) | LinkError::Lost(_) => self.ping(ctx),
                    LinkError::Status { .. } => self.session_doubted(error, ctx),
                    LinkError::TooLarge { .. } | LinkError::NoRoom(_) | LinkError::Protocol(_) => {}
                }
            }
            Some(OwnRequest::ConnectionCommand(name)) => {
                let shown = self.spec.masked(&format!("{error:#}"));
                log::warn!(server = self.spec.server().as_str(), error:% = shown; "`{name}` could not be sent");
                if let LinkError::Status { .. } = error {
                    self.session_doubted(error, ctx);
                }
            }
            // A client's call could not be sent: check whether the server is alive.
            None => self.ping(ctx),
        }
    }

    fn arm(&mut self, ctx: &mut Context<Self>) {
        let of_calls = self.state.calls().and_then(CallsInFlight::next_deadline);
        let of_opening = self.opening_deadline();
        let earliest = of_calls.into_iter().chain(self.own.next_deadline());
        let earliest = earliest.chain(of_opening).min();
        self.timer.set(earliest, ctx, |connection, ctx| {
            connection.timer.fired();
            connection.opening_due(ctx);
            connection.expire(ctx);
            connection.arm(ctx);
        });
    }

    fn expire(&mut self, ctx: &mut Context<Self>) {
        let now = Instant::now();
        if self
            .state
            .calls_mut()
            .is_some_and(|calls| calls.expire(now))
        {
            self.suspect(ctx);
        }
        let timeout = || Some(ErrorType::Failure(ErrorKind::Timeout, false));
        while let Some(number) = self.own.pop_due(now) {
            let sent = self.own.begun(number).map(|(_, sent)| sent);
            let Some(own) = self.take_own(number, timeout) else {
                continue;
            };
            if let Some(calls) = self.state.calls() {
                calls.link().forget(number);
            }
            match own {
                OwnRequest::Initialize | OwnRequest::Discover => {
                    self.fail("`initialize` was not answered in time", ctx);
                }
                OwnRequest::Listen => {
                    self.take_back(number);
                    self.listen_ended(number, "it was not acknowledged in time", ctx);
                }
                // The answer can be queued behind large answers that had no room.
                OwnRequest::Ping | OwnRequest::Probe if self.last_large > sent => self.ping(ctx),
                OwnRequest::Ping | OwnRequest::Probe => {
                    let late = Reason::from("`ping` was not answered in time");
                    self.fail(late.because(Cause::Unresponsive), ctx);
                }
                OwnRequest::Page(fetch) => self.page_failed(&fetch, "no answer in time", ctx),
                OwnRequest::ConnectionCommand(name) => {
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
        self.schedule_checks(ctx);
    }
}

impl Handler<EventsArrived> for Connection {
    type Result = ();

    fn handle(&mut self, _: EventsArrived, ctx: &mut Self::Context) {
        let now = Instant::now();
        for event in self.inbox.take() {
            if let LinkEvent::Received { .. } = event {
                self.last_received = now;
                if self.state.is_ready() {
                    self.spec.session.answered();
                }
            }
            if event.is_of_large_answer() {
                self.last_large = Some(now);
            }
            self.on_event(event, now, ctx);
        }
        self.after_calls(ctx);
    }
}

impl Handler<CallMessage> for Connection {
    type Result = ();

    fn handle(&mut self, message: CallMessage, ctx: &mut Self::Context) {
        let Some(calls) = self.state.calls_mut() else {
            return;
        };
        if self.is_own_session {
            self.spec.called.set();
        }
        if let Some(unhandled) = calls.on_message(message, Instant::now()) {
            self.on_unhandled(unhandled, ctx);
        }
        self.after_calls(ctx);
    }
}

impl Handler<QueueTurn> for Connection {
    type Result = ();

    fn handle(&mut self, turn: QueueTurn, ctx: &mut Self::Context) {
        if let Some(calls) = self.state.calls_mut() {
            calls.on_turn(turn, Instant::now());
            self.after_calls(ctx);
        }
    }
}

impl Handler<ClientAnswer> for Connection {
    type Result = ();

    fn handle(&mut self, answered: ClientAnswer, ctx: &mut Self::Context) {
        let Some(calls) = self.state.calls_mut() else {
            return;
        };
        calls.on_client_answer(answered, &self.spec.settings().roots, Instant::now());
        self.arm(ctx);
    }
}

impl Handler<ConnectionCommand> for Connection {
    type Result = ();

    fn handle(&mut self, command: ConnectionCommand, ctx: &mut Self::Context) {
        match command {
            ConnectionCommand::Level(_)
            | ConnectionCommand::LevelAtLeast(_)
            | ConnectionCommand::RootsChanged
            | ConnectionCommand::Extension(_)
                if self.is_modern() => {}
            ConnectionCommand::Subscribe(_) | ConnectionCommand::Unsubscribe(_)
                if self.is_modern() =>
            {
                self.update_listen_stream(ctx)
            }
            ConnectionCommand::Tasks if self.is_modern() => self.update_listen_stream(ctx),
            // A server with a handshake reports tasks without being asked.
            ConnectionCommand::Tasks => {}
            ConnectionCommand::Level(level) => self.request_log_level(level, ctx),
            ConnectionCommand::LevelAtLeast(level) => {
                if self.sent_log_level.is_none_or(|sent| level < sent) {
                    self.request_log_level(level, ctx);
                }
            }
            ConnectionCommand::Subscribe(uri) => self.subscribe(&uri, ctx),
            ConnectionCommand::Unsubscribe(uri) => self.unsubscribe(&uri, ctx),
            ConnectionCommand::Refresh => self.list_changed(&ItemKind::ALL, ctx),
            ConnectionCommand::Reread(kind) => self.reread(kind, ctx),
            ConnectionCommand::Relist(kind) => self.refresh(&[kind], ctx),
            ConnectionCommand::Listen => self.listen_for_client(),
            ConnectionCommand::RootsChanged => self.notify_server(&Method::RootsListChanged, None),
            ConnectionCommand::Extension(frame) => {
                if let Some(calls) = self.state.calls() {
                    // A dead link reports its own end.
                    let _ = calls.link().send(OutgoingFrame::new(None, frame));
                }
            }
            ConnectionCommand::Check => self.ping(ctx),
            ConnectionCommand::Retune => self.schedule_checks(ctx),
            ConnectionCommand::Kill => {
                if let Some(calls) = self.state.calls() {
                    calls.link().kill();
                }
            }
        }
    }
}
