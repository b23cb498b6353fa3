//! A client of one revision, without any library: it checks all that comes and answers what it
//! is asked.

mod wire;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mcpvisor::protocol::Revision;
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::pairs::schema::{Schema, To, cut};
use crate::pairs::server::{META_CAPABILITIES, META_LEVEL, META_VERSION};
use crate::pairs::verdicts::Verdicts;

pub(crate) use wire::Wire;

/// Why a step did not go as it should.
pub(crate) type Step<T = ()> = Result<T, String>;

/// Rounds of questions after which a client gives up.
const ROUNDS_MAX: usize = 4;

pub(crate) struct Client {
    pub(crate) revision: Revision,
    verdicts: Verdicts,
    wire: Wire,
    next_id: AtomicU64,
    /// Requests that wait: their method, and who waits.
    pending: Mutex<HashMap<u64, (String, oneshot::Sender<Value>)>>,
    notes: Mutex<Vec<Value>>,
    /// Methods that this client was asked, as requests or in results.
    asked: Mutex<Vec<String>>,
    changed: Notify,
    /// Level of the log that each request asks for, where requests do that.
    level: Mutex<Option<&'static str>>,
    patience: Mutex<Duration>,
    /// Whether forms and pages are declined.
    declines: AtomicBool,
}

/// A request that is under way.
pub(crate) struct Started {
    pub(crate) id: u64,
    pub(crate) answer: oneshot::Receiver<Value>,
    pub(crate) sending: JoinHandle<()>,
}

impl Client {
    pub(crate) fn new(revision: Revision, wire: Wire, verdicts: Verdicts) -> Arc<Self> {
        let client = Arc::new(Self {
            revision,
            verdicts,
            wire,
            next_id: AtomicU64::new(1),
            pending: Mutex::default(),
            notes: Mutex::default(),
            asked: Mutex::default(),
            changed: Notify::new(),
            level: Mutex::new(None),
            patience: Mutex::new(Duration::from_secs(10)),
            declines: AtomicBool::new(false),
        });
        client.read();
        client
    }

    pub(crate) fn modern(&self) -> bool {
        self.revision >= Revision::V2026_07_28
    }

    /// How long to wait for what should come.
    pub(crate) fn patience(&self) -> Duration {
        *self.patience.lock().unwrap()
    }

    pub(crate) fn set_patience(&self, patience: Duration) {
        *self.patience.lock().unwrap() = patience;
    }

    /// The questions that a client of this revision can be asked.
    pub(crate) fn capabilities(&self) -> Value {
        let mut capabilities = json!({ "sampling": {}, "roots": {} });
        if !self.modern() {
            capabilities["roots"] = json!({ "listChanged": true });
        }
        if self.revision >= Revision::V2025_11_25 {
            capabilities["elicitation"] = json!({ "form": {}, "url": {} });
        } else if self.revision >= Revision::V2025_06_18 {
            capabilities["elicitation"] = json!({});
        }
        capabilities
    }

    /// Opens: with a handshake, or by asking who is there.
    pub(crate) async fn open(self: &Arc<Self>) -> Step<Value> {
        if self.modern() {
            return self.ask("server/discover", json!({})).await;
        }
        let params = json!({
            "protocolVersion": self.revision,
            "capabilities": self.capabilities(),
            "clientInfo": { "name": "scripted", "version": "1" },
        });
        let result = self.ask("initialize", params).await?;
        self.notify("notifications/initialized", json!({}));
        self.listen().await;
        Ok(result)
    }

    /// The result of a request, after all questions on the way to it.
    pub(crate) async fn ask(self: &Arc<Self>, method: &str, params: Value) -> Step<Value> {
        let answer = self.exchange(method, params).await?;
        match answer.get("result") {
            Some(result) => Ok(result.clone()),
            None => Err(format!("{method}: {}", cut(&answer.to_string()))),
        }
    }

    /// The error of a request that must fail.
    pub(crate) async fn refused(self: &Arc<Self>, method: &str, params: Value) -> Step<Value> {
        let answer = self.exchange(method, params).await?;
        match answer.get("error") {
            Some(error) => Ok(error.clone()),
            None => Err(format!("{method} succeeded: {}", cut(&answer.to_string()))),
        }
    }

    pub(crate) async fn call(self: &Arc<Self>, tool: &str, text: &str) -> Step<Value> {
        let params = json!({ "name": tool, "arguments": { "text": text } });
        self.ask("tools/call", params).await
    }

    async fn exchange(self: &Arc<Self>, method: &str, params: Value) -> Step<Value> {
        let mut given = params.clone();
        for _ in 0..ROUNDS_MAX {
            let started = self.start(method, given);
            let answer = timeout(self.patience(), started.answer).await;
            let answer = answer.map_err(|_| format!("{method}: no answer in time"))?;
            let answer = answer.map_err(|_| format!("{method}: no answer"))?;
            let result = &answer["result"];
            if result["resultType"] != "input_required" {
                return Ok(answer);
            }
            given = self.retry(&params, result);
        }
        Err(format!("{method}: asked too often"))
    }

