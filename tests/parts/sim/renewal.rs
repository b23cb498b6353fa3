//! A server that forgets our session, or answers single calls with failures of the transport.

use std::rc::Rc;

use mcpvisor::transport::LinkError;
use serde_json::json;

use crate::sim::server::{note, text};
use crate::sim::world::{World, millis, pass, run, seconds, settle};

#[test]
fn a_forgotten_session_is_renewed_and_no_client_notices() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", |_| {}).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let exchanges = [client.call("a__hold").await, client.call("a__hold").await];
        server.forget_session(0);
        server.mute("initialize");
        for call in server.held() {
            server.session_gone(&call);
        }
        settle().await;
        assert_eq!(server.of("initialize").len(), 2);
        // Started while the new handshake is under way: it waits for it.
        let during = client.call("a__hold").await;
        settle().await;
        assert_eq!(server.held().len(), 2);
        assert_eq!(server.of("initialize").len(), 2);
        server.behave();
        let handshake = server.last("initialize");
        server.answer(
            &handshake,
            json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}),
        );
        settle().await;
        // Each is sent again exactly once, after `initialized`. The lists are read meanwhile.
        let frames = server.frames();
        let methods = frames.iter().rev().map(|frame| frame.method().to_owned());
        let methods: Vec<_> = methods.filter(|it| it != "tools/list").collect();
        assert_eq!(
            &methods[..4],
            [
                "tools/call",
                "tools/call",
                "tools/call",
                "notifications/initialized"
            ]
        );
        let held = server.held();
        assert_eq!(held.len(), 5);
        for (number, call) in held[2..].iter().enumerate() {
            server.answer(call, text(json!(number)));
        }
        settle().await;
        for exchange in exchanges.iter().chain([&during]) {
            exchange.result();
        }
        let view = world.view("a");
        assert_eq!((view.shared.generation, view.in_flight), (1, 0));
        assert_eq!(world.counted("servers_renewed"), 1);
        // A list that was stale meanwhile is fetched anew.
        assert_eq!(server.of("tools/list").len(), 3);
    });
}

/// A ping is answered, so the session exists.
#[test]
fn a_refusal_of_one_call_ends_no_session() {
    run(async {
        let world = Rc::new(World::new());
        let server = world
            .http("a", |plan| plan.settings.resilience.breaker.failures = 0)
            .await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let other = client.call("a__hold").await;
        for _ in 0..20 {
            let exchange = client.call("a__hold").await;
            let call = server.held().pop().unwrap();
            server.session_refused(&call, LinkError::status(404, ""));
            settle().await;
            assert!(exchange.sentence().contains("the call did not run"));
        }
        assert!(other.is_waiting());
        assert_eq!(server.of("initialize").len(), 1);
        server.answer(&server.held()[0], text(json!("ok")));
        settle().await;
        other.result();
    });
}

#[test]
fn a_call_that_is_refused_in_a_new_session_fails_and_did_not_run() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", |_| {}).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let exchange = client.call("a__hold").await;
        server.forget_session(0);
        server.session_gone(&server.held()[0]);
        settle().await;
        assert_eq!(server.of("initialize").len(), 2);
        server.session_gone(&server.held()[1]);
        settle().await;
        assert_eq!(exchange.failure()["code"], "server_unavailable");
        assert!(exchange.sentence().contains("the call did not run"));
        pass(seconds(1)).await;
        assert_eq!(server.held().len(), 2);
        client.call("a__echo").await.result();
        assert_eq!(world.view("a").in_flight, 0);
    });
}

