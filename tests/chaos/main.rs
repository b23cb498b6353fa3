//! Chaos on real processes: servers die, hang, flood and babble, the gateway itself is killed and
//! started again, the configuration changes, and 50 clients call all the while, and lose their streams.
//! Apart from that, the gateway is killed at every message boundary of one call (`boundaries.rs`).
//!
//! `CHAOS_SECONDS` makes it longer, `CHAOS_SEED` repeats the order of the faults (though not what
//! they meet, since processes run as they like), `CHAOS_LOG` is the level of the gateway's log, which
//! a failed run prints.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "in a test that is the answer"
)]

mod boundaries;
mod callers;
mod faults;
mod fleet;

#[path = "../it/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "shared with the tests in `it`")]
mod support;

use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join_all;
use rustix::process::Signal;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use callers::{Caller, Place, Tally};
use faults::{Storm, memory};
use fleet::Fleet;

const CALLERS: u64 = 50;

/// How long faults last, in seconds.
const SECONDS: u64 = 45;

/// The gateway's memory at the end, beside what it had before the first client came.
const IDLE_TIMES_MAX: u64 = 3;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[tokio::test]
async fn nothing_is_lost_whatever_dies() {
    let seed = number("CHAOS_SEED", u64::from(std::process::id()));
    let length = Duration::from_secs(number("CHAOS_SECONDS", SECONDS));
    eprintln!("CHAOS_SEED={seed}, {length:?}");
    let fleet = Fleet::new();
    let gateway = fleet.serve().await;
    let idle = memory(&gateway);
    let (places, place) = watch::channel(Place::of(&gateway));
    let tally = Rc::new(Tally::default());
    let names: Rc<[String]> = fleet.names().into();
    let callers = (0..CALLERS)
        .map(|number| Caller::open(number, seed, place.clone(), names.clone(), tally.clone()));
    let callers = join_all(callers).await;
    let over = CancellationToken::new();
    let running = callers.into_iter().map(|caller| caller.run(over.clone()));
    let mut storm = Storm::new(seed, gateway, &fleet, places);
    let (callers, report) = tokio::join!(join_all(running), async {
        let report = storm.rage(length).await;
        over.cancel();
        report
    });
    eprintln!("{report:#?}\n{tally:#?}");
    for mut caller in callers {
        caller.every_session_lives().await;
        caller.every_server_answers().await;
    }
    assert!(report.gateways_killed >= 4, "{report:?}");
    let (_, late) = report.memory_kib;
    assert!(late < idle * IDLE_TIMES_MAX, "{idle} KiB idle, then {late}");
    tally.check(length.as_secs());
    ran_once(&fleet);
    let mut gateway = storm.into_gateway();
    gateway.signal(Signal::TERM);
    assert!(gateway.ended().await.success());
    gateway.nothing_left().await;
}

/// No call ran twice, at whichever server.
fn ran_once(fleet: &Fleet) {
    let calls = fleet.calls_that_ran();
    let mut seen = HashSet::new();
    for call in &calls {
        assert!(seen.insert(call), "call `{call}` ran twice");
    }
    assert!(seen.len() > 1000, "only {} calls ran", seen.len());
}
