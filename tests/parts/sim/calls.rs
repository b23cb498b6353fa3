//! Calls: ids and tokens, deadlines, taking back, limits, one answer each.

use std::rc::Rc;
use std::sync::Arc;

use mcpvisor::transport::LinkError;
use serde_json::{Value, json};

use crate::sim::hostile::PanickingConnector;
use crate::sim::server::text;
use crate::sim::world::{Plan, World, millis, pass, run, seconds, settle};

#[test]
fn a_call_goes_there_and_back_under_an_id_and_token_of_ours() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", |_| {}).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        assert_eq!(client.tools().await, ["a__echo", "a__hold", "a__panic"]);
        for id in [
            "7",
            "-3",
            "\"x\"",
            "\"7\"",
            "\"\\u00e4 \\\"\"",
            "12345678901234567890123",
        ] {
            let frame = format!(
                r#"{{ "jsonrpc":"2.0","vendor": 1e2, "id":{id},"method":"tools/call","params":{{"name":"a__hold","x": [1, 2.50],"_meta":{{"v":"\u0041","progressToken":{id}}}}}}}"#
            );
            let exchange = client.raw(&frame, true).await;
            settle().await;
            let call = server.held().pop().unwrap();
            let number = exchange.number;
            let expected = frame
                .replace(&format!("\"id\":{id}"), &format!("\"id\":{number}"))
                .replace("\"a__hold\"", "\"hold\"")
                .replace(
                    &format!("\"progressToken\":{id}"),
                    &format!("\"progressToken\":{number}"),
                );
            assert_eq!(call.raw, expected);
            server.raw_on(0, &format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"new":1,"progressToken":{number},"progress":0.50}}}}"#
            ));
            server.raw_on(0, &format!(
                r#"{{"id":{number},"jsonrpc":"2.0","result":{{"a": 1.0 , "content":[]}}, "extra":[true]}}"#
            ));
            settle().await;
            assert_eq!(
                exchange.raw(),
                [
                    format!(
                        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"new":1,"progressToken":{id},"progress":0.50}}}}"#
                    ),
                    format!(
                        r#"{{"id":{id},"jsonrpc":"2.0","result":{{"a": 1.0 , "content":[]}}, "extra":[true]}}"#
                    ),
                ]
            );
            assert!(exchange.is_over());
        }
    });
}

#[test]
fn two_clients_with_equal_ids_get_their_own_answers() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", |_| {}).await;
        let clients = [world.client(json!({})).await, world.client(json!({})).await];
        pass(millis(50)).await;
        let first = clients[0].call("a__hold").await;
        let second = clients[1].call("a__hold").await;
        assert_eq!(first.id, second.id);
        let again = clients[0]
            .exchange(
                json!({"jsonrpc": "2.0", "id": first.id, "method": "tools/call", "params": {"name": "a__hold"}}),
                true,
            )
            .await;
        settle().await;
        assert_eq!(again.error()["code"], -32600);
        let calls = server.held();
        server.answer(&calls[1], text(json!("second")));
        server.answer(&calls[0], text(json!("first")));
        settle().await;
        assert_eq!(first.result(), text(json!("first")));
        assert_eq!(second.result(), text(json!("second")));
    });
}

#[test]
fn progress_extends_the_deadline_up_to_the_cap() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", |_| {}).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let silent = client.call("a__hold").await;
        let lively = client.call_with_progress("a__hold", json!("t")).await;
        let calls = server.held();
        for step in 1..=9 {
            pass(seconds(59)).await;
            server.progress(&calls[1], f64::from(step));
            settle().await;
            assert!(!lively.is_over(), "{step}");
        }
        assert_eq!(silent.failure()["code"], "timeout");
        // 531 s have passed; the cap is at 600 s although progress goes on.
        pass(seconds(50)).await;
        server.progress(&calls[1], 10.0);
        pass(seconds(18)).await;
        assert!(!lively.is_over());
        pass(seconds(2)).await;
        assert_eq!(lively.failure()["code"], "timeout");
        assert_eq!(world.counted("deadline_exceeded_server"), 2);
        assert_eq!(lively.of("notifications/progress").len(), 10);
        let taken_back: Vec<_> = server
            .of("notifications/cancelled")
            .iter()
            .map(|note| note.json["params"]["requestId"].clone())
            .collect();
        assert_eq!(taken_back, [json!(silent.number), json!(lively.number)]);
        assert_eq!(world.view("a").in_flight, 0);
    });
}

#[test]
fn progress_must_go_forward_and_ends_with_the_call() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", |_| {}).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let exchange = client.call_with_progress("a__hold", json!(0)).await;
        let other = client.call("a__hold").await;
        let calls = server.held();
        for progress in [1.0, 1.0, 0.5, 2.0] {
            server.progress(&calls[0], progress);
        }
        // This client did not ask for progress.
        server.progress(&calls[1], 1.0);
        server.answer(&calls[0], text(json!("done")));
        server.progress(&calls[0], 3.0);
        settle().await;
        let steps: Vec<_> = exchange
            .of("notifications/progress")
            .iter()
            .map(|note| note["params"]["progress"].clone())
            .collect();
        assert_eq!(steps, [1.0, 2.0]);
        exchange.result();
        assert!(other.is_waiting());
    });
}

