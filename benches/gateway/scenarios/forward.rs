//! Calls, sessions, streams and large results through one server over HTTP.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, timeout};

use super::Rig;
use crate::Fallible;
use crate::bench::Bench;
use crate::client::{BenchClient, Ids, Work};
use crate::measure::Figure;
use crate::process::rss;
use crate::report::{Bound, CPU, Goal, P50, PER_SECOND, ratio};
use crate::targets::{BEFORE, Server, Target};

pub(crate) const NAMES: [&str; 8] = [
    "calls-1",
    "calls-64",
    "sessions",
    "list-4",
    "progress",
    "progress-100",
    "big",
    "wait",
];

/// Number of concurrent calls.
const WAITING: usize = 256;

/// Duration of each call at the server, in milliseconds.
const WAIT_MS: usize = 500;

/// Maximum duration of the calls; longer counts as failed.
const WAIT_MAX: Duration = Duration::from_secs(30);

pub(crate) async fn run(bench: &mut Bench) -> Fallible<()> {
    let mut rig = Rig::new(bench, 4).await?;
    let servers = [Server::http("stub", &rig.direct)];
    rig.add_gateway(bench, &servers, 4).await;
    calls(bench, &rig).await;
    let scenarios = [
        (
            "sessions",
            "whole sessions, 16 connections",
            16,
            Work::Session(4),
            1.0,
        ),
        (
            "list-4",
            "a list of 4 tools, 64 connections",
            64,
            Work::List(4),
            1.2,
        ),
        (
            "progress",
            "10 progress events and the result, 16 connections",
            16,
            Work::Progress(10),
            0.7,
        ),
        (
            "progress-100",
            "100 progress events and the result, 16 connections",
            16,
            Work::Progress(100),
            0.7,
        ),
        (
            "big",
            "results of 1 MiB, 8 connections",
            8,
            Work::Big(1024 * 1024),
            0.5,
        ),
    ];
    for (name, text, connections, work, least) in scenarios {
        if bench.wants(name) {
            bench.report.title(name, text);
            let figures = rig.measure(bench, connections, work).await;
            bench.chart.add(name, &figures);
            at_least(bench, &figures, "nginx", least);
            if matches!(work, Work::Progress(_)) {
                held(bench, &rig);
            }
        }
    }
    if bench.wants("wait") {
        bench
            .report
            .title("wait", "256 concurrent calls of 500 ms each");
        for target in rig.targets() {
            wait(bench, target).await;
        }
    }
    Ok(())
}

async fn calls(bench: &mut Bench, rig: &Rig) {
    if bench.wants("calls-1") {
        bench.report.title("calls-1", "calls, 1 connection");
        let figures = rig.measure(bench, 1, Work::Echo).await;
        bench.chart.add("calls-1", &figures);
        let value = ratio(&figures, "gateway", "nginx", P50);
        let what = "median latency beside nginx".to_owned();
        bench.report.goal(Goal {
            what,
            value,
            bound: Bound::AtMost(1.5),
        });
    }
    if bench.wants("calls-64") {
        bench.report.title("calls-64", "calls, 64 connections");
        let figures = rig.measure(bench, 64, Work::Echo).await;
        bench.chart.add("calls-64", &figures);
        at_least(bench, &figures, "nginx", 0.5);
        for (other, most) in [("pass-through", 1.35), ("nginx", 2.4)] {
            let value = ratio(&figures, "gateway", other, CPU);
            let what = format!("CPU per call beside {other}");
            bench.report.goal(Goal {
                what,
                value,
                bound: Bound::AtMost(most),
            });
        }
        let value = figures.first().map(|direct| direct.cpu_us);
        let what = "CPU per call of the stub alone, us".to_owned();
        bench.report.goal(Goal {
            what,
            value,
            bound: Bound::AtMost(10.0),
        });
    }
}

pub(crate) fn at_least(bench: &mut Bench, figures: &[Figure], beside: &str, least: f64) {
    let value = ratio(figures, "gateway", beside, PER_SECOND);
    let what = format!("throughput beside {beside}");
    bench.report.goal(Goal {
        what,
        value,
        bound: Bound::AtLeast(least),
    });
}

/// Memory of the gateway right after the streams.
pub(crate) fn held(bench: &mut Bench, rig: &Rig) {
    let mib = |target: &Target| rss(target.pid()) as f64 / 1024.0 / 1024.0;
    for target in &rig.others {
        if target.name == "gateway" {
            bench.report.goal(Goal {
                what: "memory after these streams, MiB".to_owned(),
                value: Some(mib(target)),
                bound: Bound::AtMost(30.0),
            });
        } else if target.name == BEFORE {
            let held = mib(target);
            (bench.report).line(&format!("the build before holds {held:.1} MiB"));
        }
    }
}

/// Starts all calls together; the last answer must arrive within a second.
pub(crate) async fn wait(bench: &mut Bench, target: &Target) {
    let name = target.name;
    match timeout(WAIT_MAX, wait_for_all(target, &bench.ids)).await {
        Err(_) => bench
            .report
            .error(&format!("{name}: not all back after {WAIT_MAX:?}")),
        Ok(Err(error)) => bench.report.error(&format!("{name}: {error}")),
        Ok(Ok(last)) if name == "gateway" => {
            let what = "the last is back after, s".to_owned();
            let value = Some(last.as_secs_f64());
            bench.report.goal(Goal {
                what,
                value,
                bound: Bound::AtMost(1.0),
            });
        }
        Ok(Ok(last)) => {
            let last = last.as_secs_f64();
            bench
                .report
                .line(&format!("{name}: the last is back after {last:.2} s"));
        }
    }
}

async fn wait_for_all(target: &Target, ids: &Ids) -> Fallible<Duration> {
    let mut clients = Vec::new();
    for _ in 0..WAITING {
        clients.push(BenchClient::open(&target.place, ids).await?);
    }
    let begun = Instant::now();
    let calls = clients
        .iter_mut()
        .map(|client| client.run(Work::Sleep(WAIT_MS)));
    join_all(calls)
        .await
        .into_iter()
        .collect::<Fallible<Vec<()>>>()?;
    Ok(begun.elapsed())
}
