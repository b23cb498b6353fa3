//! Questions of servers to clients: whose they are, and what a server hears without an answer.

use std::rc::Rc;

use mcpvisor::downstream::Sharing;
use serde_json::{Value, json};

use crate::sim::client::{Client, Exchange};
use crate::sim::served::Served;
use crate::sim::server::{Frame, Server, ask, text};
use crate::sim::world::{Plan, World, millis, pass, run, seconds, settle};

fn asked_for() -> Value {
    json!({"elicitation": {}, "sampling": {}})
}

pub(crate) const ELICIT: &str = "elicitation/create";

pub(crate) fn elicit(id: &str) -> Value {
    ask(id, ELICIT, json!({"message": "which?", "vendor": 1.0}))
}

/// The one question that a client sees on this exchange.
pub(crate) fn question(exchange: &Exchange) -> Value {
    let mut questions = exchange.of(ELICIT);
    assert_eq!(questions.len(), 1, "{:?}", exchange.messages());
    questions.remove(0)
}

pub(crate) async fn held(client: &Client, server: &Server) -> (Exchange, Frame) {
    let exchange = client.call("a__hold").await;
    let call = server.held().pop().unwrap();
    // A session of its own keeps the ids of its client.
    let is_it = call.call == Some(exchange.number) || call.json["id"] == exchange.id;
    assert!(is_it, "{} {:?}", exchange.id, call.call);
    (exchange, call)
}

#[test]
fn a_question_reaches_the_client_of_its_call_and_the_answer_comes_back() {
    run(async {
        for knows_call_of_requests in [true, false] {
            let world = Rc::new(World::new());
            let server = world.start("a", knows_call_of_requests, |plan| {
                if !knows_call_of_requests {
                    plan.settings.sharing = Sharing::Session;
                }
            });
            pass(millis(50)).await;
            let first = world.client(asked_for()).await;
            let second = world.client(asked_for()).await;
            let (first_exchange, first_call) = held(&first, &server).await;
            let (second_exchange, second_call) = held(&second, &server).await;
            server.say_for(&second_call, elicit("q"));
            settle().await;
            assert!(first_exchange.messages().is_empty());
            let seen = question(&second_exchange);
            assert_ne!(seen["id"], "q");
            assert_eq!(seen["params"]["vendor"].to_string(), "1.0");
            // Another client cannot answer it.
            first.answer(&seen, "result", json!({"action": "no"})).await;
            assert!(server.answer_to(&json!("q")).is_none());
            let answer = json!({"action": "accept", "content": {"x": 1}});
            second.answer(&seen, "result", answer.clone()).await;
            second
                .answer(&seen, "result", json!({"action": "again"}))
                .await;
            assert_eq!(server.answer_to(&json!("q")).unwrap()["result"], answer);
            server.answer(&second_call, text(json!(2)));
            server.answer(&first_call, text(json!(1)));
            settle().await;
            assert_eq!(first_exchange.result(), text(json!(1)));
            assert_eq!(second_exchange.result(), text(json!(2)));
            // Attributed calls share a connection.
            let links = if knows_call_of_requests { 2 } else { 3 };
            assert_eq!(server.links(), links);
        }
    });
}

#[test]
fn an_error_of_the_client_is_passed_on_verbatim() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", |_| {}).await;
        pass(millis(50)).await;
        let client = world.client(asked_for()).await;
        let (exchange, call) = held(&client, &server).await;
        server.say_for(&call, ask("s", "sampling/createMessage", json!({})));
        settle().await;
        let seen = exchange.of("sampling/createMessage").remove(0);
        let error = json!({"code": -1, "message": "user rejected", "data": {"x": [1]}});
        client.answer(&seen, "error", error.clone()).await;
        assert_eq!(server.answer_to(&json!("s")).unwrap()["error"], error);
    });
}

/// The answer to a server when nobody can be asked.
fn assert_refused(server: &Server, id: &str, method: &str) {
    let answer = server.answer_to(&json!(id)).unwrap();
    match method {
        ELICIT => assert_eq!(answer["result"], json!({"action": "cancel"})),
        "roots/list" => assert_eq!(
            answer["result"],
            json!({"roots": [{"uri": "file:///configured"}]})
        ),
        _ => assert!(answer["error"]["code"].is_i64(), "{answer}"),
    }
}

