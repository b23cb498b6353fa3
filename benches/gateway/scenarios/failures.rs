//! The effect of a failing server on its callers and on other servers.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use crate::Fallible;
use crate::bench::Bench;
use crate::client::{BenchClient, Work};
use crate::measure::{Figure, compare, median};
use crate::report::{Bound, Goal, Report};
use crate::scan;
use crate::targets::{self, Server, Target};

pub(crate) const NAMES: [&str; 2] = ["crash", "never"];

const CRASHES: usize = 3;

/// Delay of the crash, after which the other call is in flight.
const CRASH_AFTER_MS: f64 = 100.0;

/// Maximum wait for an error or for a server to restart.
const WAIT_MAX: Duration = Duration::from_secs(40);

/// Tools of the example server.
pub(crate) const EXAMPLE_TOOLS: usize = 11;

/// Number of concurrent calls that are never answered.
const NEVER: usize = 32;

/// Number of tools of the stub with `never`.
const HANGING_TOOLS: usize = 104;

pub(crate) async fn run(bench: &mut Bench) -> Fallible<()> {
    if bench.wants("crash") {
        bench
            .report
            .title("crash", "a stdio server crashes in a call");
        let servers = [Server::Example {
            name: "example".to_owned(),
        }];
        let gateway = super::start_gateway(bench, &servers, EXAMPLE_TOOLS).await;
        if let Some(gateway) = gateway
            && let Err(error) = crash(bench, &gateway).await
        {
            bench.report.error(&error.to_string());
        }
    }
    if bench.wants("never") {
        bench.report.title(
            "never",
            "calls and lists beside a server that never answers",
        );
        never(bench).await?;
    }
    Ok(())
}

/// Triggers the crash while another call is in flight: both must fail at once.
async fn crash(bench: &mut Bench, gateway: &Target) -> Fallible<()> {
    let mut caller = BenchClient::open(&gateway.place, &bench.ids).await?;
    let mut waiter = BenchClient::open(&gateway.place, &bench.ids).await?;
    let (mut noticed, mut back) = (Vec::new(), Vec::new());
    let after = format!(r#"{{"delay_ms":{CRASH_AFTER_MS}}}"#);
    for _ in 0..CRASHES {
        echo(&mut caller).await?;
        let begun = Instant::now();
        let both = async {
            tokio::join!(
                waiter.call_tool("example__slow", r#"{"steps":1,"delay_ms":60000}"#),
                caller.call_tool("example__crash", &after),
            )
        };
        let (slow, crash) = timeout(WAIT_MAX, both).await?;
        let took = begun.elapsed().as_secs_f64() * 1000.0 - CRASH_AFTER_MS;
        if took < 0.0 {
            return Err("the errors came before the crash".into());
        }
        noticed.push(took);
        for answer in [slow?, crash?] {
            failed(&answer)?;
        }
        let begun = Instant::now();
        while echo(&mut caller).await.is_err() {
            if begun.elapsed() > WAIT_MAX {
                return Err("the server did not come back".into());
            }
            sleep(Duration::from_millis(10)).await;
        }
        back.push(begun.elapsed().as_secs_f64() * 1000.0);
    }
    let what = "time from the crash to the errors, ms".to_owned();
    bench.report.goal(Goal {
        what,
        value: Some(median(noticed)),
        bound: Bound::AtMost(50.0),
    });
    bench
        .report
        .line(&format!("it answers again after, ms: {back:.0?}"));
    Ok(())
}

fn failed(answer: &[u8]) -> Fallible<()> {
    let error =
        scan::contains(answer, b"\"isError\":true") || scan::contains(answer, b"\"error\":");
    if error {
        return Ok(());
    }
    Err(format!("no error but: {}", String::from_utf8_lossy(answer)).into())
}

/// Makes a call to the example server that must be answered.
pub(crate) async fn echo(client: &mut BenchClient) -> Fallible<()> {
    let answer = client
        .call_tool("example__echo", r#"{"message":"still here"}"#)
        .await?;
    let good = scan::contains(&answer, b"still here") && failed(&answer).is_err();
    if good { Ok(()) } else { Err("no echo".into()) }
}

/// One server answers nothing, and another one leaves calls unanswered; the third must not be
/// affected.
async fn never(bench: &mut Bench) -> Fallible<()> {
    let stub = targets::stub(4).await?;
    let hanging = targets::stub(HANGING_TOOLS).await?;
    let mute = targets::mute().await?;
    let servers = [
        Server::http("stub", &stub),
        Server::http("hanging", &hanging),
        Server::http("mute", &mute),
    ];
    let tools = 4 + HANGING_TOOLS;
    let Some(gateway) = super::start_gateway(bench, &servers, tools).await else {
        return Ok(());
    };
    let mut stuck = Vec::new();
    for _ in 0..NEVER {
        stuck.push(BenchClient::open(&gateway.place, &bench.ids).await?);
    }
    let calm = both(bench, &gateway, stub.pid(), tools).await;
    let calls = stuck
        .iter_mut()
        .map(|client| client.call_tool("hanging__never", "{}"));
    let beside = tokio::select! {
        _ = join_all(calls) => Err("a call that is never answered was answered".into()),
        figures = both(bench, &gateway, stub.pid(), tools) => Ok::<_, crate::Failure>(figures),
    }?;
    for ((calm, beside), what) in calm.iter().zip(&beside).zip(["call", "list"]) {
        goals(&mut bench.report, what, calm, beside);
    }
    Ok(())
}

/// Measures calls and lists in turn, with one connection each.
async fn both(bench: &Bench, gateway: &Target, server: u32, tools: usize) -> Vec<Figure> {
    let mut figures = Vec::new();
    for work in [Work::Echo, Work::List(tools)] {
        figures.extend(
            compare(
                bench.plan,
                &bench.ids,
                &[(gateway.subject(server), work)],
                1,
            )
            .await,
        );
    }
    figures
}

fn goals(report: &mut Report, what: &str, calm: &Figure, beside: &Figure) {
    report.table(std::slice::from_ref(beside));
    let what = format!("median latency of a {what} beside before");
    let value = (calm.p50_us > 0.0 && beside.p50_us > 0.0).then(|| beside.p50_us / calm.p50_us);
    report.goal(Goal {
        what,
        value,
        bound: Bound::AtMost(1.5),
    });
}