    /// The parameters of the next round. What is new in it comes first: nothing says in which
    /// order members come.
    fn retry(&self, params: &Value, required: &Value) -> Value {
        let mut given = json!({});
        if let Some(state) = required.get("requestState") {
            given["requestState"] = state.clone();
        }
        let questions = required["inputRequests"].as_object();
        for (key, question) in questions.into_iter().flatten() {
            given["inputResponses"][key] = self.answer_to(question);
        }
        for (name, value) in params.as_object().into_iter().flatten() {
            given[name] = value.clone();
        }
        given
    }

    /// Sends a request.
    pub(crate) fn start(self: &Arc<Self>, method: &str, mut params: Value) -> Started {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        if self.modern() {
            params["_meta"][META_VERSION] = json!(self.revision);
            params["_meta"][META_CAPABILITIES] = self.capabilities();
            if let Some(level) = *self.level.lock().unwrap() {
                params["_meta"][META_LEVEL] = json!(level);
            }
        }
        let (tell, answer) = oneshot::channel();
        let mut pending = self.pending.lock().unwrap();
        pending.insert(id, (method.to_owned(), tell));
        drop(pending);
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let sending = self.send(message);
        Started {
            id,
            answer,
            sending,
        }
    }

    pub(crate) fn notify(self: &Arc<Self>, method: &str, params: Value) {
        self.send(json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// Asks for lines of the log, as this revision does it.
    pub(crate) async fn want_log(self: &Arc<Self>) -> Step {
        *self.level.lock().unwrap() = Some("info");
        if !self.modern() {
            self.ask("logging/setLevel", json!({ "level": "info" }))
                .await?;
        }
        Ok(())
    }

    pub(crate) fn decline(&self, declines: bool) {
        self.declines.store(declines, Ordering::Relaxed);
    }

    pub(crate) fn was_asked(&self, method: &str) -> bool {
        self.asked
            .lock()
            .unwrap()
            .iter()
            .any(|known| known == method)
    }

    /// Notifications so far that are like this.
    pub(crate) fn notes(&self, like: impl Fn(&Value) -> bool) -> Vec<Value> {
        let notes = self.notes.lock().unwrap();
        notes.iter().filter(|note| like(note)).cloned().collect()
    }

    /// Waits for a notification.
    pub(crate) async fn note(&self, method: &str, like: impl Fn(&Value) -> bool) -> Step<Value> {
        let like = |note: &Value| note["method"] == method && like(&note["params"]);
        let found = timeout(self.patience(), async {
            loop {
                let changed = self.changed.notified();
                if let Some(note) = self.notes(like).pop() {
                    return note["params"].clone();
                }
                changed.await;
            }
        });
        found.await.map_err(|_| format!("no `{method}` came"))
    }

    /// Takes one message of the gateway.
    fn received(self: &Arc<Self>, message: Value) {
        let (method, id) = (message["method"].as_str(), message.get("id"));
        let mut waits = None;
        if method.is_none() {
            let mut pending = self.pending.lock().unwrap();
            waits = id
                .and_then(Value::as_u64)
                .and_then(|id| pending.remove(&id));
        }
        let answers = waits.as_ref().map(|(method, _)| method.as_str());
        // A refused probe is an answer of no revision of ours.
        let checked = Schema::of(self.revision).check(To::Client, &message, answers);
        self.verdicts.unless("client", checked);
        if let Some((_, tell)) = waits {
            let _ = tell.send(message);
            return;
        }
        match (method, id) {
            (Some(_), Some(_)) => {
                let answer = self.answer_to(&message);
                self.send(json!({ "jsonrpc": "2.0", "id": id, "result": answer }));
            }
            (Some(_), None) => {
                self.notes.lock().unwrap().push(message);
                self.changed.notify_waiters();
            }
            (None, _) => self
                .verdicts
                .note(format!("to the client: an answer to nothing: {message}")),
        }
    }

    fn answer_to(&self, question: &Value) -> Value {
        let method = question["method"].as_str().unwrap_or_default();
        let mode = question["params"]["mode"].as_str();
        self.asked.lock().unwrap().push(method.to_owned());
        match method {
            "sampling/createMessage" => json!({
                "role": "assistant",
                "content": { "type": "text", "text": "fine" },
                "model": "scripted",
            }),
            "roots/list" => json!({ "roots": [{ "uri": "file:///of/the/client" }] }),
            "elicitation/create" => match (self.declines.load(Ordering::Relaxed), mode) {
                (true, _) => json!({ "action": "decline" }),
                (false, Some("url")) => json!({ "action": "accept" }),
                (false, _) => json!({ "action": "accept", "content": { "answer": "a client" } }),
            },
            _ => json!({}),
        }
    }
}
