//! Tools: listed, called, reported on, taken back.

use serde_json::{Value, json};

use crate::support::{
    Client, Gateway, HttpServer, example, failure_of, names, python, request, soon, text_of, until,
};

#[tokio::test]
async fn tools_of_all_servers_are_listed_under_their_prefix_in_config_order() {
    let config = format!("{}{}", example("zulu"), python("alpha", ""));
    let gateway = Gateway::start(&config).await;
    let client = Client::open(&gateway).await;
    let list = client.get("tools/list", json!({})).await;
    let names = names(&list["tools"]);
    assert!(names.contains(&"zulu__echo") && names.contains(&"alpha__echo"));
    let first_alpha = names.iter().position(|name| name.starts_with("alpha__"));
    let last_zulu = names.iter().rposition(|name| name.starts_with("zulu__"));
    assert!(last_zulu < first_alpha, "{names:?}");
    // Everything else of a tool is as its server wrote it.
    let tools = list["tools"].as_array().unwrap();
    let add = tools
        .iter()
        .find(|tool| tool["name"] == "zulu__add")
        .unwrap();
    assert_eq!(add["title"], "Add");
    assert_eq!(add["annotations"]["readOnlyHint"], true);
    assert_eq!(add["inputSchema"]["required"], json!(["a", "b"]));
    let said = client
        .call("alpha__echo", json!({"x": [1, {"y": null}]}))
        .await;
    assert_eq!(text_of(&said), "alpha {\"x\": [1, {\"y\": null}]}");
}

#[tokio::test]
async fn a_list_comes_in_pages() {
    let config = format!("[gateway]\npage_items = 3\n{}", example("example"));
    let gateway = Gateway::start(&config).await;
    let client = Client::open(&gateway).await;
    let mut all = Vec::new();
    let mut params = json!({});
    loop {
        let page = client.get("tools/list", params).await;
        let items = names(&page["tools"]);
        assert!(items.len() <= 3 && !items.is_empty());
        all.extend(items.into_iter().map(str::to_owned));
        match page.get("nextCursor") {
            Some(cursor) => params = json!({ "cursor": cursor }),
            None => break,
        }
    }
    assert_eq!(all.len(), 11, "{all:?}");
    let mut unique = all.clone();
    unique.dedup();
    assert_eq!(unique, all);
    for cursor in [json!("no such cursor"), json!(3), json!("")] {
        let error = client
            .refused("tools/list", json!({ "cursor": cursor }))
            .await;
        assert_eq!(error["code"], -32602);
    }
}

#[tokio::test]
async fn allow_deny_and_prefix_shape_what_is_seen() {
    let config = format!(
        "{}tools = {{ allow = [\"e*\", \"add*\"], deny = [\"add_*\"], prefix = \"\" }}\n",
        example("example")
    );
    let gateway = Gateway::start(&config).await;
    let client = Client::open(&gateway).await;
    let list = client.get("tools/list", json!({})).await;
    assert_eq!(names(&list["tools"]), ["echo", "add"]);
    assert_eq!(
        text_of(&client.call("echo", json!({"message": "m"})).await),
        "m"
    );
    for hidden in ["crash", "add_tool", "example__echo"] {
        let params = json!({"name": hidden, "arguments": {}});
        assert_eq!(client.refused("tools/call", params).await["code"], -32602);
    }
}

#[tokio::test]
async fn mistakes_of_the_client_are_errors() {
    let gateway = Gateway::start(&example("example")).await;
    let client = Client::open(&gateway).await;
    for params in [
        json!({"name": "example__nothing", "arguments": {}}),
        json!({"name": "nothing"}),
        json!({"name": 3}),
        json!({}),
    ] {
        let error = client.refused("tools/call", params.clone()).await;
        assert_eq!(error["code"], -32602, "{params}");
    }
    // An error about the arguments is a result that the model reads.
    let result = client.call("example__add", json!({"a": 1})).await;
    assert_eq!(result["isError"], true);
    assert!(result.get("_meta").is_none(), "{result}");
}

