//! A random run: servers die, hang, forget, babble and change (`storm_servers.rs`), clients call,
//! cancel, leave and come back. The same seed gives the same run; it is told when a run fails.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use mcpvisor::supervision::{SeededRandom, Settings};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::{Client, Exchange};
use crate::privacy::check_message;
use crate::server::{Server, tool};
use crate::world::{Plan, World, millis, pass, run, seconds, settle, tuning};

const SERVERS: [(&str, bool); 4] = [("a", false), ("b", true), ("c", false), ("d", true)];
const CLIENTS: usize = 6;
const SEEDS: usize = 8;
const STEPS: usize = 900;
const CALL_MAX: u64 = 60;

/// Limits: calls in flight of a session and of a server, connections that clients have of their
/// own to a server.
const CALLS_OF_SESSION: usize = 8;
const CALLS_OF_SERVER: usize = 12;
const ENTRIES: usize = 3;

/// Faults in one run of all seeds.
const FAULTS_MIN: usize = 20_000;

struct SeedOfFailure(u64);

impl Drop for SeedOfFailure {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the seed of this run is {}", self.0);
        }
    }
}

#[test]
fn random_faults_cost_no_caller_its_answer() {
    let seeds = match std::env::var("SIM_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (1..).take(SEEDS).collect(),
    };
    let (mut questions_answered, mut faults) = (0, 0);
    for seed in &seeds {
        let _seed = SeedOfFailure(*seed);
        let (answered, of_seed) = run(storm(*seed));
        questions_answered += answered;
        faults += of_seed;
    }
    assert!(questions_answered >= seeds.len(), "too few questions");
    let wanted = FAULTS_MIN * seeds.len() / SEEDS;
    assert!(faults >= wanted, "only {faults} faults");
}

pub(crate) struct Storm {
    pub(crate) world: Rc<World>,
    random: SeededRandom,
    pub(crate) servers: Vec<Played>,
    pub(crate) faults: usize,
    /// How often a server refused a call unseen, by the call's tag: only then it may come again.
    pub(crate) unseen: HashMap<String, usize>,
    users: Vec<User>,
    calls: Vec<Asked>,
    next: u64,
    /// Answers that clients gave, by the id of the server's question.
    answered: BTreeMap<String, Value>,
}

pub(crate) struct Played {
    pub(crate) name: &'static str,
    pub(crate) server: Server,
    pub(crate) knows_call_of_requests: bool,
    /// Held calls that the server finished or refused.
    pub(crate) finished: RefCell<Vec<(usize, u64)>>,
}

struct User {
    client: Client,
    name: String,
    can_answer: bool,
    general: Option<Exchange>,
}

struct Asked {
    user: String,
    tag: String,
    exchange: Exchange,
    since: Instant,
    /// The client took it back, left, or its session died: there may be no answer.
    released: bool,
    settled: bool,
}

/// Returns how many questions of servers were answered, and how many faults there were.
async fn storm(seed: u64) -> (usize, usize) {
    let mut storm = Storm::new(seed).await;
    for _ in 0..STEPS {
        let time = storm.below(400);
        pass(millis(time)).await;
        for _ in 0..=storm.below(3) {
            storm.act().await;
        }
        for _ in 0..storm.below(12) {
            storm.fault();
        }
        settle().await;
        storm.check();
    }
    storm.calm_down().await;
    (storm.questions_answered(), storm.faults)
}

fn plan(plan: &mut Plan) {
    let limits = &mut plan.settings.limits;
    limits.request_timeout = seconds(20);
    limits.request_timeout_max = seconds(CALL_MAX);
    limits.ping_every = seconds(10);
    limits.refresh_every = seconds(15);
    limits.entry_idle = seconds(40);
    limits.calls_max = CALLS_OF_SERVER;
    limits.entries_max = ENTRIES;
    let mut tuning = tuning();
    tuning.backoff_max = seconds(8);
    tuning.reconnect_every = seconds(8);
    tuning.connect_timeout = seconds(5);
    plan.settings.supervision = Settings::try_new(tuning).unwrap();
}

