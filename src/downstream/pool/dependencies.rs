//! Carries out what is decided about servers that depend on each other or belong to a group.
//!
//! Dependencies speak of a server's shared connection: a server is ready while that one is up. Connections
//! of single clients start and end with their calls, as without dependencies.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::id::ServerName;
use crate::supervision::{
    ChildPhase, DependencyMachine, DependencyOrder, GroupPolicy, GroupState, Member, Random,
    Sighting, Strategy, Wait,
};
use crate::telemetry::millis;

/// Interval at which it is checked whether dependants have ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The operations on a server that dependencies need.
pub(crate) trait DependentServer: Send + Sync {
    fn sighting(&self) -> Sighting;
    /// Time until its next attempt, if one is scheduled.
    fn retry_after(&self) -> Option<Duration>;
    fn has_calls(&self) -> bool;
    /// Keeps it from running; the text is for its log.
    fn block(&self, reason: &'static str, why: Option<&str>);
    fn unblock(&self);
    fn wake(&self);
}

type Lookup = Box<dyn Fn(&str) -> Option<Arc<dyn DependentServer>> + Send + Sync>;

/// The servers with dependencies. Cheap to clone; usable from any thread.
#[derive(Clone)]
pub(crate) struct DependentServers(Arc<Shared>);

struct Shared {
    servers: Lookup,
    table: Mutex<Table>,
    has_dependencies: AtomicBool,
    is_look_due: AtomicBool,
    /// The first group that escalated.
    escalated: watch::Sender<Option<Arc<str>>>,
}

#[derive(Default)]
struct Table {
    machine: DependencyMachine,
    /// The step that follows once a server's dependants are gone.
    leaving: BTreeMap<Arc<str>, Departure>,
}

type Departure = Box<dyn FnOnce() + Send>;

/// A description of the servers that a server waits for.
pub(crate) struct Awaited {
    pub(crate) text: String,
    pub(crate) retry_after: Option<Duration>,
}

/// State of a group of servers at one moment.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupView {
    pub name: String,
    pub strategy: Strategy,
    /// `working`, `broken`, or `retrying` after it was broken.
    pub state: String,
    /// The servers of the group, in order.
    pub servers: Vec<String>,
    /// Failures of its servers in the last `within`.
    pub failures: usize,
    pub max_restarts: u32,
    /// Time until a broken group is tried again, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_attempt_ms: Option<u64>,
}

impl DependentServers {
    pub(crate) fn new(servers: Lookup) -> Self {
        Self(Arc::new(Shared {
            servers,
            table: Mutex::default(),
            has_dependencies: AtomicBool::new(false),
            is_look_due: AtomicBool::new(false),
            escalated: watch::Sender::new(None),
        }))
    }

    fn server(&self, name: &str) -> Option<Arc<dyn DependentServer>> {
        (self.0.servers)(name)
    }

    fn has_dependencies(&self) -> bool {
        self.0.has_dependencies.load(Ordering::SeqCst)
    }

    /// Asks for a look at the dependencies if a change of this server concerns them, and no look is due.
    /// `ask` returns whether it will happen.
    pub(crate) fn changed(&self, name: &ServerName, ask: impl FnOnce() -> bool) {
        let is_dependent = || self.0.table.lock().machine.place(name.as_str()).is_some();
        if self.has_dependencies()
            && is_dependent()
            && !self.0.is_look_due.swap(true, Ordering::SeqCst)
        {
            self.0.is_look_due.store(ask(), Ordering::SeqCst);
        }
    }

    /// Learns the dependencies of all servers, after their settings or their connections changed.
    pub(crate) fn rebuild(&self, members: Vec<Member>) {
        if members.is_empty() && !self.has_dependencies() {
            return;
        }
        let mut table = self.0.table.lock();
        let before = std::mem::take(&mut table.machine);
        let known: Vec<Arc<str>> = before.names().cloned().collect();
        table.machine = DependencyMachine::try_new(members, before).unwrap_or_else(|circle| {
            let path = circle.0.join(" -> ");
            log::error!("servers wait for each other and are not dependent: {path}");
            DependencyMachine::default()
        });
        let is_dependent = |name: &&Arc<str>| table.machine.place(name).is_some();
        for name in known.iter().filter(|name| !is_dependent(name)) {
            self.server(name).iter().for_each(|it| it.unblock());
        }
        let names: Vec<Arc<str>> = table.machine.names().cloned().collect();
        for (place, name) in names.iter().enumerate() {
            if let Some(server) = self.server(name) {
                table.machine.begin(place, server.sighting());
            }
        }
        self.0
            .has_dependencies
            .store(!names.is_empty(), Ordering::SeqCst);
    }

