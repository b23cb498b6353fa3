//! Clients that call without pause and believe nothing.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use mcpvisor::supervision::SeededRandom;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::chaos::faults::HEAL;
use crate::support::{Gateway, Http, failure_of, initialize, names, request, text_of};

/// Clients that can be asked.
pub(crate) const ASKED: u64 = 3;

/// Sessions of one client.
const SESSIONS_MAX: usize = 4;

/// The errors that the gateway may give for a server that fails.
const CODES: [&str; 7] = [
    "server_unavailable",
    "server_lost",
    "breaker_open",
    "server_protocol",
    "timeout",
    "overloaded",
    "rate_limited",
];

/// Where the gateway is.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) address: SocketAddr,
    /// How often it was killed.
    pub(crate) kills: usize,
    pub(crate) is_up: bool,
}

impl Place {
    pub(crate) fn of(gateway: &Gateway) -> Self {
        Self {
            address: gateway.address,
            kills: 0,
            is_up: true,
        }
    }
}

/// The answers of all clients.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    right: Cell<usize>,
    lists: Cell<usize>,
    sessions: Cell<usize>,
    /// The gateway was killed meanwhile.
    cut: Cell<usize>,
    /// Streams that a client lost and read to their end on another connection.
    resumed: Cell<usize>,
    /// Questions of servers whose answers came back to them.
    answered: Cell<usize>,
    /// Right answers to clients of HTTP+SSE and of stdio.
    pub(crate) over_channels: Cell<usize>,
    failed: RefCell<BTreeMap<String, usize>>,
}

pub(crate) fn count(counter: &Cell<usize>) {
    counter.set(counter.get() + 1);
}

impl Tally {
    pub(crate) fn right(&self) -> usize {
        self.right.get()
    }

    /// How many calls failed with this code.
    pub(crate) fn failures(&self, code: &str) -> usize {
        self.failed.borrow().get(code).copied().unwrap_or_default()
    }

    /// That enough happened in so many seconds to prove something, on however slow a machine.
    pub(crate) fn check(&self, seconds: u64) {
        let some = usize::try_from(seconds).unwrap() / 4;
        let few = self.right.get() < 20 * some || self.lists.get() < some;
        let few = few || self.resumed.get() < some || self.answered.get() == 0;
        let few = few || self.over_channels.get() < some;
        assert!(!few && self.cut.get() > 0, "too little happened: {self:?}");
        let failed = self.failed.borrow();
        for code in ["server_unavailable", "server_lost"] {
            assert!(failed.contains_key(code), "nothing was {code}: {self:?}");
        }
    }

    /// Whether a result is the server's own, and not why there is none.
    pub(crate) fn is_right(&self, server: &str, call: &str, result: &Value) -> bool {
        if result["isError"] == true {
            assert_eq!(failure_of(result)["server"], server, "{result}");
            self.failed_with(&failure_of(result)["code"]);
            return false;
        }
        let mut received: Value = serde_json::from_str(text_of(result)).unwrap();
        let answer = received.as_object_mut().unwrap().remove("answer");
        assert_eq!(received, json!({ "server": server, "call": call }));
        // A question that cannot be attributed is refused.
        if answer.is_some_and(|answer| answer != "nothing") {
            count(&self.answered);
        }
        count(&self.right);
        true
    }

    /// Counts a failure that the gateway may answer with.
    pub(crate) fn failed_with(&self, code: &Value) {
        let code = code.as_str().unwrap();
        assert!(CODES.contains(&code), "{code}");
        let mut failed = self.failed.borrow_mut();
        *failed.entry(code.to_owned()).or_default() += 1;
    }
}

/// The scene that all clients share.
#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) seed: u64,
    pub(crate) place: watch::Receiver<Place>,
    pub(crate) servers: Rc<[String]>,
    pub(crate) tally: Rc<Tally>,
    /// No answer takes longer: what the gateway may give a call that makes no progress, and some
    /// more for a machine on which everything happens at once.
    pub(crate) hang: Duration,
}

impl Scene {
    pub(crate) fn random(&self, number: u64) -> SeededRandom {
        SeededRandom::new(self.seed ^ (number << 32))
    }

    /// Where the gateway is, once it is up.
    pub(crate) async fn gateway(&mut self) -> Place {
        self.place
            .wait_for(|place| place.is_up)
            .await
            .unwrap()
            .clone()
    }

    /// The connection of a client to a gateway that was there is gone.
    pub(crate) fn was_cut(&self, gateway: &Place, client: u64) {
        let kills = self.place.borrow().kills;
        assert_ne!(kills, gateway.kills, "a living gateway cut client {client}");
        count(&self.tally.cut);
    }
}