/// Each ends with the same: one new session, or none.
#[test]
fn what_a_ping_says_decides_about_the_session() {
    let table = [
        (400, 2, true),
        (401, 2, true),
        (404, 2, true),
        (410, 2, true),
        (500, 2, true),
        (408, 1, false),
        (429, 1, false),
        (502, 1, false),
        (503, 1, false),
        (504, 1, false),
    ];
    for (status, handshakes, is_renewed) in table {
        run(async {
            let world = Rc::new(World::new());
            let server = world
                .http("a", |plan| plan.settings.limits.ping_every = seconds(5))
                .await;
            let client = world.client(json!({})).await;
            // A ping was answered before.
            pass(seconds(6)).await;
            server.mute("ping");
            let exchange = client.call("a__hold").await;
            let refusal = || LinkError::status(status, "no");
            server.session_refused(&server.held()[0], refusal());
            settle().await;
            server.fail(&server.last("ping"), refusal());
            server.behave();
            settle().await;
            let sessions = server.of("initialize").len();
            assert_eq!(sessions, handshakes, "{status}");
            assert_eq!(server.held().len(), if is_renewed { 2 } else { 1 });
            assert_eq!(
                exchange.is_waiting(),
                !matches!(status, 408 | 429),
                "{status}"
            );
        });
    }
}

#[test]
fn a_server_that_forgets_each_session_is_asked_less_and_less_and_is_broken() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", |_| {}).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        server.forget_session(1_000_000);
        let exchange = client.call("a__echo").await;
        pass(seconds(5)).await;
        assert!(exchange.sentence().contains("the call did not run"));
        let before = server.of("initialize").len();
        assert!(before < 8, "{before}");
        pass(seconds(115)).await;
        let after = server.of("initialize").len();
        assert!(after < before + 10, "{after}");
        let view = world.view("a").shared;
        assert_eq!(view.phase.to_string(), "broken");
        let exit = view.last_exit.unwrap();
        assert!(exit.contains("refuses a session"), "{exit}");
        assert!(exit.contains("Session not found"), "{exit}");
        // It mends itself.
        server.behave();
        pass(seconds(31)).await;
        client.call("a__echo").await.result();
    });
}

#[test]
fn replicas_that_do_not_share_sessions_are_told_from_a_lost_session() {
    run(async {
        let world = Rc::new(World::new());
        let server = world
            .http("a", |plan| plan.settings.resilience.breaker.failures = 0)
            .await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        // Each other request comes to the replica that does not know the session.
        for _ in 0..30 {
            let exchange = client.call("a__hold").await;
            for _ in 0..3 {
                if exchange.is_waiting() {
                    server.session_gone(&server.held().pop().unwrap());
                    pass(millis(100)).await;
                }
            }
            assert!(exchange.is_over());
        }
        assert!(server.of("initialize").len() < 8);
        let exit = world.view("a").shared.last_exit.unwrap();
        assert!(exit.contains("sticky"), "{exit}");
    });
}

#[test]
fn a_server_that_is_out_of_service_is_not_up() {
    run(async {
        let world = Rc::new(World::new());
        let server = world
            .http("a", |plan| plan.settings.limits.ping_every = seconds(5))
            .await;
        world.client(json!({})).await;
        pass(seconds(2)).await;
        server.mute("ping");
        let mut refused = 0;
        for _ in 0..40 {
            pass(seconds(1)).await;
            let pings = server.of("ping");
            for ping in &pings[refused..] {
                server.fail(ping, LinkError::status(503, "Down for maintenance"));
            }
            refused = pings.len();
        }
        let view = world.view("a").shared;
        assert!(view.restarts > 0 || view.last_exit.is_some());
        let exit = view.last_exit.unwrap();
        assert!(exit.contains("Down for maintenance"), "{exit}");
    });
}

#[test]
fn a_call_that_was_taken_back_meanwhile_is_not_sent_again() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", |_| {}).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let exchange = client.call("a__hold").await;
        server.forget_session(0);
        server.mute("initialize");
        server.session_gone(&server.held()[0]);
        settle().await;
        client.cancel(&exchange).await;
        server.behave();
        let handshake = server.last("initialize");
        server.answer(
            &handshake,
            json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}),
        );
        settle().await;
        assert_eq!(server.held().len(), 1);
        assert!(exchange.is_over());
    });
}

