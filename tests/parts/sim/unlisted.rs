//! Items that a server does not list, and changes of lists that it announces or does not.

use std::rc::Rc;

use serde_json::{Value, json};

use crate::sim::client::Client;
use crate::sim::modern::sessionless;
use crate::sim::served::Served;
use crate::sim::server::{Server, note, tool};
use crate::sim::world::{Plan, World, millis, pass, run, seconds, settle};

fn serves_all(plan: &mut Plan) {
    plan.script.capabilities = json!({
        "tools": {"listChanged": true}, "prompts": {}, "resources": {"subscribe": true},
    });
    plan.script.mute.insert("resources/subscribe");
}

/// Requests for what no list has: the method, its parameters, and the parameters that the server
/// reads.
fn requests(uri: &str) -> [(&'static str, Value, Value); 6] {
    let complete = |reference: Value| {
        let argument = json!({"name": "x", "value": ""});
        json!({"ref": reference, "argument": argument})
    };
    let prompt = |name: &str| complete(json!({"type": "ref/prompt", "name": name}));
    let template = json!({"type": "ref/resource", "uri": format!("{uri}/{{x}}")});
    let [named, native] = ["a__hidden", "hidden"].map(|name| json!({"name": name}));
    let uri = json!({"uri": uri});
    [
        ("tools/call", named.clone(), native.clone()),
        ("prompts/get", named, native),
        ("resources/read", uri.clone(), uri.clone()),
        ("resources/subscribe", uri.clone(), uri),
        ("completion/complete", prompt("a__hidden"), prompt("hidden")),
        (
            "completion/complete",
            complete(template.clone()),
            complete(template),
        ),
    ]
}

/// Whether the server received these parameters.
fn read(received: &Value, expected: &Value) -> bool {
    let mut received = received.clone();
    if let Some(params) = received.as_object_mut() {
        params.remove("_meta");
    }
    received == *expected
}

fn refuse(server: &Server, method: &str) -> Value {
    let call = server.last(method);
    let error = json!({"code": -32602, "message": "not this one", "data": {"why": [1, 2.0]}});
    let answer = json!({"jsonrpc": "2.0", "id": call.json["id"], "error": error});
    server.say_for(&call, answer);
    error
}

#[test]
fn what_no_list_has_goes_to_its_server_whose_error_comes_back_unchanged() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", serves_all).await;
        pass(millis(50)).await;
        let client = world.client(json!({})).await;
        for (method, params, native) in requests("case://x") {
            let asked = client.request(method, params.clone()).await;
            let received = server.last(method).json["params"].clone();
            assert!(read(&received, &native), "{method}: {received}");
            let error = refuse(&server, method);
            settle().await;
            assert_eq!(asked.error(), error, "{method}");
            if method == "resources/subscribe" {
                continue;
            }
            let mut served = Served::send(&world, &json!({}), method, params).await;
            let received = server.last(method).json["params"].clone();
            assert!(read(&received, &native), "{method}: {received}");
            let error = refuse(&server, method);
            settle().await;
            assert_eq!(served.answer().unwrap()["error"], error, "{method}");
        }
        // A refused subscription is not kept: there is nothing to end at the server.
        let ended = client
            .request("resources/unsubscribe", json!({"uri": "case://x"}))
            .await;
        assert_eq!(ended.result(), json!({}));
        assert!(server.of("resources/unsubscribe").is_empty());
    });
}

#[test]
fn with_several_servers_a_uri_goes_to_the_one_that_named_it_to_this_client() {
    run(async {
        let world = Rc::new(World::new());
        world.stdio("b", serves_all).await;
        let server = world.stdio("a", serves_all).await;
        pass(millis(50)).await;
        let client = world.client(json!({})).await;
        let other = world.client(json!({})).await;
        let uri = json!({"uri": "case://x"});
        let read = client.request("resources/read", uri.clone()).await;
        assert_eq!(read.error()["code"], -32002);
        let call = client.call("a__hold").await;
        let link = json!({"type": "resource_link", "uri": "case://x", "name": "x"});
        server.answer(&server.last("tools/call"), json!({"content": [link]}));
        settle().await;
        assert_eq!(call.result()["content"][0], link);
        let read = client.request("resources/read", uri.clone()).await;
        let text = json!({"contents": [{"uri": "case://x", "text": "hi"}]});
        server.answer(&server.last("resources/read"), text.clone());
        settle().await;
        assert_eq!(read.result(), text);
        let read = other.request("resources/read", uri).await;
        assert_eq!(read.error()["code"], -32002);
    });
}