pub(crate) struct Caller {
    number: u64,
    next: u64,
    sessions: Vec<String>,
    random: SeededRandom,
    scene: Scene,
}

impl Caller {
    pub(crate) async fn open(number: u64, scene: Scene) -> Self {
        let mut caller = Self {
            number,
            next: 0,
            sessions: Vec::new(),
            random: scene.random(number),
            scene,
        };
        caller.open_session().await;
        assert_eq!(caller.sessions.len(), 1);
        caller
    }

    pub(crate) async fn run(mut self, over: CancellationToken) -> Self {
        while !over.is_cancelled() {
            match self.below(1000) {
                0..20 => self.list().await,
                20..40 => self.ping().await,
                40..42 if self.sessions.len() < SESSIONS_MAX => self.open_session().await,
                42..80 => self.call("slow").await,
                80..120 => self.call_and_resume().await,
                120..300 if self.number < ASKED => self.call_and_answer().await,
                _ => self.call("echo").await,
            }
        }
        self
    }

    fn below(&self, bound: u64) -> u64 {
        self.random.next() % bound
    }

    fn any(&self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).unwrap()
    }

    fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The answer to a request; `None` when the gateway was killed before it was whole.
    async fn post(&mut self, http: impl Fn(SocketAddr) -> Http) -> Option<(Option<String>, Value)> {
        match self.send(http, false).await? {
            Answered::Whole(session, answer) => Some((session, answer)),
            Answered::Cut(_) => None,
        }
    }

    async fn send(
        &mut self,
        http: impl Fn(SocketAddr) -> Http,
        cut_at_progress: bool,
    ) -> Option<Answered> {
        let gateway = self.scene.gateway().await;
        let answered = answer_to(http(gateway.address), cut_at_progress);
        let answered = timeout(self.scene.hang, answered).await;
        let answered = answered.unwrap_or_else(|_| panic!("client {} hangs", self.number));
        if answered.is_none() {
            self.scene.was_cut(&gateway, self.number);
        }
        answered
    }

    async fn open_session(&mut self) {
        let can = match self.number < ASKED {
            true => json!({"elicitation": {}}),
            false => json!({}),
        };
        let body = initialize("2025-11-25", &can).to_string();
        let answer = self.post(|address| Http::post(address, body.clone())).await;
        if let Some((session, answer)) = answer {
            assert!(answer["result"].is_object(), "{answer}");
            self.sessions.push(session.expect("a session id"));
            count(&self.scene.tally.sessions);
        }
    }

    /// The result of a request in any session of this client.
    async fn ask(&mut self, method: &str, params: Value) -> Option<Value> {
        let session = self.sessions[self.any(self.sessions.len())].clone();
        self.ask_in(&session, method, params).await
    }

    async fn ask_in(&mut self, session: &str, method: &str, params: Value) -> Option<Value> {
        let id = self.id();
        let body = request(id, method, params).to_string();
        let http = |address| Http::post(address, body.clone()).header("Mcp-Session-Id", session);
        let (_, answer) = self.post(http).await?;
        assert_eq!(answer["id"], id, "{answer}");
        assert!(answer["result"].is_object(), "{method}: {answer}");
        Some(answer["result"].clone())
    }

    async fn ping(&mut self) {
        self.ask("ping", json!({})).await;
    }

    /// Lists are whole, whatever is up.
    async fn list(&mut self) {
        let Some(list) = self.ask("tools/list", json!({})).await else {
            return;
        };
        let listed = names(&list["tools"]);
        for server in &*self.scene.servers {
            let tool = format!("{server}__echo");
            assert!(listed.contains(&&*tool), "{tool} is missing in {listed:?}");
        }
        count(&self.scene.tally.lists);
    }

    async fn call(&mut self, tool: &str) {
        let server = self.scene.servers[self.any(self.scene.servers.len())].clone();
        self.call_at(&server, tool).await;
    }

    /// Whether the server answered.
    async fn call_at(&mut self, server: &str, tool: &str) -> bool {
        let id = self.id();
        let call = format!("{}-{id}", self.number);
        let arguments = json!({ "call": call });
        let params = json!({ "name": format!("{server}__{tool}"), "arguments": arguments });
        match self.ask("tools/call", params).await {
            Some(result) => self.scene.tally.is_right(server, &call, &result),
            None => false,
        }
    }

    /// Calls with progress, loses the stream with it, and reads the rest on another one.
    async fn call_and_resume(&mut self) {
        let server = self.scene.servers[self.any(self.scene.servers.len())].clone();
        let session = self.sessions[self.any(self.sessions.len())].clone();
        let id = self.id();
        let call = format!("{}-{id}", self.number);
        let params = json!({
            "name": format!("{server}__slow"),
            "arguments": {"call": call},
            "_meta": {"progressToken": call},
        });
        let body = request(id, "tools/call", params).to_string();
        let http = |address| Http::post(address, body.clone()).header("Mcp-Session-Id", &session);
        let answer = match self.send(http, true).await {
            None => return,
            Some(Answered::Whole(_, answer)) => answer,
            Some(Answered::Cut(last)) => {
                let http = |address| {
                    Http::new(address, "GET", "/mcp")
                        .header("Accept", "text/event-stream")
                        .header("Mcp-Session-Id", &session)
                        .header("Last-Event-ID", &last)
                };
                let Some((_, answer)) = self.post(http).await else {
                    return;
                };
                count(&self.scene.tally.resumed);
                answer
            }
        };
        assert_eq!(answer["id"], id, "{answer}");
        if answer["error"].is_object() {
            // The gateway that had it was killed.
            assert_eq!(answer["error"]["data"]["code"], "server_lost", "{answer}");
            return;
        }
        self.scene.tally.is_right(&server, &call, &answer["result"]);
    }

    /// Calls a tool that asks, and answers on another connection.
    async fn call_and_answer(&mut self) {
        let server = self.scene.servers[self.any(self.scene.servers.len())].clone();
        let session = self.sessions[self.any(self.sessions.len())].clone();
        let id = self.id();
        let call = format!("{}-{id}", self.number);
        let params = json!({"name": format!("{server}__asks"), "arguments": {"call": call}});
        let body = request(id, "tools/call", params).to_string();
        let gateway = self.scene.gateway().await;
        let post =
            |body: String| Http::post(gateway.address, body).header("Mcp-Session-Id", &session);
        let asked = timeout(self.scene.hang, answer_with_questions(post, body)).await;
        let asked = asked.unwrap_or_else(|_| panic!("client {} hangs", self.number));
        match asked {
            Some(answer) => {
                assert_eq!(answer["id"], id, "{answer}");
                self.scene.tally.is_right(&server, &call, &answer["result"]);
            }
            None => self.scene.was_cut(&gateway, self.number),
        }
    }

    /// To be asked when all is calm.
    pub(crate) async fn every_session_lives(&mut self) {
        for session in self.sessions.clone() {
            let pong = self.ask_in(&session, "ping", json!({})).await;
            assert_eq!(pong, Some(json!({})));
        }
    }

    /// To be asked when all is calm; the first answers may still be spoiled.
    pub(crate) async fn every_server_answers(&mut self) {
        for server in self.scene.servers.clone().iter() {
            let begun = Instant::now();
            while !self.call_at(server, "echo").await {
                assert!(begun.elapsed() < HEAL, "{server} does not answer");
            }
        }
    }
}

