//! A server that forgets our session, or answers single calls with failures of the transport.

use std::rc::Rc;

use mcpvisor::transport::LinkError;
use serde_json::json;

use crate::server::{note, text};
use crate::world::{World, millis, pass, run, seconds, settle};

#[test]
fn a_forgotten_session_is_renewed_and_no_client_notices() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", |_| {}).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let exchanges = [client.call("a__hold").await, client.call("a__hold").await];
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
        // Each is sent again exactly once, after `initialized`.
        let methods: Vec<_> = server
            .frames()
            .iter()
            .rev()
            .map(|frame| frame.method().to_owned())
            .collect();
        assert_eq!(
            &methods[1..5],
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
        assert_eq!(server.of("tools/list").len(), 2);
    });
}

#[test]
fn a_call_that_is_refused_twice_fails() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", |_| {}).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let exchange = client.call("a__hold").await;
        server.session_gone(&server.held()[0]);
        settle().await;
        server.session_gone(&server.held()[1]);
        settle().await;
        assert!(exchange.sentence().contains("forgot our session twice"));
        pass(seconds(1)).await;
        assert_eq!(server.held().len(), 2);
        client.call("a__echo").await.result();
        assert_eq!(world.view("a").in_flight, 0);
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
        let status = LinkError::Status {
            status: 500,
            text: "oops".to_owned(),
        };
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