#[test]
fn without_a_client_to_ask_the_gateway_answers() {
    run(async {
        let methods = [ELICIT, "roots/list", "sampling/createMessage"];
        for knows_call_of_requests in [true, false] {
            let world = Rc::new(World::new());
            let server = world.start("a", knows_call_of_requests, |_| {});
            pass(millis(50)).await;
            for method in methods {
                // Outside of any call.
                server.say(ask(&format!("0 {method}"), method, json!({})));
                settle().await;
                assert_refused(&server, &format!("0 {method}"), method);
            }
            // During a call of a client that declared nothing.
            let client = world.client(json!({})).await;
            let (exchange, call) = held(&client, &server).await;
            for method in methods {
                let id = format!("1 {method}");
                server.say_for(&call, ask(&id, method, json!({})));
                settle().await;
                // The requests outside of calls showed that it needs a process of its own.
                assert_refused(&server, &id, method);
            }
            assert!(exchange.messages().is_empty());
            // Of a client that declared something else, or accepts no stream.
            let other = world.client(json!({"roots": {}})).await;
            let params = json!({"name": "a__hold"});
            let message =
                json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
            let json_only = other.exchange(message, false).await;
            settle().await;
            let call = server.held().pop().unwrap();
            for method in methods {
                let id = format!("2 {method}");
                server.say_for(&call, ask(&id, method, json!({})));
                settle().await;
                assert_refused(&server, &id, method);
            }
            assert!(json_only.is_waiting());
        }
    });
}

#[test]
fn a_question_pauses_the_deadline_of_its_call_and_of_no_other() {
    run(async {
        let world = Rc::new(World::with(|settings| {
            settings.answer_timeout = seconds(500)
        }));
        let server = world.http("a", |_| {}).await;
        pass(millis(50)).await;
        let client = world.client(asked_for()).await;
        let other = world.client(asked_for()).await;
        let (first, first_call) = held(&client, &server).await;
        let (second, second_call) = held(&other, &server).await;
        let (silent, _) = held(&other, &server).await;
        pass(seconds(50)).await;
        server.say_for(&first_call, elicit("q1"));
        server.say_for(&second_call, elicit("q2"));
        settle().await;
        pass(seconds(5)).await;
        // An answer to one question is none to the other.
        client
            .answer(&question(&first), "result", json!({"action": "accept"}))
            .await;
        pass(seconds(30)).await;
        assert_eq!(silent.failure()["code"], "timeout");
        pass(seconds(31)).await;
        assert_eq!(first.failure()["code"], "timeout");
        pass(seconds(300)).await;
        assert!(!second.is_over(), "{:?}", second.messages());
        other
            .answer(&question(&second), "result", json!({"action": "accept"}))
            .await;
        pass(seconds(50)).await;
        assert!(!second.is_over());
        pass(seconds(11)).await;
        assert_eq!(second.failure()["code"], "timeout");
    });
}

#[test]
fn a_client_that_does_not_answer_in_time_cancels() {
    run(async {
        let world = Rc::new(World::with(|settings| {
            settings.answer_timeout = seconds(100)
        }));
        let server = world.http("a", |_| {}).await;
        pass(millis(50)).await;
        let client = world.client(asked_for()).await;
        let (exchange, call) = held(&client, &server).await;
        server.say_for(&call, elicit("q"));
        pass(seconds(99)).await;
        assert!(server.answer_to(&json!("q")).is_none());
        pass(seconds(2)).await;
        assert_refused(&server, "q", ELICIT);
        let seen = question(&exchange);
        let withdrawn = exchange.of("notifications/cancelled");
        assert_eq!(withdrawn[0]["params"]["requestId"], seen["id"]);
        client
            .answer(&seen, "result", json!({"action": "late"}))
            .await;
        assert_refused(&server, "q", ELICIT);
        assert_eq!(world.counted("deadline_exceeded_client"), 1);
    });
}

#[test]
fn a_question_is_withdrawn_when_its_call_is_over() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", |_| {}).await;
        pass(millis(50)).await;
        let client = world.client(asked_for()).await;
        type Ending = fn(&Server, &Frame);
        let endings: [Ending; 3] = [
            |server, call| server.answer(call, text(json!("done"))),
            |server, call| server.refuse(call, -32000, "no"),
            |server, _| server.crash("gone"),
        ];
        for ending in endings {
            let (exchange, call) = held(&client, &server).await;
            server.say_for(&call, elicit("q"));
            settle().await;
            let seen = question(&exchange);
            ending(&server, &call);
            settle().await;
            let withdrawn = exchange.of("notifications/cancelled");
            assert_eq!(withdrawn[0]["params"]["requestId"], seen["id"]);
            assert!(exchange.answer().is_some() && exchange.is_over());
            // The client answers all the same.
            client
                .answer(&seen, "result", json!({"action": "late"}))
                .await;
            pass(seconds(10)).await;
        }
    });
}

