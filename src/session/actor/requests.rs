//! What a client asks: answered from here, or sent to a server.

use actix::fut::wrap_future;
use actix::{ActorFutureExt, AsyncContext, Context};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::super::message::ToFront;
use super::super::route;
use super::Session;
use crate::catalog::ItemKind;
use crate::downstream::Change;
use crate::protocol::{ErrorKind, Failure, LogLevel, Method, RawJson, Request};
use crate::telemetry::Counter;

/// Resources that one session may be subscribed to: they are kept, and written with its record.
const SUBSCRIPTIONS_MAX: usize = 1000;

impl Session {
    pub(super) fn on_request(
        &mut self,
        request: Request,
        number: u64,
        accepts_stream: bool,
        reply: oneshot::Sender<ToFront>,
        ctx: &mut Context<Self>,
    ) {
        if self.must_wait_for_lists(&request) {
            if self.waiting >= self.parts.settings.load().calls_max {
                self.parts.counters.add(Counter::CallsShed);
                let message = "too many requests wait for the first lists; try again later";
                let failure = Failure::new(ErrorKind::Overloaded, message).retry_after_ms(1000);
                let frame = failure_frame(&request.method, request.id.as_str(), &failure);
                let _ = reply.send(ToFront::Json(frame));
                return;
            }
            self.waiting += 1;
            let mut catalog = self.parts.catalog.clone();
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
    /// waits for them (design: "Lists").
    fn must_wait_for_lists(&self, request: &Request) -> bool {
        if self.parts.catalog.is_listed() {
            return false;
        }
        match &request.method {
            method if ItemKind::of_method(method).is_some() => true,
            Method::Ping | Method::Initialize | Method::LoggingSetLevel => false,
            _ => route::target(request, &self.catalog()).is_err(),
        }
    }

    fn answer_or_call(
        &mut self,
        request: Request,
        number: u64,
        accepts_stream: bool,
        reply: oneshot::Sender<ToFront>,
        ctx: &mut Context<Self>,
    ) {
        let answer = match &request.method {
            Method::Ping => Ok(RawJson::from_value(&json!({}))),
            Method::LoggingSetLevel => self.set_level(&request),
            Method::Initialize => {
                let message = "this session is initialized already; initialize without a session id to start another";
                Err(Failure::new(ErrorKind::InvalidRequest, message))
            }
            method => match ItemKind::of_method(method) {
                Some(kind) => self.list(kind, &request),
                None => return self.call(request, number, accepts_stream, reply, ctx),
            },
        };
        // A client that left before its answer does not need it.
        let _ = reply.send(ToFront::Json(answer_frame(&request, answer)));
    }

    fn list(&self, kind: ItemKind, request: &Request) -> Result<RawJson, Failure> {
        #[derive(Deserialize)]
        struct ListParams {
            cursor: Option<String>,
        }
        let params: ListParams = request.params_as().map_err(|error| {
            Failure::new(ErrorKind::InvalidParams, format!("`params`: {error}"))
        })?;
        self.catalog()
            .page(kind, params.cursor.as_deref())
            .map_err(|error| Failure::new(ErrorKind::InvalidParams, error.to_string()))
    }

    /// S-LOG-02.
    fn set_level(&mut self, request: &Request) -> Result<RawJson, Failure> {
        #[derive(Deserialize)]
        struct LevelParams {
            level: LogLevel,
        }
        let params: LevelParams = request.params_as().map_err(|error| {
            Failure::new(ErrorKind::InvalidParams, format!("`params.level`: {error}"))
        })?;
        self.record.level = Some(params.level);
        self.save();
        let downstreams = &self.parts.downstreams;
        if let Some(level) = downstreams.desired().set_level(self.id, params.level) {
            downstreams.set_level(level);
        }
        Ok(RawJson::from_value(&json!({})))
    }

    /// A subscription that another session holds already needs no word with the server.
    ///
    /// Returns the answer if there is nothing to forward.
    pub(super) fn subscribe(
        &mut self,
        request: &Request,
        target: &route::Target,
    ) -> Option<Result<RawJson, Failure>> {
        let (native, public) = (target.native_uri.as_deref()?, request.uri()?);
        let desired = self.parts.downstreams.desired();
        let change = match request.method {
            Method::ResourcesSubscribe => {
                let subscriptions = &mut self.record.subscriptions;
                if !subscriptions.iter().any(|uri| *uri == public) {
                    if subscriptions.len() >= SUBSCRIPTIONS_MAX {
                        let message = format!(
                            "this session has {SUBSCRIPTIONS_MAX} subscriptions, as many as it may have"
                        );
                        return Some(Err(Failure::new(ErrorKind::Overloaded, message)));
                    }
                    subscriptions.push(public.into_owned());
                }
                desired.watch(&target.server, native, self.id)
            }
            Method::ResourcesUnsubscribe => {
                self.record.subscriptions.retain(|uri| *uri != public);
                self.missed.uris.remove(&*public);
                desired.unwatch(&target.server, native, self.id)
            }
            _ => return None,
        };
        self.save();
        (change == Change::Nothing).then(|| Ok(RawJson::from_value(&json!({}))))
    }
}

/// The answer of the gateway itself to a request.
pub(super) fn answer_frame(request: &Request, answer: Result<RawJson, Failure>) -> Bytes {
    let id = request.id.as_str();
    match answer {
        Ok(result) => {
            let (head, tail) = (format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"#), "}");
            let mut frame = Vec::with_capacity(head.len() + result.as_bytes().len() + tail.len());
            frame.extend_from_slice(head.as_bytes());
            frame.extend_from_slice(result.as_bytes());
            frame.extend_from_slice(tail.as_bytes());
            Bytes::from(frame)
        }
        Err(failure) => failure_frame(&request.method, id, &failure),
    }
}

/// A server that fails a tool call is something that the model should read; what the client did
/// wrong is an error of the protocol (design: "Failing servers").
pub(super) fn failure_frame(method: &Method, id: &str, failure: &Failure) -> Bytes {
    let of_server = failure.server.is_some() || failure.kind == ErrorKind::Overloaded;
    let text = match method {
        Method::ToolsCall if of_server && failure.original.is_none() => failure.tool_answer(id),
        _ => failure.answer(id),
    };
    Bytes::from(text)
}

/// Raw JSON of a URI, for frames of the gateway's own.
pub(super) fn updated_frame(uri: &str) -> Value {
    json!({ "uri": uri })
}
