//! A sessionless server needs input in the middle of a call of a client with a handshake.

use std::rc::Rc;

use mcpvisor::transport::LinkError;
use serde_json::{Value, json};

use crate::sim::client::{Client, Exchange};
use crate::sim::modern::sessionless;
use crate::sim::server::{Frame, Server, text};
use crate::sim::world::{World, millis, pass, run, seconds, settle};

fn form() -> Value {
    json!({"method": "elicitation/create", "params": {
        "mode": "form", "message": "who?",
        "requestedSchema": {"type": "object", "properties": {"who": {"type": "string"}}},
    }})
}

fn sampling() -> Value {
    json!({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 60}})
}

fn model() -> Value {
    json!({"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"})
}

async fn world() -> (Rc<World>, Server, Client) {
    let world = Rc::new(World::new());
    let server = world.http("a", sessionless).await;
    let client = world
        .client(json!({"elicitation": {}, "sampling": {}, "roots": {}}))
        .await;
    pass(millis(50)).await;
    (world, server, client)
}

/// A call that waits at the server.
async fn held(server: &Server, client: &Client) -> (Exchange, Frame) {
    let exchange = client.call_with_progress("a__hold", json!("t")).await;
    (exchange, server.last("tools/call"))
}

fn questions(exchange: &Exchange) -> Vec<Value> {
    let mut messages = exchange.messages();
    messages.retain(|message| !message["id"].is_null() && !message["method"].is_null());
    messages
}

#[test]
fn c_mrtr_the_client_is_asked_and_the_call_goes_on() {
    run(async {
        let (world, server, client) = world().await;
        let (exchange, call) = held(&server, &client).await;
        server.need(
            &call,
            json!({"owner": form(), "pitch": sampling()}),
            "opaque \u{e4}\"1",
        );
        settle().await;
        let asked = questions(&exchange);
        let methods: Vec<_> = asked.iter().map(|asked| asked["method"].clone()).collect();
        assert_eq!(methods, ["elicitation/create", "sampling/createMessage"]);
        assert_eq!(asked[0]["params"]["message"], "who?");
        // People take their time: nothing runs out before the whole call does.
        pass(seconds(200)).await;
        client.answer(&asked[1], "result", model()).await;
        assert_eq!(server.of("tools/call").len(), 1);
        let owner = json!({"action": "accept", "content": {"who": "kim"}});
        client.answer(&asked[0], "result", owner.clone()).await;
        let again = server.last("tools/call");
        assert_ne!(again.json["id"], call.json["id"]);
        let params = &again.json["params"];
        assert_eq!(params["requestState"], "opaque \u{e4}\"1");
        assert_eq!(
            params["inputResponses"],
            json!({"owner": owner, "pitch": model()})
        );
        assert_eq!(params["name"], "hold");
        assert_eq!(again.header("mcp-name"), Some("hold"));
        // Progress of the repeated call is the call's.
        server.progress(&again, 1.0);
        // A second round has its own answers only.
        server.need(&again, json!({"more": form()}), "opaque-2");
        settle().await;
        let asked = questions(&exchange);
        client
            .answer(&asked[2], "error", json!({"code": -1, "message": "no"}))
            .await;
        let last = server.last("tools/call");
        let params = &last.json["params"];
        assert_eq!(
            params["inputResponses"],
            json!({"more": {"action": "cancel"}})
        );
        assert_eq!(params["requestState"], "opaque-2");
        let mut result = text(json!("done"));
        result["resultType"] = json!("complete");
        server.answer(&last, result);
        settle().await;
        assert_eq!(exchange.result(), text(json!("done")));
        assert_eq!(
            exchange.of("notifications/progress")[0]["params"]["progressToken"],
            "t"
        );
        assert_eq!(world.view("a").in_flight, 0);
        assert_eq!(world.counted("input_rounds"), 2);
    });
}

#[test]
fn a_call_that_ran_in_part_is_not_sent_again() {
    run(async {
        let (world, server, client) = world().await;
        world
            .retune("a", |settings| settings.resilience.retry.is_allowed = true)
            .await;
        let (exchange, call) = held(&server, &client).await;
        server.need(&call, json!({"owner": form()}), "s");
        settle().await;
        let asked = questions(&exchange);
        client
            .answer(&asked[0], "result", json!({"action": "cancel"}))
            .await;
        let again = server.last("tools/call");
        server.fail(&again, LinkError::NotSent("connection refused".into()));
        pass(seconds(5)).await;
        assert_eq!(exchange.failure()["code"], "server_lost");
        assert_eq!(server.of("tools/call").len(), 2);
        assert_eq!(world.counted("calls_repeated"), 0);
    });
}

#[test]
fn a_refusal_of_the_client_ends_the_call() {
    run(async {
        let (world, server, client) = world().await;
        let (exchange, call) = held(&server, &client).await;
        server.need(&call, json!({"a": form(), "b": sampling()}), "s");
        settle().await;
        let asked = questions(&exchange);
        client
            .answer(
                &asked[1],
                "error",
                json!({"code": -1, "message": "rejected"}),
            )
            .await;
        assert_eq!(exchange.failure()["code"], "input_refused");
        assert!(
            exchange.sentence().contains("rejected"),
            "{}",
            exchange.sentence()
        );
        // The other question is taken back, and its late answer changes nothing.
        assert_eq!(exchange.of("notifications/cancelled").len(), 1);
        client
            .answer(&asked[0], "result", json!({"action": "decline"}))
            .await;
        assert_eq!(server.of("tools/call").len(), 1);
        assert_eq!(world.view("a").in_flight, 0);
    });
}

