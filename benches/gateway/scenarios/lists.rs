//! Lists that the gateway merges from several servers.

use super::Rig;
use super::forward::at_least;
use crate::Fallible;
use crate::bench::Bench;
use crate::client::Work;
use crate::measure::{Figure, compare};
use crate::targets::{self, Server, Target};

pub(crate) const NAMES: [&str; 2] = ["list-312", "list-1000"];

const CONNECTIONS: usize = 64;

pub(crate) async fn run(bench: &mut Bench) -> Fallible<()> {
    if bench.wants("list-312") {
        bench
            .report
            .title("list-312", "312 tools of 3 servers beside one list of 104");
        let figures = merged(bench, 104, (3, 104)).await?;
        at_least(bench, &figures, "direct", 0.25);
    }
    if bench.wants("list-1000") {
        bench.report.title(
            "list-1000",
            "1000 tools of 10 servers beside one list of 1000",
        );
        merged(bench, 1000, (10, 100)).await?;
    }
    Ok(())
}

/// Compares a list of `direct` tools at the stub with the merged list of `count` servers.
async fn merged(
    bench: &mut Bench,
    direct: usize,
    (count, each): (usize, usize),
) -> Fallible<Vec<Figure>> {
    let rig = Rig::new(bench, direct).await?;
    let mut stubs: Vec<Target> = Vec::new();
    let mut servers = Vec::new();
    for number in 0..count {
        let stub = targets::stub(each).await?;
        servers.push(Server::http(&format!("stub{number}"), &stub));
        stubs.push(stub);
    }
    let gateway = super::start_gateway(bench, &servers, count * each).await;
    let (plan, server) = (bench.plan, rig.direct.pid());
    let mut targets: Vec<_> = rig
        .targets()
        .into_iter()
        .map(|target| (target.subject(server), Work::List(direct)))
        .collect();
    targets.extend(
        gateway
            .as_ref()
            .map(|gateway| (gateway.subject(server), Work::List(count * each))),
    );
    let figures = compare(plan, &bench.ids, &targets, CONNECTIONS).await;
    bench.report.table(&figures);
    Ok(figures)
}
