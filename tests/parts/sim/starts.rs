//! The starts of programs: their turn, their time, and a sign-in in between.

use std::rc::Rc;

use mcpvisor::protocol::Era;
use mcpvisor::supervision::ChildPhase;
use serde_json::json;

use crate::sim::eras::methods;
use crate::sim::modern::{auto, mute, sessionless, with_handshake};
use crate::sim::server::text;
use crate::sim::world::{Plan, World, millis, pass, run, seconds, settle};

#[test]
fn a_process_that_ends_before_it_reads_did_not_end_over_the_question() {
    run(async {
        let world = Rc::new(World::new());
        let server = world
            .stdio("a", |plan| {
                sessionless(plan);
                plan.script.starts_after = seconds(1);
            })
            .await;
        server.crash("no token");
        pass(millis(500)).await;
        assert_eq!(server.links(), 1);
        pass(seconds(3)).await;
        // The next start is asked as the first was.
        assert_eq!(methods(&server.frames(), 1)[0], "initialize");
        assert_eq!(world.view("a").era, Some(Era::Modern));
    });
}

#[test]
fn a_changed_server_ends_before_the_next_begins_and_finishes_its_calls() {
    run(async {
        let world = Rc::new(World::new());
        let old = world.stdio("a", |_| {}).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let call = client.call("a__hold").await;
        let new = world.stdio("a", |_| {}).await;
        pass(seconds(2)).await;
        assert!(call.is_waiting());
        assert_eq!(new.links(), 0);
        let waiting = world.view("a").starting;
        assert_eq!(waiting.as_deref(), Some("waiting to start"));
        old.answer(&old.held().pop().unwrap(), text(json!("late")));
        pass(millis(100)).await;
        assert_eq!(call.result(), text(json!("late")));
        assert!(old.open_links().is_empty());
        assert_eq!(new.links(), 1);
        assert_eq!(world.view("a").shared.phase, ChildPhase::Up);
    });
}

#[test]
fn calls_of_a_changed_server_end_when_their_time_is_over() {
    run(async {
        let world = Rc::new(World::new());
        let old = world.stdio("a", |_| {}).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let call = client.call("a__hold").await;
        // Twice: the one that never began does not let the next begin early.
        world.stdio("a", |_| {}).await;
        let new = world.stdio("a", |_| {}).await;
        pass(seconds(4)).await;
        assert!(call.is_waiting());
        assert_eq!(new.links(), 0);
        pass(seconds(2)).await;
        assert_eq!(call.failure()["code"], "server_lost");
        assert!(old.open_links().is_empty());
        assert_eq!(new.links(), 1);
        // Removed, it has as long.
        let call = client.call("a__hold").await;
        world.stop_server("a");
        pass(seconds(1)).await;
        new.answer(&new.held().pop().unwrap(), text(json!("late")));
        pass(millis(100)).await;
        assert_eq!(call.result(), text(json!("late")));
        assert!(new.open_links().is_empty());
    });
}

#[test]
fn a_server_that_starts_late_comes_up_at_its_first_start() {
    run(async {
        for modern in [true, false] {
            let world = Rc::new(World::new());
            let server = world
                .stdio("a", |plan| {
                    with_handshake(plan);
                    if modern {
                        sessionless(plan);
                        plan.script.refused = ["initialize"].into();
                    }
                    plan.script.starts_after = seconds(100);
                })
                .await;
            pass(seconds(99)).await;
            let status = world.view("a").shared;
            assert_eq!((status.phase, status.restarts), (ChildPhase::Starting, 0));
            pass(seconds(2)).await;
            let status = world.view("a").shared;
            assert_eq!((status.phase, status.restarts), (ChildPhase::Up, 0));
            assert_eq!(server.links(), 1);
        }
    });
}

#[test]
fn a_server_that_does_not_start_is_given_up() {
    run(async {
        let world = Rc::new(World::new());
        world
            .stdio("a", |plan| {
                auto(plan);
                plan.script.starts_after = seconds(1000);
            })
            .await;
        pass(seconds(121)).await;
        let exit = world.view("a").shared.last_exit.unwrap();
        assert!(exit.contains("(2m, `start_timeout`)"), "{exit}");
    });
}

#[test]
fn programs_wait_for_their_turn_to_start() {
    run(async {
        let world = World::starting(2);
        let slow = |plan: &mut Plan| {
            with_handshake(plan);
            plan.script.starts_after = seconds(20);
        };
        let mut servers = Vec::new();
        for name in ["a", "b", "c", "d", "e", "f"] {
            servers.push(world.stdio(name, slow).await);
        }
        let started = || servers.iter().filter(|it| it.links() > 0).count();
        pass(seconds(19)).await;
        assert_eq!(started(), 2);
        let waiting = world.view("c").starting;
        assert_eq!(waiting.as_deref(), Some("waiting to start"));
        pass(seconds(42)).await;
        assert_eq!(started(), 6);
        for name in ["a", "b", "c", "d", "e", "f"] {
            let status = world.view(name).shared;
            assert_eq!((status.phase, status.restarts), (ChildPhase::Up, 0));
            assert_eq!(world.view(name).starting, None);
        }
        assert!(servers.iter().all(|server| server.links() == 1));
    });
}

#[test]
fn a_start_that_takes_long_makes_room_for_others() {
    run(async {
        let world = World::starting(1);
        let slow = |plan: &mut Plan| {
            auto(plan);
            plan.script.starts_after = seconds(100);
        };
        world.stdio("a", slow).await;
        let other = world.stdio("b", |_| {}).await;
        pass(seconds(31)).await;
        assert_eq!(other.links(), 1);
        assert_eq!(world.view("b").shared.phase, ChildPhase::Up);
    });
}

#[test]
fn a_server_that_asks_for_a_sign_in_is_waited_for() {
    run(async {
        let world = World::starting(1);
        let page = "https://auth.example/authorize?state=s3cret";
        let waits = |plan: &mut Plan| mute(plan, &["server/discover", "initialize"]);
        let server = world.stdio("a", waits).await;
        server.sign_in(0, page);
        settle().await;
        let view = world.view("a");
        assert_eq!(view.starting.as_deref(), Some("waiting for sign-in"));
        assert_eq!(view.sign_in.as_deref(), Some(page));
        // Others start meanwhile.
        world.stdio("b", |_| {}).await;
        assert_eq!(world.view("b").shared.phase, ChildPhase::Up);
        pass(seconds(590)).await;
        assert_eq!(world.view("a").shared.phase, ChildPhase::Starting);
        server.behave();
        server.refuse(&server.last("server/discover"), -32601, "unknown");
        let result = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"version": "1"}});
        server.answer(&server.last("initialize"), result);
        settle().await;
        assert_eq!((server.links(), world.view("a").starting), (1, None));
        assert_eq!(world.view("a").shared.phase, ChildPhase::Up);

        let server = world.stdio("c", waits).await;
        server.sign_in(0, page);
        pass(seconds(601)).await;
        let exit = world.view("c").shared.last_exit.unwrap();
        assert!(exit.contains("`sign_in_timeout`"), "{exit}");
    });
}
