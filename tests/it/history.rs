//! The history of calls and the log, as operators see them.

use std::fs;

use serde_json::{Value, json};

use crate::operating::run;
use crate::support::{Client, Gateway, Setup, example, python, quick, text_of, until};

fn recorded() -> String {
    quick() + "[history]\nfile = true\n"
}

async fn calls(gateway: &Gateway, arguments: &[&str]) -> Vec<Value> {
    let arguments = [&["history", "--json"], arguments].concat();
    let text = run(gateway, &arguments).await.unwrap();
    serde_json::from_str(&text).unwrap()
}

fn field(entries: &[Value], name: &str) -> Vec<String> {
    let text = |value: &Value| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    };
    entries.iter().map(|entry| text(&entry[name])).collect()
}

#[tokio::test]
async fn every_call_is_kept_however_it_ended_and_can_be_made_again() {
    let gateway = Gateway::start(&(recorded() + &example("one") + &example("two"))).await;
    let client = Client::open(&gateway).await;
    client.call("one__echo", json!({"message": "first"})).await;
    client.call("two__echo", json!({"message": 7})).await;
    client
        .refused("tools/call", json!({"name": "nowhere"}))
        .await;
    run(&gateway, &["servers", "trip", "two"]).await.unwrap();
    client.call("two__echo", json!({"message": "second"})).await;
    let all = calls(&gateway, &[]).await;
    let outcomes = ["ok", "tool_error", "protocol_error", "breaker_open"];
    assert_eq!(field(&all, "outcome"), outcomes, "{all:?}");
    assert_eq!(field(&all, "serverId"), ["one", "two", "null", "two"]);
    assert_eq!(field(&all, "client"), ["it"; 4]);
    let first = &all[0];
    assert_eq!(first["params"]["arguments"]["message"], "first");
    assert_eq!(text_of(&first["result"]), "first");
    assert_eq!(first["session"], client.session.get(..8).unwrap());
    let of_server = calls(&gateway, &["--server", "two", "--since", "1h"]).await;
    assert_eq!(field(&of_server, "outcome"), ["tool_error", "breaker_open"]);
    let last = calls(&gateway, &["--text", "FIRST", "-n", "1"]).await;
    assert_eq!(last.as_slice(), std::slice::from_ref(first));
    let lines = run(&gateway, &["history", "--outcome", "ok"])
        .await
        .unwrap();
    assert!(lines.contains("tools/call one__echo"), "{lines}");
    let id = first["id"].as_str().unwrap();
    let answer = run(&gateway, &["history", "--replay", id]).await.unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(text_of(&answer["result"]), "first");
    assert_eq!(calls(&gateway, &[]).await.len(), 5);
    let refused = run(&gateway, &["history", "--replay", "1"])
        .await
        .unwrap_err();
    assert!(refused.contains("no call has the id 1"), "{refused}");
    let refused = run(&gateway, &["history", "--outcome", "x"])
        .await
        .unwrap_err();
    assert!(refused.contains("tool_error"), "{refused}");
}

