//! Requests of the client: answered from here, or sent to a server.

use std::sync::Arc;

use actix::fut::wrap_future;
use actix::{ActorFutureExt, AsyncContext, Context};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::calls::{ClientReply, call_target};
use crate::catalog::ItemKind;
use crate::downstream::{ConnectionCommand, ConnectionKey, SubscriptionChange, SubscriptionKey};
use crate::protocol::{ErrorKind, Failure, LogLevel, Method, RawJson, Request};
use crate::publisher::FreshnessMeta;
use crate::sessions::session::Session;
use crate::sessions::session_record::Subscription;
use crate::telemetry::Counter;

/// Resources that one session may be subscribed to: they are kept, and written with its record.
const SUBSCRIPTIONS_MAX: usize = 1000;

impl Session {
    pub(super) fn on_request(
        &mut self,
        request: Request,
        number: u64,
        accepts_stream: bool,
        reply: oneshot::Sender<ClientReply>,
        ctx: &mut Context<Self>,
    ) {
        if self.must_wait_for_lists(&request) {
            if self.waiting >= self.context.calls.settings.load().calls_max {
                self.context.calls.counters.add(Counter::CallsShed);
                let message = "too many requests wait for the first lists; try again later";
                let failure = Failure::new(ErrorKind::Overloaded, message).retry_after_ms(1000);
                let _ = reply.send(self.failed(&request, &failure));
                return;
            }
            self.waiting += 1;
            let mut catalog = self.context.calls.catalog.clone();
            let listed = wrap_future::<_, Self>(async move { catalog.wait_listed().await });
            ctx.spawn(listed.map(move |(), session, ctx| {
                session.waiting -= 1;
                session.answer_or_call(request, number, accepts_stream, reply, ctx);
            }));
            return;
        }
        self.answer_or_call(request, number, accepts_stream, reply, ctx);
    }

    /// Right after the start some servers were never listed: for a moment, what needs the lists
    /// waits for them (B-LIST-01).
    fn must_wait_for_lists(&self, request: &Request) -> bool {
        if self.context.calls.catalog.is_listed() {
            return false;
        }
        match &request.method {
            method if ItemKind::listed_by(method).is_some() => true,
            Method::Ping | Method::Initialize | Method::LoggingSetLevel => false,
            _ => call_target::target(request, &self.catalog()).is_err(),
        }
    }

    fn answer_or_call(
        &mut self,
        request: Request,
        number: u64,
        accepts_stream: bool,
        reply: oneshot::Sender<ClientReply>,
        ctx: &mut Context<Self>,
    ) {
        let answer = match &request.method {
            Method::Ping => Ok(RawJson::from_value(&json!({}))),
            Method::LoggingSetLevel => self.set_level(&request),
            Method::Initialize => {
                let message = "this session is initialized already; initialize without a session id to start another";
                Err(Failure::new(ErrorKind::InvalidRequest, message))
            }
            method => match ItemKind::listed_by(method) {
                Some(kind) => {
                    call_target::page(kind, &request, &self.catalog(), self.record.revision)
                }
                None => match self.context.tree.read(&request) {
                    Some(tree) => Ok(tree),
                    None => return self.call(request, number, accepts_stream, reply, ctx),
                },
            },
        };
        let is_list = ItemKind::listed_by(&request.method).is_some();
        let stale = self.context.calls.catalog.stale().filter(|_| is_list);
        let answer = match answer {
            Ok(result) => ClientReply::List(match stale {
                None => result_parts(&request, &result),
                Some(stale) => stale_parts(&request, &result, &stale),
            }),
            Err(failure) => self.failed(&request, &failure),
        };
        // A client that left before its answer does not need it.
        let _ = reply.send(answer);
    }

    /// The level of this session's log lines; an unknown one is refused (S-LOG-02).
    fn set_level(&mut self, request: &Request) -> Result<RawJson, Failure> {
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
        Ok(RawJson::from_value(&json!({})))
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
                if self.record.subscriptions.len() >= SUBSCRIPTIONS_MAX {
                    return Some(self.too_many_subscriptions(request));
                }
                if !self.is_subscribed(&public) {
                    self.record.subscriptions.push(Subscription {
                        public: public.into_owned(),
                        server: watched.server.clone(),
                        native: watched.uri.clone(),
                    });
                }
                self.save();
                self.context
                    .calls
                    .downstreams
                    .subscription_registry()
                    .watch(watched, self.id)
            }
            Method::ResourcesUnsubscribe => self.end_subscription(&watched, &public),
            _ => return None,
        };
        let done = RawJson::from_value(&json!({}));
        (change == SubscriptionChange::Nothing)
            .then(|| ClientReply::List(result_parts(request, &done)))
    }

    /// The client does not want a resource any more, or the server refused it.
    pub(super) fn end_subscription(
        &mut self,
        watched: &SubscriptionKey,
        public: &str,
    ) -> SubscriptionChange {
        self.record.subscriptions.retain(|one| one.public != public);
        self.missed.uris.remove(public);
        self.save();
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

    fn too_many_subscriptions(&self, request: &Request) -> ClientReply {
        let message =
            format!("this session has {SUBSCRIPTIONS_MAX} subscriptions, as many as it may have");
        let failure = Failure::new(ErrorKind::Overloaded, message);
        self.failed(request, &failure)
    }
}

impl Session {
    /// A failure as the answer to a request.
    pub(super) fn failed(&self, request: &Request, failure: &Failure) -> ClientReply {
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

/// The gateway's own answer to a request; the result in the middle is not copied.
fn result_parts(request: &Request, result: &RawJson) -> [Bytes; 3] {
    [
        head(request),
        result.as_bytes().clone(),
        Bytes::from_static(b"}"),
    ]
}

/// A list that says how old its parts are, before the brace that ends it.
fn stale_parts(request: &Request, list: &RawJson, stale: &FreshnessMeta) -> [Bytes; 3] {
    let list = list.as_bytes();
    let items = list.slice(..list.len().saturating_sub(1));
    [head(request), items, stale.tail.clone()]
}

fn head(request: &Request) -> Bytes {
    let id = request.id.as_str();
    Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"#))
}

/// Raw JSON of a URI, for frames of the gateway's own.
pub(super) fn uri_params(uri: &str) -> Value {
    json!({ "uri": uri })
}
