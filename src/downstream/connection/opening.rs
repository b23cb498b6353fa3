//! From the start of a connection to its being ready: era, handshake, worker channels,
//! subscriptions.

use std::rc::Rc;

use actix::fut::wrap_future;
use actix::{ActorFutureExt, AsyncContext, Context};
use serde_json::json;

use crate::catalog::ItemKind;
use crate::downstream::call_request::CallMessage;
use crate::downstream::connection::handshake::{self, Negotiated};
use crate::downstream::connection::own_requests::OwnRequest;
use crate::downstream::connection::spec::CallSenders;
use crate::downstream::connection::state::{ConnectionState, OpenConnection};
use crate::downstream::connection::{Connection, LinkEventMessage};
use crate::downstream::era::{self, ConnectionStart, EraVerdict, ProbeReply};
use crate::downstream::in_flight::CallsInFlight;
use crate::downstream::settings::EraChoice;
use crate::downstream::worker_channel::WorkerChannelHandle;
use crate::protocol::{Era, LogLevel, Method, Response};
use crate::telemetry::Counter;
use crate::transport::{Link, LinkError, LinkOpenError, LinkRecording};

impl Connection {
    /// It is known how to begin.
    pub(super) fn begin(
        &mut self,
        beginning: Result<ConnectionStart, String>,
        ctx: &mut Context<Self>,
    ) {
        let ConnectionStart { era, living } = match beginning {
            Ok(beginning) => beginning,
            Err(why) => return self.fail(why, ctx),
        };
        self.living = Some(living);
        let address = ctx.address();
        let recording = self.spec.recorder.load().recording();
        let sink = recording.sink(Rc::new(move |event| {
            address.do_send(LinkEventMessage(event))
        }));
        let opening = wrap_future::<_, Self>(self.spec.connector.open(sink));
        ctx.spawn(
            opening.map(move |link, connection, ctx| connection.opened(link, era, &recording, ctx)),
        );
    }

    pub(super) fn opened(
        &mut self,
        link: Result<Box<dyn Link>, LinkOpenError>,
        era: Option<Era>,
        recording: &LinkRecording,
        ctx: &mut Context<Self>,
    ) {
        match link {
            Ok(link) => {
                let link = recording.link(link);
                let calls = Box::new(CallsInFlight::new(&self.spec, link, &ctx.address()));
                self.state = ConnectionState::Handshaking { calls, era };
                match era {
                    Some(Era::Legacy) => self.send_initialize(ctx),
                    Some(Era::Modern) | None => {
                        self.ask_server(&Method::Discover, &json!({}), OwnRequest::Discover, ctx);
                    }
                }
            }
            Err(error) => self.fail(error.to_string(), ctx),
        }
    }

    pub(super) fn send_initialize(&mut self, ctx: &mut Context<Self>) {
        let params = handshake::initialize_params(&self.spec.key.profile());
        self.ask_server(&Method::Initialize, &params, OwnRequest::Initialize, ctx);
    }

    pub(super) fn on_initialized(&mut self, response: &Response, ctx: &mut Context<Self>) {
        let negotiated = match handshake::negotiated(response) {
            Ok(negotiated) => negotiated,
            Err(error) => {
                // It answered, but not as one of its era does.
                self.forget_era();
                return self.fail(error.to_string(), ctx);
            }
        };
        let Some(calls) = self.state.calls() else {
            return;
        };
        calls.link().set_revision(negotiated.revision);
        self.notify_server(&Method::Initialized, None);
        self.connected(negotiated, ctx);
    }

    /// The answer also tells the era, if that is still to be found out.
    pub(super) fn on_discovered(&mut self, response: &Response, ctx: &mut Context<Self>) {
        let verdict = era::verdict(ProbeReply::Answer(&response.outcome), true);
        if verdict == EraVerdict::Legacy && self.may_fall_back() {
            return self.fall_back(ctx);
        }
        let negotiated = match handshake::discovered(response) {
            Ok(negotiated) => negotiated,
            Err(error) => {
                self.forget_era();
                return self.fail(error.to_string(), ctx);
            }
        };
        let ConnectionState::Handshaking { calls, era } = &mut self.state else {
            return;
        };
        if era.replace(Era::Modern).is_none() {
            era::remember(&self.spec, Era::Modern);
        }
        calls.link().set_revision(negotiated.revision);
        calls.set_modern();
        self.connected(negotiated, ctx);
    }

    pub(super) fn discover_failed(&mut self, error: &LinkError, ctx: &mut Context<Self>) {
        let verdict = era::verdict(
            ProbeReply::Failed(error),
            self.spec.connector.knows_call_of_requests(),
        );
        if verdict == EraVerdict::Legacy {
            if self.may_fall_back() {
                return self.fall_back(ctx);
            }
            self.forget_era();
        }
        self.fail(format!("`server/discover`: {error}"), ctx);
    }

