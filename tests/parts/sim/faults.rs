//! Faults on demand, in simulated time: what is above meets them, answers every caller once, and
//! heals.

use std::rc::Rc;
use std::sync::Arc;

use mcpvisor::supervision::{ChildPhase, SeededRandom};
use mcpvisor::telemetry::LogRing;
use mcpvisor::transport::{Connector, FaultParts, FaultSettings, FaultyConnector};
use serde_json::json;

use crate::sim::client::{Client, Exchange};
use crate::sim::server::Server;
use crate::sim::world::{Plan, World, millis, pass, run, seconds};

struct Faulty {
    world: Rc<World>,
    server: Server,
    log: LogRing,
}

impl Faulty {
    async fn start(knows_call_of_requests: bool, faults: FaultSettings) -> Self {
        let world = Rc::new(World::new());
        let log = LogRing::default();
        let parts = FaultParts {
            random: Arc::new(SeededRandom::new(7)),
            log: log.clone(),
            counters: world.counters.clone(),
        };
        let plan = |plan: &mut Plan| {
            plan.settings.faults = Some(faults.clone());
            plan.settings.limits.ping_every = seconds(10);
            plan.settings.limits.refresh_every = seconds(20);
            plan.wrap = Some(Box::new(move |inner: Arc<dyn Connector>| {
                Arc::new(FaultyConnector::new(inner, faults, parts))
            }));
        };
        let server = world.start("a", knows_call_of_requests, plan);
        pass(millis(1)).await;
        Self { world, server, log }
    }

    /// Waits until its server is up and listed, however often it takes.
    async fn up(&self) {
        for _ in 0..1000 {
            if self.world.view("a").shared.phase == ChildPhase::Up {
                return;
            }
            pass(millis(500)).await;
        }
        panic!("it does not come up");
    }

    /// A client, once the server is listed, whose own calls may be lost.
    async fn client(&self) -> Client {
        let client = self.world.client(json!({})).await;
        // The first list waits so long.
        pass(seconds(3)).await;
        for _ in 0..1000 {
            if !client.tools().await.is_empty() {
                self.up().await;
                return client;
            }
            pass(millis(500)).await;
        }
        panic!("it is never listed");
    }
}

/// How many calls were answered, and how many ended with an error.
fn outcomes(calls: &[Exchange]) -> (usize, usize) {
    let failed = calls.iter().filter(|call| {
        assert!(call.is_over());
        call.result()["isError"] == true
    });
    let failed = failed.count();
    (calls.len() - failed, failed)
}

#[test]
fn a_delay_keeps_the_order_and_loses_nothing() {
    run(async {
        let delay = seconds(2);
        let faults = FaultSettings {
            delay,
            ..FaultSettings::default()
        };
        let faulty = Faulty::start(false, faults).await;
        pass(seconds(5)).await;
        let client = faulty.client().await;
        let calls = [client.call("a__echo").await, client.call("a__echo").await];
        pass(millis(1900)).await;
        assert!(calls.iter().all(|call| !call.is_over()));
        pass(millis(200)).await;
        for call in &calls {
            call.result();
        }
        let view = faulty.world.view("a");
        assert_eq!(view.faults.as_deref(), Some("delay 2s"));
        assert_eq!(view.shared.generation, 1);
    });
}

#[test]
fn of_lost_messages_every_caller_hears_by_its_deadline() {
    run(async {
        let faults = FaultSettings {
            drop: 0.2,
            ..FaultSettings::default()
        };
        let faulty = Faulty::start(false, faults).await;
        faulty.up().await;
        let client = faulty.client().await;
        let mut calls = Vec::new();
        for _ in 0..60 {
            calls.push(client.call("a__echo").await);
        }
        pass(seconds(700)).await;
        let (answered, failed) = outcomes(&calls);
        assert!(answered >= 20 && failed >= 5, "{answered} {failed}");
        assert_eq!(faulty.world.view("a").in_flight, 0);
        assert!(faulty.world.counted("faults_injected") >= 5);
    });
}

#[test]
fn garbage_fails_the_call_over_http_and_is_a_line_outside_the_protocol_over_stdio() {
    run(async {
        for knows_call_of_requests in [true, false] {
            let faults = FaultSettings {
                garbage: 0.3,
                ..FaultSettings::default()
            };
            let faulty = Faulty::start(knows_call_of_requests, faults).await;
            faulty.up().await;
            let client = faulty.client().await;
            let mut calls = Vec::new();
            for _ in 0..50 {
                calls.push(client.call("a__echo").await);
            }
            let over = calls.iter().filter(|call| call.is_over()).count();
            // Only the transport that can tell whose it was tells at once.
            assert_eq!(over == calls.len(), knows_call_of_requests);
            pass(seconds(700)).await;
            let (answered, failed) = outcomes(&calls);
            assert!(answered >= 20 && failed >= 5, "{answered} {failed}");
            let noted = faulty.log.counters().gateway;
            assert!(noted >= failed as u64, "{noted} {failed}");
        }
    });
}

#[test]
fn a_silent_connection_is_found_out_and_replaced() {
    run(async {
        let faults = FaultSettings {
            half_open_after: Some(2),
            ..FaultSettings::default()
        };
        let faulty = Faulty::start(false, faults).await;
        pass(millis(50)).await;
        let client = faulty.client().await;
        for _ in 0..2 {
            client.call("a__echo").await.result();
        }
        let unanswered = client.call("a__echo").await;
        assert!(!unanswered.is_over());
        assert_eq!(faulty.server.of("tools/call").len(), 2);
        // A ping goes unanswered, too.
        pass(seconds(59)).await;
        assert!(unanswered.is_over());
        assert!(faulty.world.view("a").shared.generation > 1);
        faulty.up().await;
        client.call("a__echo").await.result();
    });
}

#[test]
fn a_connection_that_breaks_comes_back_for_so_many_calls() {
    run(async {
        let faults = FaultSettings {
            crash_after: Some(1),
            ..FaultSettings::default()
        };
        let faulty = Faulty::start(true, faults).await;
        pass(millis(50)).await;
        let client = faulty.client().await;
        for generation in 1..=3 {
            client.call("a__echo").await.result();
            assert_eq!(faulty.server.links(), generation);
            let broken = client.call("a__echo").await;
            assert_eq!(broken.failure()["code"], "server_lost");
            assert!(broken.sentence().contains("crash_after"));
            faulty.up().await;
        }
    });
}

#[test]
fn refused_connections_are_never_opened() {
    run(async {
        let faults = FaultSettings {
            refuse: 1.0,
            ..FaultSettings::default()
        };
        let faulty = Faulty::start(false, faults).await;
        pass(seconds(600)).await;
        assert_eq!(faulty.server.links(), 0);
        let view = faulty.world.view("a");
        assert_eq!(view.shared.phase, ChildPhase::Broken);
        let exit = view.shared.last_exit.unwrap();
        assert!(exit.contains("faults.refuse"), "{exit}");
        // And some are, by chance.
        let faults = FaultSettings {
            refuse: 0.5,
            ..FaultSettings::default()
        };
        let faulty = Faulty::start(false, faults).await;
        faulty.up().await;
    });
}
