//! One request to the scripted server, and what it may say before its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mcpvisor::protocol::Revision;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{Link, META_CAPABILITIES, META_LEVEL, Out, Server};

/// How a request ends that is not answered with a result.
pub(crate) enum Stop {
    /// With this error.
    Error(i32, String),
    /// With -32042: these elicitations come first.
    First(Value),
    /// With this result of the server's own: input is required.
    Return(Value),
}

/// A request, and where its answer goes.
pub(crate) struct Call {
    pub(crate) server: Arc<Server>,
    pub(crate) link: Arc<Link>,
    pub(crate) method: String,
    pub(crate) id: Value,
    pub(crate) params: Value,
    pub(crate) out: Out,
    /// Questions so far.
    asked: AtomicUsize,
}

impl Call {
    pub(crate) fn new(
        server: &Arc<Server>,
        link: &Arc<Link>,
        method: &str,
        mut message: Value,
        out: &Out,
    ) -> Self {
        Self {
            server: server.clone(),
            link: link.clone(),
            method: method.to_owned(),
            id: message["id"].take(),
            params: message["params"].take(),
            out: out.clone(),
            asked: AtomicUsize::new(0),
        }
    }

    /// The answer; `None` if there is none.
    pub(crate) async fn answer(&self) -> Option<Value> {
        let answer = |kind: &str, value: Value| {
            let mut answer = json!({ "jsonrpc": "2.0", "id": self.id });
            answer[kind] = value;
            Some(answer)
        };
        match self.result().await {
            Ok(Some(result)) => answer("result", self.complete(result)),
            Ok(None) => None,
            Err(Stop::Return(result)) => answer("result", result),
            Err(Stop::First(elicitations)) => answer(
                "error",
                json!({
                    "code": -32042,
                    "message": "the user has to open a page first",
                    "data": { "elicitations": elicitations },
                }),
            ),
            Err(Stop::Error(code, text)) => {
                let mut error = json!({ "code": code, "message": text });
                if self.method == "resources/read" {
                    error["data"] = json!({ "uri": self.params["uri"] });
                }
                answer("error", error)
            }
        }
    }

    pub(crate) fn since(&self, revision: Revision) -> bool {
        self.server.revision >= revision
    }

    /// Members of every result of the sessionless revision.
    fn complete(&self, mut result: Value) -> Value {
        if self.server.modern() {
            result["resultType"] = json!("complete");
            let cached = ["/list", "/read", "/discover"];
            if cached.iter().any(|end| self.method.ends_with(end)) {
                result["ttlMs"] = json!(0);
                result["cacheScope"] = json!("public");
            }
            let info = json!({ "name": "scripted", "version": "1" });
            result["_meta"]["io.modelcontextprotocol/serverInfo"] = info;
        }
        result
    }

    /// The declaration of the client in front, as far as the gateway passes it on; a path into it.
    pub(crate) fn declared(&self, capability: &str) -> bool {
        let state = self.link.state.lock().unwrap();
        let capabilities = match self.server.modern() {
            true => &self.params["_meta"][META_CAPABILITIES],
            false => &state.capabilities,
        };
        capabilities.pointer(capability).is_some()
    }

    /// A notification that belongs to this request.
    pub(crate) fn say(&self, method: &str, params: Value) {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        self.server.send(&self.out, message, None);
    }

    pub(crate) fn progress(&self, step: u32) {
        let token = &self.params["_meta"]["progressToken"];
        if token.is_null() {
            return;
        }
        let mut params = json!({ "progressToken": token, "progress": step, "total": 3 });
        if self.since(Revision::V2025_03_26) {
            params["message"] = json!(format!("step {step}"));
        }
        self.say("notifications/progress", params);
    }

    /// A line of the log, if the client wants one.
    pub(crate) fn log(&self, text: &str) {
        let wanted = match self.server.modern() {
            true => self.params["_meta"].get(META_LEVEL).is_some(),
            false => self.link.state.lock().unwrap().logs,
        };
        if wanted {
            let params = json!({ "level": "warning", "logger": "scripted", "data": text });
            self.say("notifications/message", params);
        }
    }

    /// Asks the client and waits, or returns the question if this revision does it so.
    pub(crate) async fn ask(&self, method: &str, params: Value) -> Result<Value, Stop> {
        if self.server.modern() {
            return self.ask_by_return(method, params);
        }
        let id = self.server.question_id();
        let (asked, answered) = oneshot::channel();
        let question = (method.to_owned(), asked);
        self.link.expect(id.clone(), question);
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.server.send(&self.out, message, None);
        let gone = |_| Stop::Error(-32603, "the client is gone".to_owned());
        let answer = answered.await.map_err(gone)?;
        match answer.get("result") {
            Some(result) => Ok(result.clone()),
            None => Err(Stop::Error(-32603, format!("refused: {}", answer["error"]))),
        }
    }

    /// The n-th question of this call. All answers of earlier rounds travel in the state.
    fn ask_by_return(&self, method: &str, params: Value) -> Result<Value, Stop> {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let tool = &self.params["name"];
        let state = self.params["requestState"].as_str();
        let mut state: Value = match state.map(serde_json::from_str) {
            Some(Ok(state)) => state,
            _ => json!({ "tool": tool, "given": [] }),
        };
        let answers = &self.params["inputResponses"];
        if state["tool"] != *tool || answers.is_object() && self.params["requestState"].is_null() {
            self.server.fault("the request's state was not kept");
        }
        let given = state["given"].as_array_mut();
        let given = given.ok_or_else(|| Stop::Error(-32602, "a broken state".to_owned()))?;
        given.extend(answers.get("question").cloned());
        match given.get(number) {
            Some(answer) => Ok(answer.clone()),
            None => Err(Stop::Return(json!({
                "resultType": "input_required",
                "requestState": state.to_string(),
                "inputRequests": { "question": { "method": method, "params": params } },
            }))),
        }
    }
}
