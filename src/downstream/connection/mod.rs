//! One actor for each connection to a downstream server: opens it, shakes hands, relays.
//!
//! Sessions send it [`CallMessage`]s; each call is answered once. It knows nothing of HTTP
//! clients, of other servers, or of whether it will be restarted.

mod ending;
mod listening;
mod lists;
mod opening;
mod questions;
mod renewal;

use std::sync::Arc;

use actix::fut::wrap_future;
use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, SpawnHandle,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::calls::{Calls, Unhandled};
use super::entry::{Callers, EntrySpec, FromServer, News, Wish};
use super::era::{self, Living};
use super::exchange::{Answered, CallMessage};
use super::handshake::Negotiated;
use super::lane::LaneHandle;
use super::listen::without_subscription;
use super::modern;
use super::own::{Own, OwnRequests};
use super::timer::Timer;
use crate::catalog::{ItemKind, ServerPart};
use crate::protocol::{
    Era, LogLevel, Method, Notification, RequestId, Response, notification, request,
};
use crate::supervision::{self, Shutdown};
use crate::transport::{LinkError, LinkEvent, Outgoing};
use listening::{Listening, ended};

pub(crate) struct Connection {
    spec: Arc<EntrySpec>,
    birth: supervision::Link<Callers>,
    /// Present while the link is open.
    calls: Option<Calls>,
    own: OwnRequests,
    negotiated: Option<Negotiated>,
    lanes: Vec<LaneHandle>,
    part: ServerPart,
    /// How the server is spoken to; unknown until it answered, if that has to be found out.
    era: Option<Era>,
    living: Option<Living>,
    listening: Listening,
    /// The log level that the server was told last.
    told_level: Option<LogLevel>,
    /// A new handshake is under way because the server forgot our session.
    renewing: bool,
    /// Kinds whose list changed since it was fetched, and the wait before they are fetched.
    stale: Vec<ItemKind>,
    /// Lists that failed, once for each time in a row.
    failed_lists: Vec<ItemKind>,
    debounce: Option<SpawnHandle>,
    /// When each list runs out that the server gave a time to live.
    expiries: [Option<SpawnHandle>; 4],
    timer: Timer,
    /// What is done from time to time.
    intervals: Vec<SpawnHandle>,
    last_heard: Instant,
    began: Instant,
    /// Its end is in order, or was reported.
    is_ending: bool,
}

/// What came over a link that this actor owns.
#[derive(Message)]
#[rtype(result = "()")]
struct Event(LinkEvent);

impl Connection {
    pub(crate) fn new(spec: Arc<EntrySpec>, birth: supervision::Link<Callers>) -> Self {
        let part = spec.last_part.load_full();
        let part = part.map_or_else(
            || ServerPart::new(spec.server().clone()),
            |part| ServerPart::clone(&part),
        );
        spec.begin_recording();
        spec.passed.forget_all();
        Self {
            spec,
            birth,
            calls: None,
            own: OwnRequests::default(),
            negotiated: None,
            lanes: Vec::new(),
            part,
            era: None,
            living: None,
            listening: Listening::default(),
            told_level: None,
            renewing: false,
            stale: Vec::new(),
            failed_lists: Vec::new(),
            debounce: None,
            expiries: Default::default(),
            timer: Timer::default(),
            intervals: Vec::new(),
            last_heard: Instant::now(),
            began: Instant::now(),
            is_ending: false,
        }
    }

    /// Sends a request of our own, and returns its number; a link that does not take it is as
    /// good as dead.
    fn ask_server(
        &mut self,
        method: &Method,
        params: &Value,
        own: Own,
        ctx: &mut Context<Self>,
    ) -> Option<u64> {
        let calls = self.calls.as_ref()?;
        let number = self.spec.numbers.next();
        let settings = self.spec.settings();
        let within = match own {
            Own::Ping => settings.limits.ping_timeout,
            Own::Initialize | Own::Discover | Own::Listen | Own::Page(_) | Own::Wish(_) => {
                settings.supervision.connect_timeout
            }
        };
        let outgoing = if matches!(own, Own::Discover) || self.is_modern() {
            modern::own(number, method, params)
        } else {
            Outgoing::new(Some(number), request(number, method, params))
        };
        match calls.link().send(outgoing) {
            Ok(()) => {
                self.own.add(number, own, Instant::now(), within);
                self.arm(ctx);
                Some(number)
            }
            Err(error) => {
                self.fail(format!("`{method}` was not sent: {error}"), ctx);
                None
            }
        }
    }

    fn is_modern(&self) -> bool {
        let negotiated = self.negotiated.as_ref();
        negotiated.is_some_and(Negotiated::is_modern)
    }

    fn notify_server(&self, method: &Method, params: Option<&Value>) {
        if let Some(calls) = &self.calls {
            // A dead link reports its own end.
            let _ = calls
                .link()
                .send(Outgoing::new(None, notification(method, params)));
        }
    }

    fn on_event(&mut self, event: LinkEvent, ctx: &mut Context<Self>) {
        let now = Instant::now();
        self.last_heard = now;
        let Some(calls) = &mut self.calls else { return };
        if let Some(unhandled) = calls.on_event(event, now) {
            self.on_unhandled(unhandled, ctx);
        }
        self.arm(ctx);
    }

