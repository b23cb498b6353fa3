//! Brings a connection into service after the handshake: starts further senders, restores
//! subscriptions, fetches lists.

use serde_json::json;

use crate::downstream::call_sender::SenderCommand;
use crate::downstream::connection::Connection;
use crate::downstream::connection::handshake::Negotiated;
use crate::downstream::connection::own_requests::OwnRequest;
use crate::downstream::connection::spec::{CallSenders, Pending};
use crate::downstream::connection::state::{ConnectionState, OpenConnection};
use crate::protocol::{LogLevel, Method};
use crate::telemetry::Counter;

impl Connection {
    pub(super) fn connected(&mut self, negotiated: Negotiated) {
        let Some(link) = self.control.state.link().cloned() else {
            return;
        };
        let session = link.http_session();
        let has_id = session.as_ref().is_some_and(|session| session.id.is_some());
        let is_streamable = self.spec.of_server.connector.knows_call_of_requests();
        if !negotiated.is_modern() && is_streamable {
            self.spec.of_server.era.saw_handshake(has_id);
        }
        // Over HTTP+SSE, the connection is the session.
        let is_own_session = (has_id || !is_streamable) && self.spec.is_own_session();
        link.is_own_session.set(is_own_session);
        let cookies = session.as_ref().map(|session| session.cookies.clone());
        if let Some(session) = session.filter(|_| is_own_session) {
            self.spec.own_session.opened(session, negotiated.clone());
        }
        self.log_up(&negotiated, is_own_session);
        self.spec.of_all.counters.add(Counter::ServersConnected);
        self.lists.on_negotiated(&negotiated);
        let is_first = matches!(self.control.state, ConnectionState::Handshaking { .. });
        match self.control.state.end() {
            ConnectionState::Handshaking { mut senders, .. } => {
                // A client's own session needs no further senders, because its calls come from the
                // connection's own thread.
                if !is_own_session {
                    senders.join_session(&self.address.clone().recipient());
                }
                link.awaits_handshake.set(false);
                self.control.state = ConnectionState::Ready(Box::new(OpenConnection {
                    senders: *senders,
                    negotiated,
                }));
            }
            ConnectionState::Ready(mut open) | ConnectionState::Renewing(mut open) => {
                open.negotiated = negotiated;
                let session = link.http_session();
                open.senders
                    .tell(|| SenderCommand::Renewed(session.clone()));
                self.control.state = ConnectionState::Ready(open);
            }
            ConnectionState::Opening | ConnectionState::Ending => return,
        }
        if !self.control.is_modern() && self.wants_events() {
            link.with(|link| link.listen());
        }
        self.spec.session.opened(cookies.unwrap_or_default());
        self.lists.assume_tools(&self.control);
        self.control.measurement.set_up();
        self.spec.of_server.breakers.renewed();
        if let Some(senders) = self.control.state.senders() {
            let owner = self.address.clone().recipient();
            let revision = self.lists.part.revision;
            let senders = CallSenders::new(senders.by_arbiter(), owner, revision, &self.spec);
            self.probing.offer(senders, is_first, &mut self.control);
        }
        self.restore_subscriptions();
        self.lists.refresh_all(&mut self.control);
    }

    fn log_up(&self, negotiated: &Negotiated, is_own_session: bool) {
        let generation = self.control.birth.generation();
        let again = if generation > 1 { " again" } else { "" };
        let level = match is_own_session {
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
    }

    /// Whether server messages outside of calls can reach a client.
    fn wants_events(&self) -> bool {
        let listens = |session| self.spec.of_all.subscription_registry.listens(session);
        !self.control.is_own_session() || self.spec.key.session().is_some_and(listens)
    }

    /// Opens the event stream because the client of this session started to listen.
    pub(super) fn listen_for_client(&mut self) {
        if let ConnectionState::Ready(open) = &self.control.state
            && self.control.is_own_session()
        {
            open.senders.link.with(|link| link.listen());
        }
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
            self.subscribe(&uri, None);
        }
    }

    pub(super) fn subscribe(&mut self, uri: &str, pending: Option<Pending>) {
        let own = OwnRequest::ConnectionCommand {
            name: "resources/subscribe",
            _pending: pending,
        };
        self.change_subscription(&Method::ResourcesSubscribe, uri, own);
    }

    pub(super) fn unsubscribe(&mut self, uri: &str) {
        let own = OwnRequest::ConnectionCommand {
            name: "resources/unsubscribe",
            _pending: None,
        };
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
            let own = OwnRequest::ConnectionCommand {
                name: "logging/setLevel",
                _pending: None,
            };
            self.control
                .ask_server(&Method::LoggingSetLevel, &json!({ "level": level }), own);
        }
    }
}
