//! Answers for clients: results and errors in the shape of their revision.

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

/// How long a client may count on what the gateway says of itself, in milliseconds. It says what its
/// servers say (instructions, extensions), and no event tells that this changed.
const DISCOVERY_TTL_MS: u64 = 60_000;

/// Adds the members of who answers to every result.
#[derive(Clone, Debug)]
pub(crate) enum AnswerDecorator {
    Gateway(Arc<ResultDecorator>),
    /// The server of a view that shows no other.
    Server(Arc<OneServer>),
}

impl AnswerDecorator {
    /// `server_info` says who the gateway is.
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

    /// A whole answer around a complete result.
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

    /// A complete result inside of another.
    pub(crate) fn decorated(&self, result: &RawJson) -> RawJson {
        self.decorator().complete(result, None)
    }

    /// The answer that asks the client for something first.
    pub(crate) fn input_required(&self, id: &RequestId, asked: &InputRequired) -> Bytes {
        self.decorator().input_required(id, asked)
    }

    /// The answer to a request that the gateway answers itself.
    fn own(
        &self,
        id: &RequestId,
        result: &Value,
        caching: Option<CacheHints>,
        to: Revision,
    ) -> Bytes {
        self.answer(id, &RawJson::from_value(result), caching, to)
    }

    /// The answer that says nothing but that the request was served.
    pub(crate) fn empty(&self, id: &RequestId, to: Revision) -> ClientReply {
        ClientReply::Json(self.own(id, &json!({}), None, to))
    }

    /// The result of a static tool.
    pub(crate) fn discovered(&self, id: &RequestId, result: &RawJson, to: Revision) -> ClientReply {
        ClientReply::Json(self.answer(id, result, None, to))
    }

    /// The state of the gateway, which is old at once.
    pub(crate) fn tree(&self, id: &RequestId, tree: &RawJson, to: Revision) -> ClientReply {
        ClientReply::Json(self.answer(id, tree, Some(CacheHints::NONE), to))
    }

    /// The answer to `server/discover`. It holds for no time while a server is missing or away, since
    /// it changes when that is there.
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

    /// One page of a list of `catalog`; the page itself is not copied.
    ///
    /// # Errors
    ///
    /// Returns -32602 for a cursor that is not of this list.
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
        // The members besides the items are put before the brace that ends the page.
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

    /// A failure as the client of this request reads it: of a server that fails a tool call, as
    /// something for the model; otherwise an error of the protocol with the HTTP status that the
    /// revision demands.
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

/// The failure for a client that comes back to a call which is no longer parked here.
pub(crate) fn call_lost(server: &ServerName) -> Failure {
    let message = format!(
        "server `{server}` does not wait for these answers any more: the call is over, or was interrupted and may have partly run; it is not repeated"
    );
    Failure::new(ErrorKind::ServerLost, message).server(server.as_str())
}