    /// Whether a handshake can follow on the same link, where one message does not end a server.
    fn may_fall_back(&self) -> bool {
        self.spec.settings().era == EraChoice::Auto && self.spec.connector.knows_call_of_requests()
    }

    fn fall_back(&mut self, ctx: &mut Context<Self>) {
        if let ConnectionState::Handshaking { era, .. } = &mut self.state {
            *era = Some(Era::Legacy);
        }
        era::remember(&self.spec, Era::Legacy);
        self.send_initialize(ctx);
    }

    /// The remembered era of the server proved wrong: the next incarnation asks.
    pub(super) fn forget_era(&self) {
        if self.spec.settings().era == EraChoice::Auto {
            self.spec.era.forget_era();
        }
    }

    fn connected(&mut self, negotiated: Negotiated, ctx: &mut Context<Self>) {
        log::info!(
            server = self.spec.server().as_str(),
            revision = negotiated.revision.as_str(),
            generation = self.birth.generation();
            "server is connected"
        );
        self.spec.counters.add(Counter::ServersConnected);
        self.part.capabilities = negotiated.capabilities.clone();
        self.part.info = negotiated.server_info.clone();
        self.part.revision = negotiated.revision;
        self.part.instructions = negotiated.instructions.clone();
        self.drop_undeclared_lists(&negotiated);
        match self.state.end() {
            ConnectionState::Handshaking { calls, .. } => {
                let is_modern = negotiated.is_modern();
                let worker_channels = self.open_worker_channels(&calls, ctx);
                if !is_modern {
                    calls.link().listen();
                }
                self.state = ConnectionState::Ready(Box::new(OpenConnection {
                    calls: *calls,
                    negotiated,
                    worker_channels,
                }));
            }
            ConnectionState::Ready(mut open) | ConnectionState::Renewing(mut open) => {
                open.negotiated = negotiated;
                open.renewed();
                self.state = ConnectionState::Ready(open);
            }
            ConnectionState::Opening | ConnectionState::Ending => return,
        }
        self.spec.breakers.renewed();
        self.birth.ready(self.callers(ctx));
        self.restore_subscriptions(ctx);
        self.refresh(&ItemKind::ALL, ctx);
    }

    /// Opens a way in on each other arbiter, where the transport allows it.
    fn open_worker_channels(
        &self,
        calls: &CallsInFlight,
        ctx: &mut Context<Self>,
    ) -> Vec<WorkerChannelHandle> {
        let Some(session) = calls.link().http_session() else {
            return Vec::new();
        };
        let others = (0..self.spec.arbiters.count().get()).filter(|index| *index != self.spec.home);
        let owner = || ctx.address().recipient();
        let start =
            |arbiter| WorkerChannelHandle::start(&self.spec, arbiter, session.clone(), owner());
        others.map(start).collect()
    }

    pub(super) fn callers(&self, ctx: &mut Context<Self>) -> CallSenders {
        let own = ctx.address().recipient::<CallMessage>();
        let count = self.spec.arbiters.count().get();
        let nearest = |index: usize| {
            let mut channels = self.state.worker_channels().iter();
            let channel = channels.find(|channel| channel.arbiter == index);
            channel.map_or_else(
                || own.clone(),
                |channel| channel.address.clone().recipient(),
            )
        };
        let ways = (0..count).map(nearest).collect();
        CallSenders::new(ways, ctx.address().recipient())
    }

    /// Asks a fresh connection for what the sessions wanted of the one before.
    pub(super) fn restore_subscriptions(&mut self, ctx: &mut Context<Self>) {
        let Some(negotiated) = self.state.negotiated() else {
            return;
        };
        if negotiated.is_modern() {
            return self.update_listen_stream(ctx);
        }
        let subscribes = negotiated.has_subscriptions();
        let (subscription_registry, key) =
            (self.spec.subscription_registry.clone(), &self.spec.key);
        let level = match key.session() {
            Some(session) => subscription_registry.level_of(session),
            None => subscription_registry.level(),
        };
        let uris = subscription_registry.subscriptions(self.spec.server(), key);
        self.sent_log_level = None;
        if let Some(level) = level {
            self.request_log_level(level, ctx);
        }
        if subscribes {
            for uri in uris {
                self.subscribe(&uri, ctx);
            }
        }
    }

    pub(super) fn subscribe(&mut self, uri: &str, ctx: &mut Context<Self>) {
        let own = OwnRequest::ConnectionCommand("resources/subscribe");
        let params = json!({ "uri": uri });
        self.ask_server(&Method::ResourcesSubscribe, &params, own, ctx);
    }

    pub(super) fn request_log_level(&mut self, level: LogLevel, ctx: &mut Context<Self>) {
        let negotiated = self.state.negotiated();
        if negotiated.is_some_and(|negotiated| negotiated.has("logging")) {
            self.sent_log_level = Some(level);
            let own = OwnRequest::ConnectionCommand("logging/setLevel");
            self.ask_server(
                &Method::LoggingSetLevel,
                &json!({ "level": level }),
                own,
                ctx,
            );
        }
    }
}
