//! Brings a connection into service after the handshake: opens worker channels, restores
//! subscriptions, fetches lists.

use actix::Handler;
use serde_json::json;

use crate::downstream::call_request::CallMessage;
use crate::downstream::connection::Connection;
use crate::downstream::connection::handshake::Negotiated;
use crate::downstream::connection::own_requests::OwnRequest;
use crate::downstream::connection::spec::CallSenders;
use crate::downstream::connection::state::{ConnectionState, OpenConnection};
use crate::downstream::in_flight::CallsInFlight;
use crate::downstream::worker_channel::{
    WorkerChannelCommand, WorkerChannelEvent, WorkerChannelHandle,
};
use crate::protocol::{LogLevel, Method};
use crate::telemetry::Counter;
use crate::transport::HttpSession;

impl Connection {
    pub(super) fn connected(&mut self, negotiated: Negotiated) {
        let generation = self.control.birth.generation();
        let again = if generation > 1 { " again" } else { "" };
        let session = self.http_session();
        let has_id = session.as_ref().is_some_and(|session| session.id.is_some());
        let is_streamable = self.spec.of_server.connector.knows_call_of_requests();
        if !negotiated.is_modern() && is_streamable {
            self.spec.of_server.era.saw_handshake(has_id);
        }
        // Over HTTP+SSE, the connection is the session.
        self.control.is_own_session = (has_id || !is_streamable) && self.spec.is_own_session();
        let cookies = session.as_ref().map(|session| session.cookies.clone());
        if let Some(session) = session.filter(|_| self.control.is_own_session) {
            self.spec.own_session.opened(session, negotiated.clone());
        }
        let level = match self.control.is_own_session {
            true => log::Level::Debug,
            false => log::Level::Info,
        };
        log::log!(
            level,
            server = self.spec.server().as_str(),
            revision = negotiated.revision.as_str(),
            generation;
            "up{again}"
        );
        self.spec.of_all.counters.add(Counter::ServersConnected);
        self.lists.on_negotiated(&negotiated);
        match self.control.state.end() {
            ConnectionState::Handshaking { calls, .. } => {
                let is_modern = negotiated.is_modern();
                let worker_channels = self.open_worker_channels(&calls);
                if !is_modern && self.wants_events() {
                    calls.link().listen();
                }
                self.control.state = ConnectionState::Ready(Box::new(OpenConnection {
                    calls: *calls,
                    negotiated,
                    worker_channels,
                }));
            }
            ConnectionState::Ready(mut open) | ConnectionState::Renewing(mut open) => {
                open.negotiated = negotiated;
                open.renewed(self.wants_events());
                self.control.state = ConnectionState::Ready(open);
            }
            ConnectionState::Opening | ConnectionState::Ending => return,
        }
        self.spec.session.opened(cookies.unwrap_or_default());
        self.lists.assume_tools(&self.control);
        self.control.measurement.set_up();
        self.spec.of_server.breakers.renewed();
        self.control.birth.ready(self.callers());
        self.restore_subscriptions();
        self.lists.refresh_all(&mut self.control);
    }

    /// Whether server messages outside of calls can reach a client.
    fn wants_events(&self) -> bool {
        let listens = |session| self.spec.of_all.subscription_registry.listens(session);
        !self.control.is_own_session || self.spec.key.session().is_some_and(listens)
    }

    /// Opens the event stream because the client of this session started to listen.
    pub(super) fn listen_for_client(&mut self) {
        if let ConnectionState::Ready(open) = &self.control.state
            && self.control.is_own_session
        {
            open.calls.link().listen();
        }
    }

    fn http_session(&self) -> Option<HttpSession> {
        self.control.state.calls()?.link().http_session()
    }

    /// Opens a worker channel on every other arbiter, if the transport allows it. A client's own
    /// session needs none, because its calls come from the connection's own arbiter.
    fn open_worker_channels(&self, calls: &CallsInFlight) -> Vec<WorkerChannelHandle> {
        let session = calls.link().http_session();
        let Some(session) = session.filter(|_| !self.control.is_own_session) else {
            return Vec::new();
        };
        let others =
            (0..self.spec.of_all.arbiters.count().get()).filter(|index| *index != self.spec.home);
        let owner = || self.address.clone().recipient();
        let start =
            |arbiter| WorkerChannelHandle::start(&self.spec, arbiter, session.clone(), owner());
        others.map(start).collect()
    }

