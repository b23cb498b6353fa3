//! State shared by the handlers of one session, and its output queue.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc, oneshot};

/// Log levels of the protocol, least severe first (RFC 5424).
pub(super) const LEVELS: [&str; 8] = [
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
];

/// A JSON-RPC error.
#[derive(Debug)]
pub(super) struct RpcError {
    pub(super) code: i32,
    pub(super) message: String,
    pub(super) data: Option<Value>,
}

impl RpcError {
    pub(super) fn new(code: i32, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// Invalid params.
    pub(super) fn params(message: impl Into<String>) -> Self {
        Self::new(-32602, message)
    }
}

#[derive(Default)]
pub(super) struct ExampleState {
    revision: Option<&'static str>,
    client: Value,
    level: usize,
    running: HashMap<String, oneshot::Sender<()>>,
    asked: HashMap<String, oneshot::Sender<Value>>,
    asked_count: u64,
    pub(super) subscribed: BTreeSet<String>,
    pub(super) touched: u64,
    /// Tools added at run time: name and description.
    pub(super) added: BTreeMap<String, String>,
}

pub(super) struct ExampleSession {
    out: mpsc::Sender<String>,
    state: Mutex<ExampleState>,
    pub(super) crash: Notify,
}

impl ExampleSession {
    pub(super) fn new(out: mpsc::Sender<String>) -> Self {
        Self {
            out,
            state: Mutex::default(),
            crash: Notify::new(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, ExampleState> {
        self.state.lock()
    }

    pub(super) fn revision(&self) -> Option<&'static str> {
        self.state().revision
    }

    /// Whether the negotiated revision is `revision` or later; dates compare as text.
    pub(super) fn since(&self, revision: &str) -> bool {
        self.revision()
            .is_some_and(|negotiated| negotiated >= revision)
    }

    pub(super) fn initialized(&self, revision: &'static str, client: Value) {
        let mut state = self.state();
        state.revision = Some(revision);
        state.client = client;
    }

    /// Whether the client can show a form to its user.
    pub(super) fn can_ask(&self) -> bool {
        let elicitation = &self.state().client["elicitation"];
        let modes = elicitation.as_object();
        modes.is_some_and(|modes| modes.is_empty() || modes.contains_key("form"))
    }

    pub(super) fn set_level(&self, params: &Value) -> Result<Value, RpcError> {
        let wanted = params["level"].as_str();
        let level = LEVELS.iter().position(|level| Some(*level) == wanted);
        let level = level.ok_or_else(|| {
            RpcError::params(format!("`level` must be one of {}", LEVELS.join(", ")))
        })?;
        self.state().level = level;
        Ok(json!({}))
    }

    pub(super) async fn send(&self, message: &Value) {
        self.send_line(message.to_string()).await;
    }

    pub(super) async fn refuse(&self, id: &Value, code: i32, text: impl Into<String>) {
        let refusal = super::failure(id, &RpcError::new(code, text));
        self.send(&refusal).await;
    }

    pub(super) async fn send_line(&self, line: String) {
        // Ignore an error: the client is gone, which the reader also detects.
        let _ = self.out.send(line).await;
    }

    pub(super) async fn notify(&self, method: &str, params: Option<Value>) {
        let mut message = json!({"jsonrpc": "2.0", "method": method});
        if let Some(params) = params {
            message["params"] = params;
        }
        self.send(&message).await;
    }

    /// Sends a log message, unless the client requested only more severe ones. Returns whether it
    /// was sent.
    pub(super) async fn log(&self, level: &str, logger: &str, data: Value) -> bool {
        let rank = LEVELS.iter().position(|known| *known == level).unwrap_or(0);
        if rank < self.state().level {
            return false;
        }
        let params = json!({"level": level, "logger": logger, "data": data});
        self.notify("notifications/message", Some(params)).await;
        true
    }

    /// Registers a running request; `None` if one with the same id is already running.
    pub(super) fn start(self: &Arc<Self>, id: &Value) -> Option<RunningRequest> {
        let id = id.to_string();
        let mut state = self.state();
        if state.running.contains_key(&id) {
            return None;
        }
        let (cancel, cancelled) = oneshot::channel();
        state.running.insert(id.clone(), cancel);
        Some(RunningRequest {
            session: self.clone(),
            id,
            cancelled,
        })
    }

    pub(super) fn cancel(&self, id: &Value) {
        let cancel = self.state().running.remove(&id.to_string());
        if let Some(cancel) = cancel {
            // Ignore an error: the request has just ended.
            let _ = cancel.send(());
        }
    }

    /// Sends a request to the client and waits for its complete response. Dropping the future tells
    /// the client that the response is no longer needed.
    pub(super) async fn ask(self: &Arc<Self>, method: &str, params: Value) -> Option<Value> {
        let (answer, answered) = oneshot::channel();
        let id = {
            let mut state = self.state();
            state.asked_count += 1;
            let id = format!("example-{}", state.asked_count);
            state.asked.insert(id.clone(), answer);
            id
        };
        let _asked = PendingQuestion {
            session: self.clone(),
            id: id.clone(),
        };
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await;
        answered.await.ok()
    }

    /// Delivers a client's response to its requester; others are ignored.
    pub(super) fn answered(&self, id: &Value, message: Value) {
        let asked = id.as_str().and_then(|id| self.state().asked.remove(id));
        if let Some(asked) = asked {
            // Ignore an error: the requester has just been cancelled.
            let _ = asked.send(message);
        }
    }

    /// Removes fields that the negotiated revision does not define from the items of a list.
    pub(super) fn remove_unknown_fields(&self, mut result: Value) -> Value {
        let mut unknown = Vec::new();
        if !self.since("2025-06-18") {
            unknown.extend(["title", "outputSchema"]);
        }
        if !self.since("2025-03-26") {
            unknown.push("annotations");
        }
        for kind in ["tools", "resources", "resourceTemplates", "prompts"] {
            let items = result.get_mut(kind).and_then(Value::as_array_mut);
            for item in items.into_iter().flatten().filter_map(Value::as_object_mut) {
                item.retain(|field, _| !unknown.contains(&field.as_str()));
            }
        }
        result
    }
}

/// A running request; it is unregistered when this is dropped.
pub(super) struct RunningRequest {
    session: Arc<ExampleSession>,
    id: String,
    cancelled: oneshot::Receiver<()>,
}

impl RunningRequest {
    /// Returns when the client cancelled the request.
    pub(super) async fn wait(&mut self) {
        if (&mut self.cancelled).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.session.state().running.remove(&self.id);
    }
}

/// A pending question to the client.
struct PendingQuestion {
    session: Arc<ExampleSession>,
    id: String,
}

impl Drop for PendingQuestion {
    fn drop(&mut self) {
        if self.session.state().asked.remove(&self.id).is_some() {
            let params = json!({"requestId": self.id, "reason": "the call was cancelled"});
            let message =
                json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
            // If the queue is full, the client keeps a question without a requester: harmless.
            let _ = self.session.out.try_send(message.to_string());
        }
    }
}