    /// What belongs to no client's call, on this link or on a lane.
    fn on_unhandled(&mut self, unhandled: Unhandled, ctx: &mut Context<Self>) {
        match unhandled {
            Unhandled::Response(response) => self.on_response(&response, ctx),
            Unhandled::Notification(notification) => self.on_notification(notification, ctx),
            Unhandled::Request {
                request,
                of_ended_call,
            } => self.on_request(request, of_ended_call, ctx),
            Unhandled::Failed { number, error } => self.on_failed(number, &error, ctx),
            Unhandled::SessionGone => self.renew(ctx),
            Unhandled::Closed(ending) => self.closed(ending, ctx),
            Unhandled::Subscription(exchange) => self.on_subscription(*exchange, ctx),
            Unhandled::HeadersRefused => self.list_changed(&[ItemKind::Tools], ctx),
            Unhandled::RevisionRefused => {
                self.spec.era.doubt();
                let revision = modern::REVISION;
                self.fail(format!("it does not speak {revision} any more"), ctx);
            }
        }
    }

    fn on_response(&mut self, response: &Response, ctx: &mut Context<Self>) {
        let number = response.id.as_ref().and_then(RequestId::as_number);
        let Some(own) = number.and_then(|number| self.own.take(number)) else {
            // Of a call that was cancelled or timed out (C-CANC-03).
            return;
        };
        match own {
            Own::Initialize => self.on_initialized(response, ctx),
            Own::Discover => self.on_discovered(response, ctx),
            Own::Listen => {
                let number = number.unwrap_or_default();
                self.listen_refused(number, response);
                self.listen_ended(number, &ended(response), ctx);
            }
            Own::Page(fetch) => self.on_page(fetch, response, ctx),
            // Even an error says that the server is alive.
            Own::Ping | Own::Wish(_) => {}
        }
    }

    fn on_notification(&mut self, notification: Notification, ctx: &mut Context<Self>) {
        if notification.method == Method::SubscriptionsAcknowledged {
            return self.on_acknowledged(&notification, ctx);
        }
        if !self.listening.is_current(&notification) {
            return;
        }
        let notification = if self.is_modern() {
            without_subscription(notification)
        } else {
            notification
        };
        let news = match notification.method {
            Method::ToolsListChanged => return self.list_changed(&[ItemKind::Tools], ctx),
            Method::PromptsListChanged => return self.list_changed(&[ItemKind::Prompts], ctx),
            Method::ResourcesListChanged => {
                let kinds = [ItemKind::Resources, ItemKind::ResourceTemplates];
                return self.list_changed(&kinds, ctx);
            }
            Method::ResourcesUpdated => News::ResourceUpdated(notification),
            // Of some request, but nobody can tell whose.
            Method::LogMessage if self.is_modern() => return,
            Method::LogMessage => News::Log(notification),
            Method::Cancelled | Method::Progress => return,
            Method::Tasks => News::Task(notification),
            // Of a task that nobody follows here any more.
            Method::TaskStatus => return,
            _ => News::Other(notification),
        };
        self.tell(news);
    }

    fn tell(&self, news: News) {
        let server = self.spec.server().clone();
        let key = self.spec.key.clone();
        (self.spec.listener)(FromServer { server, key, news });
    }

    fn on_failed(&mut self, number: u64, error: &LinkError, ctx: &mut Context<Self>) {
        match self.own.take(number) {
            Some(Own::Initialize) => self.fail(format!("`initialize`: {error}"), ctx),
            Some(Own::Discover) => self.discover_failed(error, ctx),
            Some(Own::Listen) => self.listen_ended(number, &error.to_string(), ctx),
            Some(Own::Ping) => match error {
                // It answered, so it is alive; some servers do not know `ping`.
                LinkError::Status { .. } | LinkError::Protocol(_) | LinkError::TooLarge { .. } => {}
                LinkError::NotSent(_) | LinkError::Lost(_) => {
                    self.fail(format!("`ping`: {error}"), ctx);
                }
            },
            Some(Own::Page(fetch)) => {
                self.page_failed(&fetch, &error.to_string(), ctx);
                if matches!(error, LinkError::NotSent(_) | LinkError::Lost(_)) {
                    self.ping(ctx);
                }
            }
            Some(Own::Wish(name)) => {
                log::warn!(server = self.spec.server().as_str(), wish = name, error:%; "server did not hear a wish");
            }
            // A client's call could not be sent: is the server still there?
            None => self.ping(ctx),
        }
    }

    fn ping(&mut self, ctx: &mut Context<Self>) {
        // In a session that is being renewed nobody would answer.
        if self.negotiated.is_some() && !self.renewing && !self.own.has_ping() {
            let method = if self.is_modern() {
                Method::Discover
            } else {
                Method::Ping
            };
            self.ask_server(&method, &json!({}), Own::Ping, ctx);
        }
    }