#[test]
fn a_cancelled_call_is_taken_back_and_never_answered() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", |_| {}).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let exchange = client.call("a__hold").await;
        let streamed = client.call_with_progress("a__hold", json!(1)).await;
        let calls = server.held();
        server.progress(&calls[1], 1.0);
        settle().await;
        assert!(streamed.is_stream());
        client.cancel(&exchange).await;
        client.cancel(&streamed).await;
        let notes = server.of("notifications/cancelled");
        assert_eq!(notes.len(), 2);
        assert_eq!(
            notes[0].json["params"],
            json!({"requestId": exchange.number, "reason": "changed my mind"})
        );
        for call in &calls {
            server.answer(call, text(json!("too late")));
        }
        pass(seconds(700)).await;
        assert!(exchange.is_over() && exchange.messages().is_empty());
        assert!(streamed.is_over() && streamed.answer().is_none());
        assert_eq!(world.counted("calls_cancelled"), 2);
        assert_eq!(world.view("a").in_flight, 0);
    });
}

#[test]
fn a_malformed_or_unknown_cancellation_is_ignored() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", |_| {}).await;
        let client = world.client(json!({})).await;
        let stranger = world.client(json!({})).await;
        pass(millis(50)).await;
        let exchange = client.call("a__hold").await;
        for params in [
            json!({}),
            json!({"requestId": null}),
            json!({"requestId": 99}),
            json!({"requestId": exchange.id.to_string()}),
            json!({"requestId": {"a": [exchange.id]}}),
        ] {
            client.notify("notifications/cancelled", params).await;
        }
        // The same id, of another client.
        stranger.cancel(&exchange).await;
        assert!(server.of("notifications/cancelled").is_empty());
        let call = &server.held()[0];
        server.answer(call, text(json!("ok")));
        settle().await;
        exchange.result();
        client.cancel(&exchange).await;
        assert!(server.of("notifications/cancelled").is_empty());
    });
}

#[test]
fn a_call_can_be_taken_back_while_it_waits_for_its_connection() {
    run(async {
        let world = Rc::new(World::new());
        let plan = |plan: &mut Plan| plan.settings.limits.queue_while_restarting = seconds(60);
        let server = world.stdio("a", plan).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        server.crash("gone");
        settle().await;
        let exchange = client.call("a__hold").await;
        let other = client.call("a__echo").await;
        client.cancel(&exchange).await;
        pass(seconds(5)).await;
        other.result();
        assert!(exchange.is_over() && exchange.messages().is_empty());
        assert!(server.held().is_empty());
    });
}

#[test]
fn hostile_answers_hurt_nobody() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", |_| {}).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let exchange = client.call("a__hold").await;
        for text in [
            r#"{"jsonrpc":"2.0","id":null,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":99999,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":-1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2024-11-05","capabilities":{}}}"#,
            r#"{"jsonrpc":"2.0","id":18446744073709551616,"error":{}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":{}}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":[1]}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":7}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":1}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":[]}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
            r#"{"jsonrpc":"2.0","id":5,"method":"sampling/createMessage","params":[]}"#,
            r#"{"jsonrpc":"2.0","id":"v","method":"vendor/ask"}"#,
            "[]",
            "not json",
        ] {
            server.raw_on(0, text);
            settle().await;
        }
        assert_eq!(world.view("a").shared.generation, 1);
        assert_eq!(
            server.answer_to(&json!("v")).unwrap()["error"]["code"],
            -32601
        );
        let number = exchange.number;
        server.raw_on(
            0,
            &format!(r#"{{"jsonrpc":"2.0","id":{number},"error":"odd"}}"#),
        );
        settle().await;
        let answer: Value = serde_json::from_str(&exchange.raw()[0]).unwrap();
        assert_eq!(answer["error"]["code"], -32603);
        assert_eq!(answer["error"]["data"]["original"], "odd");
        // A second answer to the same call.
        server.raw_on(
            0,
            &format!(r#"{{"jsonrpc":"2.0","id":{number},"result":{{}}}}"#),
        );
        settle().await;
        assert_eq!(exchange.raw().len(), 1);
    });
}

