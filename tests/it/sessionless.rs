//! Clients without a session: those of 2026-07-28, and all others with `gateway.stateless`.

use serde_json::{Value, json};

use crate::support::{
    Answer, Client, Gateway, Http, INITIALIZE, Setup, call_params, example, request, text_of, until,
};

/// A request that says of itself what it is, with its headers.
pub(crate) fn modern(gateway: &Gateway, id: &str, method: &str, params: Value) -> Http {
    modern_as(gateway, id, method, params, json!({"elicitation": {}}))
}

pub(crate) fn modern_as(
    gateway: &Gateway,
    id: &str,
    method: &str,
    mut params: Value,
    capabilities: Value,
) -> Http {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
    let name = params["name"].as_str().or(params["uri"].as_str());
    let name = name.map(str::to_owned);
    let http = Http::post(gateway.address, request(id, method, params).to_string())
        .header("MCP-Protocol-Version", "2026-07-28")
        .header("Mcp-Method", method);
    match name {
        Some(name) => http.header("Mcp-Name", &name),
        None => http,
    }
}

async fn result(answer: Answer) -> Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = answer.json().await;
    assert_eq!(answer["error"], Value::Null);
    answer["result"].clone()
}

async fn up() -> Gateway {
    let gateway = Gateway::start(&example("example")).await;
    gateway.all_up().await;
    gateway
}

fn ask() -> Value {
    call_params("example__ask", json!({"question": "who?"}))
}

