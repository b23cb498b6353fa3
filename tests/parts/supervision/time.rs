//! Simulated time: attempts happen when they should.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::Addr;
use mcpvisor::supervision::{
    Arbiters, ChildPhase, ChildSpec, Random, SeededRandom, Start, Supervisor, SupervisorLink,
    Tuning,
};
use tokio::time::{Instant, sleep};

use crate::supervision::support::{Birth, Census, Fault, Order, Puppet, PuppetRef};
use crate::supervision::support::{order, run_paused, settings};

/// When each incarnation was born, in milliseconds from the start, to the nearest ten: each
/// timer may be a millisecond late.
#[derive(Clone)]
struct Births {
    start: Instant,
    at: Arc<Mutex<Vec<u64>>>,
}

impl Births {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            at: Arc::default(),
        }
    }

    fn now(&self) -> u64 {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap();
        now / 10 * 10
    }

    fn all(&self) -> Vec<u64> {
        self.at.lock().unwrap().clone()
    }

    /// Entries that were added since the last call.
    fn take(&self) -> Vec<u64> {
        std::mem::take(&mut self.at.lock().unwrap())
    }
}

#[derive(Debug)]
struct NoJitter;

impl Random for NoJitter {
    fn chance(&self) -> f64 {
        0.0
    }
}

/// Backoff 1 s, 2 s, 4 s, 8 s; broken at the fourth failure, then every 50 s; ready in 10 s;
/// leaves in 5 s; stable after 20 s.
fn tuning() -> Tuning {
    Tuning {
        backoff_initial: Duration::from_secs(1),
        backoff_factor: 2.0,
        backoff_max: Duration::from_secs(8),
        jitter: 0.5,
        max_restarts: 3,
        within: Duration::from_secs(100),
        reconnect_every: Duration::from_secs(50),
        stable_after: Duration::from_secs(20),
        connect_timeout: Duration::from_secs(10),
        shutdown_timeout: Duration::from_secs(5),
    }
}

fn start(
    births: &Births,
    birth: impl Fn(u64) -> Birth + Send + Sync + 'static,
) -> Start<Addr<Puppet>> {
    let births = births.clone();
    let census = Census::default();
    Start::new(move |_, link: SupervisorLink<Addr<Puppet>>| {
        births.at.lock().unwrap().push(births.now());
        let birth = birth(link.generation());
        Puppet::new(link, birth, &census)
    })
}

fn supervise(
    births: &Births,
    random: impl Random + 'static,
    birth: impl Fn(u64) -> Birth + Send + Sync + 'static,
) -> PuppetRef {
    let arbiters = Arbiters::current().unwrap();
    Supervisor::supervise(ChildSpec {
        settings: settings(tuning()),
        random: Arc::new(random),
        ..ChildSpec::new("puppet", &arbiters, start(births, birth))
    })
}

async fn until(births: &Births, second: u64) {
    sleep(Duration::from_secs(second).saturating_sub(births.start.elapsed())).await;
}

#[test]
fn attempts_back_off_and_a_broken_child_is_tried_periodically() {
    run_paused(async {
        let births = Births::new();
        let child = supervise(&births, NoJitter, |generation| match generation {
            1..=5 => Birth::FactoryPanics,
            _ => Birth::Healthy,
        });
        until(&births, 6).await;
        assert_eq!(child.current().unwrap_err().phase, ChildPhase::Backoff);
        until(&births, 56).await;
        assert_eq!(births.all(), [0, 1_000, 3_000, 7_000]);
        let away = child.current().unwrap_err();
        assert_eq!(away.phase, ChildPhase::Broken);
        let wait = away.retry_after.unwrap();
        assert!((990..=1_010).contains(&wait.as_millis()), "{wait:?}");
        let received = format!(
            "`puppet` is broken (last exit: its factory panicked: panic in factory); \
             next attempt in {} ms",
            wait.as_millis()
        );
        assert_eq!(away.to_string(), received);
        until(&births, 106).await;
        assert_eq!(births.all(), [0, 1_000, 3_000, 7_000, 57_000]);
        until(&births, 10_000).await;
        assert_eq!(births.all(), [0, 1_000, 3_000, 7_000, 57_000, 107_000]);
        assert_eq!(child.current().unwrap().generation, 6);
        let view = child.view();
        assert_eq!((view.restarts, view.escalations), (5, 1));
        assert_eq!(view.restart_reasons, [("factory_panicked", 5)].into());
    });
}