    /// Pings an idle server and refreshes the lists, as often as the settings say now.
    fn keep_watch(&mut self, ctx: &mut Context<Self>) {
        for interval in self.intervals.drain(..) {
            ctx.cancel_future(interval);
        }
        let limits = self.spec.settings().limits.clone();
        if !limits.ping_every.is_zero() {
            let every = limits.ping_every;
            let pings = ctx.run_interval(every, move |connection, ctx| {
                if connection.last_heard.elapsed() >= every {
                    connection.ping(ctx);
                }
            });
            self.intervals.push(pings);
        }
        let refreshes = ctx.run_interval(limits.refresh_every, |connection, ctx| {
            connection.refresh(&ItemKind::ALL, ctx);
        });
        self.intervals.push(refreshes);
    }

    fn arm(&mut self, ctx: &mut Context<Self>) {
        let of_calls = self.calls.as_ref().and_then(Calls::next_deadline);
        let earliest = of_calls.into_iter().chain(self.own.next_deadline()).min();
        self.timer.set(earliest, ctx, |connection, ctx| {
            connection.timer.fired();
            connection.expire(ctx);
            connection.arm(ctx);
        });
    }

    fn expire(&mut self, ctx: &mut Context<Self>) {
        let now = Instant::now();
        if let Some(calls) = &mut self.calls {
            calls.expire(now);
        }
        while let Some((number, own)) = self.own.pop_due(now) {
            if let Some(calls) = &self.calls {
                calls.link().forget(number);
            }
            match own {
                Own::Initialize => self.fail("`initialize` was not answered in time", ctx),
                Own::Discover => {
                    self.doubt();
                    self.fail("`server/discover` was not answered in time", ctx);
                }
                Own::Listen => {
                    self.take_back(number);
                    self.listen_ended(number, "it was not acknowledged in time", ctx);
                }
                Own::Ping => self.fail("`ping` was not answered in time", ctx),
                Own::Page(fetch) => self.page_failed(&fetch, "no answer in time", ctx),
                Own::Wish(name) => {
                    log::warn!(server = self.spec.server().as_str(), wish = name; "server did not answer a wish");
                }
            }
        }
    }
}

impl Actor for Connection {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let spec = self.spec.clone();
        let beginning = wrap_future::<_, Self>(async move { era::begin(&spec).await });
        ctx.spawn(beginning.map(|beginning, connection, ctx| connection.begin(beginning, ctx)));
        self.keep_watch(ctx);
    }
}

impl Handler<Event> for Connection {
    type Result = ();

    fn handle(&mut self, event: Event, ctx: &mut Self::Context) {
        self.on_event(event.0, ctx);
    }
}

impl Handler<CallMessage> for Connection {
    type Result = ();

    fn handle(&mut self, message: CallMessage, ctx: &mut Self::Context) {
        let Some(calls) = &mut self.calls else { return };
        if let Some(unhandled) = calls.on_message(message, Instant::now()) {
            self.on_unhandled(unhandled, ctx);
        }
        self.arm(ctx);
    }
}

impl Handler<Answered> for Connection {
    type Result = ();

    fn handle(&mut self, answered: Answered, ctx: &mut Self::Context) {
        let Some(calls) = &mut self.calls else { return };
        calls.on_answered(answered, &self.spec.settings().roots, Instant::now());
        self.arm(ctx);
    }
}

impl Handler<Wish> for Connection {
    type Result = ();

    fn handle(&mut self, wish: Wish, ctx: &mut Self::Context) {
        match wish {
            Wish::Level(_) | Wish::LevelAtLeast(_) | Wish::RootsChanged if self.is_modern() => {}
            Wish::Subscribe(_) | Wish::Unsubscribe(_) if self.is_modern() => self.relisten(ctx),
            Wish::Tasks if self.is_modern() => self.relisten(ctx),
            // A server with a handshake tells by itself.
            Wish::Tasks => {}
            Wish::Level(level) => self.wish_level(level, ctx),
            Wish::LevelAtLeast(level) => {
                if self.told_level.is_none_or(|told| level < told) {
                    self.wish_level(level, ctx);
                }
            }
            Wish::Subscribe(uri) => self.subscribe(&uri, ctx),
            Wish::Unsubscribe(uri) => {
                let own = Own::Wish("resources/unsubscribe");
                self.ask_server(
                    &Method::ResourcesUnsubscribe,
                    &json!({ "uri": uri }),
                    own,
                    ctx,
                );
            }
            Wish::Refresh => self.list_changed(&ItemKind::ALL, ctx),
            Wish::RootsChanged => self.notify_server(&Method::RootsListChanged, None),
            Wish::Check => self.ping(ctx),
            Wish::Retune => self.keep_watch(ctx),
        }
    }
}

impl Handler<Shutdown> for Connection {
    type Result = ();

    fn handle(&mut self, _: Shutdown, ctx: &mut Self::Context) {
        self.is_ending = true;
        self.end_calls("the gateway closed the connection");
        let Some(calls) = self.calls.take() else {
            return ctx.stop();
        };
        let grace = self.spec.settings().supervision.shutdown_timeout / 3;
        let closing = wrap_future::<_, Self>(calls.into_link().close(grace));
        ctx.spawn(closing.map(|(), _, ctx| ctx.stop()));
    }
}
