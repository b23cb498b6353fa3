//! Stopping is ordered and bounded, whatever the child does.

use std::sync::mpsc;
use std::time::Duration;

use actix::{Actor, Addr, AsyncContext, Context, Handler, Message};
use mcpvisor::supervision::{
    Arbiters, ArbitersStillRunning, ChildPhase, ChildSpec, Shutdown, Start, Supervisor,
    SupervisorLink, Tuning,
};
use tokio::time::{Instant, sleep, timeout_at};

use crate::supervision::support::{
    Birth, Census, Puppet, patience, puppets, quick, run, run_paused,
};
use crate::supervision::support::{run_alone, settings, threads, until};

#[test]
fn a_child_that_leaves_is_awaited_and_callers_fail_at_once() {
    run_paused(async {
        let arbiters = Arbiters::current().unwrap();
        let census = Census::default();
        let child = Supervisor::supervise(puppets(&arbiters, &census, |_| Birth::Healthy));
        child.wait_up(patience()).await.unwrap();
        let start = Instant::now();
        child.stop();
        child.stopped().await;
        assert_eq!((start.elapsed().as_millis(), census.alive()), (0, 0));
        let view = child.view();
        assert_eq!(
            (view.phase, view.last_exit_code.as_deref()),
            (ChildPhase::Stopped, Some("shutdown"))
        );
        let away = child.wait_up(patience()).await.unwrap_err();
        assert_eq!(
            (away.phase, start.elapsed().as_millis()),
            (ChildPhase::Stopped, 0)
        );
    });
}

fn deaf(arbiters: &Arbiters, census: &Census) -> ChildSpec<Addr<Puppet>> {
    let census = census.clone();
    let start = Start::new(move |_, link: SupervisorLink<Addr<Puppet>>| {
        let mut puppet = Puppet::new(link, Birth::Healthy, &census);
        puppet.deaf = true;
        puppet
    });
    ChildSpec {
        settings: settings(quick()),
        ..ChildSpec::new("deaf", arbiters, start)
    }
}

#[test]
fn a_child_that_ignores_shutdown_is_killed_when_its_time_is_up() {
    run_paused(async {
        let arbiters = Arbiters::current().unwrap();
        let census = Census::default();
        let child = Supervisor::supervise(deaf(&arbiters, &census));
        child.wait_up(patience()).await.unwrap();
        let start = Instant::now();
        child.stop();
        sleep(Duration::from_secs(4)).await;
        assert_eq!(
            (child.view().phase, census.alive()),
            (ChildPhase::Stopping, 1)
        );
        assert_eq!(
            child.current().unwrap_err().phase,
            ChildPhase::Stopping,
            "callers fail at once"
        );
        child.stopped().await;
        assert_eq!((start.elapsed().as_secs(), census.alive()), (5, 0));
        let view = child.view();
        assert_eq!(
            (view.last_exit_code.as_deref(), view.stuck),
            (Some("killed"), 0)
        );
    });
}

#[test]
fn a_supervisor_that_goes_takes_its_child_along() {
    let census = Census::default();
    run(async {
        let children = threads(1);
        let supervisors = threads(1);
        let (tell, received) = tokio::sync::oneshot::channel();
        let spec = puppets(&children, &census, |_| Birth::Healthy);
        supervisors.at(0).arbiter.spawn_fn(move || {
            drop(tell.send(Supervisor::supervise(spec)));
        });
        let child = received.await.unwrap();
        // Held, so that it does not stop for want of an address.
        let up = child.wait_up(patience()).await.unwrap();
        supervisors.stop(Duration::from_secs(30)).await.unwrap();
        child.stopped().await;
        assert_eq!(child.current().unwrap_err().phase, ChildPhase::Stopped);
        until(|| !up.value.connected()).await;
        children.stop(Duration::from_secs(30)).await.unwrap();
    });
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_supervisor_beside_its_child_ends_with_their_thread() {
    run(async {
        let (arbiters, census) = (threads(1), Census::default());
        let spec = puppets(&arbiters, &census, |_| Birth::Healthy);
        let child = Supervisor::supervise_beside_child(spec);
        child.wait_up(patience()).await.unwrap();
        arbiters.stop(Duration::from_secs(30)).await.unwrap();
        child.stopped().await;
        assert_eq!((child.phase(), census.alive()), (ChildPhase::Stopped, 0));
    });
}

/// Blocks its thread until told otherwise: the one thing that cannot be killed.
struct Blocker(SupervisorLink<Addr<Blocker>>);

impl Actor for Blocker {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.0.ready(ctx.address());
    }
}

