//! A random run: servers die, hang, forget and change, clients call, cancel, leave and come back.
//! The same seed gives the same run; it is told when a run fails.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use mcpvisor::supervision::{Seeded, Settings};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::{Client, Exchange};
use crate::privacy::check_message;
use crate::server::{Frame, Server, ask, note, text, tool};
use crate::world::{Plan, World, millis, pass, run, seconds, settle, tuning};

const SERVERS: [(&str, bool); 4] = [("a", false), ("b", true), ("c", false), ("d", true)];
const CLIENTS: usize = 6;
const STEPS: usize = 600;
const CALL_MAX: u64 = 60;

struct Told(u64);

impl Drop for Told {
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
        Err(_) => (1..=6).collect(),
    };
    let mut questions_answered = 0;
    for seed in &seeds {
        let _told = Told(*seed);
        questions_answered += run(storm(*seed));
    }
    assert!(questions_answered >= seeds.len(), "too few questions");
}

struct Storm {
    world: Rc<World>,
    random: Seeded,
    servers: Vec<Played>,
    users: Vec<User>,
    calls: Vec<Asked>,
    next: u64,
    /// Answers that clients gave, by the id of the server's question.
    answered: BTreeMap<String, Value>,
}

struct Played {
    server: Server,
    attributes: bool,
    /// Held calls that the server finished or refused.
    finished: RefCell<Vec<(usize, u64)>>,
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

/// Returns how many questions of servers were answered.
async fn storm(seed: u64) -> usize {
    let mut storm = Storm::new(seed).await;
    for _ in 0..STEPS {
        let time = storm.below(400);
        pass(millis(time)).await;
        storm.act().await;
        settle().await;
        storm.check();
    }
    storm.calm_down().await;
    storm.questions_answered()
}

fn plan(plan: &mut Plan) {
    let limits = &mut plan.settings.limits;
    limits.request_timeout = seconds(20);
    limits.request_timeout_max = seconds(CALL_MAX);
    limits.ping_every = seconds(10);
    limits.refresh_every = seconds(15);
    limits.entry_idle = seconds(40);
    limits.calls_max = 12;
    limits.entries_max = 3;
    let mut tuning = tuning();
    tuning.backoff_max = seconds(8);
    tuning.reconnect_every = seconds(8);
    tuning.connect_timeout = seconds(5);
    plan.settings.supervision = Settings::try_new(tuning).unwrap();
}

impl Storm {
    async fn new(seed: u64) -> Self {
        let world = Rc::new(World::with(|settings| {
            settings.calls_max = 8;
            settings.answer_timeout = seconds(30);
            settings.events_per_stream = 16;
        }));
        let servers = SERVERS.map(|(name, attributes)| Played {
            server: world.start(name, attributes, plan),
            attributes,
            finished: RefCell::default(),
        });
        pass(millis(50)).await;
        let mut storm = Self {
            world,
            random: Seeded::new(seed),
            servers: servers.into(),
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

    fn below(&self, bound: u64) -> u64 {
        self.random.next() % bound
    }

    fn any(&self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).unwrap()
    }

    fn name(&mut self, letter: &str) -> String {
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
            0..35 => self.call().await,
            35..47 => self.answer(),
            47..53 => self.progress(),
            53..66 => self.ask(),
            66..76 => self.answer_questions().await,
            76..80 => self.cancel().await,
            80..84 => self.listen().await,
            84..86 => self.leave().await,
            86..87 => self.panic().await,
            87..90 => self.crash(),
            90..92 => self.hang(),
            92..94 => self.recover(),
            94..97 => self.change_list(),
            _ => self.forget_session(),
        }
    }

    async fn call(&mut self) {
        let user = self.any(self.users.len());
        let (server, _) = SERVERS[self.any(SERVERS.len())];
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

    /// A call that a server holds, on a link that is open.
    fn held(&self) -> Option<(usize, Frame)> {
        let server = self.any(self.servers.len());
        let played = &self.servers[server];
        let open = played.server.open_links();
        let finished = played.finished.borrow();
        let mut held = played.server.held();
        held.retain(|call| {
            open.contains(&call.link) && !finished.contains(&(call.link, call.call.unwrap()))
        });
        // Old ones are of no interest: most have timed out.
        let recent = held.len().saturating_sub(6);
        let held = held.split_off(recent);
        let call = held.get(self.any(held.len().max(1)))?;
        Some((server, call.clone()))
    }

    fn answer(&self) {
        let Some((server, call)) = self.held() else {
            return;
        };
        let played = &self.servers[server];
        let tag = call.json["params"]["arguments"]["tag"].clone();
        if self.below(5) == 0 {
            played.server.refuse(&call, -32000, tag.as_str().unwrap());
        } else {
            played.server.answer(&call, text(tag));
        }
        let done = (call.link, call.call.unwrap());
        played.finished.borrow_mut().push(done);
    }

    fn progress(&self) {
        let Some((server, call)) = self.held() else {
            return;
        };
        let progress = self.below(1000);
        self.servers[server].server.progress(&call, progress as f64);
    }

    fn ask(&mut self) {
        let Some((server, call)) = self.held() else {
            return;
        };
        let tag = &call.json["params"]["arguments"]["tag"];
        let id = self.name("q");
        let question = ask(&id, "elicitation/create", json!({"message": tag}));
        self.servers[server].server.say_for(&call, question);
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

    fn crash(&self) {
        let played = &self.servers[self.any(self.servers.len())];
        match self.below(3) {
            0 => played.server.refuse_links(Some("refused at random")),
            1 => played.server.crash("crashed at random"),
            _ => {
                let open = played.server.open_links();
                if let Some(link) = open.get(self.any(open.len().max(1))) {
                    played.server.crash_link(*link, "crashed at random");
                }
            }
        }
    }

    fn hang(&self) {
        let played = &self.servers[self.any(self.servers.len())];
        let methods = ["ping", "initialize", "tools/list", "tools/call"];
        played.server.mute(methods[self.any(methods.len())]);
    }

    fn recover(&self) {
        let played = &self.servers[self.any(self.servers.len())];
        played.server.refuse_links(None);
        played.server.behave();
    }

    fn change_list(&self) {
        let played = &self.servers[self.any(self.servers.len())];
        let tools = match self.below(3) {
            0 => vec!["echo", "hold"],
            1 => vec!["echo", "hold", "panic"],
            _ => vec!["hold", "echo", "panic", "more"],
        };
        let tools = tools.into_iter().map(tool).collect();
        played
            .server
            .script(|script| drop(script.lists.insert("tools", tools)));
        for link in played.server.open_links() {
            let changed = note("notifications/tools/list_changed", json!({}));
            played.server.say_on(link, changed);
        }
    }

    fn forget_session(&self) {
        let Some((server, call)) = self.held() else {
            return;
        };
        let played = &self.servers[server];
        if played.attributes {
            played.server.session_gone(&call);
        }
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
        for user in &self.users {
            for message in user.general.iter().flat_map(Exchange::messages) {
                assert!(user.can_answer || message["id"].is_null(), "{message}");
                check_message(&message, &user.name, None);
            }
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
