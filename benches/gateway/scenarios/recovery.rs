//! How long a killed server is unavailable, compared with its bare start time.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

use super::failures::{EXAMPLE_TOOLS, echo};
use crate::Fallible;
use crate::bench::Bench;
use crate::client::BenchClient;
use crate::measure::median;
use crate::process::children;
use crate::report::{Bound, Goal};
use crate::targets::{Home, Server, Target};

pub(crate) const NAMES: [&str; 1] = ["recovery"];

/// Maximum wait for a server to restart.
const WAIT_MAX: Duration = Duration::from_secs(40);

/// Removes all delays between attempts and the limit on them, so that only the gateway's own work
/// remains.
const AT_ONCE: &str = "[supervision]
backoff_initial = \"1ms\"
backoff_max = \"1ms\"
jitter = 0.0
max_restarts = 1000
";

/// A handshake and one call, as a client writes them.
const FIRST_CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"message":"still here"}}}
"#;

pub(crate) async fn run(bench: &mut Bench) -> Fallible<()> {
    bench.report.title(
        "recovery",
        "from the kill of a stdio server to its first answer",
    );
    let rounds = if bench.smoke { 3 } else { 20 };
    let mut bare = Vec::new();
    for _ in 0..rounds {
        bare.push(timeout(WAIT_MAX, started_bare()).await??);
    }
    let bare = median(bare);
    let at_once = median(recoveries(bench, AT_ONCE, rounds).await?);
    // Only one kill, because repeated kills back off longer, as they should.
    let by_default = median(recoveries(bench, "", 1).await?);
    bench.report.line(&format!(
        "ms: started by hand {bare:.1}, in the gateway without backoff {at_once:.1}, \
         with the default backoff {by_default:.0}"
    ));
    bench.report.goal(Goal {
        what: "ms beyond the bare start, without backoff".to_owned(),
        value: Some(at_once - bare),
        bound: Bound::AtMost(50.0),
    });
    Ok(())
}

/// Milliseconds from the start of the server to its answer to the first call.
async fn started_bare() -> Fallible<f64> {
    let begun = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_mcpvisor"))
        .arg("example-server")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("the server has no pipes".into());
    };
    stdin.write_all(FIRST_CALL.as_bytes()).await?;
    let mut lines = BufReader::new(stdout).lines();
    loop {
        let line = lines.next_line().await?.ok_or("the server ended")?;
        if line.contains("still here") {
            break;
        }
    }
    let took = begun.elapsed().as_secs_f64() * 1000.0;
    child.kill().await?;
    Ok(took)
}

/// Milliseconds from each kill to the next correct answer.
async fn recoveries(bench: &Bench, settings: &str, kills: usize) -> Fallible<Vec<f64>> {
    let servers = [Server::Example {
        name: "example".to_owned(),
    }];
    let home = Home::new(bench.dir.path(), &servers, settings)?;
    let gateway = home.start()?.ready(&bench.ids, EXAMPLE_TOOLS).await?;
    let mut caller = BenchClient::open(&gateway.place, &bench.ids).await?;
    echo(&mut caller).await?;
    let mut took = Vec::new();
    for _ in 0..kills {
        took.push(timeout(WAIT_MAX, recovery(&gateway, &mut caller)).await??);
    }
    Ok(took)
}

async fn recovery(gateway: &Target, caller: &mut BenchClient) -> Fallible<f64> {
    let server = children(gateway.pid());
    let [server] = server.as_slice() else {
        return Err(format!("one server is expected, not {}", server.len()).into());
    };
    let begun = Instant::now();
    let pid = Pid::from_raw(i32::try_from(*server)?).ok_or("the server has no process")?;
    kill_process(pid, Signal::KILL)?;
    while echo(caller).await.is_err() {
        sleep(Duration::from_millis(1)).await;
    }
    // The answer can be from before the gateway noticed the kill.
    if children(gateway.pid()).contains(server) {
        return Err("the killed server answered".into());
    }
    Ok(begun.elapsed().as_secs_f64() * 1000.0)
}
