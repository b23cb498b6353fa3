//! Requests of a session's client: answered by the gateway, or sent to a server.

use std::sync::Arc;

use actix::fut::wrap_future;
use actix::{ActorFutureExt, AsyncContext, Context};
use serde::Deserialize;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::calls::{ClientReply, ClientRequest, ListWait, WaitingList, call_target};
use crate::catalog::ItemKind;
use crate::downstream::{ConnectionCommand, ConnectionKey, SubscriptionChange, SubscriptionKey};
use crate::history::CallEnding;
use crate::protocol::{ErrorKind, Failure, LogLevel, Method, Request};
use crate::sessions::dispatch::Dispatch;
use crate::sessions::session::Session;
use crate::sessions::session::own_sessions::Opening;
use crate::sessions::session_record::{SUBSCRIPTION_URI_MAX, Subscription};
use crate::telemetry::Counter;

impl Session {
    /// Answers a request, or starts a call for it.
    pub(super) fn on_request(&mut self, request: ClientRequest, ctx: &mut Context<Self>) {
        self.set_used();
        if request.request.method != Method::Ping {
            self.on_initialized();
        }
        let calls = &self.context.calls;
        match ListWait::of(calls, &request.request, &self.caller, self.arbiter) {
            Some(wait) => self.answer_later(request, wait, ctx),
            None => self.answer_or_call(request, ctx),
        }
    }

    /// Handles a request once its lists are available.
    fn answer_later(
        &mut self,
        mut request: ClientRequest,
        wait: ListWait,
        ctx: &mut Context<Self>,
    ) {
        let calls = &self.context.calls;
        if self.waiting >= calls.settings.load().calls_max {
            calls.counters.add(Counter::ShedForSession);
            let message = "too many requests wait for lists; try again later";
            let failure = Failure::new(ErrorKind::Overloaded, message).retry_after_ms(1000);
            return self.fail(request, &failure);
        }
        self.waiting += 1;
        let scopes = self.record.scopes.clone();
        let list = WaitingList::take_over(&mut request, self.record.revision);
        let kind = ItemKind::listed_by(&request.request.method);
        let listed = async move {
            let Some((mut list, answer)) = list else {
                wait.end().await;
                return None;
            };
            list.wait(&wait).await;
            Some((list, answer))
        };
        let listed = wrap_future::<_, Self>(listed);
        ctx.spawn(listed.map(move |list, session, ctx| {
            session.waiting -= 1;
            session.use_scopes(scopes);
            session.update_view();
            session.answer_or_call(request, ctx);
            if let Some((list, mut answer)) = list
                && let Ok(answer) = answer.try_recv()
            {
                list.answer(answer);
            }
            // The answer contains the changes that arrived while it waited.
            if let Some(kind) = kind {
                session.missed.lists.forget(kind);
            }
            session.send_missed();
        }));
    }

    fn answer_or_call(&mut self, mut waiting: ClientRequest, ctx: &mut Context<Self>) {
        let catalog = self.catalog();
        let request = &waiting.request;
        let answer = match self.context.dispatch(request, &self.caller, &catalog) {
            Ok(Dispatch::Call(named)) => {
                if let Some(named) = named {
                    waiting.request = named;
                }
                if waiting.request.method != Method::ResourcesSubscribe {
                    return self.call(waiting, &catalog, ctx);
                }
                let opening = Opening::for_subscription(self, &waiting.request);
                return self.when_open(opening, ctx, move |session, ctx| {
                    let catalog = session.catalog();
                    session.call(waiting, &catalog, ctx);
                });
            }
            Ok(Dispatch::Answer(answer)) => Ok(answer),
            Ok(Dispatch::SetLevel) => self.set_level(request),
            // No revision with sessions has these requests.
            Ok(Dispatch::Listen | Dispatch::Task(_)) => {
                Err(call_target::unsupported(&request.method))
            }
            Err(failure) => Err(failure),
        };
        match answer {
            Ok(answer) => waiting.answer(answer, CallEnding::Done),
            Err(failure) => self.fail(waiting, &failure),
        }
    }

