//! Answers for clients: formats results and errors as the client's revision requires.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::bridge::error;
use crate::bridge::result::{CacheHints, CacheScope, InputRequired, ResultDecorator};
use crate::calls::call_target;
use crate::calls::client_reply::{ClientReply, ReplyError};
use crate::catalog::{ItemKind, OneServer, Snapshot};
use crate::id::{ServerName, ViewId};
use crate::protocol::{
    Era, ErrorKind, Failure, Method, RawJson, Request, RequestId, Revision, error_frame,
    result_frame,
};
use crate::publisher::CatalogView;

/// How long a client may cache the `server/discover` result, in milliseconds. The result includes
/// instructions and extensions of servers, and no event announces changes to these.
const DISCOVERY_TTL_MS: u64 = 60_000;

/// Adds the identity of the answering side, the gateway or one server, to every result.
#[derive(Clone, Debug)]
pub(crate) enum AnswerDecorator {
    Gateway(Arc<ResultDecorator>),
    /// The only server of a view.
    Server(Arc<OneServer>),
}

impl AnswerDecorator {
    /// Creates a decorator for the gateway; `server_info` identifies it.
    pub(crate) fn new(server_info: &Value) -> Self {
        let server_info = RawJson::from_value(server_info);
        Self::Gateway(Arc::new(ResultDecorator::new(Some(server_info))))
    }

    fn decorator(&self) -> &ResultDecorator {
        match self {
            Self::Gateway(decorator) => decorator,
            Self::Server(server) => &server.decorator,
        }
    }

    /// Returns the response frame for a complete result.
    pub(crate) fn answer(
        &self,
        id: &RequestId,
        result: &RawJson,
        caching: Option<CacheHints>,
        to: Revision,
    ) -> Bytes {
        match to.era() {
            Era::Modern => self.decorator().answer(id, result, caching),
            Era::Legacy => result_frame(id, result),
        }
    }

    /// Decorates a complete result that is embedded in another result.
    pub(crate) fn decorated(&self, result: &RawJson) -> RawJson {
        self.decorator().complete(result, None)
    }

    /// Returns the response that asks the client for input before the call can complete.
    pub(crate) fn input_required(&self, id: &RequestId, asked: &InputRequired) -> Bytes {
        self.decorator().input_required(id, asked)
    }

    /// Returns the response to a request that the gateway answers itself.
    fn own(
        &self,
        id: &RequestId,
        result: &Value,
        caching: Option<CacheHints>,
        to: Revision,
    ) -> Bytes {
        self.answer(id, &RawJson::from_value(result), caching, to)
    }

    /// Returns the response with an empty result, which only acknowledges the request.
    pub(crate) fn empty(&self, id: &RequestId, to: Revision) -> ClientReply {
        ClientReply::Json(self.own(id, &json!({}), None, to))
    }

    /// Returns the response with the result of a static tool.
    pub(crate) fn discovered(&self, id: &RequestId, result: &RawJson, to: Revision) -> ClientReply {
        ClientReply::Json(self.answer(id, result, None, to))
    }

    /// Returns the response with a resource of the gateway. It must not be cached: the gateway's
    /// state is outdated immediately, and a kept result is for one client.
    pub(crate) fn uncached(&self, id: &RequestId, read: &RawJson, to: Revision) -> ClientReply {
        ClientReply::Json(self.answer(id, read, Some(CacheHints::NONE), to))
    }

    /// Returns the response to `server/discover`. It must not be cached while a server is missing
    /// or down, because it changes when that server becomes available.
    pub(crate) fn discovery(
        &self,
        id: &RequestId,
        discovery: &Value,
        view: &CatalogView,
    ) -> ClientReply {
        let is_live = view.stale().is_none();
        let caching = CacheHints {
            ttl_ms: if is_live { DISCOVERY_TTL_MS } else { 0 },
            scope: CacheScope::Private,
        };
        ClientReply::Json(self.own(id, discovery, Some(caching), Revision::NEWEST))
    }

    /// Returns one page of a list of `catalog`, without copying the page itself.
    ///
    /// # Errors
    ///
    /// Returns -32602 for a cursor that does not belong to this list.
    pub(crate) fn list(
        &self,
        kind: ItemKind,
        request: &Request,
        catalog: &Snapshot,
        (view, published): (&ViewId, &CatalogView),
        to: Revision,
    ) -> Result<ClientReply, Failure> {
        let page = call_target::page(kind, request, catalog, to)?;
        let stale = published.stale_in(view);
        let id = request.id.as_str();
        let head = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"#);
        // Further members are inserted before the page's closing brace.
        let page = page.as_bytes();
        let items = page.slice(..page.len().saturating_sub(1));
        let tail = match (to.era(), &stale) {
            (Era::Legacy, None) => Bytes::from_static(b"}}"),
            (Era::Legacy, Some(stale)) => stale.tail.clone(),
            (Era::Modern, _) => {
                let base = stale.as_ref().map(|stale| stale.result.clone());
                let base = base.unwrap_or_else(|| RawJson::from_value(&json!({})));
                let caching = published.caching(catalog, kind);
                let scope = if caching.is_public {
                    CacheScope::Public
                } else {
                    CacheScope::Private
                };
                let ttl_ms = caching.ttl_ms;
                let decorator = match self {
                    Self::Gateway(decorator) => decorator,
                    Self::Server(server) => &server.lists,
                };
                let members = decorator.complete(&base, Some(CacheHints { ttl_ms, scope }));
                let members = members.as_bytes().slice(1..);
                Bytes::from([b",".as_slice(), &members, b"}"].concat())
            }
        };
        Ok(ClientReply::Parts([Bytes::from(head), items, tail]))
    }

    /// Returns a failure as the client reads it: a server failure during a tool call becomes a tool
    /// result that the model can read, any other failure a protocol error with the HTTP status that
    /// the revision requires.
    pub(crate) fn failed(
        &self,
        method: &Method,
        id: &RequestId,
        failure: &Failure,
        to: Revision,
    ) -> ClientReply {
        if let Some(result) = failure.tool_result(method) {
            return ClientReply::Json(self.own(id, &result, None, to));
        }
        let frame = error_frame(id, &error::error_object(failure, to.era()));
        match to.era() {
            Era::Legacy => ClientReply::Json(frame),
            Era::Modern => ClientReply::Error {
                error: ReplyError::Gateway {
                    kind: failure.kind,
                    retry_after_ms: failure.retry_after_ms,
                },
                frame,
            },
        }
    }
}

/// Returns the failure for a client that returns to a call that is no longer parked.
pub(crate) fn call_lost(server: &ServerName) -> Failure {
    let message = format!(
        "server `{server}` no longer waits for these answers: the call has ended, or it was interrupted and may have run in part; it is not retried"
    );
    Failure::new(ErrorKind::ServerLost, message).server(server.as_str())
}

/// Returns the failure of a call whose replica was lost.
pub fn replica_lost() -> Failure {
    let message = "the replica that served the call was lost before it answered; the call may have run, and no replica repeats it";
    Failure::new(ErrorKind::ReplicaLost, message)
}
