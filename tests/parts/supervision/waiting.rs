//! The view of a child's callers, and how long they wait.

use std::sync::Arc;
use std::time::Duration;

use mcpvisor::supervision::{Arbiters, ChildPhase, ChildSpec, Supervisor, Tuning};
use tokio::time::{Instant, sleep};

use crate::supervision::support::{
    Birth, Census, Fault, Order, order, puppets, quick, run_paused, settings,
};

fn slow() -> Tuning {
    Tuning {
        backoff_initial: Duration::from_secs(4),
        backoff_max: Duration::from_secs(4),
        ..quick()
    }
}

#[test]
fn a_caller_waits_for_a_restart_but_not_in_vain() {
    run_paused(async {
        let arbiters = Arbiters::current().unwrap();
        let census = Census::default();
        let spec = puppets(&arbiters, &census, |generation| match generation {
            1 => Birth::FactoryPanics,
            _ => Birth::Healthy,
        });
        let start = Instant::now();
        let child = Supervisor::supervise(ChildSpec {
            settings: settings(Tuning {
                jitter: 0.0,
                ..slow()
            }),
            ..spec
        });
        // Until the panic is known it might be up any time.
        sleep(Duration::from_millis(10)).await;
        let away = child
            .wait_up(start + Duration::from_secs(3))
            .await
            .unwrap_err();
        assert_eq!(away.phase, ChildPhase::Backoff);
        assert!(
            start.elapsed() < Duration::from_secs(1),
            "waited without result"
        );
        let up = child.wait_up(start + Duration::from_secs(5)).await.unwrap();
        assert_eq!(up.generation, 2);
        assert_eq!(start.elapsed().as_secs(), 4);
    });
}

#[test]
fn a_wait_ends_at_its_deadline() {
    run_paused(async {
        let arbiters = Arbiters::current().unwrap();
        let census = Census::default();
        let child = Supervisor::supervise(puppets(&arbiters, &census, |_| Birth::Silent));
        let start = Instant::now();
        let away = child
            .wait_up(start + Duration::from_secs(3))
            .await
            .unwrap_err();
        assert_eq!(
            (away.phase, start.elapsed().as_secs()),
            (ChildPhase::Starting, 3)
        );
    });
}

#[test]
fn an_idle_child_is_woken_by_who_waits_for_it() {
    run_paused(async {
        let arbiters = Arbiters::current().unwrap();
        let census = Census::default();
        let child = Supervisor::supervise(ChildSpec {
            lazy: true,
            ..puppets(&arbiters, &census, |_| Birth::Healthy)
        });
        for generation in 1..4 {
            sleep(Duration::from_secs(60)).await;
            assert_eq!((child.view().phase, census.alive()), (ChildPhase::Idle, 0));
            let up = child
                .wait_up(Instant::now() + Duration::from_secs(1))
                .await
                .unwrap();
            assert_eq!(up.generation, generation);
            child.idle_if(|| true);
        }
    });
}

#[test]
fn a_view_says_how_a_child_is() {
    run_paused(async {
        let arbiters = Arbiters::current().unwrap();
        let census = Census::default();
        let child = Supervisor::supervise(ChildSpec {
            name: Arc::from("a"),
            ..puppets(&arbiters, &census, |_| Birth::Healthy)
        });
        child
            .wait_up(Instant::now() + Duration::from_secs(1))
            .await
            .unwrap();
        assert_eq!(
            serde_json::to_value(child.view()).unwrap(),
            serde_json::json!({
                "name": "a", "phase": "up", "phase_ms": 0, "failing_ms": null, "failures": 0, "generation": 1, "restarts": 0,
                "panics": 0, "stuck": 0, "last_exit": null, "last_exit_code": null,
                "next_attempt_ms": null,
            })
        );
        child.stop();
        child.stopped().await;
        assert_eq!(census.alive(), 0);
        assert_eq!(child.view().phase, ChildPhase::Stopped);
    });
}

#[test]
fn panics_and_failures_of_a_child_leave_its_neighbour_alone() {
    run_paused(async {
        let arbiters = Arbiters::current().unwrap();
        let census = Census::default();
        let neighbour = Supervisor::supervise(puppets(&arbiters, &census, |_| Birth::Healthy));
        let child = Supervisor::supervise(ChildSpec {
            settings: settings(Tuning {
                max_restarts: 2,
                within: Duration::from_secs(3600),
                ..quick()
            }),
            ..puppets(&arbiters, &census, |_| Birth::Healthy)
        });
        for fault in [Fault::Fail, Fault::Handler].repeat(4) {
            let up = child
                .wait_up(Instant::now() + Duration::from_secs(60))
                .await
                .unwrap();
            order(&up.value, |answer| Order::Break(fault, answer)).await;
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(child.view().panics, 4);
        let view = neighbour.view();
        assert_eq!((view.phase, view.generation), (ChildPhase::Up, 1));
    });
}
