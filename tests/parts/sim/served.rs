//! Requests of clients without a session, as the front presents them.

use std::sync::Arc;

use mcpvisor::bridge::headers::{HttpHeaders, McpHeaders};
use mcpvisor::calls::RequestGuard;
use mcpvisor::downstream::{Caller, ClientInfo};
use mcpvisor::id::{Peer, Principal, ViewId};
use mcpvisor::protocol::{DeclaredCapabilities, Envelope, Revision};
use mcpvisor::sessions::{ServeOutcome, SessionlessRequest};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::sim::client::{Exchange, envelope};
use crate::sim::server::ask;
use crate::sim::tasks::EXTENSION;
use crate::sim::world::{World, settle};

/// A request without a session. Dropped, its client has left.
pub(crate) struct Served {
    pub(crate) exchange: Exchange,
    /// Messages that somebody has looked at.
    seen: usize,
    _waiting: Option<RequestGuard>,
}

impl Served {
    pub(crate) async fn send(
        world: &World,
        capabilities: &Value,
        method: &str,
        params: Value,
    ) -> Self {
        let listens = method == "subscriptions/listen";
        let newest = Revision::V2026_07_28;
        Self::send_as(world, newest, capabilities, listens, method, params).await
    }

    /// As a client of this revision, which reads streams or does not.
    pub(crate) async fn send_as(
        world: &World,
        revision: Revision,
        capabilities: &Value,
        accepts_stream: bool,
        method: &str,
        params: Value,
    ) -> Self {
        let message = ask("r", method, params);
        let sessionless = request(revision, capabilities, accepts_stream, &message);
        Self::serve(world, &message["id"], sessionless).await
    }

    /// A whole message of a client of the newest revision.
    pub(crate) async fn send_message(
        world: &World,
        capabilities: &Value,
        accepts_stream: bool,
        message: &Value,
    ) -> Self {
        let sessionless = request(Revision::V2026_07_28, capabilities, accepts_stream, message);
        Self::serve(world, &message["id"], sessionless).await
    }

    /// Over HTTP, with these `Mcp-Param-*`.
    pub(crate) async fn send_with(
        world: &World,
        headers: &[(&'static str, &'static str)],
        method: &str,
        params: Value,
    ) -> Self {
        let headers = Params(headers.to_vec());
        let newest = Revision::V2026_07_28;
        let message = ask("r", method, params);
        let mut sessionless = request(newest, &json!({}), false, &message);
        sessionless.headers = Some(McpHeaders::of(&headers));
        Self::serve(world, &message["id"], sessionless).await
    }

    /// Of a client that connects from elsewhere.
    pub(crate) async fn send_from(
        world: &World,
        peer: Peer,
        capabilities: &Value,
        method: &str,
        params: Value,
    ) -> Self {
        let listens = method == "subscriptions/listen";
        let newest = Revision::V2026_07_28;
        let message = ask("r", method, params);
        let mut sessionless = request(newest, capabilities, listens, &message);
        sessionless.peer = peer;
        Self::serve(world, &message["id"], sessionless).await
    }

    async fn serve(world: &World, id: &Value, sessionless: SessionlessRequest<'_>) -> Self {
        let (answer, waiting) = match world.sessions.serve(sessionless).await {
            ServeOutcome::Done(done) => {
                let (reply, answer) = oneshot::channel();
                assert!(reply.send(done).is_ok());
                (answer, None)
            }
            ServeOutcome::Running(running) => (running.answer, Some(running.waiting)),
        };
        settle().await;
        Self {
            exchange: Exchange::waiting(id.clone(), answer),
            seen: 0,
            _waiting: waiting,
        }
    }

    pub(crate) fn answer(&mut self) -> Option<Value> {
        self.exchange.answer()
    }

    pub(crate) fn result(&mut self) -> Value {
        self.exchange.result()
    }

    pub(crate) fn error(&mut self) -> Value {
        self.exchange.error()
    }

    /// Messages that came on this stream since somebody looked.
    pub(crate) fn events(&mut self) -> Vec<Value> {
        let messages = self.exchange.messages();
        assert!(self.exchange.was_stream(), "no stream: {messages:?}");
        let new = messages[self.seen..].to_vec();
        self.seen = messages.len();
        new
    }
}

fn request(
    revision: Revision,
    capabilities: &Value,
    accepts_stream: bool,
    message: &Value,
) -> SessionlessRequest<'static> {
    let Envelope::Request(request) = envelope(message) else {
        panic!("{message}")
    };
    let caller = Caller {
        principal: Principal::Anonymous,
        scopes: None,
        view: ViewId::Default,
        session: None,
        revision,
        profile: DeclaredCapabilities::from_declared(capabilities.as_object().unwrap()),
        level: None,
        client: None,
        info: ClientInfo::default(),
    };
    SessionlessRequest {
        request,
        caller: Arc::new(caller),
        peer: Peer::Local,
        headers: None,
        forwarded: None,
        arbiter: 0,
        accepts_stream,
    }
}

/// The `Mcp-Param-*` of a request.
struct Params(Vec<(&'static str, &'static str)>);

impl HttpHeaders for Params {
    fn first(&self, name: &str) -> Option<(&[u8], bool)> {
        let mut found = self
            .0
            .iter()
            .filter(|(it, _)| it.eq_ignore_ascii_case(name));
        let (_, value) = found.next()?;
        Some((value.as_bytes(), found.next().is_some()))
    }

    fn params(&self) -> Vec<(&str, &[u8])> {
        let pairs = self.0.iter();
        pairs
            .map(|(name, value)| (*name, value.as_bytes()))
            .collect()
    }
}

pub(crate) fn with_extension() -> Value {
    json!({"elicitation": {}, "roots": {}, "extensions": {EXTENSION: {}}})
}
