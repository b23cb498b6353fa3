//! Tests the whole server over in-memory pipes.

mod client;

use serde_json::{Value, json};
use std::collections::BTreeSet;
use tokio::io::AsyncWriteExt;

use super::{REVISIONS, ServeEnd};
use client::Client;

fn names(list: &Value) -> Vec<&str> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|item| item["name"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn negotiates_every_revision_with_a_handshake() {
    for (wanted, given) in [("2026-07-28", "2025-11-25"), ("1.0", "2025-11-25")]
        .into_iter()
        .chain(REVISIONS.map(|revision| (revision, revision)))
    {
        let mut client = Client::new();
        let params = json!({"protocolVersion": wanted, "capabilities": {}});
        let result = client.ask("initialize", params).await["result"].take();
        assert_eq!(result["protocolVersion"], given);
        assert_eq!(result["serverInfo"]["name"], "mcpvisor-example");
        assert!(result["instructions"].as_str().unwrap().contains("example"));
        assert_eq!(
            result["capabilities"].get("completions").is_some(),
            given >= "2025-03-26"
        );
        assert_eq!(
            result["serverInfo"].get("title").is_some(),
            given >= "2025-06-18"
        );
    }
}

#[tokio::test]
async fn sends_only_fields_that_the_revision_knows() {
    for revision in REVISIONS {
        let mut client = Client::initialized(revision, json!({})).await;
        for (method, kind) in [
            ("tools/list", "tools"),
            ("resources/list", "resources"),
            ("resources/templates/list", "resourceTemplates"),
            ("prompts/list", "prompts"),
        ] {
            let answer = client.ask(method, json!({})).await;
            let items = answer["result"][kind].as_array().unwrap();
            assert!(!items.is_empty());
            let fields: BTreeSet<&str> = items
                .iter()
                .flat_map(|i| i.as_object().unwrap().keys().map(String::as_str))
                .collect();
            assert_eq!(
                fields.contains("title"),
                revision >= "2025-06-18",
                "{revision} {method}"
            );
            if kind == "tools" {
                assert_eq!(fields.contains("outputSchema"), revision >= "2025-06-18");
                assert_eq!(fields.contains("annotations"), revision >= "2025-03-26");
            }
        }
        let sum = client.call("add", json!({"a": 2, "b": 3})).await;
        assert_eq!(sum["content"][0]["text"], r#"{"sum":5}"#);
        assert_eq!(
            sum.get("structuredContent").is_some(),
            revision >= "2025-06-18"
        );
    }
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one scenario, or a table of cases")]
async fn refuses_what_is_wrong_with_a_reason_and_goes_on() {
    let mut client = Client::new();
    assert_eq!(
        client.ask("tools/list", json!({})).await["error"]["code"],
        -32600
    );
    client = Client::initialized("2025-11-25", json!({})).await;
    for (line, code) in [
        ("{", -32700),
        ("[]", -32600),
        ("5", -32600),
        (r#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":77}"#, -32600),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600),
    ] {
        client.write_raw(line).await;
        assert_eq!(client.read().await["error"]["code"], code, "{line}");
    }
    for (method, params, code) in [
        ("nothing/here", json!({}), -32601),
        ("tools/call", json!({"name": "missing"}), -32602),
        ("tools/call", json!([]), -32602),
        ("tools/list", json!({"cursor": "x"}), -32602),
        ("initialize", json!({}), -32602),
        ("prompts/get", json!({"name": "missing"}), -32602),
        ("prompts/get", json!({"name": "greeting"}), -32602),
        (
            "resources/read",
            json!({"uri": "example://missing"}),
            -32002,
        ),
        (
            "resources/read",
            json!({"uri": "example://greeting/"}),
            -32002,
        ),
        (
            "resources/subscribe",
            json!({"uri": "example://greeting/Ada"}),
            -32602,
        ),
        ("logging/setLevel", json!({"level": "loud"}), -32602),
        (
            "completion/complete",
            json!({"argument": {"name": "x", "value": ""}}),
            -32602,
        ),
    ] {
        let answer = client.ask(method, params.clone()).await;
        assert_eq!(answer["error"]["code"], code, "{method} {params}");
        assert!(!answer["error"]["message"].as_str().unwrap().is_empty());
    }
    for (tool, arguments, words) in [
        ("echo", json!({}), "`message` is missing"),
        (
            "echo",
            json!({"message": "x", "more": 1}),
            "unknown argument `more`",
        ),
        ("add", json!({"a": "1", "b": 2}), "`a` must be a number"),
        ("add", json!({"a": 1.7e308, "b": 1.7e308}), "too large"),
        ("big", json!({"bytes": 33_554_433}), "from 0 to 33554432"),
        ("flood", json!({"kind": "water"}), "one of stdout"),
        ("slow", json!({"steps": -1}), "from 1 to"),
        ("add_tool", json!({"name": "a b"}), "1 to 64"),
        ("add_tool", json!({"name": "echo"}), "built in"),
        ("remove_tool", json!({"name": "echo"}), "not added"),
        ("touch", json!({"x": 1}), "none are expected"),
    ] {
        let fault = client.fault(tool, arguments).await;
        assert!(fault.contains(words), "{tool}: {fault}");
    }
    assert_eq!(client.ask("ping", json!({})).await["result"], json!({}));
}

#[tokio::test]
async fn batches_are_answered_only_in_their_revision() {
    let mut client = Client::initialized("2025-03-26", json!({})).await;
    let list = json!({"jsonrpc": "2.0", "id": "b", "method": "prompts/list"});
    let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    client
        .write(&json!([{"jsonrpc": "2.0", "id": "a", "method": "ping"}, note, list]))
        .await;
    let answers = client.read().await;
    let ids: Vec<&Value> = answers
        .as_array()
        .unwrap()
        .iter()
        .map(|answer| &answer["id"])
        .collect();
    assert_eq!(ids, ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn slow_reports_progress_and_lets_others_pass() {
    let mut client = Client::initialized("2025-11-25", json!({})).await;
    let arguments = json!({"steps": 3, "delay_ms": 1000});
    let params = json!({"name": "slow", "arguments": arguments, "_meta": {"progressToken": "p"}});
    let id = client.send("tools/call", params).await;
    assert_eq!(
        client.text("echo", json!({"message": "first"})).await,
        "first"
    );
    assert!(client.seen.is_empty(), "the echo waited for the slow call");
    for step in 1..=3 {
        let progress = client.read().await;
        assert_eq!(progress["method"], "notifications/progress");
        assert_eq!(progress["params"]["progressToken"], "p");
        assert_eq!(progress["params"]["progress"], step);
    }
    assert_eq!(client.read().await["id"], id);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_is_not_answered() {
    let mut client = Client::initialized("2025-11-25", json!({})).await;
    let id = client.send("tools/call", json!({"name": "slow"})).await;
    let params = json!({"requestId": id});
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
    client.write(&cancel).await;
    assert_eq!(
        client
            .text("slow", json!({"steps": 5, "delay_ms": 500}))
            .await,
        "done after 5 steps"
    );
    assert_eq!(client.seen, Vec::<Value>::new());
    client.write(&cancel).await;
    assert_eq!(client.ask("ping", json!({})).await["result"], json!({}));
}

#[tokio::test]
async fn ask_sends_an_elicitation_to_the_client() {
    for (reply, words) in [
        (
            json!({"result": {"action": "accept", "content": {"answer": "Ada"}}}),
            "answered: Ada",
        ),
        (json!({"result": {"action": "decline"}}), "chose: decline"),
        (
            json!({"error": {"code": -1, "message": "no screen"}}),
            "no screen",
        ),
    ] {
        let mut client = Client::initialized("2025-11-25", json!({"elicitation": {}})).await;
        let id = client.send("tools/call", json!({"name": "ask"})).await;
        let question = client.read().await;
        assert_eq!(question["method"], "elicitation/create");
        assert_eq!(
            question["params"]["requestedSchema"]["required"],
            json!(["answer"])
        );
        let mut reply = reply;
        reply["jsonrpc"] = "2.0".into();
        reply["id"] = question["id"].clone();
        client.write(&reply).await;
        let answer = client.read().await;
        assert_eq!(answer["id"], id);
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.contains(words), "{text}");
    }
    for (revision, capabilities, words) in [
        ("2025-11-25", json!({}), "did not declare elicitation"),
        (
            "2025-11-25",
            json!({"elicitation": {"url": {}}}),
            "did not declare elicitation",
        ),
        ("2025-03-26", json!({"elicitation": {}}), "needs revision"),
    ] {
        let mut client = Client::initialized(revision, capabilities).await;
        let fault = client.fault("ask", json!({})).await;
        assert!(fault.contains(words), "{fault}");
    }
}

#[tokio::test]
async fn a_cancelled_call_cancels_its_question() {
    let mut client = Client::initialized("2025-11-25", json!({"elicitation": {"form": {}}})).await;
    let id = client.send("tools/call", json!({"name": "ask"})).await;
    let question = client.read().await;
    let params = json!({"requestId": id});
    client
        .write(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}))
        .await;
    let taken_back = client.read().await;
    assert_eq!(taken_back["method"], "notifications/cancelled");
    assert_eq!(taken_back["params"]["requestId"], question["id"]);
}

#[tokio::test]
async fn crash_ends_the_server_with_calls_open() {
    let mut client = Client::initialized("2025-11-25", json!({})).await;
    client.send("tools/call", json!({"name": "slow"})).await;
    client.send("tools/call", json!({"name": "crash"})).await;
    assert_eq!(client.server.await.unwrap().unwrap(), ServeEnd::Crash);
}

#[tokio::test]
async fn closing_the_input_ends_the_server_after_pending_responses() {
    let mut client = Client::initialized("2025-11-25", json!({})).await;
    client
        .send(
            "tools/call",
            json!({"name": "slow", "arguments": {"delay_ms": 60_000}}),
        )
        .await;
    let id = client
        .send(
            "tools/call",
            json!({"name": "big", "arguments": {"bytes": 300_000}}),
        )
        .await;
    client.input.shutdown().await.unwrap();
    assert_eq!(client.read().await["id"], id);
    assert_eq!(client.server.await.unwrap().unwrap(), ServeEnd::Closed);
}

#[tokio::test]
async fn flood_and_big_write_the_requested_amount() {
    let mut client = Client::initialized("2025-11-25", json!({})).await;
    client.text("flood", json!({"lines": 1000})).await;
    assert_eq!(client.seen.len(), 1000);
    assert!(client.seen.iter().all(Value::is_string));
    client
        .text("flood", json!({"lines": 700, "kind": "notifications"}))
        .await;
    assert_eq!(client.seen.len(), 700);
    assert!(
        client
            .seen
            .iter()
            .all(|seen| seen["method"] == "notifications/message")
    );
    for bytes in [0, 1, 1024 * 1024] {
        assert_eq!(
            client.text("big", json!({ "bytes": bytes })).await.len(),
            bytes
        );
    }
}

#[tokio::test]
async fn log_respects_the_level() {
    let mut client = Client::initialized("2025-11-25", json!({})).await;
    let message = json!({"message": "hello", "level": "notice"});
    client.text("log", message.clone()).await;
    assert_eq!(client.seen[0]["params"]["level"], "notice");
    assert_eq!(client.seen[0]["params"]["data"], "hello");
    client
        .ask("logging/setLevel", json!({"level": "warning"}))
        .await;
    assert!(client.text("log", message).await.contains(": not sent"));
    assert!(client.seen.is_empty());
}

#[tokio::test]
async fn a_subscriber_is_notified_of_counter_changes() {
    let counter = json!({"uri": "example://counter"});
    let mut client = Client::initialized("2025-11-25", json!({})).await;
    client.text("touch", json!({})).await;
    assert!(client.seen.is_empty());
    client.ask("resources/subscribe", counter.clone()).await;
    client.text("touch", json!({})).await;
    assert_eq!(client.seen[0]["method"], "notifications/resources/updated");
    assert_eq!(client.seen[0]["params"], counter);
    let read = client.ask("resources/read", counter.clone()).await;
    assert_eq!(read["result"]["contents"][0]["text"], "2");
    client.ask("resources/unsubscribe", counter).await;
    client.text("touch", json!({})).await;
    assert!(client.seen.is_empty());
}

#[tokio::test]
async fn every_listed_resource_and_prompt_can_be_read() {
    let mut client = Client::initialized("2025-11-25", json!({})).await;
    let listed = client.ask("resources/list", json!({})).await;
    for resource in listed["result"]["resources"].as_array().unwrap() {
        let read = client
            .ask("resources/read", json!({"uri": resource["uri"]}))
            .await;
        let content = &read["result"]["contents"][0];
        assert_eq!(content["mimeType"], resource["mimeType"], "{read}");
    }
    let read = client
        .ask("resources/read", json!({"uri": "example://greeting/Ada"}))
        .await;
    assert_eq!(read["result"]["contents"][0]["text"], "Hello, Ada!");
    let listed = client.ask("prompts/list", json!({})).await;
    for prompt in listed["result"]["prompts"].as_array().unwrap() {
        let mut arguments = json!({});
        for argument in prompt["arguments"].as_array().into_iter().flatten() {
            if argument["required"] == true {
                arguments[argument["name"].as_str().unwrap()] = "value".into();
            }
        }
        let params = json!({"name": prompt["name"], "arguments": arguments});
        let got = client.ask("prompts/get", params).await;
        assert_eq!(got["result"]["messages"][0]["role"], "user", "{got}");
    }
}

#[tokio::test]
async fn completes_arguments_of_prompts_and_templates() {
    let mut client = Client::initialized("2025-11-25", json!({})).await;
    let template = json!({"type": "ref/resource", "uri": "example://greeting/{name}"});
    for (reference, argument, typed, values) in [
        (
            json!({"type": "ref/prompt", "name": "review"}),
            "language",
            "r",
            json!(["ruby", "rust"]),
        ),
        (
            json!({"type": "ref/prompt", "name": "review"}),
            "code",
            "r",
            json!([]),
        ),
        (template, "name", "a", json!(["Ada", "Alan"])),
    ] {
        let argument = json!({"name": argument, "value": typed});
        let params = json!({"ref": reference, "argument": argument});
        let answer = client.ask("completion/complete", params).await;
        assert_eq!(answer["result"]["completion"]["values"], values);
    }
}

#[tokio::test]
async fn tools_can_be_added_and_removed_at_run_time() {
    let mut client = Client::initialized("2025-11-25", json!({})).await;
    let before = client.ask("tools/list", json!({})).await;
    client.text("add_tool", json!({"name": "new.one"})).await;
    assert_eq!(client.seen[0]["method"], "notifications/tools/list_changed");
    let after = client.ask("tools/list", json!({})).await;
    assert_eq!(names(&after["result"]["tools"]).last(), Some(&"new.one"));
    assert!(
        client
            .text("new.one", json!({"x": 1}))
            .await
            .contains(r#"{"x":1}"#)
    );
    client.text("remove_tool", json!({"name": "new.one"})).await;
    assert_eq!(client.seen[0]["method"], "notifications/tools/list_changed");
    let again = client.ask("tools/list", json!({})).await;
    assert_eq!(before["result"], again["result"]);
    let built_in = [
        "echo",
        "add",
        "slow",
        "ask",
        "crash",
        "flood",
        "big",
        "log",
        "touch",
        "add_tool",
        "remove_tool",
    ];
    assert_eq!(names(&again["result"]["tools"]), built_in);
}