    /// Looks at all servers with dependencies or groups, and carries out the decisions. Returns when
    /// to look again.
    pub(crate) fn look(&self, random: &dyn Random) -> Option<Instant> {
        self.0.is_look_due.store(false, Ordering::SeqCst);
        if !self.has_dependencies() {
            return None;
        }
        let mut table = self.0.table.lock();
        let now = Instant::now();
        let names: Vec<Arc<str>> = table.machine.names().cloned().collect();
        let mut orders = Vec::new();
        for (place, name) in names.iter().enumerate() {
            if let Some(server) = self.server(name) {
                let sighting = server.sighting();
                let seen = table.machine.observe(place, sighting, now, random.chance());
                orders.extend(seen);
            }
        }
        orders.extend(table.machine.tick(now));
        self.carry_out(&mut table, &names, orders);
        table.machine.deadline()
    }

    fn carry_out(&self, table: &mut Table, names: &[Arc<str>], orders: Vec<DependencyOrder>) {
        for order in orders {
            let server = |place: usize| self.server(&names[place]);
            match order {
                DependencyOrder::Escalate(group) => {
                    log::error!(group = &*group; "group is broken and escalates to the gateway");
                    self.0.escalated.send_replace(Some(group));
                }
                DependencyOrder::Leave(place) => {
                    let departure = table.leaving.remove(&names[place]);
                    departure.into_iter().for_each(|leave| leave());
                }
                DependencyOrder::Block(place, reason) => {
                    let why = self.describe(&table.machine, place, 0);
                    let why = why.as_ref().map(|awaited| awaited.text.as_str());
                    server(place).iter().for_each(|it| it.block(reason, why));
                }
                DependencyOrder::Unblock(place) => {
                    server(place).iter().for_each(|it| it.unblock());
                }
                DependencyOrder::Wake(place) => server(place).iter().for_each(|it| it.wake()),
            }
        }
    }

    /// Lets a server leave once its dependants have stopped; at once if it has none.
    pub(crate) fn leave(&self, name: &ServerName, leave: impl FnOnce() + Send + 'static) {
        let mut table = self.0.table.lock();
        let Some(place) = table.machine.place(name.as_str()) else {
            return leave();
        };
        let names: Vec<Arc<str>> = table.machine.names().cloned().collect();
        table.leaving.insert(names[place].clone(), Box::new(leave));
        let orders = table.machine.leave(place);
        self.carry_out(&mut table, &names, orders);
    }

    /// Lets a server stay that was about to leave.
    pub(crate) fn stay(&self, name: &ServerName) {
        let mut table = self.0.table.lock();
        if let Some(place) = table.machine.place(name.as_str()) {
            let names: Vec<Arc<str>> = table.machine.names().cloned().collect();
            let orders = table.machine.stay(place);
            self.carry_out(&mut table, &names, orders);
        }
    }

    /// Whether other servers run, or want to run, that depend on this one.
    pub(crate) fn is_needed(&self, name: &str) -> bool {
        self.any_dependant(name, |_, it| {
            let seen = it.sighting();
            seen.is_running || seen.phase == ChildPhase::Waiting
        })
    }

    /// Whether calls use a server that depends on this one, directly or not.
    pub(crate) fn has_calls_below(&self, name: &str) -> bool {
        self.any_dependant(name, |name, it| {
            it.has_calls() || self.has_calls_below(name)
        })
    }

    fn any_dependant(
        &self,
        name: &str,
        is_met: impl Fn(&str, &dyn DependentServer) -> bool,
    ) -> bool {
        if !self.has_dependencies() {
            return false;
        }
        let table = self.0.table.lock();
        let place = table.machine.place(name);
        let names = place
            .into_iter()
            .flat_map(|it| table.machine.dependants(it));
        let names: Vec<Arc<str>> = names.cloned().collect();
        // The condition can ask again.
        drop(table);
        let mut dependants = names.iter();
        dependants.any(|name| self.server(name).is_some_and(|it| is_met(name, &*it)))
    }

    /// Waits until no server runs that depends on this one.
    pub(crate) async fn has_no_dependants(&self, name: &ServerName) {
        let is_running = |_: &str, it: &dyn DependentServer| it.sighting().is_running;
        while self.any_dependant(name.as_str(), is_running) {
            sleep(LOOK_EVERY).await;
        }
    }

    /// Whether a server that waits can be expected to start soon.
    pub(crate) fn is_coming(&self, name: &ServerName) -> bool {
        let table = self.0.table.lock();
        let place = table.machine.place(name.as_str());
        place.is_none_or(|place| table.machine.is_coming(place))
    }

    /// The servers that a blocked server waits for.
    pub(crate) fn awaited(&self, name: &ServerName) -> Option<Awaited> {
        if !self.has_dependencies() {
            return None;
        }
        // A server that is not needed waits for nothing.
        let phase = self.server(name.as_str())?.sighting().phase;
        if matches!(
            phase,
            ChildPhase::Idle | ChildPhase::Stopping | ChildPhase::Stopped
        ) {
            return None;
        }
        let table = self.0.table.lock();
        let place = table.machine.place(name.as_str())?;
        self.describe(&table.machine, place, 0)
    }

