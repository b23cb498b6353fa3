//! Opens a connection: waits in the start queue, asks for the era, and accepts an answer.

use std::time::Duration;

use actix::fut::wrap_future;
use actix::{ActorFutureExt, AsyncContext, Context};
use serde_json::json;
use tokio::time::Instant;

use crate::downstream::call_sender::Senders;
use crate::downstream::connection::Connection;
use crate::downstream::connection::control::Due;
use crate::downstream::connection::era_probe::{EraProbe, Step, StepTimeouts};
use crate::downstream::connection::handshake::{self, Negotiated};
use crate::downstream::connection::own_requests::OwnRequest;
use crate::downstream::connection::state::ConnectionState;
use crate::downstream::era::KnownEra;
use crate::downstream::refusal;
use crate::downstream::starting::{self, StartStage};
use crate::protocol::{Era, Method, Response, Revision};
use crate::supervision::{ExitReason, Settings as SupervisionSettings};
use crate::telemetry::{Counter, Reason};
use crate::transport::{EventSink, LinkEnd, LinkError, SignInPlace};

/// Time after which a slow start, such as a download, releases its slot in the start queue.
const PLACE_KEPT: Duration = Duration::from_secs(30);

/// Interval at which the gateway checks whether the server has started to read.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Maximum wait for a login through the gateway; then the connection is retried.
const LOGIN_WITHIN: Duration = Duration::from_secs(24 * 60 * 60);

impl Connection {
    /// Opens the link, after the server that this one replaces has ended and, for a program, after
    /// a wait in the start queue.
    pub(super) fn start(&mut self, ctx: &mut Context<Self>) {
        if self.resume() {
            return;
        }
        let spec = self.spec.clone();
        let has_queue = spec.of_server.connector.starts_process();
        if has_queue || spec.of_server.retiring.has(spec.server()) {
            spec.progress.set(Some(StartStage::Queued));
            // The time in the queue counts toward no deadline.
            self.control
                .still_starting(SupervisionSettings::DURATION_MAX);
        }
        let beginning = async move {
            spec.of_server.retiring.gone(spec.server()).await;
            let place = match has_queue {
                true => spec.of_all.starts.enter().await,
                false => None,
            };
            spec.opens().await;
            (spec.look_up_era().await, place)
        };
        let beginning = wrap_future::<_, Self>(beginning);
        ctx.spawn(beginning.map(|(known, place), connection, ctx| {
            connection.place = place;
            connection.open(known, ctx);
            connection.settle(ctx);
        }));
    }

    /// Continues in an idle session, if there is one.
    fn resume(&mut self) -> bool {
        let Some((session, negotiated)) = self.spec.own_session.take() else {
            return false;
        };
        let (senders, sink) = self.start_sender();
        let Some(link) = self.spec.of_server.connector.resume(session, sink) else {
            return false;
        };
        senders.link.set_open(link);
        let senders = Box::new(senders);
        let timeouts = StepTimeouts::of(&self.spec.settings(), Duration::ZERO);
        let known = KnownEra::Configured(Era::Legacy);
        let era_probe = EraProbe::new(known, Era::Legacy, timeouts, Instant::now());
        let era_probe = Box::new(era_probe);
        self.living = Some(self.spec.of_server.era.live());
        self.control.state = ConnectionState::Handshaking { senders, era_probe };
        // The session worked before; if the server lost it, a new one is opened.
        self.session.on_answer();
        self.spec.session.answered();
        self.connected(Negotiated::clone(&negotiated));
        true
    }

    pub(super) fn open(&mut self, known: KnownEra, ctx: &mut Context<Self>) {
        let settings = self.spec.settings();
        let download = starting::downloader(&settings.transport);
        self.spec.progress.set(download.map(StartStage::Download));
        self.control.still_starting(settings.limits.start_timeout);
        let leave_queue = Instant::now() + PLACE_KEPT;
        self.control.due.set(Due::LeaveQueue, leave_queue);
        self.living = Some(self.spec.of_server.era.live());
        let (senders, sink) = self.start_sender();
        let opening = wrap_future::<_, Self>(self.spec.of_server.connector.open(sink));
        ctx.spawn(opening.map(move |link, connection, ctx| {
            match link {
                Ok(link) => {
                    senders.link.set_open(link);
                    connection.opened(senders, known);
                }
                Err(error) => {
                    let reason = Reason::of(&error).because(error.cause());
                    let control = &mut connection.control;
                    control.fail(reason.not_before(error.retry_after()));
                }
            }
            connection.settle(ctx);
        }));
    }

    fn start_sender(&self) -> (Senders, EventSink) {
        Senders::start(self.spec.clone(), self.address.clone().recipient())
    }