#[test]
fn a_renewal_that_fails_is_a_restart() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", |_| {}).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let exchange = client.call("a__hold").await;
        server.forget_session(0);
        server.mute("initialize");
        server.session_gone(&server.held()[0]);
        pass(seconds(31)).await;
        let sentence = exchange.sentence();
        assert!(
            sentence.contains("`initialize` was not answered"),
            "{sentence}"
        );
        assert_eq!(world.view("a").shared.generation, 1);
        server.behave();
        pass(seconds(1)).await;
        assert_eq!(world.view("a").shared.generation, 2);
        client.call("a__echo").await.result();
    });
}

#[test]
fn notes_and_intervals_wait_for_the_end_of_a_renewal() {
    run(async {
        let world = Rc::new(World::new());
        let server = world
            .http("a", |plan| {
                plan.settings.limits.refresh_every = seconds(10);
                plan.settings.limits.ping_every = seconds(4);
            })
            .await;
        let client = world.client(json!({})).await;
        pass(seconds(1)).await;
        let exchange = client.call("a__hold").await;
        server.forget_session(0);
        server.mute("initialize");
        server.session_gone(&server.held()[0]);
        settle().await;
        let before = server.frames().len();
        server.say_on(0, note("notifications/tools/list_changed", json!({})));
        pass(seconds(12)).await;
        let frames = server.frames().split_off(before);
        assert!(frames.is_empty(), "{frames:#?}");
        server.behave();
        let handshake = server.last("initialize");
        server.answer(
            &handshake,
            json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}),
        );
        pass(millis(500)).await;
        assert!(server.frames().len() > before);
        let call = server.held().pop().unwrap();
        server.answer(&call, text(json!(1)));
        settle().await;
        exchange.result();
    });
}

#[test]
fn a_call_that_could_not_be_sent_makes_the_gateway_look_after_the_server() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", |_| {}).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let first = client.call("a__hold").await;
        let second = client.call("a__hold").await;
        server.fail(&server.held()[0], LinkError::NotSent("refused".into()));
        settle().await;
        assert_eq!(first.failure()["code"], "server_unavailable");
        assert_eq!(server.of("ping").len(), 1);
        assert!(second.is_waiting());
        // It is still there: nothing else happens.
        pass(seconds(10)).await;
        assert_eq!(world.view("a").shared.generation, 1);
        // The next time it is not.
        server.mute("ping");
        let third = client.call("a__hold").await;
        server.fail(&server.held()[2], LinkError::NotSent("refused".into()));
        settle().await;
        server.fail(&server.of("ping")[1], LinkError::NotSent("refused".into()));
        settle().await;
        assert_eq!(third.failure()["code"], "server_unavailable");
        assert_eq!(second.failure()["code"], "server_lost");
        let exit = world.view("a").shared.last_exit.unwrap();
        assert!(exit.contains("`ping`: not sent: refused"), "{exit}");
        server.behave();
        pass(seconds(1)).await;
        client.call("a__echo").await.result();
    });
}

#[test]
fn a_failure_of_one_call_is_no_failure_of_another() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", |_| {}).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let status = LinkError::status(500, "oops");
        let table = [
            (LinkError::Lost("cut".to_owned()), "server_lost"),
            (status, "server_protocol"),
            (
                LinkError::TooLarge {
                    name: "body",
                    limit: 9,
                },
                "server_protocol",
            ),
            (LinkError::Protocol("no JSON".into()), "server_protocol"),
        ];
        let other = client.call("a__hold").await;
        for (error, code) in table {
            let exchange = client.call("a__hold").await;
            server.fail(&server.held().pop().unwrap(), error);
            settle().await;
            assert_eq!(exchange.failure()["code"], code);
        }
        server.answer(&server.held()[0], text(json!("ok")));
        settle().await;
        other.result();
        assert_eq!(world.view("a").shared.generation, 1);
    });
}