#[test]
fn a_question_on_the_general_stream_is_withdrawn_there() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", |_| {}).await;
        pass(millis(50)).await;
        let client = world.client(asked_for()).await;
        let general = client.listen(None).await;
        let params = json!({"name": "a__hold"});
        let message = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params});
        let exchange = client.exchange(message, false).await;
        settle().await;
        let call = server.held().pop().unwrap();
        server.say_for(&call, elicit("q"));
        settle().await;
        let seen = question(&general);
        server.answer(&call, text(json!("done")));
        settle().await;
        exchange.result();
        let withdrawn = general.of("notifications/cancelled");
        assert_eq!(withdrawn[0]["params"]["requestId"], seen["id"]);
    });
}

#[test]
fn a_session_that_ends_cancels_its_questions() {
    run(async {
        for knows_call_of_requests in [true, false] {
            let world = Rc::new(World::new());
            let server = world.start("a", knows_call_of_requests, |_| {});
            pass(millis(50)).await;
            let client = world.client(asked_for()).await;
            let (exchange, call) = held(&client, &server).await;
            server.say_for(&call, elicit("q"));
            settle().await;
            question(&exchange);
            client.end().await;
            assert_refused(&server, "q", ELICIT);
            assert_eq!(world.view("a").in_flight, 0);
        }
    });
}

#[test]
fn a_question_that_may_belong_to_either_of_two_calls_outlives_the_first() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", |_| {}).await;
        pass(millis(50)).await;
        // Whichever of the two ends first.
        for (first_ends, id) in [(true, "q1"), (false, "q2")] {
            let client = world.client(asked_for()).await;
            let (first, first_call) = held(&client, &server).await;
            let (second, second_call) = held(&client, &server).await;
            server.say_for(&first_call, elicit(id));
            settle().await;
            let mut seen = [first.of(ELICIT), second.of(ELICIT)].concat();
            assert_eq!(seen.len(), 1);
            let (ended, asking) = if first_ends {
                (&first_call, &second_call)
            } else {
                (&second_call, &first_call)
            };
            pass(seconds(100)).await;
            server.answer(ended, text(json!("done")));
            settle().await;
            client
                .answer(&seen.remove(0), "result", json!({"action": "accept"}))
                .await;
            let answers = server.frames();
            let mut answers = answers.iter().filter(|frame| {
                frame.link == asking.link && frame.json["id"] == id && frame.call.is_none()
            });
            assert_eq!(answers.next().unwrap().json["result"]["action"], "accept");
            assert!(answers.next().is_none());
            server.answer(asking, text(json!("done, too")));
            settle().await;
            first.result();
            second.result();
        }
    });
}

#[test]
fn a_question_outside_of_calls_goes_to_the_owner_of_the_connection() {
    run(async {
        let world = Rc::new(World::new());
        let server = world
            .stdio("a", |plan| plan.settings.sharing = Sharing::Session)
            .await;
        pass(millis(50)).await;
        let client = world.client(asked_for()).await;
        client.call("a__echo").await.result();
        assert_eq!(server.links(), 2);
        // No stream is open on which it could be asked.
        server.say_on(1, elicit("q0"));
        settle().await;
        assert_refused(&server, "q0", ELICIT);
        let general = client.listen(None).await;
        server.say_on(1, elicit("q1"));
        settle().await;
        let seen = question(&general);
        client
            .answer(&seen, "result", json!({"action": "accept"}))
            .await;
        let answer = server.answer_to(&json!("q1")).unwrap();
        assert_eq!(answer["result"]["action"], "accept");
        // The shared connection is nobody's.
        server.say_on(0, elicit("q2"));
        settle().await;
        assert_refused(&server, "q2", ELICIT);
        assert_eq!(general.of(ELICIT).len(), 1);
    });
}