#[tokio::test]
async fn s_life_08_and_17_the_gateway_says_what_it_is() {
    let gateway = up().await;
    let discover = modern(&gateway, "d", "server/discover", json!({}));
    let found = result(discover.send().await).await;
    assert_eq!(found["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(found["resultType"], "complete");
    assert!(found["capabilities"]["tools"].is_object());
    let info = &found["_meta"]["io.modelcontextprotocol/serverInfo"];
    assert_eq!(info["name"], "mcpvisor");
    let list = modern(&gateway, "l", "tools/list", json!({})).send().await;
    let list = result(list).await;
    assert!(list["ttlMs"].is_u64() && list["cacheScope"] == "private");
    assert_eq!(list["tools"][0]["name"], "example__echo");
}

#[tokio::test]
async fn s_hdr_06_headers_and_body_must_agree() {
    let gateway = up().await;
    let echo = || call_params("example__echo", json!({"message": "x"}));
    let refusals = [
        (
            modern(&gateway, "1", "tools/call", echo()).without("Mcp-Name"),
            -32020,
            400,
        ),
        (
            modern(&gateway, "2", "tools/call", echo())
                .without("MCP-Protocol-Version")
                .header("MCP-Protocol-Version", "2025-11-25"),
            -32020,
            400,
        ),
        (modern(&gateway, "3", "ping", json!({})), -32601, 404),
    ];
    for (http, code, status) in refusals {
        let answer = http.send().await;
        assert_eq!(answer.status, status);
        assert_eq!(answer.json().await["error"]["code"], code);
    }
}

#[tokio::test]
async fn s_http_07_a_notification_of_the_newer_era_needs_no_session() {
    let gateway = up().await;
    let notification = json!({"jsonrpc": "2.0", "method": "notifications/custom"}).to_string();
    let post = |revision: &str| {
        let http = Http::post(gateway.address, notification.clone());
        http.header("MCP-Protocol-Version", revision)
    };
    let accepted = post("2026-07-28").header("Mcp-Method", "notifications/custom");
    assert_eq!(accepted.send().await.status, 202);
    // An older revision names its session.
    assert_eq!(post("2025-11-25").send().await.status, 400);
}

/// A call again, with the answer "me" to the question that it was answered with.
pub(crate) fn with_answer(mut call: Value, asked: &Value) -> Value {
    let questions = asked["inputRequests"].as_object().unwrap();
    let (key, question) = questions.iter().next().unwrap();
    assert_eq!(question["method"], "elicitation/create");
    call["requestState"] = asked["requestState"].clone();
    call["inputResponses"] = json!({ key: {"action": "accept", "content": {"answer": "me"}} });
    call
}

#[tokio::test]
async fn a_call_is_parked_until_its_client_is_back_and_a_state_is_good_for_one_return() {
    let gateway = up().await;
    let asked = modern(&gateway, "1", "tools/call", ask()).send().await;
    let asked = result(asked).await;
    assert_eq!(asked["resultType"], "input_required");
    let back = with_answer(ask(), &asked);
    // Another call than the one that was asked.
    let mut other = back.clone();
    other["arguments"]["question"] = json!("what?");
    let refused = modern(&gateway, "2", "tools/call", other).send().await;
    assert_eq!(refused.json().await["error"]["code"], -32602);
    let done = modern(&gateway, "3", "tools/call", back.clone())
        .send()
        .await;
    assert_eq!(text_of(&result(done).await), "the user answered: me");
    let again = modern(&gateway, "4", "tools/call", back).send().await;
    let again = result(again).await;
    assert_eq!(again["isError"], true, "{again}");
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_call_back() {
    let gateway = up().await;
    let mut params = call_params("example__slow", json!({"steps": 100, "delay_ms": 50}));
    params["_meta"]["progressToken"] = json!("p");
    let mut events = modern(&gateway, "1", "tools/call", params)
        .send()
        .await
        .events();
    let progress = events.message().await.unwrap();
    assert_eq!(progress["params"]["progressToken"], "p");
    drop(events);
    until("the call is taken back", || async {
        (gateway.server("example").await["connection"]["in_flight"] == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn s_sub_02_and_04_who_listens_hears_of_what_it_asked_for() {
    let gateway = up().await;
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let listen = modern(&gateway, "listen", "subscriptions/listen", wanted);
    let mut events = listen.send().await.events();
    let first = events.message().await.unwrap();
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(
        first["params"]["notifications"],
        json!({"toolsListChanged": true})
    );
    gateway.write_config(&(example("example") + &example("second")));
    let changed = events.message().await.unwrap();
    assert_eq!(changed["method"], "notifications/tools/list_changed");
    let id = &changed["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"];
    assert_eq!(*id, "listen");
}

#[tokio::test]
async fn both_eras_are_served_at_once() {
    let gateway = up().await;
    let client = Client::open(&gateway).await;
    let echo = call_params("example__echo", json!({"message": "hi"}));
    let (old, new) = tokio::join!(
        client.call("example__echo", json!({"message": "hi"})),
        modern(&gateway, "1", "tools/call", echo).send()
    );
    assert_eq!(text_of(&old), "hi");
    assert_eq!(text_of(&result(new).await), "hi");
}

#[tokio::test]
async fn a_stateless_gateway_keeps_nothing_of_clients_with_a_handshake() {
    let setup = Setup::new(&format!(
        "[gateway]\nstateless = true\n{}",
        example("example")
    ));
    let gateway = setup.serve().await;
    gateway.all_up().await;
    let greeted = Http::post(gateway.address, INITIALIZE).send().await;
    assert_eq!(greeted.header("mcp-session-id"), None);
    assert!(result(greeted).await["capabilities"]["tools"].is_object());
    let post = |message: Value| {
        Http::post(gateway.address, message.to_string())
            .header("MCP-Protocol-Version", "2025-11-25")
    };
    let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(post(note).send().await.status, 202);
    let list = post(request(1, "tools/list", json!({}))).send().await;
    let list = result(list).await;
    assert_eq!(list["tools"][0]["name"], "example__echo");
    assert_eq!(list["resultType"], Value::Null);
    let echo = call_params("example__echo", json!({"message": "hi"}));
    let done = post(request(2, "tools/call", echo)).send().await;
    let done = result(done).await;
    assert_eq!(text_of(&done), "hi");
    assert_eq!(done["resultType"], Value::Null);
    assert_eq!(gateway.get("/mcp").send().await.status, 405);
    let ended = Http::new(gateway.address, "DELETE", "/mcp");
    let ended = ended.header("Mcp-Session-Id", "anything").send().await;
    assert_eq!(ended.status, 200);
    assert_eq!(gateway.status().await["sessions"], 0);
}

#[tokio::test]
async fn a_session_is_optional_where_the_operator_says_so() {
    let config = format!("[sessions]\nrequire_id = false\n{}", example("example"));
    let gateway = Setup::new(&config).serve().await;
    gateway.all_up().await;
    let client = Client::open(&gateway).await;
    let list = || {
        Http::post(
            gateway.address,
            request(1, "tools/list", json!({})).to_string(),
        )
    };
    for list in [list(), client.with_session(list())] {
        let list = result(list.send().await).await;
        assert_eq!(list["tools"][0]["name"], "example__echo");
    }
    assert_eq!(gateway.get("/mcp").send().await.status, 405);
    let unknown = list().header("Mcp-Session-Id", "anything").send().await;
    assert_eq!(unknown.status, 404);
    assert_eq!(gateway.status().await["sessions"], 1);
}
