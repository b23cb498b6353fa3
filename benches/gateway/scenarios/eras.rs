//! Calls by clients and servers of both eras, through one gateway.

use crate::Fallible;
use crate::bench::Bench;
use crate::client::{Era, Place, Work};
use crate::measure::{Figure, Subject, compare};
use crate::report::{Bound, CPU, Goal, ratio};
use crate::targets::{self, Server, Target};

pub(crate) const NAMES: [&str; 2] = ["sessionless", "bridged"];

const CONNECTIONS: usize = 64;

/// Tools of each server.
const TOOLS: usize = 4;

/// Names of the pairings: the client's era, then the server's.
const OLD_OLD: &str = "old to old";
const OLD_NEW: &str = "old to new";
const NEW_OLD: &str = "new to old";
const NEW_NEW: &str = "new to new";

/// A gateway in front of a server of each era.
struct Eras {
    old: Target,
    new: Target,
    gateway: Target,
    before: Option<Target>,
}

pub(crate) async fn run(bench: &mut Bench) -> Fallible<()> {
    let old = targets::stub_of(Era::Handshake, TOOLS).await?;
    let new = targets::stub_of(Era::Sessionless, TOOLS).await?;
    let servers = [Server::http("old", &old), Server::http("new", &new)];
    let Some(gateway) = super::start_gateway(bench, &servers, 2 * TOOLS).await else {
        return Ok(());
    };
    let before = super::start_before(bench, &servers, 2 * TOOLS).await;
    let eras = Eras {
        old,
        new,
        gateway,
        before,
    };
    if bench.wants("sessionless") {
        let text = "calls without a session beside calls in one, 64 connections";
        bench.report.title("sessionless", text);
        let figures = eras.measure(bench, &[OLD_OLD, NEW_NEW, NEW_OLD]).await;
        at_most(bench, &figures, (NEW_NEW, OLD_OLD), 1.05);
        eras.beside_before(bench).await;
    }
    if bench.wants("bridged") {
        let text = "calls between eras beside calls within one, 64 connections";
        bench.report.title("bridged", text);
        let figures = eras.measure(bench, &[OLD_OLD, OLD_NEW, NEW_NEW, NEW_OLD]);
        let figures = figures.await;
        at_most(bench, &figures, (OLD_NEW, OLD_OLD), 1.3);
        at_most(bench, &figures, (NEW_OLD, NEW_NEW), 1.3);
    }
    Ok(())
}

impl Eras {
    fn subject(&self, name: &'static str) -> Subject {
        let (client, server, prefix) = match name {
            OLD_OLD => (Era::Handshake, &self.old, "old__"),
            OLD_NEW => (Era::Handshake, &self.new, "new__"),
            NEW_OLD => (Era::Sessionless, &self.old, "old__"),
            _ => (Era::Sessionless, &self.new, "new__"),
        };
        let port = self.gateway.place.port;
        Subject {
            name,
            place: Place {
                port,
                prefix,
                era: client,
                credential: None,
            },
            pid: self.gateway.pid(),
            server: server.pid(),
        }
    }

    /// Calls without a session, through this build and the previous one.
    async fn beside_before(&self, bench: &mut Bench) {
        let Some(before) = &self.before else { return };
        let subject = |gateway: &Target| {
            let mut subject = self.subject(NEW_NEW);
            subject.name = gateway.name;
            (subject.place.port, subject.pid) = (gateway.place.port, gateway.pid());
            (subject, Work::Echo)
        };
        let targets = [subject(&self.gateway), subject(before)];
        let figures = compare(bench.plan, &bench.ids, &targets, CONNECTIONS).await;
        bench.report.table(&figures);
        super::beside_before(bench, &figures);
    }

    async fn measure(&self, bench: &mut Bench, names: &[&'static str]) -> Vec<Figure> {
        let targets: Vec<_> = names
            .iter()
            .map(|name| (self.subject(name), Work::Echo))
            .collect();
        let figures = compare(bench.plan, &bench.ids, &targets, CONNECTIONS).await;
        bench.report.table(&figures);
        figures
    }
}

fn at_most(bench: &mut Bench, figures: &[Figure], (of, to): (&str, &str), most: f64) {
    let value = ratio(figures, of, to, CPU);
    let what = format!("CPU per call, {of} beside {to}");
    bench.report.goal(Goal {
        what,
        value,
        bound: Bound::AtMost(most),
    });
}
