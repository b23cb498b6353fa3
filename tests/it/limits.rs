//! Limits: what is over them is refused readably, and everything else goes on.

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::support::{
    Answer, Client, Gateway, Http, HttpServer, INITIALIZE, Setup, example, failure_of, initialize,
    names, python, request, soon, text_of, until,
};

/// Starts calls that never end, and waits until the server has them.
async fn hang(gateway: &Gateway, client: &Client, count: u64) -> Vec<JoinHandle<Answer>> {
    let start = |_| {
        let params = json!({"name": "py__hang", "arguments": {}});
        let http = client.post(&request(client.id(), "tools/call", params));
        tokio::spawn(http.send())
    };
    let before = gateway.server("py").await["connection"]["in_flight"]
        .as_u64()
        .unwrap();
    let calls = (0..count).map(start).collect();
    until("the calls under way", || async {
        let server = gateway.server("py").await;
        (server["connection"]["in_flight"] == before + count).then_some(())
    })
    .await;
    calls
}

#[tokio::test]
async fn calls_of_one_session_are_limited() {
    let config = format!("[limits]\ncalls_per_session = 3\n{}", python("py", ""));
    let gateway = Gateway::start(&config).await;
    let (client, other) = (Client::open(&gateway).await, Client::open(&gateway).await);
    let calls = hang(&gateway, &client, 3).await;
    let result = client.call("py__echo", json!({})).await;
    let failure = failure_of(&result);
    assert_eq!(failure["code"], "overloaded");
    assert_eq!(failure["retryable"], true);
    assert!(failure["retryAfterMs"].as_u64().unwrap() > 0);
    assert!(text_of(&result).contains("calls_per_session"));
    // Lists and pings are no calls, and others have their own limit.
    client.get("tools/list", json!({})).await;
    assert_eq!(text_of(&other.call("py__echo", json!({})).await), "py {}");
    client
        .notify("notifications/cancelled", json!({"requestId": 1}))
        .await;
    until("a free place", || async {
        let result = client.call("py__echo", json!({})).await;
        result.get("isError").is_none().then_some(())
    })
    .await;
    client.delete().await;
    for call in calls {
        soon("the end of a call", call).await.unwrap();
    }
}

