//! Ten thousand failures of every kind under concurrent callers.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use mcpvisor::supervision::{ChildPhase, ChildSpec, SeededRandom, Supervisor};
use tokio::time::{Instant, timeout};

use crate::supervision::memory::bytes;
use crate::supervision::support::{
    Birth, Census, Fault, Order, PuppetRef, puppets, run_alone, threads,
};

const FAILURES: u64 = 10_000;
const CALLERS: usize = 64;
const CHILDREN: usize = 8;
/// Asked for by each call: to be up, and then to answer.
const DEADLINE: Duration = Duration::from_secs(20);

/// One seed, one order of faults (though not of threads).
const SEED: u64 = 0x0005_eed0_f5e7;

const FAULTS: [Fault; 10] = [
    Fault::Handler,
    Fault::SpawnedFuture,
    Fault::Stop,
    Fault::Terminate,
    Fault::Fail,
    Fault::Kill,
    Fault::Stopping,
    Fault::Stopped,
    Fault::Drop,
    Fault::Everywhere,
];

#[derive(Default)]
struct Tally {
    asked: AtomicU64,
    answered: AtomicU64,
    died: AtomicU64,
    away: AtomicU64,
    late: AtomicU64,
    wrong: AtomicU64,
    /// Least bytes and most children seen in the first and the last fifth of the run.
    early_bytes: AtomicI64,
    late_bytes: AtomicI64,
    most_alive: AtomicI64,
}

impl Tally {
    fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn count(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }

    fn sample(&self, failures: u64, census: &Census) {
        let window = match failures * 5 / FAILURES {
            0 => return,
            1 => &self.early_bytes,
            4.. => &self.late_bytes,
            _ => return,
        };
        window.fetch_min(bytes(), Ordering::Relaxed);
        self.most_alive.fetch_max(census.alive(), Ordering::Relaxed);
    }
}

fn failures(children: &[PuppetRef]) -> u64 {
    children.iter().map(|child| child.view().restarts).sum()
}

fn fault(random: &SeededRandom) -> Fault {
    let number = random.next();
    if number.is_multiple_of(300) {
        return Fault::Arbiter;
    }
    FAULTS[usize::try_from(number / 300 % 10).unwrap()]
}

async fn ask(child: &PuppetRef, random: &SeededRandom, tally: &Tally) {
    Tally::add(&tally.asked);
    let Ok(up) = child.wait_up(Instant::now() + DEADLINE).await else {
        return Tally::add(&tally.away);
    };
    let (answer, answered) = tokio::sync::oneshot::channel();
    up.value.do_send(match random.next() % 4 {
        0 => Order::Break(fault(random), answer),
        _ => Order::Answer(answer),
    });
    match timeout(DEADLINE, answered).await {
        Ok(Ok(generation)) if generation == up.generation => Tally::add(&tally.answered),
        Ok(Ok(_)) => Tally::add(&tally.wrong),
        Ok(Err(_)) => {
            Tally::add(&tally.died);
            // Nobody asks a dead child again before its supervisor had its turn.
            tokio::task::yield_now().await;
        }
        Err(_) => Tally::add(&tally.late),
    }
}

#[test]
fn ten_thousand_failures_cost_no_caller_its_answer() {
    let test = "supervision::storm::ten_thousand_failures_cost_no_caller_its_answer";
    run_alone(test, async {
        let arbiters = threads(2);
        let census = Census::default();
        let births = Arc::new(AtomicU64::new(0));
        let children: Arc<[PuppetRef]> = (0..CHILDREN)
            .map(|key| {
                let births = births.clone();
                let spec = puppets(&arbiters, &census, move |generation| {
                    Tally::add(&births);
                    match generation % 100 {
                        13 | 66 => Birth::FactoryPanics,
                        47 | 88 => Birth::StartedPanics,
                        _ => Birth::Healthy,
                    }
                });
                Supervisor::supervise(ChildSpec {
                    key: key as u64,
                    ..spec
                })
            })
            .collect();
        let tally = Arc::new(Tally {
            early_bytes: AtomicI64::new(i64::MAX),
            late_bytes: AtomicI64::new(i64::MAX),
            ..Tally::default()
        });
        let started = Instant::now();
        let callers = (0..CALLERS).map(|caller| {
            let random = SeededRandom::new(SEED + caller as u64);
            actix_rt::spawn(call(
                children.clone(),
                random,
                tally.clone(),
                census.clone(),
            ))
        });
        for caller in join_all(callers).await {
            caller.unwrap();
        }
        report(&tally, &children, started.elapsed(), arbiters.replaced());

        for child in &*children {
            let up = child
                .wait_up(Instant::now() + DEADLINE)
                .await
                .expect("not healed");
            assert_eq!(up.generation, child.view().generation, "seed {SEED}");
        }
        for child in &*children {
            child.stop();
        }
        for child in &*children {
            child.stopped().await;
            assert_eq!(child.view().phase, ChildPhase::Stopped);
        }
        let generations: u64 = children.iter().map(|child| child.view().generation).sum();
        // Only a dying thread takes a child before its factory ran.
        let unborn = generations.checked_sub(Tally::count(&births)).unwrap();
        assert!(
            unborn <= arbiters.replaced() * CHILDREN as u64,
            "{unborn}; seed {SEED}"
        );
        assert_eq!(census.alive(), 0, "seed {SEED}");
        arbiters.stop(Duration::from_secs(30)).await.unwrap();
    });
}

async fn call(children: Arc<[PuppetRef]>, random: SeededRandom, tally: Arc<Tally>, census: Census) {
    loop {
        let failures = failures(&children);
        if failures >= FAILURES {
            return;
        }
        tally.sample(failures, &census);
        let index = usize::try_from(random.next() % CHILDREN as u64).unwrap();
        ask(&children[index], &random, &tally).await;
    }
}

fn report(tally: &Tally, children: &[PuppetRef], took: Duration, replaced: u64) {
    let count = Tally::count;
    let (early, late) = (
        tally.early_bytes.load(Ordering::Relaxed),
        tally.late_bytes.load(Ordering::Relaxed),
    );
    let most_alive = tally.most_alive.load(Ordering::Relaxed);
    let panics: u64 = children.iter().map(|child| child.view().panics).sum();
    eprintln!(
        "{} failures ({panics} panics) in {took:?}, {replaced} dead threads; {} calls: {} answered, {} died, \
         {} away, {} late, {} wrong; bytes {early} early, {late} late; at most {most_alive} alive",
        failures(children),
        count(&tally.asked),
        count(&tally.answered),
        count(&tally.died),
        count(&tally.away),
        count(&tally.late),
        count(&tally.wrong),
    );
    assert_eq!(count(&tally.late) + count(&tally.wrong), 0, "seed {SEED}");
    assert_eq!(
        count(&tally.asked),
        count(&tally.answered) + count(&tally.died) + count(&tally.away),
        "seed {SEED}"
    );
    assert!(
        replaced > 0 && panics > FAILURES / 4,
        "the storm was mild; seed {SEED}"
    );
    assert!(
        most_alive <= CHILDREN as i64,
        "two incarnations at once; seed {SEED}"
    );
    assert!(
        late < early + early / 10 + 64 * 1024,
        "memory grew from {early} to {late} bytes"
    );
}