#[tokio::test]
async fn structured_content_and_unknown_fields_survive() {
    let gateway = Gateway::start(&example("example")).await;
    let client = Client::open(&gateway).await;
    let sum = client.call("example__add", json!({"a": 1.5, "b": 2})).await;
    assert_eq!(sum["structuredContent"], json!({"sum": 3.5}));
    // Ids of any kind come back as they were.
    for id in [
        json!("a \"quoted\" id"),
        json!(0),
        json!(-7),
        json!(9_007_199_254_740_993_u64),
    ] {
        let params = json!({"name": "example__echo", "arguments": {"message": "é\u{1F600}\n"}});
        let answer = client
            .post(&request(id.clone(), "tools/call", params))
            .send()
            .await;
        let answer = answer.json().await;
        assert_eq!(answer["id"], id);
        assert_eq!(text_of(&answer["result"]), "é\u{1F600}\n");
    }
}

#[tokio::test]
async fn a_server_that_is_away_is_a_result_with_its_name_and_when_to_try_again() {
    let config = format!(
        "[supervision]\nbackoff_initial = \"20s\"\n{}",
        example("example")
    );
    let gateway = Gateway::start(&config).await;
    let client = Client::open(&gateway).await;
    let lost = client.call("example__crash", json!({})).await;
    let failure = failure_of(&lost);
    assert_eq!(failure["code"], "server_lost");
    assert_eq!(failure["server"], "example");
    assert_eq!(failure["retryable"], false);
    // The caller hears of the crash a moment before the supervisor does.
    until("the supervisor to know", || async {
        (gateway.server("example").await["state"] == "backoff").then_some(())
    })
    .await;
    let away = client.call("example__echo", json!({"message": "m"})).await;
    let failure = failure_of(&away);
    assert_eq!(failure["code"], "server_unavailable");
    assert_eq!(failure["server"], "example");
    assert_eq!(failure["retryable"], true);
    let after = failure["retryAfterMs"].as_u64().unwrap();
    assert!((1..=30_000).contains(&after), "{after}");
    assert!(text_of(&away).contains("13"), "{away}");
    // Other methods answer with an error that holds the same.
    let params = json!({"uri": "example://about"});
    let error = client.refused("resources/read", params).await;
    assert_eq!(error["data"]["code"], "server_unavailable");
    assert_eq!(error["data"]["server"], "example");
    assert_eq!(
        names(&client.get("tools/list", json!({})).await["tools"]).len(),
        11
    );
}

#[tokio::test]
async fn progress_arrives_on_the_stream_of_its_call_with_the_clients_token() {
    let server = HttpServer::start(Default::default()).await;
    let config = format!("{}{}", example("stdio"), server.config("http"));
    let gateway = Gateway::start(&config).await;
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let client = Client::open_as(&gateway, revision, json!({})).await;
        let mut general = client.listen().await;
        for (tool, arguments, count) in [
            ("stdio__slow", json!({"steps": 3, "delay_ms": 10}), 3),
            ("http__progress", json!({}), 2),
        ] {
            let (id, mut events) = client.start(tool, arguments).await;
            let first = events.next().await.unwrap();
            assert!(first.id.is_some());
            // S-HTTP-30: the priming event came with 2025-11-25; others might take it for a message.
            assert_eq!(
                first.data.is_empty(),
                revision == "2025-11-25",
                "{revision}: {first:?}"
            );
            let mut messages: Vec<Value> = first.message().into_iter().collect();
            messages.extend(events.rest().await);
            let answer = messages.pop().unwrap();
            assert_eq!(answer["id"], id);
            assert!(answer["result"].is_object(), "{answer}");
            assert_eq!(messages.len(), count, "{messages:?}");
            for (index, message) in messages.iter().enumerate() {
                assert_eq!(message["method"], "notifications/progress");
                assert_eq!(message["params"]["progressToken"], format!("token-{id}"));
                assert_eq!(message["params"]["progress"], index + 1);
            }
        }
        client.delete().await;
        assert_eq!(
            general.message().await,
            None,
            "progress on the general stream"
        );
    }
}

