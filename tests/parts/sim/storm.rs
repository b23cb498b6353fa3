//! A random run: servers die, hang, forget, babble and change (`storm_servers.rs`), clients with
//! sessions (`storm_sessions.rs`) and without (`storm_sessionless.rs`) call, cancel, leave and come
//! back, and some listen (`storm_listeners.rs`). The same seed gives the same run; it is told when
//! a run fails.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{available_parallelism, scope};

use mcpvisor::downstream::OwnConnectionView;
use mcpvisor::supervision::{SeededRandom, Settings};
use serde_json::{Value, json};

use crate::sim::modern::sessionless;
use crate::sim::server::{Server, tool};
use crate::sim::storm_listeners::Listener;
use crate::sim::storm_sessionless::GuestCall;
use crate::sim::storm_sessions::{SessionCall, User};
use crate::sim::world::{Plan, World, millis, pass, run, seconds, settle, tuning};

/// Each server by name, whether it is spoken to over HTTP, and whether it is of the newer era.
const SERVERS: [(&str, bool, bool); 6] = [
    ("a", false, false),
    ("b", true, false),
    ("c", false, false),
    ("d", true, false),
    ("e", true, true),
    ("f", false, true),
];
/// Their tools, of which the last changes nothing.
pub(crate) const TOOLS: [&str; 3] = ["echo", "hold", "reads"];
/// Servers whose calls may be sent again.
const TRUSTED: [&str; 3] = ["a", "b", "e"];
const SEEDS: usize = 20;
const STEPS: usize = 300;
pub(crate) const CALL_MAX: u64 = 60;

/// Limits: calls in flight of a session and of a server, connections that clients have of their
/// own to a server, calls that wait for their clients, clients that listen.
pub(crate) const CALLS_OF_SESSION: usize = 8;
const CALLS_OF_SERVER: usize = 12;
const ENTRIES: usize = 3;
pub(crate) const PARKED: usize = 8;
pub(crate) const LISTENERS: usize = 8;

/// How long a client may take to answer a question, in seconds.
const ANSWER_TIMEOUT: u64 = 30;

/// Faults that happen in each step on average, at least.
const FAULTS_PER_STEP: usize = 2;

struct SeedOfFailure(u64);

impl Drop for SeedOfFailure {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the seed of this run is {}", self.0);
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect(variable))
}

#[test]
fn random_faults_cost_no_caller_its_answer() {
    let seeds: Vec<u64> = match number("SIM_SEED") {
        Some(seed) => vec![seed],
        None => (1..=number("SIM_SEEDS").unwrap_or(SEEDS as u64)).collect(),
    };
    let mut seen = Seen::default();
    for of_seed in storms(&seeds) {
        seen.questions += of_seed.questions;
        seen.inputs += of_seed.inputs;
        seen.retries += of_seed.retries;
        seen.resumed += of_seed.resumed;
        seen.faults += of_seed.faults;
    }
    let count = seeds.len();
    assert!(seen.faults >= FAULTS_PER_STEP * STEPS * count, "{seen:?}");
    let counted = [seen.questions, seen.inputs, seen.retries, seen.resumed];
    let is_rare = |times| count > 1 && times < count;
    assert!(!counted.into_iter().any(is_rare), "{seen:?}");
}

/// Runs all seeds, several at the same time, because each needs seconds of processor time.
fn storms(seeds: &[u64]) -> Vec<Seen> {
    let next = AtomicUsize::new(0);
    let take = || seeds.get(next.fetch_add(1, Ordering::Relaxed));
    let run_some = || {
        let mut seen = Vec::new();
        while let Some(seed) = take() {
            let _seed = SeedOfFailure(*seed);
            seen.push(run(storm(*seed)));
        }
        seen
    };
    let threads = available_parallelism().map_or(1, NonZeroUsize::get);
    scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run_some)).collect();
        let all = threads.into_iter().map(|thread| thread.join().unwrap());
        all.flatten().collect()
    })
}

