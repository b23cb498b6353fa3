//! A client that enters by one of the gateway's endpoints.

use serde_json::{Value, json};

use super::{Events, Gateway, Http, INITIALIZE, answer_in, call_params, names, request};

/// A client that entered by this path.
pub(crate) struct Visitor {
    pub(crate) address: std::net::SocketAddr,
    pub(crate) path: &'static str,
    pub(crate) session: String,
}

impl Visitor {
    pub(crate) async fn open(gateway: &Gateway, path: &'static str) -> Self {
        let http = Http::post(gateway.address, INITIALIZE).path(path);
        let answer = http.send().await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        let session = answer.header("mcp-session-id").unwrap().to_owned();
        Self {
            address: gateway.address,
            path,
            session,
        }
    }

    pub(crate) fn post(&self, method: &str, params: Value) -> Http {
        let body = request(1, method, params).to_string();
        let http = Http::post(self.address, body).path(self.path);
        http.header("Mcp-Session-Id", &self.session)
    }

    pub(crate) async fn ask(&self, method: &str, params: Value) -> Value {
        answer_in(self.post(method, params).send().await).await
    }

    pub(crate) async fn call(&self, tool: &str) -> Value {
        self.call_with(tool, json!({"message": "hi"})).await
    }

    pub(crate) async fn call_with(&self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", call_params(tool, arguments)).await
    }

    /// Its stream of events.
    pub(crate) async fn events(&self) -> Events {
        let http = Http::new(self.address, "GET", self.path)
            .header("Accept", "text/event-stream")
            .header("Mcp-Session-Id", &self.session);
        let answer = http.send().await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.events()
    }

    pub(crate) async fn tools(&self) -> Vec<String> {
        let list = self.ask("tools/list", json!({})).await;
        let names = names(&list["result"]["tools"]);
        names.into_iter().map(str::to_owned).collect()
    }
}
