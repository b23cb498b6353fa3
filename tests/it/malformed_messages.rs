//! Servers and clients that say strange things.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{
    Answer, Client, Gateway, Http, INITIALIZE, Setup, call_params, example, names, python, request,
    soon, text_of, until,
};

#[tokio::test]
async fn a_server_that_says_strange_things_is_still_used() {
    let gateway = Gateway::start(&python("py", "")).await;
    for capabilities in [json!({}), json!({"sampling": {}})] {
        let client = Client::that_can(&gateway, capabilities).await;
        let mut stream = client.listen().await;
        assert_eq!(text_of(&client.call("py__odd", json!({})).await), "odd");
        assert_eq!(text_of(&client.call("py__echo", json!({})).await), "py {}");
        client.delete().await;
        while let Some(message) = stream.message().await {
            assert_eq!(message["method"], "notifications/message", "{message}");
        }
    }
    let server = gateway.server("py").await;
    assert_eq!(server["connection"]["shared"]["generation"], 1);
}

/// Lets the server list other tools, and waits until the gateway has them.
async fn list(gateway: &Gateway, client: &Client, tools: Value) -> Value {
    let mut stream = client.listen().await;
    client.call("py__list", json!({ "tools": tools })).await;
    stream.method("notifications/tools/list_changed").await;
    drop(stream);
    gateway.status().await
}

#[tokio::test]
async fn a_bad_tool_is_hidden_and_hides_no_other() {
    let gateway = Gateway::start(&python("py", "")).await;
    let client = Client::open(&gateway).await;
    let good = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
    let tools = json!([
        good("echo"),
        {"name": "no-schema"},
        {"name": "bad-schema", "inputSchema": {"type": "object", "properties": {"a": {"type": "strin"}}}},
        {"name": "array-schema", "inputSchema": [1]},
        {"inputSchema": {"type": "object"}},
        "a text",
        good("echo"),
        good("list"),
    ]);
    let status = list(&gateway, &client, tools).await;
    let list = client.get("tools/list", json!({})).await;
    // Clients take a schema that is odd further inside.
    let listed = ["py__echo", "py__bad-schema", "py__list"];
    assert_eq!(names(&list["tools"]), listed, "{status}");
    let notices = status["notices"].to_string();
    assert!(
        notices.contains("bad-schema") && notices.contains("no-schema"),
        "{notices}"
    );
    let text = gateway.setup.command(&["status"]).output().unwrap();
    assert!(
        String::from_utf8(text.stdout)
            .unwrap()
            .contains("bad-schema")
    );
}

#[tokio::test]
async fn a_long_name_is_cut_and_still_called() {
    let gateway = Gateway::start(&python("py", "")).await;
    let client = Client::open(&gateway).await;
    let long = "a".repeat(64);
    let tools = json!([
        {"name": "list", "inputSchema": {"type": "object"}},
        {"name": format!("{long}1"), "inputSchema": {"type": "object"}},
        {"name": format!("{long}2"), "inputSchema": {"type": "object"}},
    ]);
    list(&gateway, &client, tools).await;
    let list = client.get("tools/list", json!({})).await;
    let names = names(&list["tools"]);
    assert_eq!(names.len(), 3);
    assert_ne!(names[1], names[2]);
    assert!(names.iter().all(|name| name.len() <= 45), "{names:?}");
    // The server does not know it, and never answers: what counts is that it has the call.
    let params = json!({"name": names[1], "arguments": {}});
    let call = tokio::spawn(client.post(&request("c", "tools/call", params)).send());
    until("the call under way", || async {
        (gateway.server("py").await["connection"]["in_flight"] == 1).then_some(())
    })
    .await;
    client
        .notify("notifications/cancelled", json!({"requestId": "c"}))
        .await;
    soon("the end of the call", call).await.unwrap();
}

