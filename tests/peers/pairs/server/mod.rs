//! A server of one revision, without any library: it knows its revision and refuses the rest.

mod answers;
mod calls;
mod http;
mod listening;
mod stdio;
mod tools;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use mcpvisor::protocol::Revision;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::pairs::schema::{Schema, To};
use crate::pairs::verdicts::Verdicts;

pub(crate) use calls::Call;
pub(crate) use http::HttpPeer;
pub(crate) use stdio::{StdioPeer, relay};

/// Where messages to the gateway go.
pub(crate) type Out = mpsc::UnboundedSender<Value>;

pub(crate) const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub(crate) const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub(crate) const META_LEVEL: &str = "io.modelcontextprotocol/logLevel";
pub(crate) const META_SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// One connection of the gateway: a child's pipes, a stream of HTTP+SSE, a session of Streamable
/// HTTP, or all requests that need no session.
pub(crate) struct Link {
    /// Where goes what belongs to no call.
    general: Out,
    /// Whether the end of a request's stream is how it is cancelled.
    closes: bool,
    state: Mutex<LinkState>,
}

#[derive(Default)]
struct LinkState {
    initialized: bool,
    capabilities: Value,
    logs: bool,
    subscribed: HashSet<String>,
    /// Questions that wait for an answer: their method, and who waits.
    questions: HashMap<String, (String, oneshot::Sender<Value>)>,
    /// Requests that can be cancelled, by their id.
    running: HashMap<String, oneshot::Sender<()>>,
}

/// A method that clients send and no revision has.
pub(crate) const UNKNOWN_METHOD: &str = "tools/none";

impl Link {
    pub(crate) fn new(general: Out, closes: bool) -> Arc<Self> {
        Arc::new(Self {
            general,
            closes,
            state: Mutex::default(),
        })
    }

    fn expect(&self, id: String, question: (String, oneshot::Sender<Value>)) {
        self.state.lock().unwrap().questions.insert(id, question);
    }
}

/// The server, with all connections to it.
pub(crate) struct Server {
    pub(crate) revision: Revision,
    verdicts: Verdicts,
    links: Mutex<Vec<Arc<Link>>>,
    listeners: Mutex<Vec<listening::Listener>>,
    /// The events so far, in words that the steps look for.
    events: Mutex<Vec<String>>,
    grown: AtomicBool,
    questions: AtomicUsize,
}

impl Server {
    pub(crate) fn new(revision: Revision, verdicts: Verdicts) -> Arc<Self> {
        Arc::new(Self {
            revision,
            verdicts,
            links: Mutex::default(),
            listeners: Mutex::default(),
            events: Mutex::default(),
            grown: AtomicBool::new(false),
            questions: AtomicUsize::new(0),
        })
    }

    pub(crate) fn modern(&self) -> bool {
        self.revision >= Revision::V2026_07_28
    }

    pub(crate) fn saw(&self, event: &str) -> bool {
        self.events.lock().unwrap().iter().any(|seen| seen == event)
    }

    fn happened(&self, event: impl Into<String>) {
        self.events.lock().unwrap().push(event.into());
    }

    fn fault(&self, fault: impl std::fmt::Display) {
        let revision = self.revision;
        self.verdicts
            .note(format!("to the server ({revision}): {fault}"));
    }

    /// A new connection.
    pub(crate) fn link(&self, general: Out, closes: bool) -> Arc<Link> {
        let link = Link::new(general, closes);
        self.links.lock().unwrap().push(link.clone());
        link
    }

    /// A connection ended.
    fn left(&self, link: &Arc<Link>) {
        let mut links = self.links.lock().unwrap();
        links.retain(|known| !Arc::ptr_eq(known, link));
    }