struct Block(mpsc::Sender<()>, mpsc::Receiver<()>);

impl Message for Block {
    type Result = ();
}

impl Handler<Block> for Blocker {
    type Result = ();

    fn handle(&mut self, block: Block, _: &mut Self::Context) {
        block.0.send(()).unwrap();
        // Ends when the other side is dropped.
        let _ = block.1.recv();
    }
}

impl Handler<Shutdown> for Blocker {
    type Result = ();

    fn handle(&mut self, _: Shutdown, ctx: &mut Self::Context) {
        actix::ActorContext::stop(ctx);
    }
}

#[test]
fn a_blocked_thread_is_abandoned_and_its_late_messages_are_ignored() {
    run(async {
        let arbiters = threads(1);
        let tuning = Tuning {
            shutdown_timeout: Duration::from_millis(20),
            ..quick()
        };
        let child = Supervisor::supervise(ChildSpec {
            settings: settings(tuning),
            ..ChildSpec::new("blocker", &arbiters, Start::new(|_, link| Blocker(link)))
        });
        let first = child.wait_up(patience()).await.unwrap();
        let (blocking, is_blocking) = mpsc::channel();
        let (unblock, blocked) = mpsc::channel();
        first.value.do_send(Block(blocking, blocked));
        is_blocking.recv().unwrap();
        child.reconnect_now("operator");
        let mut changes = child.subscribe();
        let second =
            changes.wait_for(|now| now.generation == 2 && now.status.phase() == ChildPhase::Up);
        timeout_at(patience(), second)
            .await
            .expect("no second incarnation")
            .unwrap();
        assert_eq!((child.view().stuck, arbiters.replaced()), (1, 1));
        assert!(first.value.connected(), "the first one is still there");
        changes.mark_unchanged();
        let running = thread_count();
        drop(unblock);
        until(|| !first.value.connected() && (running == 0 || thread_count() < running)).await;
        // Its messages lie in the mailbox of the supervisor by now, which runs on this thread.
        sleep(Duration::from_millis(1)).await;
        assert!(
            !changes.has_changed().unwrap(),
            "late messages changed something"
        );
        assert_eq!(child.current().unwrap().generation, 2);
        child.stop();
        child.stopped().await;
        arbiters.stop(Duration::from_secs(30)).await.unwrap();
    });
}

#[test]
fn a_pool_with_a_blocked_thread_says_so_and_ends_later() {
    run(async {
        let before = thread_count();
        let arbiters = threads(2);
        let (blocking, is_blocking) = mpsc::channel();
        let (unblock, blocked) = mpsc::channel::<()>();
        arbiters.at(1).arbiter.spawn_fn(move || {
            blocking.send(()).unwrap();
            let _ = blocked.recv();
        });
        is_blocking.recv().unwrap();
        let within = Duration::from_millis(50);
        let error = arbiters.stop(within).await.unwrap_err();
        assert_eq!(error, ArbitersStillRunning { blocked: 1, within });
        drop(unblock);
        until(|| thread_count() <= before).await;
    });
}

#[test]
fn a_stopped_or_dropped_pool_leaves_no_thread() {
    let test = "supervision::stopping::a_stopped_or_dropped_pool_leaves_no_thread";
    run_alone(test, async {
        let before = thread_count();
        let arbiters = threads(4);
        let clone = arbiters.clone();
        arbiters.stop(Duration::from_secs(30)).await.unwrap();
        clone.stop(Duration::from_secs(30)).await.unwrap();
        assert!(
            !clone.site(7).arbiter.alive(),
            "a stopped pool makes no new threads"
        );
        drop(threads(4));
        until(|| thread_count() <= before).await;
    });
}

/// Arbiter threads of this process; elsewhere than on Linux only the calls are tested.
fn thread_count() -> usize {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return 0;
    };
    tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok())
        .filter(|name| name.starts_with("actix-rt"))
        .count()
}
