//! Limits of single clients: those of all, and those of a key.

use serde_json::{Value, json};

use crate::auth::{KEYS, with_key};
use crate::support::{
    Answer, Events, Gateway, Http, INITIALIZE, answer_in, call_params, example, quick, request,
    until,
};

async fn open(gateway: &Gateway, key: &str) -> Answer {
    with_key(Http::post(gateway.address, INITIALIZE), key)
        .send()
        .await
}

async fn session(gateway: &Gateway, key: &str) -> String {
    let answer = open(gateway, key).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.header("mcp-session-id").unwrap().to_owned()
}

fn post(gateway: &Gateway, key: &str, session: &str, message: &Value) -> Http {
    let http = Http::post(gateway.address, message.to_string());
    let http = http.header("Mcp-Session-Id", session);
    with_key(http.header("MCP-Protocol-Version", "2025-11-25"), key)
}

fn call(gateway: &Gateway, key: &str, session: &str, tool: &str, arguments: Value) -> Http {
    let message = request(1, "tools/call", call_params(tool, arguments));
    post(gateway, key, session, &message)
}

async fn echo(gateway: &Gateway, key: &str, session: &str) -> Value {
    let sent = call(
        gateway,
        key,
        session,
        "one__echo",
        json!({ "message": "x" }),
    )
    .send();
    answer_in(sent.await).await["result"].clone()
}

#[tokio::test]
async fn a_key_may_have_limits_of_its_own() {
    let limits = "[rate_limits]\ncalls = \"1/day\"\n[sessions]\nmax_per_client = 1\n";
    let own = "[auth.keys.first.limits]\ncalls = \"3/day\"\nsessions = 2\n";
    let config = quick() + limits + KEYS + own + &example("one");
    let gateway = Gateway::start(&config).await;
    gateway.all_up().await;
    let mut kept = String::new();
    let table = [
        ("first-key", 2, 3, "auth.keys.NAME.limits.calls"),
        ("second-key", 1, 1, "rate_limits.calls"),
    ];
    for (key, sessions, calls, limit) in table {
        let mut last = String::new();
        for _ in 0..sessions {
            last = session(&gateway, key).await;
            assert!(echo_is_counted(&gateway, key, &last).await);
        }
        let refused = open(&gateway, key).await;
        assert_eq!(refused.status, 503, "{key}");
        for _ in sessions..calls {
            assert!(echo_is_counted(&gateway, key, &last).await, "{key}");
        }
        let refused = echo(&gateway, key, &last).await;
        let code = &refused["_meta"]["io.mcpvisor/error"]["code"];
        assert_eq!(code, "rate_limited", "{key}: {refused}");
        let named = format!("`{limit}`");
        assert!(refused.to_string().contains(&named), "{refused}");
        if key == "first-key" {
            kept = last;
        }
    }
    // One that is changed holds at once.
    gateway.write_config(&config.replace("calls = \"3/day\"", "calls = \"9/day\""));
    until("the new limit", || async {
        echo_is_counted(&gateway, "first-key", &kept)
            .await
            .then_some(())
    })
    .await;
}

/// Whether a call was made.
async fn echo_is_counted(gateway: &Gateway, key: &str, session: &str) -> bool {
    echo(gateway, key, session).await["isError"] != true
}

#[tokio::test]
async fn the_calls_in_flight_of_one_client_are_limited_over_all_its_sessions() {
    let limits = "[limits]\ncalls_per_client = 1\n";
    let gateway = Gateway::start(&(quick() + limits + KEYS + &example("one"))).await;
    gateway.all_up().await;
    let (one, two) = (
        session(&gateway, "first-key").await,
        session(&gateway, "first-key").await,
    );
    let slow = call(
        &gateway,
        "first-key",
        &one,
        "one__slow",
        json!({ "steps": 100, "delay_ms": 1000 }),
    );
    let mut slow: Events = slow.send().await.events();
    let refused = echo(&gateway, "first-key", &two).await;
    let error = &refused["_meta"]["io.mcpvisor/error"];
    assert_eq!(error["code"], "overloaded", "{refused}");
    assert!(refused.to_string().contains("limits.calls_per_client"));
    let other = session(&gateway, "second-key").await;
    assert!(echo_is_counted(&gateway, "second-key", &other).await);
    // Its end makes room.
    let cancelled = json!({
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": { "requestId": 1 },
    });
    let sent = post(&gateway, "first-key", &one, &cancelled).send().await;
    assert_eq!(sent.status, 202);
    while slow.next().await.is_some() {}
    until("room for a call", || async {
        echo_is_counted(&gateway, "first-key", &two)
            .await
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_bytes_in_flight_of_one_client_are_limited() {
    let limits = "[limits]\nbytes_per_client = \"4KiB\"\n";
    let own = "[auth.keys.second.limits]\nbytes_in_flight = \"1MiB\"\n";
    let gateway = Gateway::start(&(limits.to_owned() + KEYS + own)).await;
    let mut big = request(1, "ping", json!({}));
    big["params"] = json!({ "padding": "x".repeat(16 << 10) });
    for (key, expected) in [("first-key", 503), ("second-key", 200)] {
        let session = session(&gateway, key).await;
        // Twice: what was refused is given back.
        for _ in 0..2 {
            let answer = post(&gateway, key, &session, &big).send().await;
            assert_eq!(answer.status, expected, "{key}");
        }
        let small = post(&gateway, key, &session, &request(1, "ping", json!({})));
        assert_eq!(small.send().await.status, 200, "{key}");
    }
}
