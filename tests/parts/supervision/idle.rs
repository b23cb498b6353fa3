//! Children that leave because nobody uses them, or because somebody took them out of service.

use std::time::Duration;

use mcpvisor::supervision::{Arbiters, ChildPhase, Supervisor};
use tokio::time::sleep;

use crate::supervision::support::{Birth, Census, patience, puppets, run_paused};

#[test]
fn an_unused_child_leaves_and_comes_back_when_it_is_waited_for() {
    run_paused(async {
        let arbiters = Arbiters::current().unwrap();
        let census = Census::default();
        let child = Supervisor::supervise(puppets(&arbiters, &census, |_| Birth::Healthy));
        for generation in 1..4 {
            let up = child.wait_up(patience()).await.unwrap();
            assert_eq!(up.generation, generation);
            // One that is used stays, with its uptime.
            let before = child.view().phase_ms;
            sleep(Duration::from_secs(5)).await;
            child.idle_if(|| false);
            sleep(Duration::from_millis(1)).await;
            assert!(child.view().phase_ms >= before + 5000);
            assert_eq!(child.current().unwrap().generation, generation);
            child.idle_if(|| true);
            sleep(Duration::from_secs(1)).await;
            let view = child.view();
            assert_eq!((view.phase, census.alive()), (ChildPhase::Idle, 0));
            assert_eq!(view.last_exit_code.as_deref(), Some("shutdown"));
        }
        assert_eq!(child.view().restart_reasons, [("unused", 2)].into());
    });
}

#[test]
fn a_held_child_is_brought_back_by_its_release_only() {
    run_paused(async {
        let arbiters = Arbiters::current().unwrap();
        let census = Census::default();
        let child = Supervisor::supervise(puppets(&arbiters, &census, |_| Birth::Healthy));
        child.wait_up(patience()).await.unwrap();
        child.hold();
        child.stopped().await;
        assert_eq!(census.alive(), 0);
        child.wake();
        child.reconnect_now("operator");
        let away = child.wait_up(patience()).await.unwrap_err();
        assert_eq!(away.phase, ChildPhase::Stopped);
        sleep(Duration::from_secs(3600)).await;
        assert_eq!((child.view().generation, census.alive()), (1, 0));
        child.release();
        // Its old word is still to be read until the release arrives.
        sleep(Duration::from_millis(1)).await;
        assert_eq!(child.wait_up(patience()).await.unwrap().generation, 2);
        child.hold();
        child.stop();
        child.stopped().await;
        assert_eq!(census.alive(), 0);
    });
}

#[test]
fn a_caller_that_waits_for_a_child_fails_at_once_when_the_child_is_held() {
    run_paused(async {
        let arbiters = Arbiters::current().unwrap();
        let census = Census::default();
        let child = Supervisor::supervise(puppets(&arbiters, &census, |_| Birth::Silent));
        let start = tokio::time::Instant::now();
        let (away, ()) = tokio::join!(child.wait_up(patience()), async {
            sleep(Duration::from_secs(1)).await;
            child.hold();
        });
        let phase = away.unwrap_err().phase;
        assert!(matches!(phase, ChildPhase::Stopping | ChildPhase::Stopped));
        assert!(start.elapsed() < Duration::from_secs(2));
    });
}