#[tokio::test]
async fn a_client_that_takes_json_only_gets_json() {
    let config = format!("[gateway]\nsse_after = \"10ms\"\n{}", example("example"));
    let gateway = Gateway::start(&config).await;
    let client = Client::open(&gateway).await;
    let params = json!({
        "name": "example__slow", "arguments": {"steps": 4, "delay_ms": 30},
        "_meta": {"progressToken": 1},
    });
    let http = client.post(&request(1, "tools/call", params));
    let answer = http.header("Accept", "application/json").send().await;
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(
        text_of(&answer.json().await["result"]),
        "done after 4 steps"
    );
}

#[tokio::test]
async fn a_quick_call_is_json_and_a_silent_one_becomes_a_stream() {
    let config = format!("[gateway]\nsse_after = \"50ms\"\n{}", example("example"));
    let gateway = Gateway::start(&config).await;
    let client = Client::open(&gateway).await;
    let slow = json!({"name": "example__slow", "arguments": {"steps": 1, "delay_ms": 500}});
    let answer = client.post(&request(1, "tools/call", slow)).send().await;
    assert_eq!(answer.header("cache-control"), Some("no-cache"));
    assert_eq!(answer.header("x-accel-buffering"), Some("no"));
    assert_eq!(answer.header("mcp-protocol-version"), Some("2025-11-25"));
    let messages = answer.events().rest().await;
    assert_eq!(messages.len(), 1);
    assert_eq!(text_of(&messages[0]["result"]), "done after 1 steps");
}

#[tokio::test]
async fn log_lines_of_the_level_asked_for_arrive() {
    let gateway = Gateway::start(&example("example")).await;
    let client = Client::open(&gateway).await;
    let mut stream = client.listen().await;
    client
        .get("logging/setLevel", json!({"level": "warning"}))
        .await;
    let log = |level: &str| json!({"message": format!("a {level}"), "level": level});
    // The level reaches the server a moment after the answer.
    until("the level at the server", || async {
        let said = client.call("example__log", log("info")).await;
        text_of(&said).contains(": not sent").then_some(())
    })
    .await;
    client.call("example__log", log("debug")).await;
    client.call("example__log", log("error")).await;
    let mut lines = Vec::new();
    while !lines.iter().any(|line| line == "error") {
        let line = stream.method("notifications/message").await;
        lines.push(line["params"]["level"].as_str().unwrap().to_owned());
    }
    assert!(!lines.contains(&"debug".to_owned()), "{lines:?}");
    let error = client
        .refused("logging/setLevel", json!({"level": "loud"}))
        .await;
    assert_eq!(error["code"], -32602);
}

#[tokio::test]
async fn each_session_hears_the_level_that_it_asked_for() {
    let gateway = Gateway::start(&example("example")).await;
    let (quiet, loud) = (Client::open(&gateway).await, Client::open(&gateway).await);
    let (mut quiet_stream, mut loud_stream) = (quiet.listen().await, loud.listen().await);
    quiet
        .get("logging/setLevel", json!({"level": "error"}))
        .await;
    loud.get("logging/setLevel", json!({"level": "debug"}))
        .await;
    let log = |level: &str| json!({"message": level, "level": level});
    until("the level at the server", || async {
        let said = loud.call("example__log", log("debug")).await;
        text_of(&said).contains(": sent").then_some(())
    })
    .await;
    loud.call("example__log", log("info")).await;
    loud.call("example__log", log("critical")).await;
    let events = quiet_stream.method("notifications/message").await;
    assert_eq!(events["params"]["level"], "critical");
    loop {
        let events = loud_stream.method("notifications/message").await;
        if events["params"]["level"] == "info" {
            break;
        }
    }
}