/// How often something happened.
#[derive(Debug, Default)]
struct Seen {
    faults: usize,
    /// Questions that clients answered, asked in the middle of a call or in the place of an answer.
    questions: usize,
    inputs: usize,
    retries: usize,
    resumed: usize,
}

pub(crate) struct Storm {
    pub(crate) world: Rc<World>,
    random: SeededRandom,
    pub(crate) servers: Vec<Played>,
    pub(crate) faults: usize,
    /// How often a call may come to its server once more, by the call's tag: the server refused it
    /// unseen, or asked for input.
    pub(crate) may_repeat: HashMap<String, usize>,
    pub(crate) users: Vec<User>,
    pub(crate) session_calls: Vec<SessionCall>,
    pub(crate) guest_calls: Vec<GuestCall>,
    pub(crate) listeners: Vec<Listener>,
    /// Streams that were resumed.
    pub(crate) resumed: usize,
    next: u64,
    /// The tags of the questions that clients answered.
    pub(crate) answered: BTreeSet<String>,
}

pub(crate) struct Played {
    pub(crate) name: &'static str,
    pub(crate) server: Server,
    pub(crate) knows_call_of_requests: bool,
    pub(crate) is_sessionless: bool,
    /// Held calls that the server finished or refused.
    pub(crate) finished: RefCell<Vec<(usize, u64)>>,
    /// Numbers of the calls over which it forgot its session.
    pub(crate) forgotten: RefCell<BTreeSet<u64>>,
}

async fn storm(seed: u64) -> Seen {
    let mut storm = Storm::new(seed).await;
    for _ in 0..STEPS {
        let time = storm.below(400);
        pass(millis(time)).await;
        for _ in 0..=storm.below(4) {
            storm.act().await;
        }
        for _ in 0..storm.below(12) {
            storm.fault();
        }
        settle().await;
        storm.check();
    }
    storm.calm_down().await;
    storm.leave_nothing().await;
    let (questions, inputs) = storm.questions_answered();
    Seen {
        faults: storm.faults,
        questions,
        inputs,
        retries: usize::try_from(storm.world.counted("calls_repeated")).unwrap(),
        resumed: storm.resumed,
    }
}

pub(crate) fn tools() -> Vec<Value> {
    let mut tools = TOOLS.map(tool).to_vec();
    tools[2]["annotations"] = json!({"readOnlyHint": true});
    tools
}

fn plan(name: &str, is_sessionless: bool, plan: &mut Plan) {
    if is_sessionless {
        sessionless(plan);
    }
    let resource = |number| json!({"uri": format!("{name}://{number}"), "name": "r"});
    plan.script.lists.insert("tools", tools());
    plan.script
        .lists
        .insert("resources", [1, 2].map(resource).to_vec());
    plan.script.capabilities = json!({
        "tools": {"listChanged": true}, "resources": {"subscribe": true, "listChanged": true},
    });
    let limits = &mut plan.settings.limits;
    limits.request_timeout = seconds(20);
    limits.request_timeout_max = seconds(CALL_MAX);
    limits.ping_every = seconds(10);
    limits.refresh_every = seconds(15);
    limits.entry_idle = seconds(40);
    limits.calls_max = CALLS_OF_SERVER;
    limits.entries_max = Some(ENTRIES);
    let mut tuning = tuning();
    tuning.backoff_max = seconds(8);
    tuning.reconnect_every = seconds(8);
    tuning.connect_timeout = seconds(5);
    plan.settings.supervision = Settings::try_new(tuning).unwrap();
    plan.settings.resilience.retry.is_allowed = is_trusted(name);
}

pub(crate) fn is_trusted(server: &str) -> bool {
    TRUSTED.contains(&server)
}

