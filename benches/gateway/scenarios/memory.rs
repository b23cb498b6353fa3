//! Memory of an idle gateway, and its start time.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::Fallible;
use crate::bench::Bench;
use crate::client::{BenchClient, Ids, Work};
use crate::measure::median;
use crate::process::{cpu_us, rss};
use crate::report::{Bound, Goal};
use crate::targets::{self, Server, Target};

pub(crate) const NAMES: [&str; 2] = ["start", "memory"];

const SESSIONS: usize = 10_000;
const SESSIONS_SMOKE: usize = 1000;

/// Idle time over which CPU time is counted.
const IDLE: Duration = Duration::from_secs(5);
const IDLE_SMOKE: Duration = Duration::from_secs(1);

/// Number of starts for the median.
const STARTS: usize = 5;
const START_MAX: Duration = Duration::from_secs(20);

const KIB: f64 = 1024.0;

pub(crate) async fn run(bench: &mut Bench) -> Fallible<()> {
    let stub = targets::stub(4).await?;
    let servers = [Server::http("stub", &stub)];
    if bench.wants("start") {
        bench
            .report
            .title("start", "from the start of the process to the first answer");
        if let Err(error) = start(bench, &servers).await {
            bench.report.error(&error.to_string());
        }
    }
    if bench.wants("memory") {
        bench
            .report
            .title("memory", "memory and processor time of idle sessions");
        let Some(gateway) = super::start_gateway(bench, &servers, 4).await else {
            return Ok(());
        };
        let before = super::start_before(bench, &servers, 4).await;
        for gateway in before.iter().chain([&gateway]) {
            bench.report.line(gateway.name);
            if let Err(error) = memory(bench, gateway).await {
                bench.report.error(&error.to_string());
            }
        }
    }
    Ok(())
}

async fn start(bench: &mut Bench, servers: &[Server]) -> Fallible<()> {
    let mut took = Vec::new();
    for _ in 0..STARTS {
        let begun = Instant::now();
        let mut gateway = targets::launch(bench.dir.path(), servers)?;
        took.push(
            first_answer(&mut gateway, &bench.ids, begun)
                .await?
                .as_secs_f64()
                * 1000.0,
        );
    }
    let what = "first answer to `initialize`, ms".to_owned();
    bench.report.goal(Goal {
        what,
        value: Some(median(took)),
        bound: Bound::AtMost(50.0),
    });
    Ok(())
}

async fn first_answer(gateway: &mut Target, ids: &Ids, begun: Instant) -> Fallible<Duration> {
    loop {
        gateway.check()?;
        match BenchClient::open(&gateway.place, ids).await {
            Ok(_) => return Ok(begun.elapsed()),
            Err(error) if begun.elapsed() > START_MAX => return Err(error),
            Err(_) => sleep(Duration::from_millis(1)).await,
        }
    }
}

async fn memory(bench: &mut Bench, gateway: &Target) -> Fallible<()> {
    let count = if bench.smoke {
        SESSIONS_SMOKE
    } else {
        SESSIONS
    };
    let pid = gateway.pid();
    sleep(Duration::from_secs(1)).await;
    let idle = rss(pid);
    let quiet = idle_cpu(bench, pid).await;
    let what = "idle, MiB".to_owned();
    let value = Some(idle as f64 / KIB / KIB);
    bench.report.goal(Goal {
        what,
        value,
        bound: Bound::AtMost(20.0),
    });

    let mut client = BenchClient::open(&gateway.place, &bench.ids).await?;
    for _ in 0..200 {
        client.run(Work::Session(4)).await?;
    }
    let before = rss(pid);
    let mut sessions = fill(&mut client, count).await?;
    let full = rss(pid);
    let per_session = |bytes: u64| bytes.saturating_sub(before) as f64 / KIB / count as f64;
    let what = format!("memory per session at {count} sessions, KiB");
    let value = Some(per_session(full));
    bench.report.goal(Goal {
        what,
        value,
        bound: Bound::AtMost(4.0),
    });

    sleep(Duration::from_millis(500)).await;
    let busy = idle_cpu(bench, pid).await;
    let what = "processor time of idle sessions, ms per s".to_owned();
    // A clock tick is 10 ms, so less cannot be measured.
    let limit = 10.0 / idle_time(bench).as_secs_f64();
    bench.report.goal(Goal {
        what,
        value: Some(busy - quiet),
        bound: Bound::AtMost(limit),
    });

    empty(&mut client, &mut sessions).await?;
    // Memory is released once no more sessions end, which is checked every second.
    sleep(Duration::from_secs(3)).await;
    let after = rss(pid);
    let grown = full.saturating_sub(before).max(1) as f64;
    let what = "share of it still held after DELETE".to_owned();
    let value = Some(after.saturating_sub(before) as f64 / grown);
    bench.report.goal(Goal {
        what,
        value,
        bound: Bound::AtMost(0.25),
    });

    let mut sessions = fill(&mut client, count).await?;
    bench.report.line(&format!(
        "KiB per session, filled again after DELETE: {:.2}; MiB idle, full, after DELETE: \
        {:.1}, {:.1}, {:.1}",
        per_session(rss(pid)),
        idle as f64 / KIB / KIB,
        full as f64 / KIB / KIB,
        after as f64 / KIB / KIB,
    ));
    empty(&mut client, &mut sessions).await
}

/// Opens sessions over one connection and leaves them open.
async fn fill(client: &mut BenchClient, count: usize) -> Fallible<Vec<String>> {
    let mut sessions = Vec::with_capacity(count);
    for _ in 0..count {
        client.initialize().await?;
        sessions.push(client.take_session().ok_or("a session without id")?);
    }
    Ok(sessions)
}

async fn empty(client: &mut BenchClient, sessions: &mut Vec<String>) -> Fallible<()> {
    for session in sessions.drain(..) {
        client.set_session(Some(session));
        client.delete().await?;
    }
    Ok(())
}

fn idle_time(bench: &Bench) -> Duration {
    if bench.smoke { IDLE_SMOKE } else { IDLE }
}

/// CPU time of an idle gateway, in milliseconds per second.
async fn idle_cpu(bench: &Bench, pid: u32) -> f64 {
    let before = cpu_us(pid);
    let begun = Instant::now();
    sleep(idle_time(bench)).await;
    (cpu_us(pid) - before) as f64 / 1000.0 / begun.elapsed().as_secs_f64()
}
