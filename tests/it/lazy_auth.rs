//! Clients that look around without a key, and use one for what acts.

use serde_json::{Value, json};

use crate::auth::{KEYS, refused, with_key};
use crate::support::{
    Events, Gateway, Http, INITIALIZE, answer_in, example, names, quick, request, text_of,
};

fn config() -> String {
    format!("[auth]\nlazy = true\n{KEYS}{}{}", quick(), example("one"))
}

async fn open(gateway: &Gateway) -> String {
    let answer = Http::post(gateway.address, INITIALIZE).send().await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.header("mcp-session-id").unwrap().to_owned()
}

fn post(gateway: &Gateway, session: &str, method: &str, params: Value) -> Http {
    let body = request(1, method, params).to_string();
    let http = Http::post(gateway.address, body).header("Mcp-Session-Id", session);
    http.header("MCP-Protocol-Version", "2025-11-25")
}

fn echo(gateway: &Gateway, session: &str) -> Http {
    let params = json!({ "name": "one__echo", "arguments": { "message": "hi" } });
    post(gateway, session, "tools/call", params)
}

#[tokio::test]
async fn looking_around_needs_no_key_and_acting_does() {
    let gateway = Gateway::start(&config()).await;
    let session = open(&gateway).await;
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let initialized = Http::post(gateway.address, initialized.to_string());
    let initialized = initialized.header("Mcp-Session-Id", &session).send().await;
    assert_eq!(initialized.status, 202);
    let list = post(&gateway, &session, "tools/list", json!({}))
        .send()
        .await;
    let list = answer_in(list).await;
    assert!(
        names(&list["result"]["tools"]).contains(&"one__echo"),
        "{list}"
    );
    for method in [
        "ping",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
    ] {
        let answer = post(&gateway, &session, method, json!({})).send().await;
        assert_eq!(answer.status, 200, "{method}");
    }
    for (method, params) in [
        (
            "tools/call",
            json!({ "name": "one__echo", "arguments": {} }),
        ),
        ("prompts/get", json!({ "name": "one__greeting" })),
        ("resources/read", json!({ "uri": "example://one" })),
        ("resources/subscribe", json!({ "uri": "example://one" })),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "name": "x" } }),
        ),
        ("logging/setLevel", json!({ "level": "debug" })),
        ("tasks/list", json!({})),
    ] {
        refused(post(&gateway, &session, method, params).send().await).await;
    }
    // The refusal names the request.
    let answer = echo(&gateway, &session).send().await.json().await;
    assert_eq!(answer["id"], 1, "{answer}");
    refused(with_key(echo(&gateway, &session), "wrong").send().await).await;
    let batch = format!("[{}]", request(1, "ping", json!({})));
    let batch = Http::post(gateway.address, batch).header("Mcp-Session-Id", &session);
    refused(batch.send().await).await;
    // The same without a session.
    let modern = |method: &str, mut params: Value| {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let body = request(1, method, params).to_string();
        let http = Http::post(gateway.address, body).header("Mcp-Method", method);
        http.header("MCP-Protocol-Version", "2026-07-28")
    };
    let discovered = modern("server/discover", json!({})).send().await;
    assert_eq!(discovered.status, 200);
    assert_eq!(modern("tools/list", json!({})).send().await.status, 200);
    let call = || {
        modern(
            "tools/call",
            json!({ "name": "one__echo", "arguments": { "message": "m" } }),
        )
    };
    let call = || call().header("Mcp-Name", "one__echo");
    refused(call().send().await).await;
    let answer = answer_in(with_key(call(), "first-key").send().await).await;
    assert_eq!(text_of(&answer["result"]), "m");
}

#[tokio::test]
async fn a_session_belongs_to_the_first_key_that_is_used_in_it() {
    let mut gateway = Gateway::start(&config()).await;
    let session = open(&gateway).await;
    let answer = with_key(echo(&gateway, &session), "first-key").send().await;
    assert_eq!(text_of(&answer_in(answer).await["result"]), "hi");
    for restarted in [false, true] {
        if restarted {
            gateway.kill();
            gateway.start_again().await;
        }
        let other = with_key(echo(&gateway, &session), "second-key")
            .send()
            .await;
        assert_eq!(other.status, 404, "{other:?}");
        // Its client has a key, and is asked for it.
        let ping = || post(&gateway, &session, "ping", json!({}));
        refused(ping().send().await).await;
        assert_eq!(with_key(ping(), "first-key").send().await.status, 200);
    }
    // One that nobody took over stays open to whoever knows its id, and an unknown one is unknown.
    let free = open(&gateway).await;
    assert_eq!(
        post(&gateway, &free, "ping", json!({})).send().await.status,
        200
    );
    let never = "00000000-0000-4000-8000-000000000000";
    assert_eq!(
        post(&gateway, never, "ping", json!({})).send().await.status,
        404
    );
    let never = with_key(echo(&gateway, never), "first-key").send().await;
    assert_eq!(never.status, 404);
}

