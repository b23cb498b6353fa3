//! Measures targets next to each other: in each round, every target has a short slice in turn, so
//! that other load on the machine affects all of them.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, timeout, timeout_at};

use crate::client::{BenchClient, Ids, Place, Work};
use crate::process::cpu_us;

/// A target of the measurements: its process, its destination, and the server process behind it.
#[derive(Clone)]
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) place: Place,
    pub(crate) pid: u32,
    pub(crate) server: u32,
}

/// The work of one target in one slice.
#[derive(Default)]
struct Slice {
    calls: usize,
    seconds: f64,
    cpu_us: u64,
    server_us: u64,
    p50_us: f64,
    p99_us: f64,
}

/// Medians of one target over all rounds, and the individual rounds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Figure {
    pub(crate) target: &'static str,
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// CPU time of the target per call, over all rounds.
    pub(crate) cpu_us: f64,
    /// CPU time of the server behind the target per call.
    pub(crate) server_us: f64,
    pub(crate) calls: usize,
    pub(crate) errors: usize,
    pub(crate) first_error: Option<String>,
    pub(crate) rounds: Vec<Round>,
}

/// Figures that are compared between targets round by round, because slices of one round ran under
/// the same conditions.
#[derive(Debug, Clone)]
pub(crate) struct Round {
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) cpu_us: f64,
}

/// Duration of a slice, and number of rounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) rounds: usize,
    pub(crate) slice: Duration,
}

/// Maximum time that an answer can take after the end of a slice.
const HANG: Duration = Duration::from_secs(20);

struct Runner<'a> {
    target: &'a Subject,
    work: Work,
    ids: &'a Ids,
    connections: usize,
    clients: Vec<BenchClient>,
    slices: Vec<Slice>,
    figure: Figure,
}

/// Runs work on all targets.
pub(crate) async fn compare(
    plan: Plan,
    ids: &Ids,
    targets: &[(Subject, Work)],
    connections: usize,
) -> Vec<Figure> {
    let mut runners = Vec::new();
    for (target, work) in targets {
        let figure = Figure {
            target: target.name,
            ..Figure::default()
        };
        let (clients, slices) = (Vec::new(), Vec::new());
        let mut runner = Runner {
            target,
            work: *work,
            ids,
            connections,
            clients,
            slices,
            figure,
        };
        // The first answers warm up and are not counted.
        runner.slice(plan.slice / 4).await;
        runners.push(runner);
    }
    for round in 0..plan.rounds {
        let count = runners.len();
        for turn in 0..count {
            if let Some(runner) = runners.get_mut((round + turn) % count) {
                let slice = runner.slice(plan.slice).await;
                runner.slices.push(slice);
            }
        }
    }
    runners.into_iter().map(Runner::figure).collect()
}

impl Runner<'_> {
    /// Opens the missing clients: all of them at first, later the ones that had an error.
    async fn open(&mut self) {
        while self.clients.len() < self.connections {
            let place = &self.target.place;
            let opened = match self.work {
                Work::Session(_) => timeout(HANG, BenchClient::connect(place, self.ids)).await,
                _ => timeout(HANG, BenchClient::open(place, self.ids)).await,
            };
            match opened {
                Ok(Ok(client)) => self.clients.push(client),
                Ok(Err(error)) => return self.figure.wrong(&error.to_string()),
                Err(_) => return self.figure.wrong(&format!("no session within {HANG:?}")),
            }
        }
    }

    async fn slice(&mut self, length: Duration) -> Slice {
        self.open().await;
        let (pid, server) = (self.target.pid, self.target.server);
        let before = (cpu_us(pid), cpu_us(server));
        let begun = Instant::now();
        let end = begun + length;
        let work = self.work;
        let clients = std::mem::take(&mut self.clients);
        let clients = clients.into_iter().map(|client| drive(client, end, work));
        let driven = join_all(clients).await;
        let seconds = begun.elapsed().as_secs_f64();
        let mut took = Vec::new();
        for (times, client) in driven {
            took.extend(times);
            match client {
                Ok(client) => self.clients.push(client),
                Err(error) => self.figure.wrong(&error),
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
        let rounds = slices.iter().map(|slice| Round {
            per_second: slice.calls as f64 / slice.seconds,
            p50_us: slice.p50_us,
            cpu_us: slice.cpu_us as f64 / slice.calls.max(1) as f64,
        });
        self.figure.rounds = rounds.collect();
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

/// Repeats the work until the end, and returns each duration in nanoseconds. Drops the client after
/// an error, because the state of its connection is unknown.
async fn drive(
    mut client: BenchClient,
    end: Instant,
    work: Work,
) -> (Vec<u64>, Result<BenchClient, String>) {
    let mut times = Vec::new();
    let working = async {
        loop {
            let begun = Instant::now();
            if begun >= end {
                return Ok(());
            }
            client.run(work).await.map_err(|error| error.to_string())?;
            times.push(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
    };
    let done = timeout_at(end + HANG, working).await;
    let done = done.unwrap_or_else(|_| Err(format!("no answer within {HANG:?}")));
    (times, done.map(|()| client))
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