/// The outcome of a request.
enum Answered {
    /// The session that it opened, and its message.
    Whole(Option<String>, Value),
    /// The client closed its stream after the event of this id, which was progress.
    Cut(String),
}

/// The answer to a request; `None` when the connection ended before it was whole.
async fn answer_to(http: Http, cut_at_progress: bool) -> Option<Answered> {
    let answer = http.try_send().await?;
    assert_eq!(answer.status, 200, "a session is lost: {answer:?}");
    let session = answer.header("mcp-session-id").map(str::to_owned);
    if !answer.is_stream() {
        let message = serde_json::from_slice(&answer.bytes().await).ok()?;
        return Some(Answered::Whole(session, message));
    }
    let mut events = answer.events();
    loop {
        let message = events.message().await?;
        if message["method"].is_null() {
            return Some(Answered::Whole(session, message));
        }
        if cut_at_progress && message["method"] == "notifications/progress" {
            return events.last_id.map(Answered::Cut);
        }
    }
}

/// The answer to a call, whose questions are answered with the name that they ask for; `None` when
/// the connection ended before it was whole.
async fn answer_with_questions(post: impl Fn(String) -> Http, call: String) -> Option<Value> {
    let answer = post(call).try_send().await?;
    assert_eq!(answer.status, 200, "a session is lost: {answer:?}");
    if !answer.is_stream() {
        return serde_json::from_slice(&answer.bytes().await).ok();
    }
    let mut events = answer.events();
    loop {
        let message = events.message().await?;
        if message["method"].is_null() {
            return Some(message);
        }
        if message["method"] == "elicitation/create" {
            let name = &message["params"]["message"];
            let result = json!({"action": "accept", "content": {"name": name}});
            let said = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
            // It may have been taken back meanwhile.
            post(said.to_string()).try_send().await?;
        }
    }
}
