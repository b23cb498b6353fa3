//! Servers, clients and what is between them, on one thread and in simulated time.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actix::System;
use bytes::Bytes;
use futures_util::FutureExt;
use mcpvisor::auth::{AccessRequest, Denied, Policy};
use mcpvisor::calls::{SealingKeys, SessionSettings};
use mcpvisor::catalog::{CatalogSettings, NameSettings};
use mcpvisor::downstream::{
    CrashReport, Downstreams, EraChoice, PoolParts, ServerChange, ServerLimits, ServerSettings,
    ServerStatusView, Sharing, StartMode, StartQueue, SubscriptionRegistry, TransportSettings,
    start_kind,
};
use mcpvisor::history::History;
use mcpvisor::id::{CallNumbers, ServerName};
use mcpvisor::metrics::Metrics;
use mcpvisor::publisher::{
    Arrangement, CatalogPublisher, CatalogView, FirstListWait, NamedViews, RestoredCatalog,
};
use mcpvisor::sessions::{Sessions, SessionsSpec, TreeSource};
use mcpvisor::store::{MemoryStore, Store};
use mcpvisor::supervision::{Arbiters, Random, SeededRandom, Settings, Tuning};
use mcpvisor::telemetry::Counters;
use mcpvisor::traces::Traces;
use mcpvisor::transport::{Connector, StdioSettings};
use serde_json::{Value, json};

use crate::sim::client::{Client, Exchange};
use crate::sim::minting::CountingMint;
use crate::sim::outage::Outage;
use crate::sim::server::{Script, Server};

/// A tool of this name makes the session that calls it panic.
const PANIC_TOOL: &str = "panic";

/// Runs a test on a fresh actix system whose time is simulated.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    System::new().block_on(async {
        tokio::time::pause();
        future.await
    })
}

/// Lets everybody do what they can without time passing.
pub(crate) async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// Lets time pass.
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
    settle().await;
}

pub(crate) const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub(crate) const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// How a server is played and configured.
pub(crate) struct Plan {
    pub(crate) script: Script,
    pub(crate) settings: ServerSettings,
    /// Stands between the gateway and the played server.
    pub(crate) wrap: Option<Wrap>,
    /// Why its clients cannot share a process, as an earlier gateway found.
    pub(crate) reasons: Vec<&'static str>,
    /// Whether an earlier gateway found that it lists the same with and without capabilities.
    pub(crate) lists_equally: bool,
}

/// A program whose clients share only with equal capabilities.
pub(crate) fn separated(plan: &mut Plan) {
    plan.reasons.push("lists_differ");
}

type Wrap = Box<dyn FnOnce(Arc<dyn Connector>) -> Arc<dyn Connector>>;

pub(crate) struct World {
    pub(crate) downstreams: Downstreams,
    pub(crate) sessions: Sessions,
    settings: SessionSettings,
    pub(crate) publisher: CatalogPublisher,
    pub(crate) catalog: CatalogView,
    pub(crate) counters: Counters,
    pub(crate) subscription_registry: Arc<SubscriptionRegistry>,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) store_is_down: Arc<AtomicBool>,
    pub(crate) writes: Arc<tokio::sync::Mutex<()>>,
    /// Bytes that sessions wrote into the store.
    pub(crate) store_written: Arc<AtomicUsize>,
    /// Reports of connections that ended as they should not.
    pub(crate) crashes: Arc<Mutex<Vec<CrashReport>>>,
    /// How often the start of a server panics from now on.
    pub(crate) starts_panic: Arc<AtomicU32>,
    connectors: Arc<Mutex<HashMap<String, Arc<dyn Connector>>>>,
    order: RefCell<Vec<(ServerName, NameSettings)>>,
    kinds: RefCell<BTreeMap<ServerName, &'static str>>,
}

struct PanicsOnDemand;

impl Policy for PanicsOnDemand {
    fn judge(&self, asked: &AccessRequest<'_>) -> Result<(), Denied> {
        if asked.item.as_str().ends_with(PANIC_TOOL) {
            // A panic on which nobody comments.
            std::panic::resume_unwind(Box::new("panic on demand"));
        }
        Ok(())
    }
}