    /// Takes one message; what belongs to it goes to `out`.
    pub(crate) fn take(self: &Arc<Self>, link: &Arc<Link>, message: Value, out: Out) {
        let Some(method) = message["method"].as_str().map(str::to_owned) else {
            return self.answered(link, &message);
        };
        // The only server of a view decides about methods that no revision has.
        if method == UNKNOWN_METHOD {
            return self.refuse(&out, &message, -32601, "no such method");
        }
        let claimed = claimed(&message);
        // The question whether it speaks the other era as well, in the words of that.
        let probe = match method.as_str() {
            "server/discover" => !self.modern(),
            "initialize" => self.modern(),
            _ => false,
        };
        let schema = match method.as_str() {
            "initialize" | "server/discover" => Schema::of(claimed.unwrap_or(self.revision)),
            _ => Schema::of(self.revision),
        };
        if self.modern() == probe && speaks_of_itself(&message) {
            self.fault(format!(
                "`{method}` with the `_meta` of another era: {message}"
            ));
        }
        self.verdicts
            .unless("server", schema.check(To::Server, &message, None));
        if message.get("id").is_none() {
            return self.notified(link, &method, &message["params"]);
        }
        if probe && self.modern() {
            if self.saw("initialize") {
                self.fault("`initialize` once more");
            }
            self.happened("initialize");
            return self.refuse(&out, &message, -32022, "not this revision");
        }
        if probe {
            return self.refuse(&out, &message, -32601, "no such method");
        }
        if self.modern() && claimed != Some(self.revision) {
            self.fault(format!("`{method}` without the revision"));
            return self.refuse(&out, &message, -32022, "not this revision");
        }
        let ready = link.state.lock().unwrap().initialized;
        if !self.modern() && !ready && !matches!(method.as_str(), "initialize" | "ping") {
            self.fault(format!("`{method}` before the handshake"));
        }
        if !Schema::of(self.revision).knows(To::Server, &method) {
            self.fault(format!("unknown `{method}`"));
            return self.refuse(&out, &message, -32601, "no such method");
        }
        self.run(link, method, message, out);
    }

    /// A request runs until it is answered or cancelled.
    fn run(self: &Arc<Self>, link: &Arc<Link>, method: String, message: Value, out: Out) {
        let (cancel, cancelled) = oneshot::channel();
        let id = message["id"].to_string();
        link.state
            .lock()
            .unwrap()
            .running
            .insert(id.clone(), cancel);
        let (server, link) = (self.clone(), link.clone());
        tokio::spawn(async move {
            let name = message["params"]["name"].as_str().unwrap_or(&method);
            let name = name.to_owned();
            let closes = link.closes;
            let call = Call::new(&server, &link, &method, message, &out);
            let answer = tokio::select! {
                answer = call.answer() => Some(answer),
                Ok(()) = cancelled => None,
                () = out.closed(), if closes => None,
            };
            link.state.lock().unwrap().running.remove(&id);
            match answer {
                Some(Some(answer)) => server.send(&out, answer, Some(&method)),
                Some(None) => {}
                None => server.happened(format!("cancelled {name}")),
            }
        });
    }

    /// Sends what this revision allows; anything else would be this server's own fault.
    fn send(&self, out: &Out, message: Value, answers: Option<&str>) {
        let checked = Schema::of(self.revision).check(To::Client, &message, answers);
        if let Err(fault) = checked {
            self.verdicts
                .note(format!("the scripted server itself: {fault}"));
        }
        let _ = out.send(message);
    }

    fn refuse(&self, out: &Out, request: &Value, code: i32, text: &str) {
        let mut error = json!({ "code": code, "message": text });
        if code == -32022 {
            error["data"] = json!({ "supported": [self.revision], "requested": claimed(request) });
        }
        let id = &request["id"];
        let answer = json!({ "jsonrpc": "2.0", "id": id, "error": error });
        self.send(out, answer, None);
    }

    fn notified(&self, link: &Link, method: &str, params: &Value) {
        match method {
            "notifications/initialized" => link.state.lock().unwrap().initialized = true,
            "notifications/cancelled" => {
                let id = params["requestId"].to_string();
                let running = link.state.lock().unwrap().running.remove(&id);
                match running {
                    Some(running) => drop(running.send(())),
                    None => self.unlisten(&params["requestId"]),
                }
            }
            _ => {}
        }
        self.happened(method);
    }

    /// An answer to a question of ours.
    fn answered(&self, link: &Link, message: &Value) {
        let id = message["id"].as_str().unwrap_or_default();
        let question = link.state.lock().unwrap().questions.remove(id);
        let Some((method, asked)) = question else {
            return self.fault(format!("an answer to no question: {message}"));
        };
        let schema = Schema::of(self.revision);
        let checked = schema.check(To::Server, message, Some(&method));
        self.verdicts.unless("server", checked);
        let _ = asked.send(message.clone());
    }

    fn question_id(&self) -> String {
        format!(
            "question-{}",
            self.questions.fetch_add(1, Ordering::Relaxed)
        )
    }
}

/// Whether a message has names of the sessionless revision in its `_meta`.
fn speaks_of_itself(message: &Value) -> bool {
    let meta = message["params"]["_meta"].as_object();
    let mut names = meta.into_iter().flat_map(|meta| meta.keys());
    names.any(|name| name.starts_with("io.modelcontextprotocol/"))
}

/// The revision that a request says it is of.
fn claimed(message: &Value) -> Option<Revision> {
    let params = &message["params"];
    let claim = match message["method"].as_str() {
        Some("initialize") => &params["protocolVersion"],
        _ => &params["_meta"][META_VERSION],
    };
    claim.as_str()?.parse().ok()
}