#[test]
fn a_question_of_a_call_that_was_taken_back_is_put_to_nobody_else() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", |_| {}).await;
        pass(millis(50)).await;
        let clients = [
            world.client(asked_for()).await,
            world.client(asked_for()).await,
        ];
        let (gone, gone_call) = held(&clients[0], &server).await;
        clients[0].cancel(&gone).await;
        let (exchange, _) = held(&clients[1], &server).await;
        // It came on no call's stream, and may belong to the call that was taken back.
        server.say_on(gone_call.link, elicit("q"));
        settle().await;
        assert!(exchange.messages().is_empty());
        assert!(server.answer_to(&json!("q")).is_some());
        server.answer(&gone_call, text(json!("too late")));
        settle().await;
        server.say_on(gone_call.link, elicit("r"));
        settle().await;
        question(&exchange);
    });
}

/// A client without a session answers one of two questions, and one that nobody asked.
#[test]
fn s_mrtr_12_and_13_what_was_not_answered_is_asked_again() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", |_| {}).await;
        pass(millis(50)).await;
        let params = json!({"name": "a__hold", "arguments": {}});
        let mut called = Served::send(&world, &asked_for(), "tools/call", params.clone()).await;
        pass(millis(50)).await;
        let call = server.held().pop().unwrap();
        for id in ["q1", "q2"] {
            server.say_for(&call, elicit(id));
        }
        pass(millis(50)).await;
        let keys = |result: &Value| {
            let asked = result["inputRequests"].as_object().unwrap();
            asked.keys().cloned().collect::<Vec<_>>()
        };
        let asked = called.result();
        let key = keys(&asked).pop().unwrap();
        assert_eq!(keys(&asked).len(), 2);
        let mut back = params;
        back["requestState"] = asked["requestState"].clone();
        back["inputResponses"] = json!({key: {"action": "decline"}, "x": {"action": "accept"}});
        let mut called = Served::send(&world, &asked_for(), "tools/call", back).await;
        pass(millis(50)).await;
        assert_eq!(keys(&called.result()).len(), 1);
        let answer = server.answer_to(&json!("q2")).unwrap();
        assert_eq!(answer["result"]["action"], "decline");
        assert!(server.answer_to(&json!("q1")).is_none());
    });
}

#[test]
fn s_mrtr_02_a_client_is_asked_nothing_while_an_argument_is_completed() {
    run(async {
        let world = Rc::new(World::new());
        let completing = |plan: &mut Plan| {
            plan.script.capabilities = json!({"prompts": {}, "completions": {}});
            let prompts = vec![json!({"name": "p"})];
            plan.script.lists.insert("prompts", prompts);
            plan.script.mute.insert("completion/complete");
        };
        let server = world.http("a", completing).await;
        pass(millis(50)).await;
        let params = json!({
            "ref": {"type": "ref/prompt", "name": "a__p"}, "argument": {"name": "x", "value": "y"},
        });
        let method = "completion/complete";
        let mut completed = Served::send(&world, &asked_for(), method, params).await;
        pass(millis(50)).await;
        let request = server.last(method);
        server.say_for(&request, elicit("q"));
        pass(millis(50)).await;
        assert_refused(&server, "q", ELICIT);
        // Its server cannot go on, so the client reads an error and no question.
        let error = completed.error();
        assert_eq!(error["code"], -32603);
        assert_eq!(error["data"]["code"], "input_refused");
    });
}

#[test]
fn sampling_answered_in_parts_is_one_text_for_an_older_server() {
    run(async {
        let sampling = "sampling/createMessage";
        let text = |text: &str| json!({"type": "text", "text": text});
        let world = Rc::new(World::new());
        let older = |plan: &mut Plan| plan.script.revision = "2025-06-18";
        let server = world.start("a", true, older);
        pass(millis(50)).await;
        let client = world.client(asked_for()).await;
        let (exchange, call) = held(&client, &server).await;
        let use_of_a_tool = json!({"type": "tool_use", "id": "t", "name": "x", "input": {}});
        for (id, content) in [
            ("q1", json!([text("a"), text("b")])),
            ("q2", json!([use_of_a_tool])),
        ] {
            let params = json!({"messages": [], "maxTokens": 1});
            server.say_for(&call, ask(id, sampling, params));
            settle().await;
            let asked = exchange.of(sampling).pop().unwrap();
            let message = json!({"role": "assistant", "model": "m", "content": content});
            client.answer(&asked, "result", message).await;
        }
        let fitted = server.answer_to(&json!("q1")).unwrap();
        assert_eq!(fitted["result"]["content"], text("a\nb"));
        assert_eq!(fitted["result"]["model"], "m");
        let refused = server.answer_to(&json!("q2")).unwrap();
        assert_eq!(refused["error"]["code"], -32603);
    });
}
