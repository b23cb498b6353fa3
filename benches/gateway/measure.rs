//! Measuring targets beside each other: in each round every target has a short slice in turn,
//! so that whatever else the machine does falls on all of them.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use crate::Fallible;
use crate::lane::{Ids, Lane, Work};
use crate::process::cpu_us;
use crate::targets::Target;

/// What one target did in one slice.
#[derive(Default)]
struct Slice {
    calls: usize,
    seconds: f64,
    cpu_us: u64,
    server_us: u64,
    p50_us: f64,
    p99_us: f64,
}

/// The medians over the rounds of one target.
#[derive(Debug, Clone, Default)]
pub(crate) struct Figure {
    pub(crate) target: &'static str,
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// Processor time of the target for one call, over all rounds.
    pub(crate) cpu_us: f64,
    /// The same of the server behind it.
    pub(crate) server_us: f64,
    pub(crate) calls: usize,
    pub(crate) errors: usize,
    pub(crate) first_error: Option<String>,
}

/// How long and how often.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) rounds: usize,
    pub(crate) slice: Duration,
}

struct Runner<'a> {
    target: &'a Target,
    work: Work,
    lanes: Vec<Lane>,
    slices: Vec<Slice>,
    figure: Figure,
}

/// Runs work on all targets. `server` is the process behind them.
pub(crate) async fn compare(
    plan: Plan,
    ids: &Ids,
    targets: &[(&Target, Work)],
    server: u32,
    connections: usize,
) -> Vec<Figure> {
    let mut runners = Vec::new();
    for &(target, work) in targets {
        let figure = Figure {
            target: target.name,
            ..Figure::default()
        };
        let mut runner = Runner {
            target,
            work,
            lanes: Vec::new(),
            slices: Vec::new(),
            figure,
        };
        for _ in 0..connections {
            match lane(target, ids, work).await {
                Ok(lane) => runner.lanes.push(lane),
                Err(error) => runner.figure.wrong(&error.to_string()),
            }
        }
        // The first answers warm everything up and are not counted.
        runner.slice(plan.slice / 4, server).await;
        runners.push(runner);
    }
    for round in 0..plan.rounds {
        let count = runners.len();
        for turn in 0..count {
            if let Some(runner) = runners.get_mut((round + turn) % count) {
                let slice = runner.slice(plan.slice, server).await;
                runner.slices.push(slice);
            }
        }
    }
    runners.into_iter().map(Runner::figure).collect()
}

async fn lane(target: &Target, ids: &Ids, work: Work) -> Fallible<Lane> {
    match work {
        Work::Session(_) => Lane::connect(&target.place, ids).await,
        _ => Lane::open(&target.place, ids).await,
    }
}

impl Runner<'_> {
    async fn slice(&mut self, length: Duration, server: u32) -> Slice {
        let pid = self.target.pid();
        let before = (cpu_us(pid), cpu_us(server));
        let begun = Instant::now();
        let end = begun + length;
        let lanes = self
            .lanes
            .iter_mut()
            .map(|lane| drive(lane, end, self.work));
        let driven = join_all(lanes).await;
        let seconds = begun.elapsed().as_secs_f64();
        let mut took = Vec::new();
        for (times, error) in driven {
            took.extend(times);
            if let Some(error) = error {
                self.figure.wrong(&error);
            }
        }
        took.sort_unstable();
        let at = |share: f64| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "an index"
            )]
            let index = (took.len() as f64 * share) as usize;
            took.get(index)
                .map_or(0.0, |nanoseconds| *nanoseconds as f64 / 1000.0)
        };
        Slice {
            calls: took.len(),
            seconds,
            cpu_us: cpu_us(pid) - before.0,
            server_us: cpu_us(server) - before.1,
            p50_us: at(0.5),
            p99_us: at(0.99),
        }
    }

    fn figure(mut self) -> Figure {
        let slices = &self.slices;
        let middle = |value: fn(&Slice) -> f64| median(slices.iter().map(value).collect());
        self.figure.per_second = middle(|slice| slice.calls as f64 / slice.seconds);
        self.figure.p50_us = middle(|slice| slice.p50_us);
        self.figure.p99_us = middle(|slice| slice.p99_us);
        self.figure.calls = slices.iter().map(|slice| slice.calls).sum();
        let calls = self.figure.calls.max(1) as f64;
        self.figure.cpu_us = slices.iter().map(|slice| slice.cpu_us).sum::<u64>() as f64 / calls;
        self.figure.server_us =
            slices.iter().map(|slice| slice.server_us).sum::<u64>() as f64 / calls;
        self.figure
    }
}

impl Figure {
    fn wrong(&mut self, error: &str) {
        self.errors += 1;
        self.first_error.get_or_insert_with(|| error.to_owned());
    }
}

/// Works until the end; stops at the first error, since the connection is in doubt then.
async fn drive(lane: &mut Lane, end: Instant, work: Work) -> (Vec<u64>, Option<String>) {
    let mut times = Vec::new();
    loop {
        let begun = Instant::now();
        if begun >= end {
            return (times, None);
        }
        if let Err(error) = lane.run(work).await {
            return (times, Some(error.to_string()));
        }
        times.push(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
