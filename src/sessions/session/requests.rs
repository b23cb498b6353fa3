//! Requests of the client: answered from here, or sent to a server.

use std::sync::Arc;

use actix::fut::wrap_future;
use actix::{ActorFutureExt, AsyncContext, Context};
use serde::Deserialize;

use crate::calls::{ClientReply, ClientRequest, WaitingList, call_target};
use crate::catalog::ItemKind;
use crate::downstream::{ConnectionCommand, ConnectionKey, SubscriptionChange, SubscriptionKey};
use crate::protocol::{ErrorKind, Failure, LogLevel, Method, Request};
use crate::sessions::session::Session;
use crate::sessions::session_record::{SUBSCRIPTION_URI_MAX, Subscription};
use crate::telemetry::Counter;

/// Resources that one session may be subscribed to: they are kept, and written with its record.
const SUBSCRIPTIONS_MAX: usize = 1000;

impl Session {
    /// Answers a request, or makes a call of it.
    pub(super) fn on_request(&mut self, mut request: ClientRequest, ctx: &mut Context<Self>) {
        let calls = &self.context.calls;
        if !calls.must_wait_for_lists(&request.request, &self.caller) {
            return self.answer_or_call(request, ctx);
        }
        if self.waiting >= calls.settings.load().calls_max {
            calls.counters.add(Counter::CallsShed);
            let message = "too many requests wait for the first lists; try again later";
            let failure = Failure::new(ErrorKind::Overloaded, message).retry_after_ms(1000);
            return self.fail(request, &failure);
        }
        self.waiting += 1;
        let mut catalog = calls.catalog.clone();
        let list = WaitingList::take_over(&mut request, self.record.revision);
        let listed = async move {
            let Some((mut list, answer)) = list else {
                catalog.wait_listed().await;
                return None;
            };
            list.wait(&mut catalog).await;
            Some((list, answer))
        };
        let listed = wrap_future::<_, Self>(listed);
        ctx.spawn(listed.map(move |list, session, ctx| {
            session.waiting -= 1;
            session.answer_or_call(request, ctx);
            if let Some((list, mut answer)) = list
                && let Ok(answer) = answer.try_recv()
            {
                list.answer(answer);
            }
        }));
    }

    fn answer_or_call(&mut self, waiting: ClientRequest, ctx: &mut Context<Self>) {
        let request = &waiting.request;
        let answer = match &request.method {
            Method::Ping => Ok(self.done(request)),
            Method::LoggingSetLevel => self.set_level(request),
            Method::Initialize => {
                let message = "this session is initialized already; initialize without a session id to start another";
                Err(Failure::new(ErrorKind::InvalidRequest, message))
            }
            method => match ItemKind::listed_by(method) {
                Some(kind) => self.list(kind, request),
                None => match self.context.tree.read(request) {
                    Some(tree) => {
                        let decorator = &self.context.calls.answer_decorator;
                        Ok(decorator.tree(&request.id, &tree, self.record.revision))
                    }
                    None => return self.call(waiting, ctx),
                },
            },
        };
        match answer {
            // A client that left before its answer does not need it.
            Ok(answer) => drop(waiting.reply.send(answer)),
            Err(failure) => self.fail(waiting, &failure),
        }
    }

    fn list(&self, kind: ItemKind, request: &Request) -> Result<ClientReply, Failure> {
        let (calls, to) = (&self.context.calls, self.record.revision);
        let stale = calls.catalog.stale();
        let decorator = &calls.answer_decorator;
        let age = (stale.as_deref(), calls.catalog.is_same_for_all());
        decorator.list(kind, request, &self.catalog(), age, to)
    }

    /// The level of this session's log lines; an unknown one is refused (S-LOG-02).
    fn set_level(&mut self, request: &Request) -> Result<ClientReply, Failure> {
        #[derive(Deserialize)]
        struct LevelParams {
            level: LogLevel,
        }
        let params: LevelParams = request.params_as().map_err(|error| {
            Failure::new(ErrorKind::InvalidParams, format!("`params.level`: {error}"))
        })?;
        self.record.level = Some(params.level);
        self.caller = Arc::new(self.record.caller(self.id));
        for call in self.calls.iter_mut() {
            call.caller = self.caller.clone();
        }
        self.save();
        let downstreams = &self.context.calls.downstreams;
        if let Some(level) = downstreams
            .subscription_registry()
            .set_level(self.id, params.level)
        {
            downstreams.set_level(level);
        }
        self.notify_own_connections(&ConnectionCommand::Level(params.level));
        Ok(self.done(request))
    }

