//! A child that does as it is told, and a world to run it in.

use std::future::Future;
use std::num::NonZeroUsize;
use std::process::Command;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use actix::fut::wrap_future;
use actix::{
    Actor, ActorContext, Addr, AsyncContext, Context, Handler, Message, ResponseFuture, Running,
    System,
};
use mcpvisor::supervision::{
    Arbiters, ChildRef, ChildSpec, Exit, Settings, Shutdown, Start, SupervisorLink, Tuning,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Runs the body of the test with this name in a process that runs no other test, because the body counts
/// the bytes or the threads of its process.
pub(crate) fn run_alone(test: &str, body: impl Future<Output = ()>) {
    const ALONE: &str = "SUPERVISION_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return run(body);
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{test}: {text}"
    );
}

/// Runs a future on a fresh actix system.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let tell = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // Thousands of panics are made on purpose.
            if !panic
                .payload_as_str()
                .is_some_and(|text| text.starts_with("panic in "))
            {
                tell(panic);
            }
        }));
    });
    System::new().block_on(future)
}

/// The same with simulated time.
pub(crate) fn run_paused<T>(future: impl Future<Output = T>) -> T {
    run(async {
        tokio::time::pause();
        future.await
    })
}

/// Long enough for a busy machine; nothing waits so long unless it is broken.
pub(crate) fn patience() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

/// Waits until something holds that nobody tells.
pub(crate) async fn until(holds: impl Fn() -> bool) {
    let deadline = patience();
    while !holds() {
        assert!(Instant::now() < deadline, "it never came to hold");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

pub(crate) fn threads(count: usize) -> Arbiters {
    Arbiters::start(NonZeroUsize::new(count).unwrap()).unwrap()
}

/// Settings for tests on real time: quick, and never broken.
pub(crate) fn quick() -> Tuning {
    Tuning {
        backoff_initial: Duration::from_millis(1),
        backoff_max: Duration::from_millis(2),
        max_restarts: 10_000,
        within: Duration::from_millis(1),
        reconnect_every: Duration::from_millis(20),
        stable_after: Duration::from_secs(60),
        connect_timeout: Duration::from_secs(10),
        shutdown_timeout: Duration::from_secs(5),
        ..Tuning::default()
    }
}

pub(crate) fn settings(tuning: Tuning) -> Settings {
    Settings::try_new(tuning).unwrap()
}

/// Where a child fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Handler,
    SpawnedFuture,
    Stop,
    Terminate,
    Fail,
    Kill,
    /// Panics in a hook on the way out.
    Stopping,
    Stopped,
    Drop,
    /// Panics in a handler, and then in each hook on the way out.
    Everywhere,
    /// Ends the child's thread.
    Arbiter,
    /// The same, and panics in each hook on the way out.
    ArbiterAndEverywhere,
}

/// Faults at birth, decided before the child exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Birth {
    #[default]
    Healthy,
    FactoryPanics,
    StartedPanics,
    /// Never says that it is ready.
    Silent,
    /// Says only that it needs so much time.
    StillStarting(Duration),
}

/// Asks the child to fail, or for its generation.
pub(crate) enum Order {
    Answer(oneshot::Sender<u64>),
    Break(Fault, oneshot::Sender<u64>),
}

impl Message for Order {
    type Result = ();
}

/// A future whose panic only its own caller feels.
pub(crate) struct Fragile;

impl Message for Fragile {
    type Result = ();
}

/// Children alive now, of one test.
#[derive(Clone, Default)]
pub(crate) struct Census(Arc<AtomicI64>);

