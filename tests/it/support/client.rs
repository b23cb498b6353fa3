//! An MCP client that shows everything: each request over a connection of its own.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::{Answer, Events, Gateway, Http, TlsClient};

/// The newest revision with a handshake.
pub(crate) const NEWEST: &str = "2025-11-25";

/// A handshake of a client without capabilities.
pub(crate) const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":"first","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"it","version":"1"}}}"#;

pub(crate) fn request(id: impl Into<Value>, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id.into(), "method": method, "params": params })
}

pub(crate) fn initialize(revision: &str, capabilities: &Value) -> Value {
    let params = json!({
        "protocolVersion": revision,
        "capabilities": capabilities,
        "clientInfo": { "name": "it", "version": "1" },
    });
    request("first", "initialize", params)
}

/// One session.
pub(crate) struct Client {
    address: SocketAddr,
    tls: Option<TlsClient>,
    pub(crate) session: String,
    pub(crate) revision: String,
    next_id: AtomicU64,
}

impl Client {
    /// A session of the newest revision without capabilities.
    pub(crate) async fn open(gateway: &Gateway) -> Self {
        Self::open_as(gateway, NEWEST, json!({})).await
    }

    /// A session that declares capabilities.
    pub(crate) async fn that_can(gateway: &Gateway, capabilities: Value) -> Self {
        Self::open_as(gateway, NEWEST, capabilities).await
    }

    pub(crate) async fn open_as(gateway: &Gateway, revision: &str, capabilities: Value) -> Self {
        Self::open_with((gateway.address, None), revision, capabilities).await
    }

    /// A session of the newest revision at an address.
    pub(crate) async fn open_at(address: SocketAddr) -> Self {
        Self::open_with((address, None), NEWEST, json!({})).await
    }

    /// A session of the newest revision over TLS.
    pub(crate) async fn open_over(gateway: &Gateway, tls: &TlsClient) -> Self {
        let place = (gateway.address, Some(tls.clone()));
        Self::open_with(place, NEWEST, json!({})).await
    }

    async fn open_with(
        (address, tls): (SocketAddr, Option<TlsClient>),
        revision: &str,
        capabilities: Value,
    ) -> Self {
        let body = initialize(revision, &capabilities).to_string();
        let http = Http::post(address, body).over(tls.as_ref());
        let answer = http.send().await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let session = answer.header("mcp-session-id").unwrap().to_owned();
        let result = answer.json().await;
        let client = Self {
            address,
            tls,
            session,
            revision: result["result"]["protocolVersion"]
                .as_str()
                .unwrap()
                .to_owned(),
            next_id: AtomicU64::new(1),
        };
        client.notify("notifications/initialized", json!({})).await;
        client
    }

    /// Goes on with the session at a gateway that was started again.
    pub(crate) fn follow(&mut self, gateway: &Gateway) {
        self.address = gateway.address;
    }

    /// A POST in this session.
    pub(crate) fn post(&self, message: &Value) -> Http {
        self.with_session(Http::post(self.address, message.to_string()))
    }

    pub(crate) fn with_session(&self, http: Http) -> Http {
        http.over(self.tls.as_ref())
            .header("Mcp-Session-Id", &self.session)
            .header("MCP-Protocol-Version", &self.revision)
    }

    pub(crate) fn id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// The answer to a request, however it comes.
    pub(crate) async fn ask(&self, method: &str, params: Value) -> Value {
        let id = self.id();
        let answer = self.post(&request(id, method, params)).send().await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let answer = answer_in(answer).await;
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    /// The result of a request that succeeds.
    pub(crate) async fn get(&self, method: &str, params: Value) -> Value {
        let answer = self.ask(method, params).await;
        assert!(answer.get("result").is_some(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// The error of a request that fails.
    pub(crate) async fn refused(&self, method: &str, params: Value) -> Value {
        let answer = self.ask(method, params).await;
        assert!(answer.get("error").is_some(), "{method}: {answer}");
        answer["error"].clone()
    }

    /// The result of a tool.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Value {
        self.get("tools/call", call_params(tool, arguments)).await
    }

    /// Starts a call of which the answer is read as a stream; the call's id.
    pub(crate) async fn start(&self, tool: &str, arguments: Value) -> (u64, Events) {
        let (id, answer) = self.begin(tool, arguments).await;
        (id, answer.events())
    }

    /// Starts a call that wants progress; its id, and the answer as it begins.
    pub(crate) async fn begin(&self, tool: &str, arguments: Value) -> (u64, Answer) {
        let id = self.id();
        let mut params = call_params(tool, arguments);
        params["_meta"] = json!({ "progressToken": format!("token-{id}") });
        let answer = self.post(&request(id, "tools/call", params)).send().await;
        assert_eq!(answer.status, 200, "{answer:?}");
        (id, answer)
    }

    pub(crate) async fn notify(&self, method: &str, params: Value) {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        self.say(&message).await;
    }

    /// Answers a question of a server.
    pub(crate) async fn answer(&self, question: &Value, result: Value) {
        let message = json!({ "jsonrpc": "2.0", "id": question["id"], "result": result });
        self.say(&message).await;
    }

    /// Sends what has no answer.
    pub(crate) async fn say(&self, message: &Value) {
        let answer = self.post(message).send().await;
        assert_eq!(answer.status, 202, "{message}: {answer:?}");
        assert!(answer.bytes().await.is_empty());
    }

    fn get_stream(&self) -> Http {
        let http = Http::new(self.address, "GET", "/mcp").header("Accept", "text/event-stream");
        self.with_session(http)
    }

    /// Opens the general stream.
    pub(crate) async fn listen(&self) -> Events {
        self.get_stream().send().await.events()
    }

    /// Goes on with a stream after an event.
    pub(crate) async fn resume(&self, last_event_id: &str) -> Events {
        let http = self.get_stream().header("Last-Event-ID", last_event_id);
        http.send().await.events()
    }

    pub(crate) async fn delete(&self) -> Answer {
        let http = Http::new(self.address, "DELETE", "/mcp");
        self.with_session(http).send().await
    }
}

pub(crate) fn call_params(tool: &str, arguments: Value) -> Value {
    json!({ "name": tool, "arguments": arguments })
}

/// The answer in a body of either kind; a stream holds it last and then ends.
pub(crate) async fn answer_in(answer: Answer) -> Value {
    if answer.is_stream() {
        let mut messages = answer.events().rest().await;
        messages.pop().expect("an answer on the stream")
    } else {
        answer.json().await
    }
}
