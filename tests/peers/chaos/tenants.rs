//! Clients of many principals, on servers that they share: none reads a byte that is somebody else's,
//! and none gets into somebody else's session, though it knows the id.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::rc::Rc;

use mcpvisor::supervision::SeededRandom;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::chaos::callers::{Scene, count};
use crate::support::{Answer, Http, initialize, request};

/// The API keys of so many principals, for `config.toml`.
pub(crate) fn keys(count: u64) -> String {
    let mut config = String::new();
    for number in 0..count {
        let mut hash = String::new();
        for byte in digest(&SHA256, key(number).as_bytes()).as_ref() {
            write!(hash, "{byte:02x}").unwrap();
        }
        writeln!(
            config,
            "[auth.keys.tenant{number}]\nhash = \"sha256:{hash}\""
        )
        .unwrap();
    }
    config
}

fn key(number: u64) -> String {
    format!("key-of-tenant-{number}")
}

/// Knowledge of all tenants about each other, as if it had leaked.
#[derive(Debug, Default)]
pub(crate) struct Leaked {
    /// Whose session, and its id.
    sessions: RefCell<Vec<(u64, String)>>,
    /// The last event that a tenant read.
    events: RefCell<Vec<String>>,
    calls: Cell<usize>,
    trespasses: Cell<usize>,
}

impl Leaked {
    /// That enough happened in so many seconds to prove something, on however slow a machine.
    pub(crate) fn check(&self, seconds: u64) {
        let least = 3 * usize::try_from(seconds).unwrap();
        let is_enough = self.calls.get() >= least && self.trespasses.get() >= least;
        let counts = (self.calls.get(), self.trespasses.get());
        eprintln!("calls and trespasses: {counts:?}");
        assert!(is_enough, "too little happened: {counts:?}");
    }
}

pub(crate) struct Tenant {
    number: u64,
    next: u64,
    sessions: Vec<String>,
    random: SeededRandom,
    scene: Scene,
    leaked: Rc<Leaked>,
}

impl Tenant {
    /// With so many sessions. Nothing has gone wrong yet.
    pub(crate) async fn open(number: u64, sessions: u64, scene: Scene, leaked: Rc<Leaked>) -> Self {
        let mut tenant = Self {
            number,
            next: 0,
            sessions: Vec::new(),
            random: scene.random(number),
            scene,
            leaked,
        };
        for _ in 0..sessions {
            let body = initialize("2025-11-25", &json!({})).to_string();
            let answer = tenant.send(|address| Http::post(address, body.clone()));
            let answer = answer.await.expect("an answer");
            assert_eq!(answer.status, 200, "{answer:?}");
            let session = answer.header("mcp-session-id").unwrap().to_owned();
            let mut leaked = tenant.leaked.sessions.borrow_mut();
            leaked.push((number, session.clone()));
            drop(leaked);
            tenant.sessions.push(session);
        }
        tenant
    }

    pub(crate) async fn run(mut self, over: CancellationToken) -> Self {
        while !over.is_cancelled() {
            match self.random.next() % 100 {
                0..50 => self.call("echo").await,
                50..70 => self.call("slow").await,
                _ => self.trespass().await,
            }
        }
        self
    }

    /// To be asked when all is calm.
    pub(crate) async fn every_session_lives(&mut self) {
        for session in self.sessions.clone() {
            let body = request(1, "ping", json!({})).to_string();
            let ping = |address| Http::post(address, body.clone());
            let answer = self.send_in(&session, ping).await.expect("an answer");
            assert_eq!(answer.status, 200, "a session is lost: {answer:?}");
        }
    }

    fn any<T: Clone>(&self, all: &[T]) -> T {
        let place = self.random.next() % all.len() as u64;
        all[usize::try_from(place).unwrap()].clone()
    }

    /// Stands in all that it sends, and in nothing that others may read.
    fn canary(&self) -> String {
        format!("canary-{}.", self.number)
    }

    /// The answer; `None` when the gateway was killed before it.
    async fn send(&self, http: impl Fn(SocketAddr) -> Http) -> Option<Answer> {
        let mut scene = self.scene.clone();
        let gateway = scene.gateway().await;
        let key = format!("Bearer {}", key(self.number));
        let http = http(gateway.address).header("Authorization", &key);
        let answer = timeout(scene.hang, http.try_send()).await;
        let answer = answer.unwrap_or_else(|_| panic!("tenant {} hangs", self.number));
        if answer.is_none() {
            scene.was_cut(&gateway, self.number);
        }
        answer
    }

