//! Chaos on real processes: servers die, hang, flood and babble, the gateway itself is killed and
//! started again, the configuration changes, and clients call all the while over every transport, are
//! asked, and lose their streams.
//! In another run the machine fails (`machine.rs`). Apart from that, the gateway is killed at every message boundary of one call (`boundaries.rs`).
//!
//! `CHAOS_TENANTS` and `CHAOS_SESSIONS` make more principals with more sessions of each. `CHAOS_SECONDS`
//! makes it longer, `CHAOS_SEED` repeats the order of the faults (though not what
//! they meet, since processes run as they like), `CHAOS_LOG` is the level of the gateway's log, which
//! a failed run prints.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "in a test that is the answer"
)]

mod boundaries;
mod callers;
mod channels;
mod faults;
mod fleet;
mod machine;
mod tenants;

use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join_all;
use rustix::process::Signal;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::support::Gateway;
use callers::{Caller, Place, Scene, Tally};
use channels::ChannelCaller;
use faults::{Report, Storm, memory};
use fleet::Fleet;
use tenants::{Leaked, Tenant};

const CALLERS: u64 = 50;
/// Clients of HTTP+SSE, and as many of stdio.
const CHANNELS: u64 = 3;

/// The longest that the gateway may give a call that makes no progress is 4 s here.
const HANG: Duration = Duration::from_secs(10);

/// By default it is a minute for one that makes none, and nothing here takes that long.
const HANG_BY_DEFAULT: Duration = Duration::from_secs(65);

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
    let (report, tally, _gateway) = live(&fleet, gateway, seed, HANG, async |storm| {
        storm.rage(length).await
    })
    .await;
    assert!(report.gateways_killed >= 4, "{report:?}");
    let (_, late) = report.memory_kib;
    assert!(late < idle * IDLE_TIMES_MAX, "{idle} KiB idle, then {late}");
    tally.check(length.as_secs());
    let ran = calls_that_ran_once(&fleet);
    assert!(ran > 1000, "only {ran} calls ran");
}

/// What is set for the other run so that it takes seconds is the default here.
#[tokio::test]
async fn nothing_is_lost_with_the_default_settings_either() {
    let seed = number("CHAOS_SEED", u64::from(std::process::id()));
    let fleet = Fleet::of(5, 2).with_defaults();
    let gateway = fleet.serve().await;
    let (report, _, _gateway) = live(&fleet, gateway, seed, HANG_BY_DEFAULT, async |storm| {
        storm.kill_each_twice().await
    })
    .await;
    assert_eq!(report.gateways_killed, 1);
    let ran = calls_that_ran_once(&fleet);
    assert!(ran > 200, "only {ran} calls ran");
}

/// Many principals share servers, and try each other's sessions.
#[tokio::test]
async fn nobody_reads_what_is_somebody_elses() {
    let seed = number("CHAOS_SEED", u64::from(std::process::id()));
    let seconds = number("CHAOS_SECONDS", 20);
    let (tenants, sessions) = (number("CHAOS_TENANTS", 20), number("CHAOS_SESSIONS", 5));
    let fleet = Fleet::of(4, 2).with_tenants(tenants);
    let gateway = fleet.serve().await;
    let (places, place) = watch::channel(Place::of(&gateway));
    let scene = Scene {
        seed,
        place,
        servers: fleet.names().into(),
        tally: Rc::default(),
        hang: HANG,
    };
    let leaked = Rc::new(Leaked::default());
    let open = |number| Tenant::open(number, sessions, scene.clone(), leaked.clone());
    let all = join_all((0..tenants).map(open)).await;
    let over = CancellationToken::new();
    let all = all.into_iter().map(|tenant| tenant.run(over.clone()));
    let mut storm = Storm::new(seed, gateway, &fleet, places);
    let raging = async {
        let report = storm.rage(Duration::from_secs(seconds)).await;
        over.cancel();
        report
    };
    let (all, report) = tokio::join!(join_all(all), raging);
    assert!(report.gateways_killed >= 2, "{report:?}");
    for mut tenant in all {
        tenant.every_session_lives().await;
    }
    leaked.check(seconds);
}

/// All clients call while things go wrong; afterwards every session lives, every server answers,
/// and no process is left. The directory of the gateway has what the servers wrote.
async fn live(
    fleet: &Fleet,
    gateway: Gateway,
    seed: u64,
    hang: Duration,
    rage: impl AsyncFnOnce(&mut Storm<'_>) -> Report,
) -> (Report, Rc<Tally>, Gateway) {
    let (places, place) = watch::channel(Place::of(&gateway));
    let tally = Rc::new(Tally::default());
    let scene = Scene {
        seed,
        place,
        servers: fleet.names().into(),
        tally: tally.clone(),
        hang,
    };
    let callers = (0..CALLERS).map(|number| Caller::open(number, scene.clone()));
    let callers = join_all(callers).await;
    let mut channels = Vec::new();
    for number in 0..CHANNELS {
        channels.push(ChannelCaller::over_sse(1000 + number, scene.clone()));
        channels.push(ChannelCaller::over_stdio(2000 + number, scene.clone(), &gateway).await);
    }
    let over = CancellationToken::new();
    let callers = callers.into_iter().map(|caller| caller.run(over.clone()));
    let channels = channels.into_iter().map(|caller| caller.run(over.clone()));
    let mut storm = Storm::new(seed, gateway, fleet, places);
    let raging = async {
        let report = rage(&mut storm).await;
        over.cancel();
        report
    };
    let (callers, channels, report) = tokio::join!(join_all(callers), join_all(channels), raging);
    eprintln!("{report:#?}\n{tally:#?}");
    for mut caller in callers {
        caller.every_session_lives().await;
        caller.every_server_answers().await;
    }
    for mut caller in channels {
        caller.every_server_answers().await;
    }
    let mut gateway = storm.into_gateway();
    gateway.signal(Signal::TERM);
    assert!(gateway.ended().await.success());
    gateway.nothing_left().await;
    (report, tally, gateway)
}

/// The number of calls that ran; none ran twice, at whichever server.
fn calls_that_ran_once(fleet: &Fleet) -> usize {
    let calls = fleet.calls_that_ran();
    let mut seen = HashSet::new();
    for call in &calls {
        assert!(seen.insert(call), "call `{call}` ran twice");
    }
    seen.len()
}