impl Storm {
    async fn new(seed: u64) -> Self {
        let world = Rc::new(World::with(|settings| {
            settings.calls_max = CALLS_OF_SESSION;
            settings.answer_timeout = seconds(ANSWER_TIMEOUT);
            settings.events_per_stream = 16;
            settings.parked_max = PARKED;
            settings.listeners_max = LISTENERS;
        }));
        let servers = SERVERS.map(|(name, is_http, is_sessionless)| Played {
            name,
            server: world.start(name, is_http, |it| plan(name, is_sessionless, it)),
            knows_call_of_requests: is_http,
            is_sessionless,
            finished: RefCell::default(),
            forgotten: RefCell::default(),
        });
        pass(millis(50)).await;
        let mut storm = Self {
            world,
            random: SeededRandom::new(seed),
            servers: servers.into(),
            faults: 0,
            may_repeat: HashMap::new(),
            users: Vec::new(),
            session_calls: Vec::new(),
            guest_calls: Vec::new(),
            listeners: Vec::new(),
            resumed: 0,
            next: 0,
            answered: BTreeSet::new(),
        };
        storm.open_sessions().await;
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

    pub(crate) fn any_server(&self) -> &Played {
        &self.servers[self.any(self.servers.len())]
    }

    /// The parameters of a call of any tool; `tag` says whose it is.
    pub(crate) fn call_params(&self, server: &str, tag: &str) -> Value {
        let name = TOOLS[self.any(TOOLS.len())];
        let mut params = json!({
            "name": format!("{server}__{name}"),
            "arguments": {"tag": tag, "text": tag},
        });
        if self.below(2) == 0 {
            params["_meta"] = json!({"progressToken": tag});
        }
        params
    }

    async fn act(&mut self) {
        match self.below(100) {
            0..24 => self.call().await,
            24..26 => self.call_often().await,
            26..46 => self.call_without_session().await,
            46..54 => self.come_back().await,
            54..62 => self.answer(),
            62..66 => self.progress(),
            66..77 => self.ask(),
            77..83 => self.answer_questions().await,
            83..85 => self.cancel().await,
            85..87 => self.open_general_stream().await,
            87..91 => self.cut_stream().await,
            91..93 => self.leave_call(),
            93..95 => self.listen().await,
            95..97 => self.leave().await,
            97..99 => self.retune().await,
            _ => self.panic().await,
        }
        if self.below(4) == 0 {
            self.update_resource();
        }
    }

    /// These must hold at any time.
    fn check(&mut self) {
        self.check_sessions();
        self.check_guests();
        self.check_listeners();
        for played in &self.servers {
            let view = self.world.view(played.name);
            assert!(view.in_flight <= CALLS_OF_SERVER, "{view:?}");
            let is_limited = |own: &&OwnConnectionView| own.owner != "without capabilities";
            assert!(
                view.own.iter().filter(is_limited).count() <= ENTRIES,
                "{view:?}"
            );
        }
    }

    /// No call came to a server twice, unless the server had refused it unseen or asked for input,
    /// or the tool changes nothing on a trusted server; and what its client was told did not run
    /// came to none.
    fn check_runs(&self) {
        let mut runs: HashMap<String, usize> = HashMap::new();
        for played in &self.servers {
            for frame in played.server.of("tools/call") {
                let params = &frame.json["params"];
                if is_trusted(played.name) && params["name"] == "reads" {
                    continue;
                }
                if let Some(tag) = params["arguments"]["tag"].as_str() {
                    *runs.entry(tag.to_owned()).or_default() += 1;
                }
            }
            for frame in played.server.unknown() {
                let tag = frame.json["params"]["arguments"]["tag"].as_str();
                if let Some(ran) = tag.and_then(|tag| runs.get_mut(tag)) {
                    *ran -= 1;
                }
            }
        }
        let of_sessions = self.session_calls.iter().map(SessionCall::outcome);
        for (tag, answer) in of_sessions.chain(self.guest_calls.iter().map(GuestCall::outcome)) {
            let of_tool = &answer["result"]["_meta"]["io.mcpvisor/error"]["code"];
            let code = of_tool
                .as_str()
                .or(answer["error"]["data"]["code"].as_str());
            let ran = runs.get(tag).copied().unwrap_or(0);
            let may_repeat = self.may_repeat.get(tag).copied().unwrap_or(0);
            let not_run = ["server_unavailable", "overloaded", "breaker_open"];
            let may_run = !code.is_some_and(|code| not_run.contains(&code));
            assert!(
                ran <= may_repeat + usize::from(may_run),
                "{tag} ran {ran} times, {may_repeat} more allowed: {answer}"
            );
        }
    }

    /// The faults are over: everybody is back within the backoff, and every call is answered.
    async fn calm_down(&mut self) {
        for played in &self.servers {
            played.server.refuse_links(None);
            played.server.behave();
            let script = |script: &mut crate::sim::server::Script| {
                script.lists.insert("tools", tools());
            };
            played.server.script(script);
        }
        // A server that hung is found out by a ping; then it is back within its backoff.
        pass(seconds(20 + 5 + 8 + 5)).await;
        for played in &self.servers {
            let view = self.world.view(played.name);
            assert_eq!(view.shared.phase.to_string(), "up", "{view:?}");
            for own in &view.own {
                assert_eq!(own.connection.phase.to_string(), "up", "{view:?}");
            }
        }
        pass(seconds(CALL_MAX)).await;
        self.check();
        assert!(self.session_calls.iter().all(|call| call.is_settled));
        assert!(self.guest_calls.iter().all(GuestCall::is_settled));
        self.check_runs();
        for user in &self.users {
            for (name, ..) in SERVERS {
                user.client.call(&format!("{name}__echo")).await.result();
            }
        }
        // A connection that a call opened lists anew what was kept of the one before it.
        pass(seconds(5)).await;
        for user in &self.users {
            let list = user.client.request("tools/list", json!({})).await;
            // A kept list that is old is read again first.
            pass(seconds(5)).await;
            let tools = list.result()["tools"].as_array().unwrap().len();
            assert_eq!(tools, SERVERS.len() * TOOLS.len());
        }
        self.check_updates().await;
    }

    /// Everybody leaves, and nothing is left of them.
    async fn leave_nothing(&mut self) {
        for user in &self.users {
            user.client.end().await;
        }
        self.listeners.clear();
        self.guest_calls.clear();
        pass(seconds(ANSWER_TIMEOUT)).await;
        assert_eq!(self.world.sessions.len(), 0);
        for (name, ..) in SERVERS {
            assert_eq!(self.world.view(name).in_flight, 0, "{name}");
        }
        assert!(self.world.subscription_registry.is_empty());
        let counters = self.world.counters.view();
        let ended = [
            "calls_answered",
            "calls_failed",
            "calls_cancelled",
            "calls_shed_client",
            "calls_shed_rate",
            "calls_shed_server",
            "calls_shed_session",
            "breaker_refusals",
        ];
        let ended: u64 = ended.iter().map(|name| counters[*name]).sum();
        assert!(
            ended > 100 && counters["calls_started"] > 100,
            "{counters:?}"
        );
        self.fill_tables().await;
    }

    /// Answers of clients that servers read: in the middle of a call, and with a call that comes
    /// again.
    fn questions_answered(&self) -> (usize, usize) {
        let (mut questions, mut inputs) = (0, 0);
        for frame in self
            .servers
            .iter()
            .flat_map(|played| played.server.frames())
        {
            let (tag, arguments) = (&frame.json["result"], &frame.json["params"]["arguments"]);
            if tag["action"] == "accept" {
                let tag = tag["content"]["tag"].as_str().unwrap();
                assert!(self.answered.contains(tag), "{tag}");
                questions += 1;
            }
            let input = &frame.json["params"]["inputResponses"]["q"];
            if input["action"] == "accept" {
                assert_eq!(input["content"]["tag"], arguments["tag"]);
                inputs += 1;
            }
        }
        (questions, inputs)
    }
}