#[test]
fn a_list_that_changed_before_an_answer_is_new_in_the_next_list() {
    run(async {
        for knows_call_of_requests in [false, true] {
            let world = Rc::new(World::new());
            let server = world.start("a", knows_call_of_requests, serves_all);
            pass(millis(50)).await;
            let client = world.client(json!({})).await;
            let call = client.call("a__hold").await;
            server.script(|script| script.lists.get_mut("tools").unwrap().push(tool("new")));
            let held = server.last("tools/call");
            server.say_for(&held, note("notifications/tools/list_changed", json!({})));
            server.answer(&held, json!({"content": []}));
            settle().await;
            call.result();
            let list = client.request("tools/list", json!({})).await;
            pass(millis(300)).await;
            assert!(list.result().to_string().contains("a__new"));
            // Nothing waits any more.
            assert_eq!(client.tools().await.len(), 4);
            // A server that does not list again holds lists up for a moment only, and once.
            server.mute("tools/list");
            server.say(note("notifications/tools/list_changed", json!({})));
            settle().await;
            let list = client.request("tools/list", json!({})).await;
            pass(millis(1_900)).await;
            assert!(list.is_waiting());
            pass(millis(200)).await;
            assert_eq!(list.result()["tools"].as_array().unwrap().len(), 4);
            assert_eq!(client.tools().await.len(), 4);
        }
    });
}

#[test]
fn a_list_that_changed_unannounced_is_read_again_when_a_client_asks_and_it_is_old() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", |_| {}).await;
        pass(millis(50)).await;
        let client = world.client(json!({})).await;
        let general = client.listen(None).await;
        let reads = || server.of("tools/list").len();
        server.script(|script| script.lists.get_mut("tools").unwrap().push(tool("new")));
        pass(seconds(9)).await;
        assert_eq!((client.tools().await.len(), reads()), (3, 1));
        pass(seconds(1)).await;
        // In the background: this list does not wait for it.
        assert_eq!(client.tools().await.len(), 3);
        pass(millis(50)).await;
        assert_eq!(reads(), 2);
        assert_eq!(general.of("notifications/tools/list_changed").len(), 1);
        for _ in 0..5 {
            assert_eq!(client.tools().await.len(), 4);
            pass(seconds(1)).await;
        }
        assert_eq!(reads(), 2);
        // One that fails is not tried at each request.
        server.fail_method("tools/list");
        pass(seconds(10)).await;
        for _ in 0..5 {
            client.tools().await;
        }
        settle().await;
        assert_eq!(reads(), 3);
    });
}

#[test]
fn a_list_that_its_server_says_holds_is_not_read_again() {
    run(async {
        let world = Rc::new(World::new());
        let plan = |plan: &mut Plan| {
            sessionless(plan);
            plan.script.ttl_ms = 60_000;
        };
        let server = world.http("a", plan).await;
        pass(seconds(20)).await;
        Served::send(&world, &json!({}), "tools/list", json!({})).await;
        pass(millis(50)).await;
        assert_eq!(server.of("tools/list").len(), 1);
    });
}

/// The failures that a client reads for an unknown item, one for each method.
async fn asked(client: &Client) -> Vec<Value> {
    let mut answers = Vec::new();
    for (method, params, _) in requests("case://x") {
        let asked = client.request(method, params).await;
        let answer = asked.answer().unwrap_or_else(|| panic!("{method} waits"));
        let failure = answer["error"]["data"].clone();
        let in_result = answer["result"]["_meta"]["io.mcpvisor/error"].clone();
        answers.push(if failure.is_null() {
            in_result
        } else {
            failure
        });
    }
    answers
}

#[test]
fn an_unknown_item_of_a_server_that_was_never_listed_is_a_retryable_failure() {
    run(async {
        let world = Rc::new(World::new());
        let late = |plan: &mut Plan| plan.script.starts_after = seconds(3);
        let server = world.stdio("a", late).await;
        let client = world.client(json!({})).await;
        // A call waits for the first list of its server, as lists do.
        let call = client.call("a__echo").await;
        pass(millis(2_500)).await;
        assert!(call.is_waiting());
        pass(millis(600)).await;
        call.result();
        drop(server);

        let world = Rc::new(World::new());
        let server = world.start("a", false, |_| {});
        server.refuse_links(Some("no API key"));
        pass(seconds(3)).await;
        let client = world.client(json!({})).await;
        for failure in asked(&client).await {
            assert_eq!(failure["code"], "server_unavailable", "{failure}");
            assert_eq!(
                (&failure["retryable"], &failure["server"]),
                (&json!(true), &json!("a"))
            );
        }
        let call = client.call("a__echo").await;
        assert!(
            call.sentence().starts_with("server `a` is away (it "),
            "{}",
            call.sentence()
        );
        assert!(
            call.sentence().contains("no API key"),
            "{}",
            call.sentence()
        );
        assert!(
            call.sentence().contains(", next attempt in "),
            "{}",
            call.sentence()
        );
        // It belongs to no server at all.
        assert_eq!(client.call("b__echo").await.error()["code"], -32602);
    });
}