/// Panics as often as this says; nobody comments on it.
pub(crate) fn panic_if_due(times: &AtomicU32) {
    let counted = times.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
    if counted.is_ok() {
        std::panic::resume_unwind(Box::new("panic on demand"));
    }
}

thread_local!(static EVENT_LOGS_PANIC: AtomicU32 = const { AtomicU32::new(0) });

/// How often making the event log of a session panics from now on.
pub(crate) fn event_logs_panic(times: u32) {
    EVENT_LOGS_PANIC.with(|panics| panics.store(times, SeqCst));
}

/// The only random number of a session is that of its event log.
#[derive(Debug)]
struct SessionRandom(SeededRandom);

impl Random for SessionRandom {
    fn chance(&self) -> f64 {
        EVENT_LOGS_PANIC.with(panic_if_due);
        self.0.chance()
    }
}

thread_local!(static WALL_CLOCK: Cell<u64> = const { Cell::new(0) });

/// Sets the clock by which sealed states expire, in seconds.
pub(crate) fn set_wall_clock(seconds: u64) {
    WALL_CLOCK.set(seconds * 1000);
}

/// The same key of task ids in every world.
fn sealing_keys(outage: &Outage) -> Arc<SealingKeys> {
    let store: Arc<dyn Store> = Arc::new(outage.clone());
    let key = store.put("sealing/key", Bytes::from_static(&[7; 32]), None);
    key.now_or_never().unwrap().unwrap();
    let keys = SealingKeys::load(store, || WALL_CLOCK.get(), None);
    keys.now_or_never().unwrap().unwrap()
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(tune: impl FnOnce(&mut SessionSettings)) -> Self {
        Self::on(Arbiters::current().unwrap(), tune)
    }

    /// With other threads than the calling one there is no simulated time.
    pub(crate) fn on(arbiters: Arbiters, tune: impl FnOnce(&mut SessionSettings)) -> Self {
        Self::after(None, arbiters, tune)
    }

    /// With what a process before this one kept.
    pub(crate) fn after(
        before: Option<RestoredCatalog>,
        arbiters: Arbiters,
        tune: impl FnOnce(&mut SessionSettings),
    ) -> Self {
        Self::build(before, arbiters, 64, tune)
    }

    /// A gateway that starts so many programs at once.
    pub(crate) fn starting(at_once: usize) -> Self {
        Self::build(None, Arbiters::current().unwrap(), at_once, |_| {})
    }

    fn build(
        before: Option<RestoredCatalog>,
        arbiters: Arbiters,
        starts_at_once: usize,
        tune: impl FnOnce(&mut SessionSettings),
    ) -> Self {
        let mut settings = session_settings();
        tune(&mut settings);
        let counters = Counters::default();
        let numbers = CallNumbers::after(0);
        let subscription_registry = Arc::new(SubscriptionRegistry::default());
        let crashes: Arc<Mutex<Vec<CrashReport>>> = Arc::default();
        let crash_list = crashes.clone();
        let connectors: Arc<Mutex<HashMap<String, Arc<dyn Connector>>>> = Arc::default();
        let outage = Outage::default();
        let (publisher, catalog) = CatalogPublisher::start(counters.clone(), before).unwrap();
        let starts_panic = Arc::<AtomicU32>::default();
        let (made, panics) = (connectors.clone(), starts_panic.clone());
        let downstreams = Downstreams::start(PoolParts {
            arbiters: arbiters.clone(),
            numbers: numbers.clone(),
            subscription_registry: subscription_registry.clone(),
            list_changes: Default::default(),
            listener: publisher.listener(),
            store: outage.store.clone(),
            random: Arc::new(SeededRandom::new(2)),
            starts: StartQueue::new(Some(starts_at_once)),
            make_connector: Arc::new(move |server, _, _| {
                panic_if_due(&panics);
                let made = made.lock().unwrap_or_else(PoisonError::into_inner);
                made[server.name.as_str()].clone()
            }),
            counters: counters.clone(),
            metrics: Metrics::default(),
            events: Default::default(),
            secrets: Default::default(),
            crashes: Arc::new(move |report| crash_list.lock().unwrap().push(report)),
        })
        .unwrap();
        let sessions = Sessions::start(SessionsSpec {
            replicas: None,
            settings: settings.clone(),
            arbiters,
            downstreams: downstreams.clone(),
            catalog: catalog.clone(),
            store: Arc::new(outage.clone()),
            policy: Some(Box::new(PanicsOnDemand)),
            numbers,
            random: Arc::new(SessionRandom(SeededRandom::new(1))),
            mint: Arc::new(CountingMint),
            clock: || 0,
            sealing: sealing_keys(&outage),
            counters: counters.clone(),
            history: History::off(),
            metrics: Metrics::default(),
            traces: Traces::default(),
        });
        publisher.attach(Arc::new(sessions.clone()));
        Self {
            downstreams,
            sessions,
            settings,
            publisher,
            catalog,
            counters,
            subscription_registry,
            store: outage.store,
            store_is_down: outage.is_down,
            writes: outage.writes,
            store_written: outage.written,
            crashes,
            starts_panic,
            connectors,
            order: RefCell::default(),
            kinds: RefCell::default(),
        }
    }

    /// The session of a client panics over a request: what it reads cannot be made.
    pub(crate) async fn session_panics(&self, client: &Client) -> Exchange {
        let source = || std::panic::resume_unwind(Box::new("panic on demand"));
        self.configure_sessions(Some(Arc::new(source)));
        let params = json!({"uri": "mcpvisor://tree"});
        let exchange = client.request("resources/read", params).await;
        self.configure_sessions(None);
        exchange
    }

    fn configure_sessions(&self, tree: Option<TreeSource>) {
        let policy: Box<dyn Policy> = Box::new(PanicsOnDemand);
        self.sessions
            .configure(self.settings.clone(), Some(policy), tree);
    }

    /// A server whose transport cannot tell whose call a question belongs to.
    pub(crate) async fn stdio(&self, name: &str, plan: impl FnOnce(&mut Plan)) -> Server {
        let server = self.start(name, false, plan);
        settle().await;
        server
    }

    /// A server whose transport can.
    pub(crate) async fn http(&self, name: &str, plan: impl FnOnce(&mut Plan)) -> Server {
        let server = self.start(name, true, plan);
        settle().await;
        server
    }

    pub(crate) fn start(
        &self,
        name: &str,
        knows_call_of_requests: bool,
        plan: impl FnOnce(&mut Plan),
    ) -> Server {
        let mut planned = Plan {
            script: Script::default(),
            settings: server_settings(name),
            wrap: None,
            reasons: Vec::new(),
            lists_equally: true,
        };
        plan(&mut planned);
        self.remember(&planned);
        let (server, connector) = Server::play(planned.script, knows_call_of_requests);
        let connector: Arc<dyn Connector> = Arc::new(connector);
        let connector = match planned.wrap {
            Some(wrap) => wrap(connector),
            None => connector,
        };
        let mut connectors = self.connectors.lock().unwrap();
        connectors.insert(name.to_owned(), connector);
        drop(connectors);
        let settings = planned.settings;
        let kind = start_kind(&settings.transport);
        self.kinds.borrow_mut().insert(settings.name.clone(), kind);
        let known = (settings.name.clone(), settings.names.clone());
        let mut order = self.order.borrow_mut();
        order.retain(|(other, _)| *other != known.0);
        order.push(known);
        drop(order);
        self.arrange(|_| {});
        self.downstreams.configure(ServerChange {
            start: vec![settings],
            ..ServerChange::default()
        });
        server
    }

    /// Keeps what an earlier gateway found, unless this one did.
    fn remember(&self, plan: &Plan) {
        let key = format!("separation/{}", plan.settings.name);
        let kept = json!({
            "identity": plan.settings.identity(),
            "reasons": plan.reasons,
            "lists_equally": plan.lists_equally.then_some("1"),
        });
        let is_known = self
            .store
            .get(&key)
            .now_or_never()
            .unwrap()
            .unwrap()
            .is_some();
        if !is_known {
            let value = Bytes::from(kept.to_string());
            self.store
                .put(&key, value, None)
                .now_or_never()
                .unwrap()
                .unwrap();
        }
    }

    /// Changes the order of the servers as a reload does.
    pub(crate) fn arrange(&self, change: impl FnOnce(&mut Vec<(ServerName, NameSettings)>)) {
        change(&mut self.order.borrow_mut());
        let settings = &self.settings;
        let (usual, max) = (settings.first_list_wait, settings.first_list_wait_max);
        self.publisher.configure(Arrangement {
            policies: None,
            identities: BTreeMap::new(),
            servers: self.order.borrow().clone(),
            catalog: CatalogSettings::default(),
            views: NamedViews::new(),
            first_list_wait: FirstListWait {
                usual,
                max,
                kinds: self.kinds.borrow().clone(),
            },
        });
    }

    /// Changes settings of a server as a reload does that keeps its connections.
    pub(crate) async fn retune(&self, name: &str, change: impl FnOnce(&mut ServerSettings)) {
        let name = ServerName::try_new(name).unwrap();
        let server = self.downstreams.get(&name).unwrap();
        let mut settings = ServerSettings::clone(&server.settings());
        change(&mut settings);
        self.downstreams.configure(ServerChange {
            retune: vec![settings],
            ..ServerChange::default()
        });
        settle().await;
    }

    pub(crate) fn stop_server(&self, name: &str) {
        self.arrange(|order| order.retain(|(other, _)| other.as_str() != name));
        self.downstreams.configure(ServerChange {
            stop: vec![ServerName::try_new(name).unwrap()],
            ..ServerChange::default()
        });
    }

    /// A client that declared these capabilities.
    pub(crate) async fn client(self: &Rc<Self>, capabilities: Value) -> Client {
        self.client_on(0, capabilities).await
    }

    /// A client whose session lives on the arbiter of this index.
    pub(crate) async fn client_on(self: &Rc<Self>, arbiter: usize, capabilities: Value) -> Client {
        Client::open(self.clone(), arbiter, capabilities).await
    }

    pub(crate) fn view(&self, server: &str) -> ServerStatusView {
        let name = ServerName::try_new(server).unwrap();
        self.downstreams.get(&name).unwrap().view()
    }

    pub(crate) fn counted(&self, name: &str) -> u64 {
        self.counters.view()[name]
    }
}