    pub(super) fn callers(&self) -> CallSenders {
        let own = self.address.clone().recipient::<CallMessage>();
        let count = self.spec.of_all.arbiters.count().get();
        let nearest = |index: usize| {
            let mut channels = self.control.state.worker_channels().iter();
            let channel = channels.find(|channel| channel.arbiter == index);
            channel.map_or_else(
                || own.clone(),
                |channel| channel.address.clone().recipient(),
            )
        };
        let ways = (0..count).map(nearest).collect();
        let owner = self.address.clone().recipient();
        CallSenders::new(ways, owner, self.lists.part.revision, &self.spec)
    }

    /// Restores the log level and the subscriptions that the previous connection had.
    pub(super) fn restore_subscriptions(&mut self) {
        let Some(negotiated) = self.control.state.negotiated() else {
            return;
        };
        if negotiated.is_modern() {
            return self.listening.update(&mut self.control);
        }
        let (subscription_registry, key) = (
            self.spec.of_all.subscription_registry.clone(),
            &self.spec.key,
        );
        let level = match key.session() {
            Some(session) => subscription_registry.level_of(session),
            None => subscription_registry.level(),
        };
        let uris = subscription_registry.subscriptions(self.spec.server(), key);
        self.sent_log_level = None;
        if let Some(level) = level {
            self.request_log_level(level);
        }
        for uri in uris {
            self.subscribe(&uri);
        }
    }

    pub(super) fn subscribe(&mut self, uri: &str) {
        let own = OwnRequest::ConnectionCommand("resources/subscribe");
        self.change_subscription(&Method::ResourcesSubscribe, uri, own);
    }

    pub(super) fn unsubscribe(&mut self, uri: &str) {
        let own = OwnRequest::ConnectionCommand("resources/unsubscribe");
        self.change_subscription(&Method::ResourcesUnsubscribe, uri, own);
    }

    /// Sent only to a server that declared subscriptions (S-LIFE-05).
    fn change_subscription(&mut self, method: &Method, uri: &str, own: OwnRequest) {
        let negotiated = self.control.state.negotiated();
        if negotiated.is_some_and(Negotiated::has_subscriptions) {
            self.control.ask_server(method, &json!({ "uri": uri }), own);
        }
    }

    pub(super) fn request_log_level(&mut self, level: LogLevel) {
        let negotiated = self.control.state.negotiated();
        if negotiated.is_some_and(|negotiated| negotiated.has("logging")) {
            self.sent_log_level = Some(level);
            let own = OwnRequest::ConnectionCommand("logging/setLevel");
            self.control
                .ask_server(&Method::LoggingSetLevel, &json!({ "level": level }), own);
        }
    }
}

impl Handler<WorkerChannelEvent> for Connection {
    type Result = ();

    fn handle(&mut self, message: WorkerChannelEvent, ctx: &mut Self::Context) {
        // Worker channels end before the link is closed, which takes a while.
        if self.control.state.is_ending() {
            return;
        }
        match message {
            WorkerChannelEvent::UnhandledEvent(unhandled) => self.on_unhandled(*unhandled),
            WorkerChannelEvent::SessionRefused {
                arbiter,
                session,
                error,
            } => {
                if let ConnectionState::Ready(open) = &self.control.state
                    && let Some(current) = open.calls.link().http_session()
                    && current != session
                    && let Some(channel) = open.channel(arbiter)
                {
                    // The worker channel used a session that has been replaced since.
                    let renewed = WorkerChannelCommand::Renewed(current);
                    channel.address.do_send(renewed);
                } else {
                    self.session_doubted(&error);
                }
            }
            WorkerChannelEvent::Suspected => self.suspect(),
            WorkerChannelEvent::Died(why) => self.control.fail(format!("a worker channel {why}")),
        }
        self.settle(ctx);
    }
}
