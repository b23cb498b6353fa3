//! Routes what a server sends outside of a call's stream: requests, log lines, other notifications.

use crate::downstream::connection::control::Control;
use crate::downstream::connection::listen_filter::without_subscription;
use crate::downstream::connection_key::{ConnectionKey, ConnectionOwner};
use crate::downstream::in_flight::CallsInFlight;
use crate::downstream::in_flight::unowned_messages::UnownedMessage;
use crate::downstream::server_event::{RoutedServerEvent, ServerEvent, SharedQuestion};
use crate::downstream::server_request;
use crate::downstream::worker_channel;
use crate::protocol::{Method, Notification, Request};

impl Control {
    /// Routes a request to the connection's only client; on a shared connection, to the client that
    /// owns all calls in flight (B-SHARE-01, B-ASK-01); otherwise the gateway answers.
    pub(super) fn on_request(&mut self, request: Request, of_ended_call: bool) {
        let key = &self.spec.key;
        // The next call on a leased connection comes from another client.
        let is_of_nobody = of_ended_call && key.is_leased();
        let profile = key.profile();
        let has_answer = match request.method {
            // The session decides, because it knows whether its client sees only this server.
            _ if key.session().is_some() => true,
            Method::RootsList => profile.has_roots(),
            _ => profile.can_be_asked(),
        };
        let is_for_client = has_answer && server_request::asks_client(&request.method);
        if is_for_client && key.is_exclusive() && !is_of_nobody {
            let owner = key.owner.clone();
            self.ask_client(request, owner);
        } else if is_for_client && self.spec.of_server.connector.knows_call_of_requests() {
            if !of_ended_call && self.spec.load.has_only(1) {
                self.pass_on(UnownedMessage::Request(request));
            } else {
                self.answer_from_gateway(&request);
            }
        } else if is_for_client {
            self.on_unattributed(request);
        } else {
            self.answer_from_gateway(&request);
        }
    }

    /// Handles a question that names no call, on a shared connection. Roots apply to the whole
    /// connection, so a server that asks for them needs one connection per client.
    fn on_unattributed(&mut self, request: Request) {
        let isolation = self.spec.of_server.isolation.clone();
        let ConnectionOwner::Audience(audience) = &self.spec.key.owner else {
            return self.answer_from_gateway(&request);
        };
        let calls = self.state.calls();
        let session = isolation
            .claimant(audience)
            .or_else(|| calls.and_then(CallsInFlight::session_of_questions));
        match session {
            Some(session) => {
                if request.method == Method::RootsList {
                    isolation.require(&request.method);
                    isolation.claim(audience, session);
                }
                let owner = ConnectionOwner::Session(session, audience.clone());
                self.ask_client(request, owner);
            }
            None => {
                isolation.require(&request.method);
                self.write(server_request::refusal(&request));
            }
        }
    }

    /// Asks the owner's session if no call is in flight.
    fn ask_client(&mut self, request: Request, owner: ConnectionOwner) {
        let Some(calls) = self.state.calls_mut() else {
            return;
        };
        if let Some(request) = calls.ask_any(request) {
            let question = calls.question(request);
            (self.spec.of_all.listener)(RoutedServerEvent {
                server: self.spec.server().clone(),
                key: ConnectionKey {
                    owner,
                    ..self.spec.key.clone()
                },
                event: ServerEvent::Question(SharedQuestion::new(question)),
            });
        }
    }

    fn answer_from_gateway(&self, request: &Request) {
        let roots = &self.spec.settings().roots;
        self.write(server_request::gateway_answer(request, roots));
    }

    /// Passes a message to the link, this one or a worker channel, that has the only client's calls.
    pub(super) fn pass_on(&mut self, message: UnownedMessage) {
        let channels = self.state.worker_channels().iter();
        let channels = channels.map(|channel| channel.address.clone()).collect();
        if let Some(calls) = self.state.calls_mut() {
            worker_channel::pass_on(message, calls, channels);
        }
    }

    /// The event that a notification means for clients.
    pub(super) fn event_of(&self, notification: Notification) -> Option<ServerEvent> {
        let is_modern = self.is_modern();
        let notification = match is_modern {
            true => without_subscription(notification),
            false => notification,
        };
        match notification.method {
            // A client with a connection of its own is notified even if the lists are unchanged.
            Method::ToolsListChanged
            | Method::PromptsListChanged
            | Method::ResourcesListChanged
                if self.spec.key.session().is_none() =>
            {
                None
            }
            Method::ResourcesUpdated => Some(ServerEvent::ResourceUpdated(notification)),
            // Belongs to a request, but the line does not say which one.
            Method::LogMessage if is_modern => None,
            Method::LogMessage => Some(ServerEvent::Log(notification)),
            Method::Cancelled | Method::Progress => None,
            Method::Tasks => Some(ServerEvent::Task {
                declaration: self.spec.of_server.declaration,
                notification,
            }),
            // Belongs to a task that is no longer followed here.
            Method::TaskStatus => None,
            // A client of the other era would not understand it.
            Method::Other(_) if is_modern => None,
            _ => Some(ServerEvent::Other(notification)),
        }
    }
}