#[tokio::test]
async fn no_secret_enters_the_history_or_the_log() {
    const SECRET: &str = "canary-of-the-configuration";
    let variables = format!("IT_SECRET = \"{SECRET}\"");
    let setup = Setup::new(&(recorded() + &example("one") + &python("two", &variables)));
    let gateway = setup.variable("RUST_LOG", "mcpvisor=debug").serve().await;
    gateway.all_up().await;
    let client = Client::open(&gateway).await;
    let texts = [
        format!("it is {SECRET}"),
        "Authorization: Bearer canary-token".to_owned(),
        r#"{"api_key": "canary-key"}"#.to_owned(),
        "password=canary-word".to_owned(),
    ];
    for text in &texts {
        let arguments = json!({"message": text, "token": "canary-argument"});
        client.call("one__echo", arguments.clone()).await;
        let params = json!({"name": format!("one__{SECRET}"), "arguments": arguments});
        client.refused("tools/call", params).await;
    }
    let with_header = client.post(&crate::support::request(
        "canary-header-is-no-id",
        "tools/call",
        json!({"name": "one__echo", "arguments": {"message": "m"}}),
    ));
    with_header
        .header("Authorization", "Bearer canary-in-a-header")
        .send()
        .await;
    let all = calls(&gateway, &[]).await;
    assert_eq!(all.len(), 9);
    let log = run(&gateway, &["logs", "-n", "1000", "--json"])
        .await
        .unwrap();
    assert!(
        log.contains("mcp_response") && log.contains("one__echo"),
        "{log}"
    );
    let mut places = vec![("the log", log), ("what was printed", gateway.log())];
    places.push(("the calls", Value::Array(all).to_string()));
    for end in ["", "-wal"] {
        let file = gateway.data_dir().join(format!("history.sqlite{end}"));
        let bytes = fs::read(file).unwrap_or_default();
        places.push(("the file", String::from_utf8_lossy(&bytes).into_owned()));
    }
    for (place, text) in places {
        let text = text.replace("canary-header-is-no-id", "");
        assert!(!text.contains("canary"), "{place}: {text}");
    }
}

#[tokio::test]
async fn what_was_kept_survives_a_kill() {
    let mut gateway = Gateway::start(&(recorded() + &example("one"))).await;
    let client = Client::open(&gateway).await;
    client.call("one__echo", json!({"message": "before"})).await;
    assert_eq!(calls(&gateway, &[]).await.len(), 1);
    for number in 0..50 {
        client
            .call("one__echo", json!({ "message": number.to_string() }))
            .await;
    }
    gateway.kill();
    gateway.start_again().await;
    gateway.all_up().await;
    let kept = calls(&gateway, &["-n", "1000"]).await;
    assert!(kept.len() <= 51, "{}", kept.len());
    assert_eq!(kept[0]["params"]["arguments"]["message"], "before");
}

#[tokio::test]
async fn a_history_that_cannot_be_used_costs_nothing_but_records() {
    let setup = Setup::new(&(recorded() + &example("one")));
    fs::create_dir(setup.path(".mcpvisor")).unwrap();
    fs::create_dir(setup.path(".mcpvisor/history.sqlite")).unwrap();
    let gateway = setup.serve().await;
    gateway.wait_state("one", "up").await;
    let client = Client::open(&gateway).await;
    let answer = client.call("one__echo", json!({"message": "m"})).await;
    assert_eq!(text_of(&answer), "m");
    let why = run(&gateway, &["history"]).await.unwrap_err();
    assert!(why.contains("history.sqlite` cannot be used"), "{why}");
    let health = gateway.get("/health").send().await.json().await;
    assert_eq!(health["reason"], "calls cannot be recorded", "{health}");
    let tree = run(&gateway, &["status"]).await.unwrap();
    assert!(tree.contains("calls are not recorded: file `"), "{tree}");
    assert_eq!(
        gateway.log().matches("call history is unavailable").count(),
        1
    );
}

#[tokio::test]
async fn the_log_is_shown_by_level_and_server() {
    let gateway = Gateway::start(&(recorded() + &example("one"))).await;
    // It is up in the status until its end is noticed.
    let lost = gateway.generation("one").await;
    run(&gateway, &["servers", "kill", "one"]).await.unwrap();
    gateway.wait_renewed("one", lost).await;
    // The log is written in the background.
    let lines = until("the lines of the end", || async {
        let lines = run(&gateway, &["logs", "--level", "warn", "--server", "one"]);
        lines.await.ok().filter(|lines| lines.contains("warn"))
    })
    .await;
    assert!(!lines.contains("info"), "{lines}");
    // Lines of the gateway may be written later than lines of its servers.
    let first = until("the line of the start", || async {
        let lines = run(&gateway, &["logs", "--text", "SERVES http", "--json"]);
        let lines: Value = serde_json::from_str(&lines.await.ok()?).ok()?;
        lines.get(0).cloned()
    })
    .await;
    assert_eq!(
        (&first["type"], &first["level"]),
        (&json!("app"), &json!("info"))
    );
}