    async fn send_in(&self, session: &str, http: impl Fn(SocketAddr) -> Http) -> Option<Answer> {
        let in_session = |address| http(address).header("Mcp-Session-Id", session);
        self.send(in_session).await
    }

    /// Calls a tool, with progress; all that comes back is its own.
    async fn call(&mut self, tool: &str) {
        self.next += 1;
        let (id, session) = (self.next, self.any(&self.sessions));
        let call = format!("{}{id}", self.canary());
        let body = self.call_of(tool, &call, id);
        let gateway = self.scene.gateway().await;
        let post = |address| Http::post(address, body.clone());
        let Some(answer) = self.send_in(&session, post).await else {
            return;
        };
        assert_eq!(answer.status, 200, "a session is lost: {answer:?}");
        let messages = timeout(self.scene.hang, self.messages(answer)).await;
        let messages = messages.unwrap_or_else(|_| panic!("tenant {} hangs", self.number));
        for message in &messages {
            self.reads_only_its_own(&message.to_string());
        }
        match messages.last().filter(|last| last["method"].is_null()) {
            Some(last) => {
                assert_eq!(last["id"], id, "{last}");
                let is_answered = last["result"]["isError"] != true;
                assert!(!is_answered || last.to_string().contains(&call), "{last}");
                count(&self.leaked.calls);
            }
            None => self.scene.was_cut(&gateway, self.number),
        }
    }

    fn call_of(&self, tool: &str, call: &str, id: u64) -> String {
        let server = self.any(&self.scene.servers);
        let params = json!({
            "name": format!("{server}__{tool}"),
            "arguments": {"call": call},
            "_meta": {"progressToken": call},
        });
        request(id, "tools/call", params).to_string()
    }

    /// All messages of an answer, whole or cut off.
    async fn messages(&self, answer: Answer) -> Vec<Value> {
        if !answer.is_stream() {
            let message = serde_json::from_slice(&answer.bytes().await);
            return message.into_iter().collect();
        }
        let mut events = answer.events();
        let mut messages = Vec::new();
        while let Some(message) = events.message().await {
            messages.push(message);
        }
        if let Some(id) = events.last_id {
            let mut leaked = self.leaked.events.borrow_mut();
            let place = usize::try_from(self.number).unwrap();
            match leaked.get_mut(place) {
                Some(last) => *last = id,
                None => leaked.push(id),
            }
        }
        messages
    }

    /// Does something in the session of somebody else, which is unknown to it.
    async fn trespass(&mut self) {
        let (owner, session) = self.any(&self.leaked.sessions.borrow());
        if owner == self.number {
            return;
        }
        let events = self.leaked.events.borrow().clone();
        let event = match events.is_empty() {
            true => "1.0.1.".to_owned(),
            false => self.any(&events),
        };
        let message = match self.random.next() % 6 {
            0 => None,
            1 => Some(request(1, "ping", json!({})).to_string()),
            2 => Some(self.call_of("slow", &format!("{}trespass", self.canary()), 1)),
            3 => Some(request(1, "tools/list", json!({})).to_string()),
            4 => {
                Some(json!({"jsonrpc": "2.0", "id": 1, "result": {"action": "accept"}}).to_string())
            }
            _ => {
                let params = json!({"requestId": self.random.next() % 20});
                let method = "notifications/cancelled";
                Some(json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string())
            }
        };
        let method = self.any(&["GET", "DELETE"]);
        let http = |address| match &message {
            Some(message) => Http::post(address, message.clone()),
            None => Http::new(address, method, "/mcp")
                .header("Accept", "text/event-stream")
                .header("Last-Event-ID", &event),
        };
        if let Some(answer) = self.send_in(&session, http).await {
            assert_eq!(answer.status, 404, "{owner} got a visit: {answer:?}");
            let body = String::from_utf8(answer.bytes().await).unwrap();
            self.reads_only_its_own(&body);
            count(&self.leaked.trespasses);
        }
    }

    fn reads_only_its_own(&self, text: &str) {
        let own = self.canary();
        for (at, _) in text.match_indices("canary-") {
            let rest = text.get(at..).unwrap_or_default();
            assert!(rest.starts_with(&own), "{own} reads {text}");
        }
    }
}