#[tokio::test]
async fn of_many_keys_at_once_one_takes_the_session_over() {
    let gateway = Gateway::start(&config()).await;
    for _ in 0..10 {
        let session = open(&gateway).await;
        let calls = ["first-key", "second-key"].into_iter().cycle().take(8);
        let calls = calls.map(|key| {
            let call = with_key(echo(&gateway, &session), key).send();
            async move { (key, call.await.status) }
        });
        let answers = futures_util::future::join_all(calls).await;
        let taken: Vec<&str> = answers
            .iter()
            .filter(|(_, status)| *status == 200)
            .map(|(key, _)| *key)
            .collect();
        assert_eq!(taken.len(), 4, "{answers:?}");
        assert!(
            taken.windows(2).all(|pair| pair[0] == pair[1]),
            "{answers:?}"
        );
        assert!(
            answers
                .iter()
                .all(|(_, status)| [200, 404].contains(status)),
            "{answers:?}"
        );
    }
}

/// GET of a session's stream.
fn listen(gateway: &Gateway, session: &str) -> Http {
    Http::new(gateway.address, "GET", "/mcp")
        .header("Accept", "text/event-stream")
        .header("Mcp-Session-Id", session)
        .header("MCP-Protocol-Version", "2025-11-25")
}

#[tokio::test]
async fn who_opened_a_session_hears_nothing_once_it_has_an_owner() {
    let gateway = Gateway::start(&config()).await;
    let params = json!({ "uri": "example://counter" });
    let watch = |id: &str| post(&gateway, id, "resources/subscribe", params.clone());
    let touch = |id: &str| {
        let params = json!({ "name": "one__touch", "arguments": {} });
        post(&gateway, id, "tools/call", params)
    };
    // Whatever the owner sends first.
    for first in ["call", "subscription", "notification", "stream"] {
        let session = open(&gateway).await;
        let mut before = listen(&gateway, &session).send().await.events();
        let primed = before.next().await.unwrap();
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let initialized = Http::post(gateway.address, initialized.to_string());
        let initialized = initialized.header("Mcp-Session-Id", &session);
        let arriving = match first {
            "call" => touch(&session),
            "subscription" => watch(&session),
            "notification" => initialized,
            _ => listen(&gateway, &session),
        };
        let arrived = with_key(arriving, "first-key").send().await;
        assert!([200, 202].contains(&arrived.status), "{first}: {arrived:?}");
        // What was open ends, and has said nothing.
        let heard = before.rest().await;
        assert!(heard.is_empty(), "{first}: {heard:?}");
        // The owner goes on in the session as in any other.
        let mut after = with_key(listen(&gateway, &session), "first-key")
            .send()
            .await
            .events();
        for message in [watch(&session), touch(&session)] {
            assert_eq!(
                with_key(message, "first-key").send().await.status,
                200,
                "{first}"
            );
        }
        let updated = after.method("notifications/resources/updated").await;
        assert_eq!(updated["params"]["uri"], "example://counter", "{first}");
        // Who opened it does not get in again, neither anew nor after what it read.
        let resumed = listen(&gateway, &session).header("Last-Event-ID", &primed.id.unwrap());
        let end = Http::new(gateway.address, "DELETE", "/mcp").header("Mcp-Session-Id", &session);
        let ping = post(&gateway, &session, "ping", json!({}));
        for message in [listen(&gateway, &session), resumed, ping] {
            refused(message.send().await).await;
        }
        assert_eq!(end.send().await.status, 404);
    }
}

/// A channel of HTTP+SSE whose session was opened without a key, and its address for messages.
async fn open_channel(gateway: &Gateway) -> (Events, String) {
    let stream = Http::new(gateway.address, "GET", "/sse").header("Accept", "text/event-stream");
    let mut events = stream.send().await.events();
    let address = events.next().await.unwrap().data;
    let opened = Http::post(gateway.address, INITIALIZE)
        .path(&address)
        .send();
    assert_eq!(opened.await.status, 202);
    events.message().await.unwrap();
    (events, address)
}

#[tokio::test]
async fn a_channel_of_http_and_sse_ends_when_its_session_has_an_owner() {
    let gateway = Gateway::start(&config()).await;
    let (mut events, address) = open_channel(&gateway).await;
    let send = |message: String| Http::post(gateway.address, message).path(&address).send();
    let list = request(2, "tools/list", json!({})).to_string();
    assert_eq!(send(list.clone()).await.status, 202);
    events.message().await.unwrap();
    let (_, session) = address.split_once("sessionId=").unwrap();
    let owned = with_key(echo(&gateway, session), "first-key").send().await;
    assert_eq!(owned.status, 200, "{owned:?}");
    assert_eq!(events.rest().await, Vec::<Value>::new());
    // The gateway may not have closed the channel yet; it serves nothing in either case.
    assert_ne!(send(list).await.status, 202);
    let again = with_key(echo(&gateway, session), "first-key").send().await;
    assert_eq!(text_of(&answer_in(again).await["result"]), "hi");
}

#[tokio::test]
async fn a_channel_of_http_and_sse_looks_around_without_a_key() {
    let gateway = Gateway::start(&config()).await;
    let (mut events, address) = open_channel(&gateway).await;
    let send = |message: String| Http::post(gateway.address, message).path(&address).send();
    assert_eq!(
        send(request(2, "tools/list", json!({})).to_string())
            .await
            .status,
        202
    );
    let list = events.message().await.unwrap();
    assert!(list["result"]["tools"].is_array(), "{list}");
    let params = json!({ "name": "one__echo", "arguments": {} });
    refused(send(request(3, "tools/call", params).to_string()).await).await;
}
