//! Batches: revision 2025-03-26 has them, no other.

use serde_json::{Value, json};

use crate::support::{Client, Gateway, Http, example, initialize, request, text_of};

#[tokio::test]
async fn a_batch_is_answered_as_a_batch() {
    let gateway = Gateway::start(&example("example")).await;
    let client = Client::open_as(&gateway, "2025-03-26", json!({})).await;
    let call = json!({"name": "example__echo", "arguments": {"message": "hi"}});
    let batch = json!([
        request("a", "tools/call", call),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        request("b", "ping", json!({})),
        request("c", "no/such", json!({})),
        {"jsonrpc": "2.0"},
    ]);
    let answer = client.post(&batch).send().await;
    assert_eq!(answer.status, 200);
    let answers = answer.json().await;
    let answers = answers.as_array().unwrap();
    let of = |id: Value| answers.iter().find(|answer| answer["id"] == id).unwrap();
    assert_eq!(answers.len(), 4, "{answers:?}");
    assert_eq!(text_of(&of(json!("a"))["result"]), "hi");
    assert_eq!(of(json!("b"))["result"], json!({}));
    assert_eq!(of(json!("c"))["error"]["code"], -32601);
    assert_eq!(of(Value::Null)["error"]["code"], -32600);
}

#[tokio::test]
async fn a_batch_of_notifications_is_accepted_without_a_body() {
    let gateway = Gateway::start("").await;
    let client = Client::open_as(&gateway, "2025-03-26", json!({})).await;
    let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let answer = client.post(&json!([note, note])).send().await;
    assert_eq!(answer.status, 202);
    assert_eq!(answer.bytes().await, b"");
}

#[tokio::test]
async fn initialize_in_a_batch_is_refused() {
    let gateway = Gateway::start("").await;
    let batch = json!([initialize("2025-03-26", &json!({}))]);
    let answer = Http::post(gateway.address, batch.to_string()).send().await;
    assert!(matches!(answer.status, 400), "{answer:?}");
    assert_eq!(answer.header("mcp-session-id"), None);

    let client = Client::open_as(&gateway, "2025-03-26", json!({})).await;
    let answer = client.post(&batch).send().await;
    assert_eq!(answer.header("mcp-session-id"), None);
    assert_eq!(answer.json().await[0]["error"]["code"], -32600);
    assert_eq!(gateway.status().await["sessions"], 1);
}

#[tokio::test]
async fn other_revisions_and_empty_batches_are_refused() {
    let gateway = Gateway::start("").await;
    let ping = json!([request(1, "ping", json!({}))]);
    for revision in ["2024-11-05", "2025-06-18", "2025-11-25"] {
        let client = Client::open_as(&gateway, revision, json!({})).await;
        let answer = client.post(&ping).send().await;
        assert_eq!(answer.status, 400, "{revision}");
        assert_eq!(answer.json().await["error"]["code"], -32600);
    }
    let client = Client::open_as(&gateway, "2025-03-26", json!({})).await;
    for batch in [json!([]), json!(vec![request(1, "ping", json!({})); 65])] {
        let answer = client.post(&batch).send().await;
        assert_eq!(answer.status, 400);
        assert_eq!(answer.json().await["error"]["code"], -32600);
    }
}