#[test]
fn an_undeclared_question_is_not_asked() {
    run(async {
        let (world, server, _) = world().await;
        let client = world.client(json!({"elicitation": {}})).await;
        let (exchange, call) = held(&server, &client).await;
        server.need(&call, json!({"a": form(), "b": sampling()}), "s");
        settle().await;
        assert_eq!(exchange.failure()["code"], "input_refused");
        assert!(questions(&exchange).is_empty());
    });
}

#[test]
fn a_server_that_never_has_enough_is_given_up() {
    run(async {
        let (world, server, client) = world().await;
        let (exchange, _) = held(&server, &client).await;
        for round in 1..=8 {
            server.need(&server.last("tools/call"), json!({"a": form()}), "s");
            settle().await;
            let asked = questions(&exchange).pop().unwrap();
            client
                .answer(&asked, "result", json!({"action": "decline"}))
                .await;
            assert_eq!(server.of("tools/call").len(), round + 1);
        }
        server.need(&server.last("tools/call"), json!({"a": form()}), "s");
        settle().await;
        assert!(
            exchange.sentence().contains("8 times"),
            "{}",
            exchange.sentence()
        );
        assert_eq!(world.view("a").in_flight, 0);
    });
}

#[test]
fn a_state_alone_is_given_back_after_a_pause() {
    run(async {
        let (_, server, client) = world().await;
        let (exchange, call) = held(&server, &client).await;
        server.need(&call, json!({}), "busy");
        settle().await;
        assert_eq!(server.of("tools/call").len(), 1);
        pass(millis(300)).await;
        let again = server.last("tools/call");
        assert_eq!(again.json["params"]["requestState"], "busy");
        assert!(again.json["params"]["inputResponses"].is_null());
        server.answer(&again, text(json!("done")));
        settle().await;
        assert_eq!(exchange.result(), text(json!("done")));
    });
}

#[test]
fn a_call_that_waits_for_its_client_can_be_taken_back() {
    run(async {
        let (world, server, client) = world().await;
        let (exchange, call) = held(&server, &client).await;
        server.need(&call, json!({"a": form()}), "s");
        settle().await;
        server.forgotten(call.link);
        client.cancel(&exchange).await;
        // The server has nothing of it.
        assert!(server.forgotten(call.link).is_empty());
        assert!(server.of("notifications/cancelled").is_empty());
        assert_eq!(world.view("a").in_flight, 0);
        // One that was repeated is taken back at the server.
        let (exchange, call) = held(&server, &client).await;
        server.need(&call, json!({"a": form()}), "s");
        settle().await;
        let asked = questions(&exchange).pop().unwrap();
        client
            .answer(&asked, "result", json!({"action": "decline"}))
            .await;
        let again = server.last("tools/call");
        client.cancel(&exchange).await;
        assert_eq!(server.forgotten(call.link), [again.call.unwrap()]);
        assert_eq!(world.view("a").in_flight, 0);
    });
}

#[test]
fn a_server_that_dies_meanwhile_answers_its_callers() {
    run(async {
        let (world, server, client) = world().await;
        let (exchange, call) = held(&server, &client).await;
        server.need(&call, json!({"a": form()}), "s");
        settle().await;
        server.crash("gone");
        settle().await;
        assert_eq!(exchange.failure()["code"], "server_lost");
        assert_eq!(world.view("a").in_flight, 0);
        let asked = questions(&exchange).pop().unwrap();
        client
            .answer(&asked, "result", json!({"action": "decline"}))
            .await;
        pass(seconds(2)).await;
        client.call("a__echo").await.result();
    });
}

#[test]
fn a_client_that_leaves_ends_the_loop() {
    run(async {
        let (world, server, client) = world().await;
        let (_, call) = held(&server, &client).await;
        server.need(&call, json!({"a": form()}), "s");
        settle().await;
        client.end().await;
        pass(seconds(1)).await;
        assert_eq!(world.view("a").in_flight, 0);
        assert_eq!(server.of("tools/call").len(), 1);
    });
}

#[test]
fn a_capability_that_the_server_misses_is_named() {
    run(async {
        let (_, server, client) = world().await;
        let (exchange, call) = held(&server, &client).await;
        server.refuse(&call, -32021, "needs sampling.tools");
        settle().await;
        let sentence = exchange.sentence();
        assert!(sentence.contains("does not declare"), "{sentence}");
    });
}

#[test]
fn a_request_that_asked_for_input_is_not_answered_a_second_time() {
    run(async {
        let (_, server, client) = world().await;
        let (exchange, call) = held(&server, &client).await;
        server.need(&call, json!({"a": form()}), "s");
        server.answer(&call, text(json!("twice")));
        settle().await;
        assert!(exchange.answer().is_none());
        let asked = questions(&exchange).pop().unwrap();
        let declined = json!({"action": "decline"});
        client.answer(&asked, "result", declined).await;
        server.answer(&server.last("tools/call"), text(json!("done")));
        settle().await;
        assert_eq!(exchange.result(), text(json!("done")));
    });
}
