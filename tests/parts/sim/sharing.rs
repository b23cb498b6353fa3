//! Clients that share a connection over a transport that does not say whose question it is.

use std::rc::Rc;

use mcpvisor::downstream::SeparationReason;
use serde_json::{Value, json};

use crate::sim::client::Client;
use crate::sim::questions::{ELICIT, elicit, held, question};
use crate::sim::served::Served;
use crate::sim::server::{Server, ask, text};
use crate::sim::world::{Plan, World, millis, pass, run, seconds, settle};

fn asked_for() -> Value {
    json!({"elicitation": {}, "roots": {}})
}

/// Two clients in front of one server, which they share.
async fn two_clients() -> (Rc<World>, Server, [Client; 2]) {
    let world = Rc::new(World::new());
    let server = world.stdio("a", |_| {}).await;
    pass(millis(50)).await;
    let clients = [
        world.client(asked_for()).await,
        world.client(asked_for()).await,
    ];
    (world, server, clients)
}

#[test]
fn clients_of_any_capabilities_share_a_process() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", |_| {}).await;
        pass(millis(50)).await;
        for _ in 0..10 {
            for capabilities in [json!({}), asked_for(), json!({"sampling": {}})] {
                let client = world.client(capabilities.clone()).await;
                assert_eq!(client.tools().await.len(), 3);
                client.call("a__echo").await.result();
                let params = json!({"name": "a__echo", "arguments": {"text": "hi"}});
                let mut newer = Served::send(&world, &capabilities, "tools/call", params).await;
                newer.result();
            }
        }
        assert_eq!(server.links(), 1);
    });
}

#[test]
fn a_question_is_for_the_client_whose_calls_alone_are_under_way() {
    run(async {
        let (_world, server, [first, second]) = two_clients().await;
        let (done, call) = held(&first, &server).await;
        server.answer(&call, text(json!("done")));
        settle().await;
        done.result();
        let (one, call) = held(&second, &server).await;
        let (other, other_call) = held(&second, &server).await;
        server.say_on(call.link, elicit("q"));
        settle().await;
        assert!(one.of(ELICIT).is_empty());
        second
            .answer(&question(&other), "result", json!({"action": "accept"}))
            .await;
        let answer = server.answer_to(&json!("q")).unwrap();
        assert_eq!(answer["result"]["action"], "accept");
        for call in [call, other_call] {
            server.answer(&call, text(json!("done")));
        }
        settle().await;
        first.call("a__echo").await.result();
        assert_eq!(server.links(), 1);
    });
}

#[test]
fn a_question_that_may_be_of_two_clients_is_refused_and_isolates_the_server() {
    run(async {
        let (world, server, [first, second]) = two_clients().await;
        let (one, one_call) = held(&first, &server).await;
        let (other, other_call) = held(&second, &server).await;
        server.say_on(one_call.link, elicit("q"));
        settle().await;
        let refused = server.answer_to(&json!("q")).unwrap();
        let why = refused["error"]["message"].as_str().unwrap();
        assert!(why.contains("a connection of its own"), "{refused}");
        for call in [one_call, other_call] {
            server.answer(&call, text(json!("done")));
        }
        settle().await;
        for exchange in [one, other] {
            assert!(exchange.of(ELICIT).is_empty());
            exchange.result();
        }
        let (one, one_call) = held(&first, &server).await;
        let (other, other_call) = held(&second, &server).await;
        assert_ne!(one_call.link, other_call.link);
        server.say_on(other_call.link, elicit("q2"));
        settle().await;
        assert!(one.of(ELICIT).is_empty());
        question(&other);
        assert_eq!(world.view("a").separation, [SeparationReason::Unattributed]);
    });
}

#[test]
fn a_late_question_of_a_cancelled_call_is_no_question_of_another_client() {
    run(async {
        let (_world, server, [first, second]) = two_clients().await;
        let (cancelled, _) = held(&first, &server).await;
        first.cancel(&cancelled).await;
        let (other, call) = held(&second, &server).await;
        server.say_on(call.link, elicit("q"));
        settle().await;
        assert!(other.of(ELICIT).is_empty());
        assert!(server.answer_to(&json!("q")).unwrap()["error"].is_object());
    });
}

