//! How soon a gateway with many servers answers after its start, with stored lists.

use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::Fallible;
use crate::bench::Bench;
use crate::client::{BenchClient, Ids, Work};
use crate::measure::median;
use crate::report::{Bound, Goal};
use crate::targets::{Home, Server, Target};

pub(crate) const NAMES: [&str; 1] = ["fleet"];

const SERVERS: usize = 50;
const TOOLS_OF_EACH: usize = 4;
const TOOLS: usize = SERVERS * TOOLS_OF_EACH;

/// Maximum wait until all servers are up.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The first start must not return an incomplete list.
const SETTINGS: &str = "first_list_wait = \"1m\"\n";

pub(crate) async fn run(bench: &mut Bench) -> Fallible<()> {
    bench.report.title(
        "fleet",
        "start with 50 stdio servers, lists known from before",
    );
    let server = |number| Server::Stdio {
        name: format!("s{number}"),
        tools: TOOLS_OF_EACH,
    };
    let servers: Vec<Server> = (0..SERVERS).map(server).collect();
    let home = Home::new(bench.dir.path(), &servers, SETTINGS)?;
    let (cold_list, cold_up, gateway) = started(&home, &bench.ids).await?;
    drop(gateway);
    let rounds = if bench.smoke { 2 } else { 10 };
    let (mut lists, mut ups) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (list, up, gateway) = started(&home, &bench.ids).await?;
        drop(gateway);
        lists.push(list);
        ups.push(up);
    }
    bench.report.line(&format!(
        "ms: nothing known, list {cold_list:.0}, all up {cold_up:.0}; known, all up {:.0}",
        median(ups)
    ));
    bench.report.goal(Goal {
        what: "start to the first whole list, ms".to_owned(),
        value: Some(median(lists)),
        bound: Bound::AtMost(150.0),
    });
    Ok(())
}

/// Milliseconds from the start of the process to the first answer to `tools/list`, which must be
/// complete, and until every server is up.
async fn started(home: &Home, ids: &Ids) -> Fallible<(f64, f64, Target)> {
    let begun = Instant::now();
    let ms = || begun.elapsed().as_secs_f64() * 1000.0;
    let mut gateway = home.start()?;
    let mut client = loop {
        match BenchClient::connect(&gateway.place, ids).await {
            Ok(client) => break client,
            Err(error) => gateway
                .check()
                .and_then(|()| in_time(begun, &error.to_string()))?,
        }
        sleep(Duration::from_millis(1)).await;
    };
    client.initialize().await?;
    client.run(Work::List(TOOLS)).await?;
    let list = ms();
    while !all_up(&home.data_dir()).await {
        in_time(begun, "not every server is up")?;
        sleep(Duration::from_millis(5)).await;
    }
    Ok((list, ms(), gateway))
}

fn in_time(begun: Instant, what: &str) -> Fallible<()> {
    if begun.elapsed() > WAIT_MAX {
        return Err(format!("after {WAIT_MAX:?}: {what}").into());
    }
    Ok(())
}

async fn all_up(data_dir: &Path) -> bool {
    // The control socket opens a moment after the port.
    let Ok(status) = mcpvisor::admin::ask_status(data_dir).await else {
        return false;
    };
    let servers = status.servers;
    servers.len() == SERVERS && servers.iter().all(|server| server.state == "up")
}