    fn opened(&mut self, senders: Senders, known: KnownEra) {
        let senders = Box::new(senders);
        let settings = self.spec.settings();
        let sign_in = match self.spec.of_server.connector.starts_process() {
            true => settings.limits.sign_in_timeout,
            false => LOGIN_WITHIN,
        };
        let timeouts = StepTimeouts::of(&settings, sign_in);
        let preferred = match self.spec.of_server.connector.starts_process() {
            true => Era::Legacy,
            false => Era::Modern,
        };
        let era_probe = EraProbe::new(known, preferred, timeouts, Instant::now());
        let mut era_probe = Box::new(era_probe);
        let of_shared = self.spec.last_part.load();
        if let Some(part) = of_shared.as_ref().filter(|_| self.spec.is_own_session()) {
            era_probe.offer(part.revision);
        }
        if known == KnownEra::Unknown && self.spec.of_server.connector.starts_process() {
            self.spec.of_all.counters.add(Counter::EraInquiries);
        }
        let first = era_probe.first();
        self.control.state = ConnectionState::Handshaking { senders, era_probe };
        self.take_step(Step::Send(first));
        self.look_whether_read();
    }

    fn take_step(&mut self, step: Step) {
        match step {
            Step::Wait => {}
            Step::Send(era) => {
                if let Some(era_probe) = self.control.state.era_probe() {
                    era_probe.on_sent(era, Instant::now());
                }
                match era {
                    Era::Modern => {
                        self.control.ask_server(
                            &Method::Discover,
                            &json!({}),
                            OwnRequest::Discover,
                        );
                    }
                    Era::Legacy => self.send_initialize(),
                }
            }
            Step::Accept(negotiated) => return self.accept(negotiated),
            Step::Fail(reason) => {
                let era_probe = self.control.state.era_probe();
                let is_refused = era_probe.is_some_and(|it| it.disproves_memory());
                if is_refused {
                    self.disproved();
                }
                return match self.spec.key.era {
                    Some(_) if is_refused => self.decline(&reason),
                    _ => self.control.fail(reason),
                };
            }
        }
        self.extend_start();
    }

    /// Records that the server's answer contradicts the remembered era.
    fn disproved(&self) {
        match self.spec.key.era {
            Some(_) => self.spec.of_server.era.tried_older(false),
            None => self.spec.of_server.era.forget(),
        }
    }

    /// Ends a connection in the older era that the server refuses, which is not a fault.
    fn decline(&mut self, reason: &Reason) {
        log::info!(
            server = self.spec.server().as_str(), reason:% = format!("{reason:#}");
            "server speaks only the newer era; its questions to older clients are translated"
        );
        self.control.state.end();
        self.control.birth.exit().say(ExitReason::Shutdown);
        self.control.has_ended = true;
    }

    /// Lets the supervisor abort the start only after the connection would have.
    fn extend_start(&mut self) {
        if let Some(deadline) = self.control.state.opening_deadline() {
            let left = deadline.saturating_duration_since(Instant::now());
            self.control.still_starting(left);
        }
    }

    pub(super) fn send_initialize(&mut self) {
        let era_probe = self.control.state.era_probe();
        let offered = era_probe.map(|era_probe| era_probe.offered());
        let offered = offered.unwrap_or(Revision::NEWEST_LEGACY);
        let key = &self.spec.key;
        let params =
            handshake::initialize_params(&self.spec.declared(), offered, key.client_info());
        self.control
            .ask_server(&Method::Initialize, &params, OwnRequest::Initialize);
    }

    pub(super) fn opening_due(&mut self) {
        let tells_reading = self.control.state.is_read().is_some();
        if let Some(era_probe) = self.control.state.era_probe() {
            let step = era_probe.on_time(tells_reading, Instant::now());
            if matches!(step, Step::Fail(_)) {
                // The remembered era can be wrong.
                self.disproved();
            }
            if step != Step::Wait {
                self.take_step(step);
            }
        }
    }

    /// Checks whether the server has started to read, if the transport knows.
    pub(super) fn look_whether_read(&mut self) {
        let is_read = self.control.state.is_read();
        let Some(era_probe) = self.control.state.era_probe().filter(|it| !it.is_heard()) else {
            return;
        };
        match is_read {
            Some(true) => {
                era_probe.on_heard(Instant::now());
                self.take_step(Step::Wait);
            }
            Some(false) => {
                let again = Instant::now() + LOOK_EVERY;
                self.control.due.set(Due::LookWhetherRead, again);
            }
            None => {}
        }
    }

