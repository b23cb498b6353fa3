//! Every way to die is seen with its reason, and a fresh child comes.

use std::time::Duration;

use actix::Addr;
use mcpvisor::supervision::{ChildPhase, ExitReason, Supervisor};

use crate::supervision::support::{Birth, Census, Fault, Fragile, Order, Puppet, PuppetRef, order};
use crate::supervision::support::{patience, puppets, run, threads};

/// Waits for the next incarnation and returns how the one before ended.
async fn next(child: &PuppetRef, generation: u64) -> (Addr<Puppet>, Option<ExitReason>) {
    let mut changes = child.subscribe();
    let waited = changes
        .wait_for(|now| now.generation >= generation && now.status.phase() == ChildPhase::Up);
    tokio::time::timeout_at(patience(), waited)
        .await
        .expect("never up")
        .unwrap();
    let up = child.current().unwrap();
    assert_eq!(up.generation, generation);
    (up.value, child.snapshot().last_exit)
}

#[test]
fn a_death_of_any_kind_is_seen_and_a_fresh_child_comes() {
    let table = [
        (Fault::Handler, "panicked", "panicked: panic in Handler"),
        (
            Fault::SpawnedFuture,
            "panicked",
            "panicked: panic in SpawnedFuture",
        ),
        (Fault::Stop, "normal", "ended on its own"),
        (Fault::Terminate, "normal", "ended on its own"),
        (Fault::Fail, "failed", "failed: the peer hung up"),
        (Fault::Kill, "killed", "was killed"),
        (Fault::Stopping, "panicked", "panicked: panic in Stopping"),
        (Fault::Stopped, "panicked", "panicked: panic in Stopped"),
        (Fault::Drop, "panicked", "panicked: panic in Drop"),
        (
            Fault::Everywhere,
            "panicked",
            "panicked: panic in Everywhere",
        ),
        (Fault::Arbiter, "arbiter_dead", "its thread is gone"),
        (
            Fault::ArbiterAndEverywhere,
            "panicked",
            "panicked: panic in Stopping",
        ),
    ];
    run(async {
        let arbiters = threads(1);
        let census = Census::default();
        let child = Supervisor::supervise(puppets(&arbiters, &census, |_| Birth::Healthy));
        let (mut address, none) = next(&child, 1).await;
        assert!(none.is_none());
        for (index, (fault, code, text)) in (2..).zip(table) {
            assert_eq!(
                order(&address, |answer| Order::Break(fault, answer)).await,
                None
            );
            let (fresh, why) = next(&child, index).await;
            let why = why.unwrap();
            assert_eq!(
                (why.code(), why.to_string().as_str()),
                (code, text),
                "{fault:?}"
            );
            assert_eq!(order(&fresh, Order::Answer).await, Some(index), "{fault:?}");
            assert_eq!(census.alive(), 1, "{fault:?}");
            address = fresh;
        }
        assert_eq!(arbiters.replaced(), 2);
        child.stop();
        child.stopped().await;
        assert_eq!(census.alive(), 0);
        arbiters.stop(Duration::from_secs(30)).await.unwrap();
    });
}

#[test]
fn a_panic_at_birth_is_seen_and_tried_again() {
    run(async {
        let arbiters = threads(1);
        let census = Census::default();
        let child =
            Supervisor::supervise(puppets(&arbiters, &census, |generation| match generation {
                1 => Birth::FactoryPanics,
                3 => Birth::StartedPanics,
                _ => Birth::Healthy,
            }));
        let (address, why) = next(&child, 2).await;
        assert_eq!(
            why.unwrap().to_string(),
            "its factory panicked: panic in factory"
        );
        assert_eq!(
            order(&address, |answer| Order::Break(Fault::Stop, answer)).await,
            None
        );
        let (_, why) = next(&child, 4).await;
        assert_eq!(why.unwrap().to_string(), "panicked: panic in started");
        assert_eq!((child.view().panics, census.alive()), (2, 1));
        arbiters.stop(Duration::from_secs(30)).await.unwrap();
    });
}

#[test]
fn a_panic_in_a_response_future_is_its_callers_alone() {
    run(async {
        let arbiters = threads(1);
        let census = Census::default();
        let child = Supervisor::supervise(puppets(&arbiters, &census, |_| Birth::Healthy));
        let (address, _) = next(&child, 1).await;
        assert!(address.send(Fragile).await.is_err());
        assert_eq!(order(&address, Order::Answer).await, Some(1));
        assert_eq!(child.view().generation, 1);
        arbiters.stop(Duration::from_secs(30)).await.unwrap();
    });
}