impl Storm {
    async fn new(seed: u64) -> Self {
        let world = Rc::new(World::with(|settings| {
            settings.calls_max = CALLS_OF_SESSION;
            settings.answer_timeout = seconds(30);
            settings.events_per_stream = 16;
        }));
        let servers = SERVERS.map(|(name, knows_call_of_requests)| Played {
            name,
            server: world.start(name, knows_call_of_requests, plan),
            knows_call_of_requests,
            finished: RefCell::default(),
        });
        pass(millis(50)).await;
        let mut storm = Self {
            world,
            random: SeededRandom::new(seed),
            servers: servers.into(),
            faults: 0,
            unseen: HashMap::new(),
            users: Vec::new(),
            calls: Vec::new(),
            next: 0,
            answered: BTreeMap::new(),
        };
        for _ in 0..CLIENTS {
            let user = storm.new_user().await;
            storm.users.push(user);
        }
        storm
    }

    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.random.next() % bound
    }

    pub(crate) fn any(&self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).unwrap()
    }

    pub(crate) fn name(&mut self, letter: &str) -> String {
        self.next += 1;
        format!("{letter}{}", self.next)
    }

    async fn new_user(&mut self) -> User {
        let can_answer = self.below(2) == 0;
        let capabilities = if can_answer {
            json!({"elicitation": {}})
        } else {
            json!({})
        };
        User {
            client: self.world.client(capabilities).await,
            name: self.name("u"),
            can_answer,
            general: None,
        }
    }

    async fn act(&mut self) {
        match self.below(100) {
            0..40 => self.call().await,
            40..43 => self.call_often().await,
            43..55 => self.answer(),
            55..60 => self.progress(),
            60..75 => self.ask(),
            75..88 => self.answer_questions().await,
            88..91 => self.cancel().await,
            91..95 => self.listen().await,
            95..97 => self.leave().await,
            97..99 => self.retune().await,
            _ => self.panic().await,
        }
    }

    async fn call(&mut self) {
        let user = self.any(self.users.len());
        let (server, _) = SERVERS[self.any(SERVERS.len())];
        self.call_of(user, server).await;
    }

    /// More at once than a session or, with others, a server may have.
    async fn call_often(&mut self) {
        let (server, _) = SERVERS[self.any(SERVERS.len())];
        for user in 0..=self.any(self.users.len()) {
            for _ in 0..=self.below(CALLS_OF_SESSION as u64) {
                self.call_of(user, server).await;
            }
        }
    }

    async fn call_of(&mut self, user: usize, server: &str) {
        let name = if self.below(3) == 0 { "echo" } else { "hold" };
        let number = self.name("call");
        let tag = format!("{} {number}", self.users[user].name);
        let mut params = json!({
            "name": format!("{server}__{name}"),
            "arguments": {"tag": tag, "text": tag},
        });
        if self.below(2) == 0 {
            params["_meta"] = json!({"progressToken": tag});
        }
        let message =
            json!({"jsonrpc": "2.0", "id": tag, "method": "tools/call", "params": params});
        let accepts_stream = self.below(4) > 0;
        let exchange = self.users[user]
            .client
            .exchange(message, accepts_stream)
            .await;
        self.calls.push(Asked {
            user: self.users[user].name.clone(),
            tag,
            exchange,
            since: Instant::now(),
            released: false,
            settled: false,
        });
    }

    async fn answer_questions(&mut self) {
        let mut open = Vec::new();
        for (number, user) in self.users.iter().enumerate() {
            let of_user = self.calls.iter().filter(|call| call.user == user.name);
            let streams = of_user.map(|call| &call.exchange).chain(&user.general);
            for question in streams.flat_map(|stream| stream.of("elicitation/create")) {
                open.push((number, question));
            }
        }
        for (number, question) in open {
            if self.below(2) == 0 {
                let tag = question["params"]["message"].clone();
                let user = &self.users[number];
                let key = tag.as_str().unwrap().to_owned();
                self.answered.insert(key, tag.clone());
                let content = json!({"action": "accept", "content": {"tag": tag}});
                user.client.answer(&question, "result", content).await;
            }
        }
    }

    async fn cancel(&mut self) {
        let open: Vec<_> = (0..self.calls.len())
            .filter(|number| !self.calls[*number].settled && !self.calls[*number].released)
            .collect();
        if open.is_empty() {
            return;
        }
        let call = &mut self.calls[open[usize::try_from(self.random.next()).unwrap() % open.len()]];
        call.released = true;
        let user = self
            .users
            .iter()
            .find(|user| user.name == call.user)
            .unwrap();
        user.client.cancel(&call.exchange).await;
    }

    async fn listen(&mut self) {
        let user = self.any(self.users.len());
        let resume = self.below(2) == 0;
        let user = &mut self.users[user];
        let last = user.general.as_ref().and_then(Exchange::last_event_id);
        user.general = Some(user.client.listen(last.filter(|_| resume)).await);
    }

    fn release(&mut self, user: &str) {
        for call in self.calls.iter_mut().filter(|call| call.user == user) {
            call.released = true;
        }
    }

    async fn leave(&mut self) {
        let user = self.any(self.users.len());
        self.users[user].client.end().await;
        let name = self.users[user].name.clone();
        self.release(&name);
        self.users[user] = self.new_user().await;
    }

    async fn panic(&mut self) {
        let user = self.any(self.users.len());
        let name = self.users[user].name.clone();
        self.users[user].client.call("a__panic").await;
        self.release(&name);
    }

    /// What must hold at any time.
    fn check(&mut self) {
        for call in self.calls.iter_mut().filter(|call| !call.settled) {
            for message in call.exchange.messages() {
                check_message(&message, &call.user, Some(&call.tag));
            }
            let answered = call.exchange.answer().is_some();
            let over = call.exchange.is_over();
            assert!(!answered || over, "{}: a stream without end", call.tag);
            let late = call.since.elapsed() > seconds(CALL_MAX + 1);
            assert!(!late || over, "{}: no answer by its deadline", call.tag);
            assert!(
                !over || answered || call.released,
                "{}: over without an answer",
                call.tag
            );
            call.settled = over;
        }
        self.check_limits();
        for user in &self.users {
            for message in user.general.iter().flat_map(Exchange::messages) {
                assert!(user.can_answer || message["id"].is_null(), "{message}");
                check_message(&message, &user.name, None);
            }
        }
    }

    fn check_limits(&self) {
        for (name, _) in SERVERS {
            let view = self.world.view(name);
            assert!(view.in_flight <= CALLS_OF_SERVER, "{view:?}");
            assert!(view.own.len() <= ENTRIES, "{view:?}");
        }
        for user in &self.users {
            let calls = self.calls.iter().filter(|call| call.user == user.name);
            let open = calls.filter(|call| !call.settled && !call.released).count();
            assert!(open <= CALLS_OF_SESSION, "{}: {open} calls", user.name);
        }
    }

    /// No call came to a server twice, unless the server had refused it unseen; and what its
    /// client was told did not run came to none.
    fn check_runs(&self) {
        let mut runs: HashMap<String, usize> = HashMap::new();
        for played in &self.servers {
            for frame in played.server.of("tools/call") {
                if let Some(tag) = frame.json["params"]["arguments"]["tag"].as_str() {
                    *runs.entry(tag.to_owned()).or_default() += 1;
                }
            }
        }
        for call in &self.calls {
            let answer = call.exchange.answer().unwrap_or_default();
            let code = &answer["result"]["_meta"]["io.mcpvisor/error"]["code"];
            let ran = runs.get(&call.tag).copied().unwrap_or(0);
            let unseen = self.unseen.get(&call.tag).copied().unwrap_or(0);
            let may_run = !matches!(code.as_str(), Some("server_unavailable" | "overloaded"));
            assert!(
                ran <= unseen + usize::from(may_run),
                "{} ran {ran} times, {unseen} unseen: {answer}",
                call.tag
            );
        }
    }

    /// The faults are over: everybody is back within the backoff, and nothing is left.
    async fn calm_down(&mut self) {
        for played in &self.servers {
            played.server.refuse_links(None);
            played.server.behave();
            let tools = ["echo", "hold"].map(tool).to_vec();
            played
                .server
                .script(|script| drop(script.lists.insert("tools", tools)));
        }
        // A server that hung is found out by a ping; then it is back within its backoff.
        pass(seconds(20 + 5 + 8 + 5)).await;
        for (name, _) in SERVERS {
            let view = self.world.view(name);
            assert_eq!(view.shared.phase.to_string(), "up", "{view:?}");
            for own in &view.own {
                assert_eq!(own.connection.phase.to_string(), "up", "{view:?}");
            }
        }
        pass(seconds(CALL_MAX)).await;
        self.check();
        assert!(self.calls.iter().all(|call| call.settled));
        self.check_runs();
        for (name, _) in SERVERS {
            assert_eq!(self.world.view(name).in_flight, 0, "{name}");
        }
        for user in &self.users {
            for (name, _) in SERVERS {
                user.client.call(&format!("{name}__echo")).await.result();
            }
            assert_eq!(user.client.tools().await.len(), 8);
        }
        for user in &self.users {
            user.client.end().await;
        }
        pass(seconds(1)).await;
        assert_eq!(self.world.sessions.len(), 0);
        let counters = self.world.counters.view();
        let ended = [
            "calls_answered",
            "calls_failed",
            "calls_cancelled",
            "calls_shed",
        ];
        let ended: u64 = ended.iter().map(|name| counters[name]).sum();
        assert!(ended > 100 && self.calls.len() > 100, "{counters:?}");
    }

    /// A server reads the answer of the client that it asked.
    fn questions_answered(&self) -> usize {
        let mut accepted = 0;
        for played in &self.servers {
            for frame in played.server.frames() {
                if frame.json["result"]["action"] == "accept" {
                    let tag = frame.json["result"]["content"]["tag"].as_str().unwrap();
                    assert!(self.answered.contains_key(tag));
                    accepted += 1;
                }
            }
        }
        accepted
    }
}