#[test]
fn a_cancelled_call_that_is_never_answered_is_forgotten_in_time() {
    run(async {
        let timeout = seconds(90);
        for (waited, is_asked) in [(seconds(89), false), (seconds(91), true)] {
            let (world, server, [first, second]) = two_clients().await;
            world
                .retune("a", |settings| settings.limits.cancelled_timeout = timeout)
                .await;
            let (cancelled, _) = held(&first, &server).await;
            first.cancel(&cancelled).await;
            pass(waited).await;
            let (other, call) = held(&second, &server).await;
            server.say_on(call.link, elicit("q"));
            settle().await;
            assert_eq!(other.of(ELICIT).len(), usize::from(is_asked), "{waited:?}");
        }
    });
}

#[test]
fn a_question_outside_of_calls_is_for_the_only_client_so_far() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", |_| {}).await;
        pass(millis(50)).await;
        let client = world.client(asked_for()).await;
        client.call("a__echo").await.result();
        let general = client.listen(None).await;
        server.say_on(0, elicit("q"));
        settle().await;
        client
            .answer(&question(&general), "result", json!({"action": "accept"}))
            .await;
        let answer = server.answer_to(&json!("q")).unwrap();
        assert_eq!(answer["result"]["action"], "accept");
        // Once a second one called, it may be for either.
        world
            .client(asked_for())
            .await
            .call("a__echo")
            .await
            .result();
        server.say_on(0, elicit("q2"));
        settle().await;
        assert!(server.answer_to(&json!("q2")).unwrap()["error"].is_object());
    });
}

#[test]
fn a_server_that_asks_for_roots_serves_one_client_per_connection() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", |_| {}).await;
        pass(millis(50)).await;
        let client = world.client(asked_for()).await;
        let (exchange, call) = held(&client, &server).await;
        server.say_on(call.link, ask("r", "roots/list", json!({})));
        settle().await;
        let asked = exchange.of("roots/list").remove(0);
        let roots = json!({"roots": [{"uri": "file:///mine"}]});
        client.answer(&asked, "result", roots.clone()).await;
        assert_eq!(server.answer_to(&json!("r")).unwrap()["result"], roots);
        server.answer(&call, text(json!("done")));
        settle().await;
        // The roots of one client hold for nobody else; it keeps its process.
        let other = world.client(asked_for()).await;
        other.call("a__echo").await.result();
        assert_eq!(server.last("tools/call").link, 1);
        client.call("a__echo").await.result();
        assert_eq!(server.last("tools/call").link, 0);
        client
            .notify("notifications/roots/list_changed", json!({}))
            .await;
        let received = server.of("notifications/roots/list_changed");
        assert_eq!(
            received.iter().map(|frame| frame.link).collect::<Vec<_>>(),
            [0]
        );
        // Clients without roots share another process as long as the first one is taken.
        for capabilities in [json!({}), json!({"sampling": {}})] {
            let rootless = world.client(capabilities).await;
            rootless.call("a__echo").await.result();
            assert_eq!(server.last("tools/call").link, 2);
        }
        // Nobody else gets the process with its roots.
        client.end().await;
        pass(seconds(5)).await;
        assert_eq!(server.open_links(), [1, 2, 3]);
        let rootless = world.client(json!({})).await;
        rootless.call("a__echo").await.result();
        assert_eq!(server.last("tools/call").link, 3);
        other.end().await;
        pass(seconds(400)).await;
        assert_eq!(world.view("a").own.len(), 0);
    });
}

/// A question of a call that was taken back reached the client that called next.
#[test]
fn b_ask_01_a_question_of_a_call_that_was_taken_back_reaches_no_other_sessionless_client() {
    run(async {
        let asked = json!({"elicitation": {}});
        let params = json!({"name": "a__hold", "arguments": {}});
        let world = Rc::new(World::new());
        let isolated = |plan: &mut Plan| plan.reasons.push("unattributed");
        let server = world.stdio("a", isolated).await;
        pass(millis(50)).await;
        let mut held = Vec::new();
        let mut calls = Vec::new();
        for _ in 0..2 {
            calls.clear();
            settle().await;
            let call = Served::send(&world, &asked, "tools/call", params.clone()).await;
            pass(millis(50)).await;
            calls.push(call);
            held.push(server.held().pop().unwrap());
        }
        assert_eq!([held[0].link, held[1].link], [1, 2]);
        // The server did not hear yet that nobody waits for the first.
        server.say_for(&held[0], elicit("q"));
        pass(millis(50)).await;
        assert!(calls[0].answer().is_none());
        assert!(server.answer_to(&json!("q")).is_some());
        server.say_for(&held[1], elicit("r"));
        pass(millis(50)).await;
        assert_eq!(calls[0].result()["resultType"], "input_required");
    });
}
