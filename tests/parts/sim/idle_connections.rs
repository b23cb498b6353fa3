//! Connections that are closed because nobody uses them, to the second.

use std::rc::Rc;
use std::time::Duration;

use mcpvisor::downstream::{ServerOrder, StartMode};
use mcpvisor::id::ServerName;
use mcpvisor::supervision::ChildPhase;
use serde_json::json;

use crate::sim::server::text;
use crate::sim::world::{Plan, World, pass, run, seconds, settle};

fn idle_stop(time: Duration) -> impl FnOnce(&mut Plan) {
    move |plan| plan.settings.limits.idle_stop = time
}

fn phase(world: &World) -> ChildPhase {
    world.view("a").shared.phase
}

#[test]
fn an_unused_connection_is_closed_in_time_and_opened_by_a_call() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", idle_stop(seconds(60))).await;
        let client = world.client(json!({})).await;
        for round in 0..3 {
            pass(seconds(30)).await;
            client.call("a__echo").await.result();
            pass(seconds(58)).await;
            assert_eq!(phase(&world), ChildPhase::Up, "{round}");
            pass(seconds(3)).await;
            assert_eq!(phase(&world), ChildPhase::Idle, "{round}");
            // Nothing but a call opens it, however long it takes.
            pass(seconds(1_000)).await;
            assert_eq!(client.tools().await.len(), 3);
            assert_eq!(server.links(), round + 1);
            client.call("a__echo").await.result();
            assert_eq!(server.links(), round + 2);
        }
        assert_eq!(world.counted("servers_idle_stopped"), 3);
        assert_eq!(world.counted("servers_lost"), 0);
    });
}

#[test]
fn a_call_that_takes_longer_is_not_cut() {
    run(async {
        let world = Rc::new(World::new());
        let plan = |plan: &mut Plan| {
            plan.settings.limits.idle_stop = seconds(5);
            plan.settings.limits.request_timeout = seconds(500);
        };
        let server = world.stdio("a", plan).await;
        let client = world.client(json!({})).await;
        let held = client.call("a__hold").await;
        pass(seconds(400)).await;
        assert!(held.is_waiting());
        server.answer(&server.held()[0], text(json!("done")));
        settle().await;
        held.result();
        pass(seconds(4)).await;
        assert_eq!((phase(&world), server.links()), (ChildPhase::Up, 1));
        pass(seconds(7)).await;
        assert_eq!(phase(&world), ChildPhase::Idle);
    });
}

#[test]
fn a_lazy_server_is_closed_as_soon_as_it_is_listed() {
    run(async {
        let world = Rc::new(World::new());
        let plan = |plan: &mut Plan| {
            plan.settings.start = StartMode::Lazy;
            plan.script.mute.insert("tools/list");
        };
        let server = world.stdio("a", plan).await;
        pass(seconds(20)).await;
        assert_eq!(phase(&world), ChildPhase::Up, "it was not listed yet");
        server.behave();
        server.crash("tries again");
        pass(seconds(2)).await;
        assert_eq!((phase(&world), server.links()), (ChildPhase::Idle, 2));
        let client = world.client(json!({})).await;
        assert_eq!(client.tools().await.len(), 3);
        client.call("a__echo").await.result();
        // From now on it runs.
        pass(seconds(1_000)).await;
        assert_eq!((phase(&world), server.links()), (ChildPhase::Up, 3));
    });
}

#[test]
fn calls_that_wait_for_a_lazy_server_fail_when_it_is_stopped() {
    run(async {
        let world = Rc::new(World::new());
        let lazy = |plan: &mut Plan| plan.settings.start = StartMode::Lazy;
        let server = world.stdio("a", lazy).await;
        pass(seconds(1)).await;
        let client = world.client(json!({})).await;
        server.mute("initialize");
        let waiting = client.call("a__echo").await;
        let second = client.call("a__echo").await;
        pass(seconds(5)).await;
        assert!(waiting.is_waiting() && second.is_waiting());
        let name = ServerName::try_new("a").unwrap();
        let said = world
            .downstreams
            .order(name, ServerOrder::Stop)
            .await
            .unwrap();
        assert!(said.contains("is stopped"), "{said}");
        settle().await;
        for call in [waiting, second] {
            assert!(call.sentence().contains("stopped by an operator"));
        }
    });
}