    /// Handles a required sign-in, which releases the slot in the start queue.
    pub(super) fn on_sign_in(&mut self, place: SignInPlace) {
        let server = self.spec.server().as_str();
        match &place {
            SignInPlace::Page(page) => log::warn!(
                server, host = page.host_str().unwrap_or_default();
                "server waits for a sign-in; `mcpvisor status` shows the page to open"
            ),
            SignInPlace::Gateway | SignInPlace::Client if self.spec.progress.get().is_some() => {}
            SignInPlace::Gateway => match self.spec.key.credentials.user() {
                None => {
                    log::warn!(server; "server needs a login: `mcpvisor auth login {server}`");
                }
                Some(user) => {
                    log::info!(server, principal = user.name(); "a user has to sign in to the server");
                }
            },
            SignInPlace::Client => log::info!(server; "server is waiting for a client's token"),
        }
        if let Some(era_probe) = self.control.state.era_probe() {
            era_probe.on_sign_in(Instant::now());
        } else if matches!(self.control.state, ConnectionState::Opening) {
            self.control.still_starting(LOGIN_WITHIN);
        } else {
            return;
        }
        self.spec.progress.set(Some(StartStage::SignIn(place)));
        self.place.take();
        self.take_step(Step::Wait);
    }

    pub(super) fn on_initialized(&mut self, response: &Response) {
        if let Some(era_probe) = self.control.state.era_probe() {
            let step = era_probe.on_initialized(response, Instant::now());
            return self.take_step(step);
        }
        // A new handshake on a connection that was already open.
        match handshake::negotiated(response) {
            Ok(negotiated) => self.accept(negotiated),
            Err(error) => self.control.fail(Reason::of(&error)),
        }
    }

    pub(super) fn on_discovered(&mut self, response: &Response) {
        if let Some(era_probe) = self.control.state.era_probe() {
            let step = era_probe.on_discovered(response, Instant::now());
            self.take_step(step);
        }
    }

    /// Handles an opening question that failed in transport.
    pub(super) fn opening_request_failed(&mut self, era: Era, error: &LinkError) {
        let Some(era_probe) = self.control.state.era_probe() else {
            let reason = Reason::of(error).map(|shown| format!("`initialize`: {shown}"));
            return self.control.fail(reason.not_before(error.retry_after()));
        };
        // A process that stopped reading is about to exit, and its exit gives the reason.
        if self.spec.of_server.connector.starts_process() && matches!(error, LinkError::NotSent(_))
        {
            return;
        }
        let step = era_probe.on_failed(era, error, Instant::now());
        if let LinkError::Status { status, .. } = error
            && refusal::holds_for_now(*status)
        {
            self.spec.of_server.era.refused_for_now(era);
        }
        self.take_step(step);
    }

    /// Restarts a process that exited because of `server/discover`, without that question. Returns
    /// whether it was restarted.
    pub(super) fn starts_over(&mut self, ending: &LinkEnd) -> bool {
        let is_read = self.control.state.is_read();
        let era_probe = self.control.state.era_probe();
        let Some(era_probe) = era_probe else {
            return false;
        };
        let ended = era_probe.ended_when_asked(is_read);
        let ended_over_handshake = era_probe.ended_over_handshake(is_read);
        if !ended && (era_probe.first() == Era::Modern || self.spec.key.era.is_some()) {
            self.disproved();
        }
        if !self.spec.of_server.connector.starts_process() {
            return false;
        }
        if !ended {
            if ended_over_handshake {
                self.spec.of_server.era.ended_over_handshake();
            }
            return false;
        }
        let ending = self.spec.shown(ending.clone());
        log::info!(
            server = self.spec.server().as_str(), reason:% = format!("{ending:#}");
            "server exited after `server/discover`; restarting it without that request"
        );
        self.spec.of_server.era.ended_when_asked();
        self.control.own.clear();
        self.control.state = ConnectionState::Opening;
        self.reopen = Some(KnownEra::Remembered(Era::Legacy));
        true
    }

    /// Accepts the answer and its era.
    fn accept(&mut self, negotiated: Negotiated) {
        let era = negotiated.revision.era();
        let era_probe = self.control.state.era_probe();
        let is_certain = era_probe.map(|era_probe| era_probe.is_certain());
        match (self.spec.key.era, is_certain) {
            (Some(_), _) => self.spec.of_server.era.tried_older(true),
            (None, Some(true)) => self.spec.of_server.era.remember(era),
            (None, Some(false)) => self.spec.of_server.era.presume(era),
            (None, None) => {}
        }
        let late = self.control.own.take_opening_requests();
        let Some(link) = self.control.state.link() else {
            return;
        };
        for number in late {
            link.forget(number);
        }
        link.set_revision(negotiated.revision);
        if !negotiated.is_modern() {
            self.control.notify_server(&Method::Initialized);
        }
        self.spec.progress.set(None);
        self.place.take();
        self.connected(negotiated);
    }
}
