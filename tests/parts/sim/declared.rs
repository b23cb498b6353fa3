//! Clients are asked for nothing that they did not declare, in whatever way a server asks.

use std::rc::Rc;

use serde_json::{Value, json};

use crate::sim::modern::sessionless;
use crate::sim::questions::{ELICIT, held};
use crate::sim::served::Served;
use crate::sim::server::{ask, text};
use crate::sim::tasks::{EXTENSION, extended, modern_task};
use crate::sim::world::{World, millis, pass, run, settle};

const SAMPLING: &str = "sampling/createMessage";

fn url() -> Value {
    json!({"mode": "url", "elicitationId": "e", "url": "https://x.example/", "message": "x"})
}

fn sampling(more: (&str, Value)) -> Value {
    let (member, value) = more;
    json!({"messages": [], "maxTokens": 1, member: value})
}

#[test]
fn s_req_02_and_03_a_session_is_asked_only_what_it_declared() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", |_| {}).await;
        pass(millis(50)).await;
        let client = world
            .client(json!({"elicitation": {}, "sampling": {}}))
            .await;
        let (exchange, call) = held(&client, &server).await;
        let questions = [
            ("q1", ELICIT, url()),
            ("q2", SAMPLING, sampling(("tools", json!([])))),
            (
                "q3",
                SAMPLING,
                sampling(("toolChoice", json!({"mode": "auto"}))),
            ),
        ];
        for (id, method, params) in questions {
            server.say_for(&call, ask(id, method, params));
            settle().await;
            assert!(exchange.of(method).is_empty(), "{id}");
            let answer = server.answer_to(&json!(id)).unwrap();
            let is_refused = answer["error"].is_object() || answer["result"]["action"] == "cancel";
            assert!(is_refused, "{answer}");
        }
        // Without context, it can be asked.
        let with_context = sampling(("includeContext", json!("thisServer")));
        server.say_for(&call, ask("q4", SAMPLING, with_context));
        settle().await;
        let asked = exchange.of(SAMPLING).pop().unwrap();
        assert!(asked["params"]["includeContext"].is_null(), "{asked}");
        // Who declares it all is asked in the server's own words.
        let all = json!({"elicitation": {"url": {}}, "sampling": {"tools": {}, "context": {}}});
        let client = world.client(all).await;
        let (exchange, call) = held(&client, &server).await;
        let mut params = sampling(("includeContext", json!("thisServer")));
        params["tools"] = json!([]);
        for (id, method, params) in [("q5", ELICIT, url()), ("q6", SAMPLING, params)] {
            server.say_for(&call, ask(id, method, params.clone()));
            settle().await;
            assert_eq!(exchange.of(method)[0]["params"], params);
        }
    });
}

#[test]
fn a_client_of_a_sessionless_server_is_asked_only_what_it_declared() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", sessionless).await;
        pass(millis(50)).await;
        let declares = json!({"elicitation": {}, "sampling": {}});
        let tools = sampling(("tools", json!([])));
        for (question, lacks) in [
            (
                json!({"method": ELICIT, "params": url()}),
                json!({"elicitation": {"url": {}}}),
            ),
            (
                json!({"method": SAMPLING, "params": tools}),
                json!({"sampling": {"tools": {}}}),
            ),
            (json!({"method": "roots/list"}), json!({"roots": {}})),
        ] {
            let params = json!({"name": "a__hold", "arguments": {}});
            let mut call = Served::send(&world, &declares, "tools/call", params).await;
            server.need(&server.held().pop().unwrap(), json!({"k": question}), "s");
            settle().await;
            let error = call.error();
            assert_eq!(error["code"], -32021, "{error}");
            assert_eq!(error["data"]["requiredCapabilities"], lacks);
        }
        // With a handshake as well as without one.
        let context = sampling(("includeContext", json!("allServers")));
        let question = json!({"method": SAMPLING, "params": context});
        let params = json!({"name": "a__hold", "arguments": {}});
        let mut call = Served::send(&world, &declares, "tools/call", params).await;
        server.need(&server.held().pop().unwrap(), json!({"k": question}), "s");
        settle().await;
        let asked = &call.result()["inputRequests"]["k"];
        assert_eq!(asked["params"], json!({"messages": [], "maxTokens": 1}));
        let client = world.client(declares).await;
        let (exchange, call) = held_by(&client, &server).await;
        server.need(&call, json!({"k": question}), "s");
        settle().await;
        let asked = exchange.of(SAMPLING).pop().unwrap();
        assert_eq!(asked["params"], json!({"messages": [], "maxTokens": 1}));
    });
}

async fn held_by(
    client: &crate::sim::client::Client,
    server: &crate::sim::server::Server,
) -> (crate::sim::client::Exchange, crate::sim::server::Frame) {
    let exchange = client.call("a__hold").await;
    (exchange, server.held().pop().unwrap())
}

#[test]
fn a_task_asks_its_client_only_what_it_declared() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", extended).await;
        pass(millis(50)).await;
        let declares = json!({"elicitation": {}, "extensions": {EXTENSION: {}}});
        let params = json!({"name": "a__hold", "arguments": {}});
        let mut call = Served::send(&world, &declares, "tools/call", params).await;
        let mut created = modern_task("working", 0);
        created["resultType"] = json!("task");
        server.answer(&server.held().pop().unwrap(), created);
        settle().await;
        let id = call.result()["taskId"].clone();
        let form = json!({"method": ELICIT, "params": {"mode": "form", "message": "who?",
            "requestedSchema": {"type": "object", "properties": {}}}});
        let page = json!({"method": ELICIT, "params": url()});
        let get = async |requests: Value| {
            let about = json!({"taskId": id});
            let got = Served::send(&world, &declares, "tasks/get", about).await;
            let mut required = modern_task("input_required", 1);
            required["inputRequests"] = requests;
            server.answer(&server.last("tasks/get"), required);
            settle().await;
            got
        };
        let mut got = get(json!({"page": page, "form": form})).await;
        assert_eq!(got.result()["inputRequests"], json!({"form": form}));
        let mut got = get(json!({"page": page})).await;
        let error = got.error();
        assert_eq!(error["code"], -32021, "{error}");
        let lacks = json!({"elicitation": {"url": {}}});
        assert_eq!(error["data"]["requiredCapabilities"], lacks);
        // A task that asks for nothing is read as it is.
        let about = json!({"taskId": id});
        let mut got = Served::send(&world, &declares, "tasks/get", about).await;
        let mut done = modern_task("completed", 2);
        done["result"] = text(json!("done"));
        server.answer(&server.last("tasks/get"), done);
        settle().await;
        assert_eq!(
            got.result()["result"]["content"],
            text(json!("done"))["content"]
        );
    });
}