    /// Continues once a connection is open, or immediately if too many requests are waiting.
    pub(super) fn when_open(
        &mut self,
        opening: Option<Opening>,
        ctx: &mut Context<Self>,
        then: impl FnOnce(&mut Self, &mut Context<Self>) + 'static,
    ) {
        let calls_max = self.context.calls.settings.load().calls_max;
        let Some(Opening(opening)) = opening.filter(|_| self.waiting < calls_max) else {
            return then(self, ctx);
        };
        self.waiting += 1;
        let opening = wrap_future::<_, Self>(opening);
        ctx.spawn(opening.map(move |(), session, ctx| {
            session.waiting -= 1;
            then(session, ctx);
        }));
    }

    /// Sets the session's log level. An unknown level is refused (S-LOG-02).
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
        self.command_own_connections(&ConnectionCommand::Level(params.level));
        Ok(self.done(request))
    }

    /// Subscribes or unsubscribes. The server is only contacted for the first subscription to a
    /// resource and the end of the last one. A forwarded subscription is active immediately,
    /// because the first update can precede the answer; it is removed if the server refuses it. The
    /// client is answered once the change is stored, so that it survives a kill of the gateway.
    ///
    /// Returns the answer if there is nothing to forward.
    pub(super) fn subscribe(
        &mut self,
        waiting: &mut ClientRequest,
        target: &call_target::CallTarget,
    ) -> Option<Result<ClientReply, Failure>> {
        let request = &waiting.request;
        let public = request.uri()?.into_owned();
        let watched = self.watched(target)?;
        let (change, written) = match request.method {
            Method::ResourcesSubscribe => {
                let subscription = Subscription {
                    public: public.clone(),
                    server: watched.server.clone(),
                    native: watched.uri.clone(),
                };
                let written = match self.add_subscription(subscription) {
                    Ok(written) => written,
                    Err(failure) => return Some(Err(failure)),
                };
                match self.context.calls.watch(watched, self.id, &self.caller) {
                    Ok(change) => (change, written),
                    Err(failure) => {
                        drop(self.remove_subscription(&public));
                        return Some(Err(failure));
                    }
                }
            }
            Method::ResourcesUnsubscribe => {
                let written = self.remove_subscription(&public);
                (self.unwatch(&watched), written)
            }
            _ => return None,
        };
        let catalog = self.catalog();
        let part = catalog.part(&target.server);
        // Each server decides itself whether it accepts a subscription. Without declared support,
        // no server has a subscription to end.
        let may_know = request.method == Method::ResourcesSubscribe
            || part.is_none_or(|part| part.supports_subscribe());
        let is_forwarded = change == SubscriptionChange::Notify && may_know;
        let answer = (!is_forwarded).then(|| Ok(self.done(request)));
        if let Some(written) = written {
            answer_after(written, waiting);
        }
        answer
    }

    /// Rechecks the subscriptions after policies, scopes or the view changed. Ends those no longer
    /// allowed, and starts allowed ones that waited for their client.
    pub(super) fn judge_subscriptions(&mut self) {
        let calls = self.context.calls.clone();
        for ended in calls.judge_watches(self.id, &self.caller) {
            let mut subscriptions = self.record.subscriptions.iter();
            let is_it = |one: &&Subscription| one.server == ended.server && one.native == ended.uri;
            if let Some(public) = subscriptions.find(is_it).map(|one| one.public.clone()) {
                log::info!(session:% = self.id, server = ended.server.as_str(); "ended a subscription that is no longer allowed");
                drop(self.remove_subscription(&public));
            }
        }
        let watched = calls
            .downstreams
            .subscription_registry()
            .watched_by(self.id);
        for subscription in &self.record.subscriptions {
            let Subscription { server, native, .. } = subscription;
            if watched
                .iter()
                .any(|it| it.server == *server && it.uri == *native)
            {
                continue;
            }
            if let Some(server) = calls.downstreams.get(server) {
                let key = server.connection_key_for(&self.caller);
                let watched = SubscriptionKey::new(server.name(), &key, native);
                if let Ok(SubscriptionChange::Notify) =
                    calls.watch(watched.clone(), self.id, &self.caller)
                {
                    calls.downstreams.subscribe(watched, self.arbiter, None);
                }
            }
        }
    }

    /// Removes a watch, because the client unsubscribed or the server refused it.
    pub(super) fn unwatch(&self, watched: &SubscriptionKey) -> SubscriptionChange {
        let registry = self.context.calls.downstreams.subscription_registry();
        registry.unwatch(watched, self.id)
    }

    /// Removes a subscription if the session has it.
    pub(super) fn remove_subscription(&mut self, public: &str) -> Option<JoinHandle<()>> {
        self.missed.uris.remove(public);
        let all = &mut self.record.subscriptions;
        let index = all.iter().position(|one| one.public == public)?;
        all.swap_remove(index);
        Some(self.write_subscription(public.to_owned(), None))
    }

    /// Stores or deletes a subscription. The task completes when that is done.
    fn write_subscription(
        &self,
        public: String,
        subscription: Option<Subscription>,
    ) -> JoinHandle<()> {
        let (context, id) = (self.context.clone(), self.id);
        actix_rt::spawn(async move {
            let written = context.write_subscription(id, &public, subscription);
            written.await;
        })
    }

    pub(super) fn is_subscribed(&self, public: &str) -> bool {
        let mut all = self.record.subscriptions.iter();
        all.any(|one| one.public == public)
    }

    /// Adds a subscription within the limits, unless the session already has it.
    fn add_subscription(&mut self, new: Subscription) -> Result<Option<JoinHandle<()>>, Failure> {
        if new.public.len() > SUBSCRIPTION_URI_MAX {
            let message = format!(
                "`uri` has {} bytes; a subscription takes at most {SUBSCRIPTION_URI_MAX}",
                new.public.len()
            );
            return Err(Failure::new(ErrorKind::InvalidParams, message));
        }
        let all = &self.record.subscriptions;
        let settings = self.context.calls.settings.load();
        let max = settings.subscriptions_max;
        if all.len() >= max {
            let message = format!(
                "this session has {max} subscriptions, the limit (`limits.subscriptions_per_session`)"
            );
            return Err(Failure::new(ErrorKind::Overloaded, message));
        }
        if self.is_subscribed(&new.public) {
            return Ok(None);
        }
        let bytes: usize = all.iter().map(Subscription::size).sum();
        if bytes + new.size() > settings.subscriptions_bytes_max {
            let message = format!(
                "the URIs of this session's subscriptions would take more than {} bytes, the limit (`limits.subscriptions_bytes_per_session`)",
                settings.subscriptions_bytes_max
            );
            return Err(Failure::new(ErrorKind::Overloaded, message));
        }
        self.record.subscriptions.push(new.clone());
        Ok(Some(self.write_subscription(new.public.clone(), Some(new))))
    }

    /// Returns the empty result of a request.
    fn done(&self, request: &Request) -> ClientReply {
        let decorator = self.context.calls.decorator(&self.caller);
        decorator.empty(&request.id, self.record.revision)
    }

    pub(super) fn fail(&self, request: ClientRequest, failure: &Failure) {
        let answer = self.failed(&request.request, failure);
        request.answer(answer, CallEnding::Failed(failure));
    }

    /// Returns the failure as the answer to a request.
    fn failed(&self, request: &Request, failure: &Failure) -> ClientReply {
        let decorator = self.context.calls.decorator(&self.caller);
        decorator.failed(&request.method, &request.id, failure, self.record.revision)
    }

    /// Returns the key of the requested resource on the connection that serves this session.
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

/// Delays the answer to a request until a write is done.
fn answer_after(written: JoinHandle<()>, waiting: &mut ClientRequest) {
    let (reply, answer) = oneshot::channel();
    let reply = std::mem::replace(&mut waiting.reply, reply);
    actix_rt::spawn(async move {
        // Failed writes are counted and logged where they occur.
        let _ = written.await;
        if let Ok(answer) = answer.await {
            // Sending fails only if the client has disconnected.
            let _ = reply.send(answer);
        }
    });
}