fn session_settings() -> SessionSettings {
    SessionSettings {
        parked_max: 8,
        listeners_max: 8,
        sessions_max: 1000,
        answer_timeout: seconds(300),
        server_events_max: 64 * 1024,
        ..SessionSettings::default()
    }
}

pub(crate) fn tuning() -> Tuning {
    Tuning {
        backoff_initial: seconds(1),
        jitter: 0.0,
        ..Tuning::default()
    }
}

fn server_settings(name: &str) -> ServerSettings {
    ServerSettings {
        name: ServerName::try_new(name).unwrap(),
        transport: TransportSettings::Stdio(StdioSettings {
            command: String::new(),
            args: Vec::new(),
            env: Default::default(),
            inherit_env: Default::default(),
            cwd: None,
            line_max: 0,
            write_queue_max: 0,
            stop_grace: Duration::ZERO,
            limits: Default::default(),
            sandbox: Default::default(),
        }),
        supervision: Settings::try_new(tuning()).unwrap(),
        era: EraChoice::Legacy,
        start: StartMode::Eager,
        sharing: Sharing::Auto,
        credentials: Default::default(),
        roots: vec!["file:///configured".to_owned()],
        names: NameSettings::default(),
        resilience: Default::default(),
        faults: None,
        dependencies: Default::default(),
        rollout: None,
        recorder: Default::default(),
        limits: ServerLimits {
            list_items_max: 100,
            list_pages_max: 10,
            refresh_every: seconds(24 * 3600),
            ping_every: Duration::ZERO,
            ping_timeout: seconds(5),
            log_lines: 10,
            share_logs: true,
            ..ServerLimits::default()
        },
    }
}