    /// A subscription that another session holds already needs no word with the server, nor does
    /// the end of one that others still hold. One that is forwarded counts at once, since the
    /// first update may be faster than the answer; a refused one is taken back.
    ///
    /// Returns the answer if there is nothing to forward.
    pub(super) fn subscribe(
        &mut self,
        request: &Request,
        target: &call_target::CallTarget,
    ) -> Option<ClientReply> {
        let public = request.uri()?;
        let watched = self.watched(target)?;
        let change = match request.method {
            Method::ResourcesSubscribe => {
                let subscription = Subscription {
                    public: public.into_owned(),
                    server: watched.server.clone(),
                    native: watched.uri.clone(),
                };
                if let Err(failure) = self.add_subscription(subscription) {
                    return Some(self.failed(request, &failure));
                }
                self.context
                    .calls
                    .downstreams
                    .subscription_registry()
                    .watch(watched, self.id)
            }
            Method::ResourcesUnsubscribe => self.end_subscription(&watched, &public),
            _ => return None,
        };
        (change == SubscriptionChange::Nothing).then(|| self.done(request))
    }

    /// The client does not want a resource any more, or the server refused it.
    pub(super) fn end_subscription(
        &mut self,
        watched: &SubscriptionKey,
        public: &str,
    ) -> SubscriptionChange {
        self.record.subscriptions.retain(|one| one.public != public);
        self.missed.uris.remove(public);
        self.save_subscriptions();
        self.context
            .calls
            .downstreams
            .subscription_registry()
            .unwatch(watched, self.id)
    }

    pub(super) fn is_subscribed(&self, public: &str) -> bool {
        let mut all = self.record.subscriptions.iter();
        all.any(|one| one.public == public)
    }

    /// Adds a subscription, unless the session has it already, within the limits.
    fn add_subscription(&mut self, new: Subscription) -> Result<(), Failure> {
        if new.public.len() > SUBSCRIPTION_URI_MAX {
            let message = format!(
                "`uri` has {} bytes; a subscription takes at most {SUBSCRIPTION_URI_MAX}",
                new.public.len()
            );
            return Err(Failure::new(ErrorKind::InvalidParams, message));
        }
        let all = &self.record.subscriptions;
        if all.len() >= SUBSCRIPTIONS_MAX {
            let message = format!(
                "this session has {SUBSCRIPTIONS_MAX} subscriptions, as many as it may have"
            );
            return Err(Failure::new(ErrorKind::Overloaded, message));
        }
        if self.is_subscribed(&new.public) {
            return Ok(());
        }
        let settings = self.context.calls.settings.load();
        let bytes: usize = all.iter().map(Subscription::size).sum();
        if bytes + new.size() > settings.subscriptions_bytes_max {
            let message = format!(
                "the URIs of this session's subscriptions would take more than {} bytes, the limit (`limits.subscriptions_bytes_per_session`)",
                settings.subscriptions_bytes_max
            );
            return Err(Failure::new(ErrorKind::Overloaded, message));
        }
        self.record.subscriptions.push(new);
        self.save_subscriptions();
        Ok(())
    }

    /// The answer that a request was served.
    fn done(&self, request: &Request) -> ClientReply {
        let decorator = &self.context.calls.answer_decorator;
        decorator.empty(&request.id, self.record.revision)
    }

    pub(super) fn fail(&self, request: ClientRequest, failure: &Failure) {
        let _ = request.reply.send(self.failed(&request.request, failure));
    }

    /// A failure as the answer to a request.
    fn failed(&self, request: &Request, failure: &Failure) -> ClientReply {
        let decorator = &self.context.calls.answer_decorator;
        decorator.failed(&request.method, &request.id, failure, self.record.revision)
    }

    /// The resource that a request is about, on the connection that serves this session.
    pub(super) fn watched(&self, target: &call_target::CallTarget) -> Option<SubscriptionKey> {
        let server = self.context.calls.downstreams.get(&target.server);
        let key = server.map_or_else(ConnectionKey::shared, |server| {
            server.connection_key_for(&self.caller)
        });
        Some(SubscriptionKey::new(
            &target.server,
            &key,
            target.native_uri.as_deref()?,
        ))
    }
}
