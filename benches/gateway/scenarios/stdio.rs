//! Calls to a server over stdio, compared with the same server over HTTP.

use super::Rig;
use super::forward::{at_least, held, wait};
use crate::Fallible;
use crate::bench::Bench;
use crate::client::Work;
use crate::targets::{self, Server};

pub(crate) const NAMES: [&str; 4] = ["stdio", "stdio-progress", "stdio-big", "stdio-wait"];

pub(crate) async fn run(bench: &mut Bench) -> Fallible<()> {
    let mut rig = Rig {
        direct: targets::stub(4).await?,
        others: Vec::new(),
    };
    let servers = [Server::Stdio {
        name: "stub".to_owned(),
        tools: 4,
    }];
    rig.add_gateway(bench, &servers, 4).await;
    if bench.wants("stdio") {
        bench.report.title(
            "stdio",
            "calls to a stdio server, 16 connections, direct is HTTP",
        );
        let figures = rig.measure(bench, 16, Work::Echo).await;
        at_least(bench, &figures, "direct", 0.3);
    }
    if bench.wants("stdio-progress") {
        bench.report.title(
            "stdio-progress",
            "10 progress events and the result over stdio, 16 connections, direct is HTTP",
        );
        let figures = rig.measure(bench, 16, Work::Progress(10)).await;
        at_least(bench, &figures, "direct", 0.35);
        held(bench, &rig);
    }
    if bench.wants("stdio-big") {
        bench.report.title(
            "stdio-big",
            "results of 1 MiB over stdio, 4 connections, direct is HTTP",
        );
        let figures = rig.measure(bench, 4, Work::Big(1024 * 1024)).await;
        at_least(bench, &figures, "direct", 0.3);
    }
    if bench.wants("stdio-wait") {
        bench.report.title(
            "stdio-wait",
            "256 concurrent calls of 500 ms each over stdio",
        );
        for gateway in &rig.others {
            wait(bench, gateway).await;
        }
    }
    Ok(())
}