#[tokio::test]
async fn a_client_may_expect_continue() {
    let gateway = Gateway::start("").await;
    let bytes = Http::post(gateway.address, INITIALIZE)
        .header("Expect", "100-continue")
        .bytes();
    let head = bytes.len() - INITIALIZE.len();
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    stream.write_all(&bytes[..head]).await.unwrap();
    let mut go = [0; 25];
    soon("100 Continue", stream.read_exact(&mut go))
        .await
        .unwrap();
    assert_eq!(&go, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(&bytes[head..]).await.unwrap();
    let answer = soon("the answer", Answer::read(stream)).await.unwrap();
    assert_eq!(answer.status, 200);
}

/// What comes on a connection of its own until the gateway closes it.
async fn whole_answer(gateway: &Gateway, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut bytes = Vec::new();
    let read = stream.read_to_end(&mut bytes);
    soon("the end of the connection", read).await.unwrap();
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn a_client_of_http_1_0_reads_no_chunks() {
    let gateway = Gateway::start(&example("example")).await;
    let client = Client::open(&gateway).await;
    let call =
        |tool: &str, arguments: Value| request(7, "tools/call", call_params(tool, arguments));
    let quick = call("example__add", json!({"a": 2, "b": 3}));
    // Its answer is a stream, since it reports progress.
    let mut params = call_params("example__slow", json!({"steps": 2, "delay_ms": 10}));
    params["_meta"] = json!({"progressToken": 1});
    let streamed = request(7, "tools/call", params);
    for body in [quick, streamed] {
        let bytes = client.post(&body).bytes();
        let old = String::from_utf8(bytes).unwrap();
        let old = old.replacen(" HTTP/1.1", " HTTP/1.0", 1);
        let answer = whole_answer(&gateway, old.as_bytes()).await;
        assert!(answer.contains(r#""id":7"#), "{answer}");
        assert!(!answer.to_lowercase().contains("chunked"), "{answer}");
    }
}

#[tokio::test]
async fn each_endpoint_is_found_with_a_slash_at_its_end() {
    let tables = format!(
        "{}[views.few]\nservers = [\"example\"]\n",
        example("example")
    );
    let gateway = Gateway::start(&tables).await;
    for path in [
        "/mcp",
        "/mcp/",
        "/mcp/few",
        "/mcp/few/",
        "/mcp/server/example/",
    ] {
        let answer = Http::post(gateway.address, INITIALIZE)
            .path(path)
            .send()
            .await;
        assert_eq!(answer.status, 200, "{path}");
    }
    for path in ["//mcp", "/mcp//", "/mcpx/"] {
        let answer = Http::post(gateway.address, INITIALIZE)
            .path(path)
            .send()
            .await;
        assert_eq!(answer.status, 404, "{path}");
    }
}

#[tokio::test]
async fn a_byte_order_mark_before_a_body_is_ignored() {
    let gateway = Gateway::start(&example("example")).await;
    let body = format!("\u{feff}{INITIALIZE}");
    let answer = Http::post(gateway.address, body).send().await;
    assert_eq!(answer.status, 200);
    let batch = format!("\u{feff}[{}]", request(1, "ping", json!({})));
    let client = Client::open_as(&gateway, "2025-03-26", json!({})).await;
    let answer = client.post(&json!([])).body(batch).send().await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_of_a_request_costs_nothing() {
    let gateway = Gateway::start("").await;
    let bytes = Http::post(gateway.address, INITIALIZE).bytes();
    for cut in [1, 20, bytes.len() / 2, bytes.len() - 1] {
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        stream.write_all(&bytes[..cut]).await.unwrap();
    }
    for garbage in [
        &b"\x16\x03\x01\x02\x00"[..],
        b"GET\r\n\r\n",
        b"POST /mcp HTTP/9.9\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        let mut rest = Vec::new();
        let _ = soon("its end", stream.read_to_end(&mut rest)).await;
        assert!(
            rest.is_empty() || rest.starts_with(b"HTTP/1.1 4"),
            "{rest:?}"
        );
    }
    Client::open(&gateway).await;
    let status = gateway.status().await;
    assert_eq!(status["sessions"], 1);
    assert_eq!(status["counters"]["requests_panicked"], 0);
}

#[tokio::test]
async fn a_loopback_address_of_the_other_family_is_served() {
    let setup = Setup::new(&example("example")).variable("MCPVISOR_LISTEN", "[::1]:0");
    let gateway = setup.serve().await;
    let client = Client::open(&gateway).await;
    client.get("ping", json!({})).await;
}

#[tokio::test]
async fn beyond_loopback_only_named_hosts_are_served() {
    let config = "[gateway]\nallow_unauthenticated = true\nallowed_hosts = [\"mcp.example\", \"*.example.org:*\"]\n";
    let gateway = Setup::new(config)
        .variable("MCPVISOR_LISTEN", "0.0.0.0:0")
        .serve()
        .await;
    let initialize = |host: &str| Http::post(gateway.address, INITIALIZE).header("Host", host);
    for (host, status) in [
        ("mcp.example", 200),
        ("a.example.org:80", 200),
        ("localhost", 403),
        ("mcp.example.evil", 403),
    ] {
        assert_eq!(initialize(host).send().await.status, status, "{host}");
    }
}

#[tokio::test]
async fn a_session_of_a_gateway_before_this_one_is_unknown() {
    let mut gateway = Gateway::start("").await;
    let client = Client::open(&gateway).await;
    gateway.signal(rustix::process::Signal::TERM);
    assert!(gateway.ended().await.success());
    let again = Gateway::start("").await;
    let ping = Http::post(again.address, request(1, "ping", json!({})).to_string());
    let answer = client
        .with_session(ping)
        .header("Host", "localhost")
        .send()
        .await;
    assert_eq!(answer.status, 404);
}

#[tokio::test]
async fn deep_and_wide_json_is_passed_on_or_refused() {
    let gateway = Gateway::start(&example("example")).await;
    let client = Client::open(&gateway).await;
    let deep = |levels: usize| {
        let value = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"example__add_tool","arguments":{value}}}}}"#
        );
        client.with_session(Http::post(gateway.address, body))
    };
    assert_eq!(deep(50).send().await.status, 200);
    assert_eq!(deep(100_000).send().await.status, 400);
    client.get("ping", json!({})).await;
    let server = gateway.server("example").await;
    assert_eq!(server["connection"]["shared"]["generation"], 1);
    client.delete().await;
}