    fn describe(&self, machine: &DependencyMachine, place: usize, depth: usize) -> Option<Awaited> {
        /// Servers that a sentence names at most.
        const NAMED: usize = 4;
        let wait = machine.waits(place).into_iter().next()?;
        let (text, retry_after) = match wait {
            Wait::Absent(name) => (format!("`{name}`, which is disabled or not usable"), None),
            Wait::Broken(group, next) => {
                let left = next.saturating_duration_since(Instant::now());
                (
                    format!("its group `{group}`, which failed too often"),
                    Some(left),
                )
            }
            Wait::Restart(group) => (format!("the restart of its group `{group}`"), None),
            Wait::Dependency(name) | Wait::Earlier(name) => {
                let other = machine.place(&name).filter(|_| depth < NAMED);
                let deeper = other.and_then(|other| self.describe(machine, other, depth + 1));
                match (deeper, self.server(&name)) {
                    (Some(deeper), _) => (
                        format!("`{name}`, which {}", deeper.text),
                        deeper.retry_after,
                    ),
                    (None, Some(server)) => {
                        let state = match server.sighting().phase {
                            ChildPhase::Backoff | ChildPhase::Broken => "is away",
                            ChildPhase::Stopping | ChildPhase::Stopped => "was stopped",
                            _ => "is starting",
                        };
                        let retry_after = server.retry_after();
                        (format!("`{name}`, which {state}"), retry_after)
                    }
                    (None, None) => (format!("`{name}`"), None),
                }
            }
        };
        let text = format!("waits for {text}");
        Some(Awaited { text, retry_after })
    }

    /// The groups, by their first server.
    pub(crate) fn views(&self) -> Vec<GroupView> {
        let table = self.0.table.lock();
        let groups = table.machine.groups();
        let view = groups.map(|(policy, state, failures, servers)| GroupView {
            name: policy.name.to_string(),
            strategy: policy.strategy,
            state: match state {
                GroupState::Working => "working",
                GroupState::Broken { .. } => "broken",
                GroupState::Retrying => "retrying",
            }
            .to_owned(),
            servers: servers.iter().map(|name| name.to_string()).collect(),
            failures,
            max_restarts: policy.max_restarts,
            next_attempt_ms: match state {
                GroupState::Broken { next_attempt } => {
                    let left = next_attempt.saturating_duration_since(Instant::now());
                    Some(millis(left))
                }
                GroupState::Working | GroupState::Retrying => None,
            },
        });
        view.collect()
    }

    /// Explains the effect of dependencies on a server in sentences.
    pub(crate) fn explain(&self, name: &ServerName) -> Vec<String> {
        let awaited = self.awaited(name);
        let table = self.0.table.lock();
        let Some(place) = table.machine.place(name.as_str()) else {
            return Vec::new();
        };
        let listed = |names: &mut dyn Iterator<Item = &Arc<str>>| {
            let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
            names.join(", ")
        };
        let mut sentences = Vec::new();
        sentences.extend(awaited.map(|awaited| format!("It {}.", awaited.text)));
        let dependants = listed(&mut table.machine.dependants(place));
        if !dependants.is_empty() {
            let text = format!("While it is away, those that depend on it wait: {dependants}.");
            sentences.push(text);
        }
        let restarted = listed(&mut table.machine.restarted_with(place).iter());
        if !restarted.is_empty() {
            let text = format!("If it fails, these restart with it, in this order: {restarted}.");
            sentences.push(text);
        }
        let is_of = |names: &Vec<Arc<str>>| names.iter().any(|it| **it == *name.as_str());
        let mut groups = table.machine.groups();
        if let Some((policy, _, failures, _)) = groups.find(|(.., names)| is_of(names)) {
            let GroupPolicy {
                name, max_restarts, ..
            } = &**policy;
            let (within, every) = (policy.within.as_secs(), policy.retry_every.as_secs());
            sentences.push(format!(
                "Its group `{name}` has seen {failures} recent failures; more than {max_restarts} \
                 in {within} s stop the whole group, with an attempt every {every} s."
            ));
            if policy.escalates {
                sentences.push("That ends the gateway with exit code 70.".to_owned());
            }
        }
        sentences
    }

    /// The step in which each server stops: a later one than those that depend on it.
    pub(crate) fn stop_steps(&self) -> BTreeMap<Arc<str>, usize> {
        let table = self.0.table.lock();
        let names: Vec<Arc<str>> = table.machine.names().cloned().collect();
        let mut steps: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        for place in table.machine.stop_order() {
            let dependants = table.machine.dependants(place);
            let after = dependants.filter_map(|name| steps.get(name));
            let step = after.max().map_or(0, |step| step + 1);
            steps.insert(names[place].clone(), step);
        }
        steps
    }

    /// Waits until a group escalates; returns its name.
    pub(crate) async fn escalated(&self) -> Arc<str> {
        let mut escalated = self.0.escalated.subscribe();
        match escalated.wait_for(Option::is_some).await {
            Ok(group) => group.clone().unwrap_or_default(),
            // The sender lives as long as `self`.
            Err(_) => std::future::pending().await,
        }
    }
}