#[test]
fn a_session_may_have_so_many_calls_and_gets_its_places_back() {
    run(async {
        let world = Rc::new(World::with(|settings| settings.calls_max = 2));
        let server = world.stdio("a", |_| {}).await;
        let client = world.client(json!({})).await;
        let other = world.client(json!({})).await;
        pass(millis(50)).await;
        type Ending = fn(&crate::sim::server::Server, &crate::sim::server::Frame);
        let endings: [Ending; 4] = [
            |server, call| server.answer(call, text(json!(1))),
            |server, call| server.refuse(call, -32000, "no"),
            |server, call| server.fail(call, LinkError::Lost("cut".to_owned())),
            |server, call| {
                server.fail(
                    call,
                    LinkError::TooLarge {
                        name: "body",
                        limit: 1,
                    },
                );
            },
        ];
        for ending in endings {
            let calls = [client.call("a__hold").await, client.call("a__hold").await];
            let shed = client.call("a__echo").await;
            assert_eq!(shed.failure()["code"], "overloaded");
            assert!(shed.sentence().contains("calls_per_session"));
            other.call("a__echo").await.result();
            let held = server.held();
            for call in &held[held.len() - 2..] {
                ending(&server, call);
            }
            settle().await;
            assert!(calls.iter().all(super::client::Exchange::is_over));
            assert_eq!(world.view("a").in_flight, 0);
        }
        let calls = [client.call("a__hold").await, client.call("a__hold").await];
        client.cancel(&calls[0]).await;
        client.call("a__echo").await.result();
        pass(seconds(61)).await;
        assert_eq!(calls[1].failure()["code"], "timeout");
        client.call("a__echo").await.result();
    });
}

#[test]
fn a_server_takes_so_many_calls_and_its_places_come_back() {
    run(async {
        let world = Rc::new(World::new());
        let server = world
            .stdio("a", |plan| {
                plan.settings.limits.calls_max = 2;
                plan.settings.resilience.queue.max = 0;
            })
            .await;
        let clients = [world.client(json!({})).await, world.client(json!({})).await];
        pass(millis(50)).await;
        for round in 0..5 {
            let calls = [
                clients[0].call("a__hold").await,
                clients[1].call("a__hold").await,
            ];
            let shed = clients[0].call("a__hold").await;
            assert_eq!(shed.failure()["code"], "overloaded");
            assert!(shed.sentence().contains("calls_per_server"));
            let held = server.held();
            match round {
                0 => held.iter().for_each(|call| server.answer(call, json!({}))),
                1 => clients[0].cancel(&calls[0]).await,
                2 => server.crash("gone"),
                3 => pass(seconds(61)).await,
                _ => clients[0].end().await,
            }
            clients[1].cancel(&calls[1]).await;
            settle().await;
            assert_eq!(world.view("a").in_flight, 0, "round {round}");
            pass(seconds(10)).await;
            clients[1].call("a__echo").await.result();
        }
    });
}

#[test]
fn a_queue_that_is_full_refuses_and_recovers() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", |plan| plan.script.queue = 4).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        // The server reads between two calls only when we let it.
        let mut exchanges = Vec::new();
        for id in 100..110 {
            let params = json!({"name": "a__hold"});
            let message =
                json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
            exchanges.push(client.exchange(message, true).await);
        }
        settle().await;
        let refused = exchanges.iter().filter(|exchange| exchange.is_over());
        let refused: Vec<_> = refused.map(|exchange| exchange.failure()).collect();
        assert!(!refused.is_empty() && refused.len() < 10);
        assert!(
            refused
                .iter()
                .all(|failure| failure["code"] == "overloaded")
        );
        assert_eq!(world.view("a").in_flight, 10 - refused.len());
        client.call("a__echo").await.result();
        drop(server);
    });
}

#[test]
fn every_caller_is_answered_when_the_connection_panics() {
    run(async {
        let world = Rc::new(World::new());
        let plan = |plan: &mut Plan| {
            plan.wrap = Some(Box::new(|inner| Arc::new(PanickingConnector(inner))));
        };
        let server = world.stdio("a", plan).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let waiting = client.call("a__hold").await;
        let params = json!({"name": "a__hold", "poison": true});
        let poisoned = client.request("tools/call", params).await;
        assert_eq!(waiting.failure()["code"], "server_lost");
        // It died with the actor before it was sent: it certainly did not run.
        assert_eq!(poisoned.failure()["code"], "server_unavailable");
        let view = world.view("a");
        assert_eq!((view.in_flight, view.shared.panics), (0, 1));
        pass(seconds(1)).await;
        client.call("a__echo").await.result();
        assert_eq!(server.links(), 2);
    });
}

#[test]
fn a_session_that_ends_takes_its_calls_back() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", |_| {}).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let exchange = client.call("a__hold").await;
        client.end().await;
        assert!(exchange.is_lost());
        let note = server.last("notifications/cancelled");
        assert_eq!(note.json["params"]["requestId"], exchange.number);
        assert_eq!(world.view("a").in_flight, 0);
        assert!(client.address().await.is_none());
        assert_eq!(world.sessions.len(), 0);
    });
}

#[test]
fn a_server_that_is_removed_answers_its_callers() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", |_| {}).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let exchange = client.call("a__hold").await;
        world.stop_server("a");
        // The call has `shutdown_timeout` to end.
        pass(seconds(6)).await;
        assert!(
            exchange
                .sentence()
                .contains("the gateway closed the connection")
        );
        let late = client.call("a__hold").await;
        assert!(late.is_over());
        pass(millis(50)).await;
        assert!(client.tools().await.is_empty());
        assert_eq!(client.call("a__hold").await.error()["code"], -32602);
        drop(server);
    });
}
