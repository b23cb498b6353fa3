//! The scenarios, with the goals that the gateway must meet.

pub(crate) mod auth;
pub(crate) mod eras;
pub(crate) mod failures;
pub(crate) mod fleet;
pub(crate) mod forward;
pub(crate) mod lists;
pub(crate) mod memory;
pub(crate) mod recovery;
pub(crate) mod stdio;

use crate::Fallible;
use crate::bench::Bench;
use crate::client::Work;
use crate::measure::{Figure, Plan, compare};
use crate::report::{CPU, PER_SECOND, ratio};
use crate::targets::{self, BEFORE, Server, Target};

/// Names of all scenarios, in order of execution.
pub(crate) fn names() -> Vec<&'static str> {
    let groups: [&[&str]; 9] = [
        &forward::NAMES,
        &auth::NAMES,
        &eras::NAMES,
        &lists::NAMES,
        &stdio::NAMES,
        &memory::NAMES,
        &failures::NAMES,
        &recovery::NAMES,
        &fleet::NAMES,
    ];
    groups.concat()
}

/// The targets of one comparison, which end on drop.
pub(crate) struct Rig {
    pub(crate) direct: Target,
    pub(crate) others: Vec<Target>,
}

impl Rig {
    /// Starts the stub with this many tools, and the pass-through and nginx in front of it.
    pub(crate) async fn new(bench: &Bench, tools: usize) -> Fallible<Self> {
        let direct = targets::stub(tools).await?;
        let mut others = vec![targets::passthrough(direct.place.port).await?];
        if let Some(nginx) = &bench.nginx {
            others.push(targets::nginx(nginx, bench.dir.path(), direct.place.port).await?);
        }
        Ok(Self { direct, others })
    }

    /// Adds the gateway in front of servers with this many tools in total.
    pub(crate) async fn add_gateway(
        &mut self,
        bench: &mut Bench,
        servers: &[Server],
        tools: usize,
    ) {
        self.others
            .extend(start_gateway(bench, servers, tools).await);
        self.others
            .extend(start_before(bench, servers, tools).await);
    }

    pub(crate) fn targets(&self) -> Vec<&Target> {
        std::iter::once(&self.direct).chain(&self.others).collect()
    }

    /// Measures the same work on all targets and prints the table.
    pub(crate) async fn measure(
        &self,
        bench: &mut Bench,
        connections: usize,
        work: Work,
    ) -> Vec<Figure> {
        let plan: Plan = bench.plan;
        let server = self.direct.pid();
        let targets: Vec<_> = self
            .targets()
            .into_iter()
            .map(|target| (target.subject(server), work))
            .collect();
        let figures = compare(plan, &bench.ids, &targets, connections).await;
        bench.report.table(&figures);
        beside_before(bench, &figures);
        figures
    }
}

/// Starts the gateway and waits until it is ready. If that fails, an error is recorded and the
/// other targets are measured without it.
pub(crate) async fn start_gateway(
    bench: &mut Bench,
    servers: &[Server],
    tools: usize,
) -> Option<Target> {
    let launched = targets::launch(bench.dir.path(), servers);
    ready(bench, launched, tools).await
}

/// Starts the other build, if one was given.
pub(crate) async fn start_before(
    bench: &mut Bench,
    servers: &[Server],
    tools: usize,
) -> Option<Target> {
    let program = bench.before.as_ref()?;
    let launched = targets::launch_before(bench.dir.path(), servers, program);
    ready(bench, launched, tools).await
}

/// Compares the costs of this build and the other one for the same work in the same rounds.
pub(crate) fn beside_before(bench: &Bench, figures: &[Figure]) {
    for (what, reading) in [("CPU", CPU), ("throughput", PER_SECOND)] {
        if let Some(value) = ratio(figures, "gateway", BEFORE, reading) {
            (bench.report).line(&format!("{what} beside the build before: {value:.3}"));
        }
    }
}

async fn ready(bench: &mut Bench, launched: Fallible<Target>, tools: usize) -> Option<Target> {
    let started = match launched {
        Ok(gateway) => gateway.ready(&bench.ids, tools).await,
        Err(error) => Err(error),
    };
    match started {
        Ok(gateway) => Some(gateway),
        Err(error) => {
            bench.report.error(&error.to_string());
            None
        }
    }
}