#[test]
fn jitter_shortens_waits_within_its_share() {
    run_paused(async {
        let births = Births::new();
        supervise(&births, SeededRandom::new(12), |_| Birth::StartedPanics);
        until(&births, 1_000).await;
        let births = births.all();
        let bounds = [(500, 1_000), (1_000, 2_000), (2_000, 4_000)];
        let waits: Vec<u64> = births.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(waits.len() > 20, "{waits:?}");
        for (index, wait) in waits.iter().enumerate() {
            let (least, most) = bounds.get(index).copied().unwrap_or((25_000, 50_000));
            assert!(
                (least - 10..=most + 10).contains(wait),
                "wait {index}: {waits:?}"
            );
        }
        let mut different = waits.clone();
        different.dedup();
        assert_eq!(different, waits, "chance repeats itself");
    });
}

#[test]
fn stable_uptime_forgets_failures() {
    run_paused(async {
        let births = Births::new();
        let child = supervise(&births, NoJitter, |generation| match generation {
            1..=4 => Birth::FactoryPanics,
            _ => Birth::Healthy,
        });
        // Up since 57, after four failures.
        until(&births, 70).await;
        let address = child.current().unwrap().value;
        order(&address, |answer| Order::Break(Fault::Fail, answer)).await;
        until(&births, 71).await;
        assert_eq!(
            child.current().unwrap_err().phase,
            ChildPhase::Broken,
            "13 s is not stable"
        );
        until(&births, 150).await;
        births.take();
        let address = child.current().unwrap().value;
        order(&address, |answer| Order::Break(Fault::Fail, answer)).await;
        until(&births, 152).await;
        assert_eq!(births.all(), [151_000], "stable since 120");
    });
}

#[test]
fn somebody_can_skip_the_wait() {
    type Skip = fn(&PuppetRef, &Births);
    let skips: [Skip; 3] = [
        |child, _| child.wake(),
        |child, _| child.reconnect_now("operator"),
        |child, births| {
            child.configure(settings(tuning()), Some(start(births, |_| Birth::Healthy)));
        },
    ];
    for skip in skips {
        run_paused(async {
            let births = Births::new();
            let child = supervise(&births, NoJitter, |generation| match generation {
                1..=4 => Birth::FactoryPanics,
                _ => Birth::Healthy,
            });
            until(&births, 20).await;
            births.take();
            skip(&child, &births);
            let up = child
                .wait_up(births.start + Duration::from_secs(21))
                .await
                .unwrap();
            assert_eq!((births.all(), up.generation), (vec![20_000], 5));
        });
    }
}

#[test]
fn a_healthy_child_is_renewed_when_asked_for_or_when_its_spec_changed() {
    run_paused(async {
        let births = Births::new();
        let child = supervise(&births, NoJitter, |_| Birth::Healthy);
        until(&births, 1).await;
        child.wake();
        child.configure(settings(tuning()), None);
        until(&births, 2).await;
        assert_eq!(child.current().unwrap().generation, 1);
        child.reconnect_now("operator");
        until(&births, 3).await;
        child.configure(settings(tuning()), Some(start(&births, |_| Birth::Healthy)));
        until(&births, 4).await;
        assert_eq!(births.all(), [0, 2_000, 3_000]);
        let view = child.view();
        assert_eq!(
            (view.restarts, view.last_exit_code.as_deref()),
            (2, Some("shutdown"))
        );
        let reasons = [("configuration", 1), ("operator", 1)];
        assert_eq!(
            (view.restart_reasons, view.escalations),
            (reasons.into(), 0)
        );
        assert_eq!(view.phase, ChildPhase::Up);
    });
}

#[test]
fn a_child_that_is_not_ready_in_time_is_killed_and_tried_again() {
    run_paused(async {
        let births = Births::new();
        let child = supervise(&births, NoJitter, |generation| match generation {
            1 => Birth::Silent,
            _ => Birth::Healthy,
        });
        until(&births, 9).await;
        assert_eq!(child.current().unwrap_err().phase, ChildPhase::Starting);
        until(&births, 12).await;
        assert_eq!(births.all(), [0, 11_000]);
        assert_eq!(
            child.view().last_exit_code.as_deref(),
            Some("start_timeout")
        );
    });
}

#[test]
fn a_child_that_says_how_long_its_start_takes_has_that_time() {
    run_paused(async {
        let births = Births::new();
        let child = supervise(&births, NoJitter, |generation| match generation {
            1 => Birth::StillStarting(Duration::from_secs(60)),
            _ => Birth::Healthy,
        });
        until(&births, 59).await;
        assert_eq!(child.current().unwrap_err().phase, ChildPhase::Starting);
        until(&births, 62).await;
        assert_eq!(births.all(), [0, 61_000]);
        assert_eq!(
            child.view().last_exit_code.as_deref(),
            Some("start_timeout")
        );
    });
}