impl Census {
    pub(crate) fn alive(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

pub(crate) struct Puppet {
    generation: u64,
    exit: Exit,
    link: Option<SupervisorLink<Addr<Puppet>>>,
    birth: Birth,
    /// The reaction to a request to leave.
    pub(crate) deaf: bool,
    fault: Option<Fault>,
    census: Census,
}

impl Puppet {
    pub(crate) fn new(link: SupervisorLink<Addr<Self>>, birth: Birth, census: &Census) -> Self {
        assert!(birth != Birth::FactoryPanics, "panic in factory");
        census.0.fetch_add(1, Ordering::SeqCst);
        Self {
            generation: link.generation(),
            exit: link.exit().clone(),
            link: Some(link),
            birth,
            deaf: false,
            fault: None,
            census: census.clone(),
        }
    }

    /// A child without a supervisor.
    pub(crate) fn alone(exit: Exit, birth: Birth, census: &Census) -> Self {
        census.0.fetch_add(1, Ordering::SeqCst);
        Self {
            generation: 0,
            exit,
            link: None,
            birth,
            deaf: false,
            fault: None,
            census: census.clone(),
        }
    }

    fn breaks(&self, fault: Fault) {
        let everywhere = matches!(
            self.fault,
            Some(Fault::Everywhere | Fault::ArbiterAndEverywhere)
        ) && matches!(fault, Fault::Stopping | Fault::Stopped | Fault::Drop);
        assert!(
            self.fault != Some(fault) && !everywhere,
            "panic in {fault:?}"
        );
    }
}

impl Actor for Puppet {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        assert!(self.birth != Birth::StartedPanics, "panic in started");
        match (&self.link, self.birth) {
            (None, _) | (_, Birth::Silent) => {}
            (Some(link), Birth::StillStarting(within)) => link.still_starting(within),
            (Some(link), _) => link.ready(ctx.address()),
        }
    }

    fn stopping(&mut self, _: &mut Self::Context) -> Running {
        self.breaks(Fault::Stopping);
        Running::Stop
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        self.breaks(Fault::Stopped);
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        self.census.0.fetch_sub(1, Ordering::SeqCst);
        self.breaks(Fault::Drop);
    }
}

impl Handler<Order> for Puppet {
    type Result = ();

    fn handle(&mut self, order: Order, ctx: &mut Self::Context) {
        let (fault, answer) = match order {
            Order::Answer(answer) => {
                let _ = answer.send(self.generation);
                return;
            }
            Order::Break(fault, answer) => (fault, answer),
        };
        self.fault = Some(fault);
        match fault {
            Fault::Handler => panic!("panic in Handler"),
            Fault::Everywhere => panic!("panic in Everywhere"),
            Fault::SpawnedFuture => {
                ctx.spawn(wrap_future(async move {
                    let _held = answer;
                    panic!("panic in SpawnedFuture")
                }));
            }
            Fault::Stop | Fault::Stopping | Fault::Stopped | Fault::Drop => ctx.stop(),
            Fault::Terminate => ctx.terminate(),
            Fault::Fail => {
                self.exit.fail("the peer hung up");
                ctx.stop();
            }
            Fault::Kill => self.exit.kill(),
            Fault::Arbiter | Fault::ArbiterAndEverywhere => {
                actix_rt::Arbiter::current().stop();
            }
        }
    }
}

impl Handler<Fragile> for Puppet {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: Fragile, _: &mut Self::Context) -> Self::Result {
        Box::pin(async { panic!("panic in ResponseFuture") })
    }
}

impl Handler<Shutdown> for Puppet {
    type Result = ();

    fn handle(&mut self, _: Shutdown, ctx: &mut Self::Context) {
        if !self.deaf {
            ctx.stop();
        }
    }
}

pub(crate) type PuppetRef = ChildRef<Addr<Puppet>>;

/// A spec for puppets; `birth` decides the fate of each generation.
pub(crate) fn puppets(
    arbiters: &Arbiters,
    census: &Census,
    birth: impl Fn(u64) -> Birth + Send + Sync + 'static,
) -> ChildSpec<Addr<Puppet>> {
    let census = census.clone();
    let start = Start::new(move |_, link: SupervisorLink<Addr<Puppet>>| {
        let birth = birth(link.generation());
        Puppet::new(link, birth, &census)
    });
    ChildSpec {
        settings: settings(quick()),
        ..ChildSpec::new("puppet", arbiters, start)
    }
}

/// Sends an order and waits for its one answer; `None` when the child died over it.
pub(crate) async fn order(
    child: &Addr<Puppet>,
    order: impl FnOnce(oneshot::Sender<u64>) -> Order,
) -> Option<u64> {
    let (answer, answered) = oneshot::channel();
    child.do_send(order(answer));
    tokio::time::timeout_at(patience(), answered)
        .await
        .expect("neither answer nor error")
        .ok()
}