#[tokio::test]
async fn calls_at_one_server_are_limited() {
    let config = format!(
        "[limits]\ncalls_per_server = 4\nqueue_per_server = 0\n{}{}",
        python("py", ""),
        example("other")
    );
    let gateway = Gateway::start(&config).await;
    let (one, two) = (Client::open(&gateway).await, Client::open(&gateway).await);
    hang(&gateway, &one, 2).await;
    hang(&gateway, &two, 2).await;
    let result = one.call("py__echo", json!({})).await;
    let failure = failure_of(&result);
    assert_eq!(
        (&failure["code"], &failure["server"]),
        (&json!("overloaded"), &json!("py"))
    );
    assert!(failure["retryAfterMs"].as_u64().unwrap() > 0);
    let error = one
        .refused("resources/read", json!({"uri": "it://py"}))
        .await;
    assert_eq!(error["data"]["code"], "overloaded");
    assert_eq!(
        text_of(&one.call("other__echo", json!({"message": "m"})).await),
        "m"
    );
    two.delete().await;
    until("free places", || async {
        let result = one.call("py__echo", json!({})).await;
        result.get("isError").is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_id_that_is_in_flight_is_not_taken_twice() {
    let gateway = Gateway::start(&python("py", "")).await;
    let client = Client::open(&gateway).await;
    hang(&gateway, &client, 1).await;
    let params = json!({"name": "py__echo", "arguments": {}});
    let answer = client
        .post(&request(1, "tools/call", params))
        .send()
        .await
        .json()
        .await;
    assert_eq!(answer["error"]["code"], -32600);
}

#[tokio::test]
async fn sessions_are_limited() {
    let gateway = Gateway::start("[sessions]\nmax = 2\n").await;
    let (one, _two) = (Client::open(&gateway).await, Client::open(&gateway).await);
    let refused = Http::post(gateway.address, INITIALIZE).send().await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("retry-after"), Some("1"));
    let body = refused.json().await;
    assert_eq!(body["id"], "first");
    assert_eq!(body["error"]["data"]["code"], "overloaded");
    one.delete().await;
    Client::open(&gateway).await;
    assert_eq!(gateway.status().await["counters"]["sessions_refused"], 1);
}

#[tokio::test]
async fn one_address_leaves_sessions_to_another() {
    let config = "[gateway]\nallow_unauthenticated = true\n[sessions]\nmax = 10\n";
    let setup = Setup::new(config).variable("MCPVISOR_LISTEN", "0.0.0.0:0");
    let gateway = setup.serve().await;
    let initialize = async |from| {
        let answer = Http::post(gateway.address, INITIALIZE)
            .from(from)
            .send()
            .await;
        (answer.status, answer.json().await)
    };
    for _ in 0..9 {
        assert_eq!(initialize([127, 0, 0, 2]).await.0, 200);
    }
    let (status, refused) = initialize([127, 0, 0, 2]).await;
    assert_eq!(status, 503);
    let why = refused["error"]["message"].as_str().unwrap();
    assert!(why.contains("`sessions.peer_share`"), "{why}");
    assert_eq!(initialize([127, 0, 0, 3]).await.0, 200);
}

#[tokio::test]
async fn clients_behind_a_trusted_proxy_have_shares_of_their_own() {
    let config = "[gateway]\ntrusted_proxies = [\"127.0.0.0/8\"]\n[sessions]\nmax = 10\n";
    let gateway = Gateway::start(config).await;
    let initialize = async |client: &str| {
        let http = Http::post(gateway.address, INITIALIZE);
        let http = http.header("X-Forwarded-For", client);
        http.send().await.status
    };
    for _ in 0..9 {
        // A client can send the header itself; the proxy appends the address that it sees.
        assert_eq!(initialize("192.0.2.66, 198.51.100.2").await, 200);
    }
    assert_eq!(initialize("192.0.2.67, 198.51.100.2").await, 503);
    assert_eq!(initialize("198.51.100.3").await, 200);
}

#[tokio::test]
async fn a_declaration_of_16_mib_is_refused() {
    let gateway = Gateway::start("").await;
    let capabilities = json!({"experimental": {"a": "x".repeat((16 << 20) - 1024)}});
    let body = initialize("2025-11-25", &capabilities).to_string();
    let refused = Http::post(gateway.address, body).send().await.json().await;
    assert_eq!(refused["error"]["code"], -32602);
    let why = refused["error"]["message"].as_str().unwrap();
    assert!(why.contains("65536"), "{why}");
    // A call that says so of itself.
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    let call = request(1, "tools/list", json!({ "_meta": meta }));
    let http = Http::post(gateway.address, call.to_string())
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/list");
    let refused = http.send().await;
    assert_eq!(refused.status, 400);
    let why = refused.json().await["error"]["message"].to_string();
    assert!(
        why.contains("clientCapabilities") && why.contains("8 KiB"),
        "{why}"
    );
    assert_eq!(gateway.status().await["counters"]["sessions_opened"], 0);
}

#[tokio::test]
async fn json_100_000_levels_deep_reaches_no_server() {
    let gateway = Gateway::start(&python("py", "")).await;
    let client = Client::open(&gateway).await;
    let deep = ["[".repeat(100_000), "]".repeat(100_000)].concat();
    for _ in 0..5 {
        let call = request(
            7,
            "tools/call",
            json!({"name": "py__echo", "arguments": {"a": 0}}),
        );
        let body = call
            .to_string()
            .replace(r#""a":0"#, &format!(r#""a":{deep}"#));
        let refused = client.with_session(Http::post(gateway.address, body));
        let refused = refused.send().await.json().await;
        assert_eq!(
            (&refused["id"], &refused["error"]["code"]),
            (&json!(7), &json!(-32600))
        );
        let why = refused["error"]["message"].as_str().unwrap();
        assert!(why.contains("100 levels"), "{why}");
    }
    assert_eq!(text_of(&client.call("py__echo", json!({})).await), "py {}");
    let server = gateway.server("py").await;
    assert_eq!(server["connection"]["shared"]["generation"], 1);
}

#[tokio::test]
async fn bodies_under_way_are_limited_in_all() {
    let config = "[limits]\nbytes_in_flight = \"1MiB\"\nbody = \"900KiB\"\n[gateway]\nbody_timeout = \"20s\"\n";
    let gateway = Gateway::start(config).await;
    let client = Client::open(&gateway).await;
    let mut big = request(1, "ping", json!({}));
    big["params"] = json!({"padding": "x".repeat(800 << 10)});
    let bytes = client.post(&big).bytes();
    // One that has nearly come holds its place.
    let mut first = tokio::net::TcpStream::connect(gateway.address)
        .await
        .unwrap();
    let most = bytes.len() - 10;
    tokio::io::AsyncWriteExt::write_all(&mut first, &bytes[..most])
        .await
        .unwrap();
    let refused = until("a refusal", || async {
        let answer = client.post(&big).send().await;
        (answer.status != 200).then_some(answer)
    })
    .await;
    assert_eq!(refused.status, 503);
    let body = refused.json().await;
    assert!(
        body["error"]["message"]
            .as_str()
            .unwrap()
            .contains("bytes_in_flight")
    );
    tokio::io::AsyncWriteExt::write_all(&mut first, &bytes[most..])
        .await
        .unwrap();
    let answer = soon("the first one's answer", Answer::read(first))
        .await
        .unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(client.post(&big).send().await.status, 200);
}

#[tokio::test]
async fn a_megabyte_passes_both_ways() {
    let server = HttpServer::start(Default::default()).await;
    let gateway = Gateway::start(&format!("{}{}", example("stdio"), server.config("http"))).await;
    let client = Client::open(&gateway).await;
    let result = client.call("stdio__big", json!({"bytes": 1 << 20})).await;
    assert_eq!(text_of(&result).len(), 1 << 20);
    let message = "é".repeat(1 << 19);
    let result = client
        .call("stdio__echo", json!({ "message": message }))
        .await;
    assert_eq!(text_of(&result), message);
    let result = client
        .call("http__echo", json!({ "message": message }))
        .await;
    assert_eq!(
        text_of(&result).len(),
        message.len() + "http {\"message\":\"\"}".len()
    );
}

#[tokio::test]
async fn a_line_over_the_limit_fails_its_call_and_the_connection_lives() {
    let config = format!("[limits]\nline = \"256KiB\"\n{}", example("example"));
    let gateway = Gateway::start(&config).await;
    let client = Client::open(&gateway).await;
    let (_, mut events) = client
        .start("example__slow", json!({"steps": 5, "delay_ms": 50}))
        .await;
    let result = client.call("example__big", json!({"bytes": 1 << 20})).await;
    let failure = failure_of(&result);
    assert_eq!(
        (&failure["code"], &failure["server"]),
        (&json!("server_protocol"), &json!("example"))
    );
    assert!(text_of(&result).contains("limits.line"), "{result}");
    events.method("notifications/progress").await;
    assert!(events.rest().await.pop().unwrap()["result"].is_object());
    let result = client
        .call("example__big", json!({"bytes": 200 << 10}))
        .await;
    assert_eq!(text_of(&result).len(), 200 << 10);
    assert_eq!(
        gateway.server("example").await["connection"]["shared"]["generation"],
        1
    );
}

#[tokio::test]
async fn a_list_is_cut_at_the_limit() {
    let config = format!("[limits]\nlist_items = 4\n{}", example("example"));
    let gateway = Gateway::start(&config).await;
    let client = Client::open(&gateway).await;
    let list = client.get("tools/list", json!({})).await;
    assert_eq!(names(&list["tools"]).len(), 4);
}

#[tokio::test]
async fn an_idle_session_expires_and_one_in_use_does_not() {
    let config = format!("[sessions]\nidle_timeout = \"1s\"\n{}", example("example"));
    let gateway = Gateway::start(&config).await;
    let idle = Client::open(&gateway).await;
    let listening = Client::open(&gateway).await;
    let mut stream = listening.listen().await;
    let calling = Client::open(&gateway).await;
    let (_, events) = calling
        .start("example__slow", json!({"steps": 50, "delay_ms": 100}))
        .await;
    until("the idle one's end", || async {
        (gateway.status().await["sessions"] == 2).then_some(())
    })
    .await;
    let ping = request(1, "ping", json!({}));
    let gone = idle.post(&ping).send().await;
    assert_eq!(gone.status, 404);
    assert_eq!(
        gone.json().await["error"]["data"]["code"],
        "session_not_found"
    );
    let answer: Value = events.rest().await.pop().unwrap();
    assert_eq!(text_of(&answer["result"]), "done after 50 steps");
    listening
        .call(
            "example__log",
            json!({"message": "still", "level": "error"}),
        )
        .await;
    assert_eq!(
        stream.method("notifications/message").await["params"]["data"],
        "still"
    );
    assert_eq!(gateway.status().await["counters"]["sessions_expired"], 1);
}
