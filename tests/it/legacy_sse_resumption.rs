//! Clients of HTTP+SSE whose stream breaks.

use serde_json::json;

use crate::legacy_sse::{SseClient, get, refusal, sessions};
use crate::support::{Gateway, example, initialize, quick, request, text_of, until};

#[tokio::test]
async fn a_client_whose_stream_breaks_reads_on_where_it_was() {
    let gateway = Gateway::start(&format!("{}{}", quick(), example("example"))).await;
    let mut client = SseClient::open(&gateway).await;
    let slow = json!({
        "name": "example__slow", "arguments": {"steps": 4, "delay_ms": 100},
        "_meta": {"progressToken": "p"},
    });
    client.accepted(&request(1, "tools/call", slow)).await;
    let first = client.events.message().await.unwrap();
    assert_eq!(first["params"]["progress"], 1, "{first}");
    let mut client = SseClient::reconnect(&gateway, &client.last_event_id()).await;
    for step in 2..=4 {
        let progress = client.events.message().await.unwrap();
        assert_eq!(progress["params"]["progress"], step, "{progress}");
    }
    let answer = client.events.message().await.unwrap();
    assert!(answer["result"].is_object(), "{answer}");
    // Unread messages are sent again, although they were written to the broken stream.
    let last = client.last_event_id();
    client.ask(2, "ping", json!({})).await;
    let mut client = SseClient::reconnect(&gateway, &last).await;
    assert_eq!(client.answer(2).await["result"], json!({}));
    sessions(&gateway, 1).await;
}

#[tokio::test]
async fn a_client_that_stays_away_loses_its_calls_but_not_its_session() {
    let config = format!(
        "{}sse_reconnect_within = \"1s\"\n{}",
        "[gateway]\n",
        example("example")
    );
    let gateway = Gateway::start(&config).await;
    let client = SseClient::open(&gateway).await;
    let slow = json!({"name": "example__slow", "arguments": {"steps": 100, "delay_ms": 1000}});
    client.accepted(&request(1, "tools/call", slow)).await;
    until("the call runs", || async {
        (gateway.server("example").await["connection"]["in_flight"] == 1).then_some(())
    })
    .await;
    let last = client.last_event_id();
    drop(client);
    until("the call is cancelled", || async {
        (gateway.server("example").await["connection"]["in_flight"] == 0).then_some(())
    })
    .await;
    sessions(&gateway, 1).await;
    let mut client = SseClient::reconnect(&gateway, &last).await;
    let result = client
        .call(2, "example__echo", json!({"message": "back"}))
        .await;
    assert_eq!(text_of(&result), "back");
}

#[tokio::test]
async fn a_client_goes_on_after_the_gateway_was_killed() {
    let mut gateway = Gateway::start(&format!("{}{}", quick(), example("example"))).await;
    let mut client = SseClient::open(&gateway).await;
    let last = client.last_event_id();
    gateway.kill();
    gateway.start_again().await;
    gateway.all_up().await;
    client.gateway = gateway.address;
    // There is no stream yet that could bring the answer.
    let answer = client.post(request(1, "ping", json!({}))).send().await;
    refusal(answer, 404, "session_not_found").await;
    let mut client = SseClient::reconnect(&gateway, &last).await;
    let result = client
        .call(2, "example__echo", json!({"message": "again"}))
        .await;
    assert_eq!(text_of(&result), "again");
    let added = json!({"name": "example__add_tool", "arguments": {"name": "more"}});
    client.accepted(&request(3, "tools/call", added)).await;
    let changed = "notifications/tools/list_changed";
    client.events.method(changed).await;
}

/// As the TypeScript SDK does: it says that it was initialized, but not which session it had.
#[tokio::test]
async fn a_client_that_does_not_say_which_session_it_had_gets_a_new_one() {
    let gateway = Gateway::start(&example("example")).await;
    let again = get(&gateway).header("MCP-Protocol-Version", "2025-06-18");
    let mut client = SseClient::open_stream(&gateway, again).await;
    let result = client
        .call(1, "example__echo", json!({"message": "hi"}))
        .await;
    assert_eq!(text_of(&result), "hi");
    let added = json!({"name": "example__add_tool", "arguments": {"name": "more"}});
    client.accepted(&request(2, "tools/call", added)).await;
    let changed = "notifications/tools/list_changed";
    client.events.method(changed).await;
    // The revision without a handshake has no HTTP+SSE, and an unknown one says nothing.
    for revision in ["2026-07-28", "soon"] {
        let begins = get(&gateway).header("MCP-Protocol-Version", revision);
        let client = SseClient::open_stream(&gateway, begins).await;
        let answer = client
            .post(request(1, "tools/list", json!({})))
            .send()
            .await;
        refusal(answer, 400, "session_required").await;
    }
}

#[tokio::test]
async fn a_client_whose_session_is_over_begins_anew() {
    let gateway = Gateway::start("").await;
    let unknown = uuid::Uuid::new_v4().to_string();
    let mut client = SseClient::reconnect(&gateway, &format!("{unknown}.3")).await;
    assert!(!client.path.contains(&unknown));
    let answer = client
        .post(request(1, "tools/list", json!({})))
        .send()
        .await;
    refusal(answer, 400, "session_required").await;
    client.accepted(&initialize("2024-11-05", &json!({}))).await;
    assert!(client.events.message().await.unwrap()["result"].is_object());
}