#[tokio::test]
async fn a_cancelled_call_stops_at_the_server_and_has_no_result() {
    let gateway = Gateway::start(&example("example")).await;
    let client = Client::open(&gateway).await;
    let steps = json!({"steps": 1000, "delay_ms": 50});
    let (id, mut events) = client.start("example__slow", steps).await;
    events.method("notifications/progress").await;
    client
        .notify(
            "notifications/cancelled",
            json!({"requestId": id, "reason": "enough"}),
        )
        .await;
    for message in events.rest().await {
        assert_eq!(message["method"], "notifications/progress", "{message}");
    }
    until("nothing in flight", || async {
        let server = gateway.server("example").await;
        (server["connection"]["in_flight"] == 0).then_some(())
    })
    .await;
    // Unknown, finished and malformed ones are ignored (S-CANC-02).
    for params in [
        json!({"requestId": id}),
        json!({"requestId": "no"}),
        json!({}),
    ] {
        let message =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
        assert_eq!(client.post(&message).send().await.status, 202);
    }
    client
        .call("example__echo", json!({"message": "still here"}))
        .await;
}

#[tokio::test]
async fn a_cancellation_reaches_a_server_over_http() {
    let server = HttpServer::start(Default::default()).await;
    let gateway = Gateway::start(&server.config("http")).await;
    let client = Client::open(&gateway).await;
    let id = client.id();
    let params = json!({"name": "http__hang", "arguments": {}});
    let call = tokio::spawn(client.post(&request(id, "tools/call", params)).send());
    until("the call at the server", || async {
        server
            .behaviour()
            .calls
            .contains(&"hang".to_owned())
            .then_some(())
    })
    .await;
    client
        .notify("notifications/cancelled", json!({"requestId": id}))
        .await;
    until("the cancellation at the server", || async {
        (server.behaviour().cancelled.len() == 1).then_some(())
    })
    .await;
    let answer = soon("the end of the call", call).await.unwrap();
    let bytes = answer.bytes().await;
    assert!(!String::from_utf8(bytes).unwrap().contains("result"));
}

#[tokio::test]
async fn a_client_that_leaves_does_not_cancel_its_call() {
    let server = HttpServer::start(Default::default()).await;
    let gateway = Gateway::start(&format!("{}{}", example("example"), server.config("http"))).await;
    let client = Client::open(&gateway).await;
    let (_, events) = client
        .start("example__slow", json!({"steps": 3, "delay_ms": 50}))
        .await;
    drop(events);
    until("the call's own end", || async {
        let counters = &gateway.status().await["counters"];
        (counters["calls_answered"] == 1).then_some(())
    })
    .await;
    assert_eq!(gateway.status().await["counters"]["calls_cancelled"], 0);
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_taken_back() {
    let config = format!(
        "[gateway]\nrequest_timeout = \"300ms\"\nrequest_timeout_max = \"1s\"\n{}",
        python("slow", "")
    );
    let gateway = Gateway::start(&config).await;
    let client = Client::open(&gateway).await;
    let result = client.call("slow__hang", json!({})).await;
    assert_eq!(failure_of(&result)["code"], "timeout");
    assert_eq!(failure_of(&result)["server"], "slow");
    assert_eq!(
        text_of(&client.call("slow__echo", json!({})).await),
        "slow {}"
    );
}

#[tokio::test]
async fn progress_extends_the_deadline_up_to_the_cap() {
    let config = format!(
        "[gateway]\nrequest_timeout = \"500ms\"\nrequest_timeout_max = \"2s\"\n{}",
        example("example")
    );
    let gateway = Gateway::start(&config).await;
    let client = Client::open(&gateway).await;
    let (_, events) = client
        .start("example__slow", json!({"steps": 10, "delay_ms": 100}))
        .await;
    let answer = events.rest().await.pop().unwrap();
    assert_eq!(text_of(&answer["result"]), "done after 10 steps");
    let (_, events) = client
        .start("example__slow", json!({"steps": 1000, "delay_ms": 100}))
        .await;
    let answer = events.rest().await.pop().unwrap();
    assert_eq!(failure_of(&answer["result"])["code"], "timeout");
}
