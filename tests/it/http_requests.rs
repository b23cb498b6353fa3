//! The edge: paths, methods, headers, bodies that are not as they should be.

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Answer, Client, Gateway, Http, INITIALIZE, Setup, example, request, soon};

/// Every refusal is JSON-RPC, with a sentence and a code.
async fn refusal(answer: Answer, status: u16, code: &str) -> Value {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let body = answer.json().await;
    assert_eq!(body["jsonrpc"], "2.0");
    assert!(!body["error"]["message"].as_str().unwrap().is_empty());
    assert_eq!(body["error"]["data"]["code"], code, "{body}");
    body
}

#[tokio::test]
async fn other_methods_are_refused_with_a_json_rpc_error() {
    let gateway = Gateway::start("").await;
    for method in ["PUT", "PATCH", "TRACE"] {
        for path in ["/mcp", "/"] {
            let answer = Http::new(gateway.address, method, path).send().await;
            assert_eq!(answer.header("allow"), Some("GET, POST, DELETE, OPTIONS"));
            let body = refusal(answer, 405, "http_method_not_allowed").await;
            assert_eq!(body["id"], Value::Null);
        }
    }
    for path in ["/health", "/healthz", "/livez", "/readyz"] {
        let answer = Http::new(gateway.address, "PUT", path).send().await;
        refusal(answer, 405, "http_method_not_allowed").await;
        let head = Http::new(gateway.address, "HEAD", path).send().await;
        assert!(matches!(head.status, 200 | 503), "{head:?}");
        let options = Http::new(gateway.address, "OPTIONS", path).send().await;
        assert_eq!(options.status, 204);
        assert_eq!(options.header("allow"), Some("GET, HEAD, OPTIONS"));
    }
}

#[tokio::test]
async fn every_answer_of_the_endpoint_names_a_revision() {
    let gateway = Gateway::start("").await;
    let client = Client::open(&gateway).await;
    let new = |method| Http::new(gateway.address, method, "/mcp");
    let ping = || Http::post(gateway.address, request(1, "ping", json!({})).to_string());
    let table = [
        (new("OPTIONS"), 204, "2025-11-25"),
        (new("PUT"), 405, "2025-11-25"),
        (new("DELETE"), 200, "2025-11-25"),
        (Http::post(gateway.address, "{"), 400, "2025-11-25"),
        (ping(), 400, "2025-11-25"),
        (
            ping().header("MCP-Protocol-Version", "2025-03-26"),
            400,
            "2025-03-26",
        ),
        (
            ping().header("MCP-Protocol-Version", "2026-07-28"),
            400,
            "2026-07-28",
        ),
        (
            ping().header("Origin", "http://evil.example"),
            403,
            "2025-11-25",
        ),
        (client.with_session(ping()), 200, "2025-11-25"),
    ];
    for (http, status, revision) in table {
        let answer = http.send().await;
        assert_eq!(answer.status, status, "{answer:?}");
        let named = answer.header("mcp-protocol-version");
        assert_eq!(named, Some(revision), "{answer:?}");
    }
}

#[tokio::test]
async fn a_revision_that_is_not_spoken_is_refused_with_and_without_a_session() {
    let gateway = Gateway::start("").await;
    let client = Client::open(&gateway).await;
    let ping = || Http::post(gateway.address, request(1, "ping", json!({})).to_string());
    let new = |method| Http::new(gateway.address, method, "/mcp");
    for http in [
        ping(),
        new("GET"),
        new("DELETE"),
        client.with_session(ping()),
        client.with_session(new("DELETE")),
    ] {
        let answer = http
            .header("MCP-Protocol-Version", "1999-01-01")
            .send()
            .await;
        assert_eq!(answer.status, 400, "{answer:?}");
        assert_eq!(answer.json().await["error"]["code"], -32600);
    }
    client.get("ping", json!({})).await;
}

#[tokio::test]
async fn an_unknown_path_is_a_json_404() {
    let gateway = Gateway::start("").await;
    for path in [
        "/nothing",
        "/mcp/more",
        "/.well-known/oauth-protected-resource",
    ] {
        refusal(gateway.get(path).send().await, 404, "not_found").await;
    }
}

#[tokio::test]
async fn the_root_serves_the_same() {
    let gateway = Gateway::start("").await;
    let answer = Http::post(gateway.address, INITIALIZE)
        .path("/")
        .send()
        .await;
    assert_eq!(answer.status, 200);
    let id = answer.header("mcp-session-id").unwrap().to_owned();
    let ping = request(1, "ping", json!({})).to_string();
    let ping = Http::post(gateway.address, ping).header("Mcp-Session-Id", &id);
    assert_eq!(ping.clone().send().await.status, 200);
    assert_eq!(ping.path("/").send().await.status, 200);
}

#[tokio::test]
async fn a_configured_endpoint_replaces_the_path() {
    let gateway = Gateway::start("[gateway]\nendpoint = \"/tools/mcp\"\n").await;
    let initialize = || Http::post(gateway.address, INITIALIZE);
    assert_eq!(initialize().path("/tools/mcp").send().await.status, 200);
    let answer = initialize().path("/mcp").send().await;
    let body = refusal(answer, 404, "not_found").await;
    let message = body["error"]["message"].as_str().unwrap();
    assert!(message.contains("`/tools/mcp`"), "{message}");
}

#[tokio::test]
async fn a_strange_origin_or_host_is_forbidden() {
    let gateway = Gateway::start("").await;
    let initialize = || Http::post(gateway.address, INITIALIZE);
    for origin in [
        "http://evil.example",
        "http://localhost.evil.example:80",
        "null",
    ] {
        let answer = initialize().header("Origin", origin).send().await;
        assert_eq!(answer.header("access-control-allow-origin"), None);
        let body = refusal(answer, 403, "forbidden").await;
        assert_eq!(body["id"], Value::Null);
    }
    for host in ["evil.example", "localhost.evil.example:12006"] {
        let answer = initialize().header("Host", host).send().await;
        refusal(answer, 403, "forbidden").await;
        // Nothing can be learned from health, so load balancers may ask by any name.
        assert_eq!(
            gateway
                .get("/health")
                .header("Host", host)
                .send()
                .await
                .status,
            200
        );
    }
    assert_eq!(
        initialize()
            .header("Host", "localhost:1")
            .send()
            .await
            .status,
        200
    );
    assert_eq!(gateway.status().await["sessions"], 1);
    let preflight = Http::new(gateway.address, "OPTIONS", "/mcp")
        .header("Origin", "http://evil.example")
        .header("Access-Control-Request-Method", "POST")
        .send()
        .await;
    assert_eq!(preflight.header("access-control-allow-origin"), None);
    refusal(preflight, 403, "forbidden").await;
}

#[tokio::test]
async fn the_host_in_an_absolute_uri_is_checked_too() {
    let gateway = Gateway::start("").await;
    let to = |host: &str| {
        let http = Http::post(gateway.address, INITIALIZE);
        http.path(&format!("http://{host}/mcp")).send()
    };
    for host in ["evil.example", "localhost@evil.example", "evil@localhost"] {
        refusal(to(host).await, 403, "forbidden").await;
    }
    assert_eq!(to("localhost:1").await.status, 200);
    let elsewhere = Http::post(gateway.address, INITIALIZE)
        .path("http://localhost/mcp")
        .header("Host", "evil.example");
    refusal(elsewhere.send().await, 403, "forbidden").await;
}

#[tokio::test]
async fn headers_that_cannot_be_read_are_refused() {
    let gateway = Gateway::start("").await;
    let client = Client::open(&gateway).await;
    let ping = || client.post(&request(1, "ping", json!({})));
    for name in [
        "Host",
        "Origin",
        "Authorization",
        "Mcp-Session-Id",
        "MCP-Protocol-Version",
    ] {
        let answer = ping().header(name, "http://localh\u{f6}st:80").send().await;
        let body = refusal(answer, 400, "invalid_request").await;
        let message = body["error"]["message"].as_str().unwrap();
        assert!(message.contains(&name.to_lowercase()), "{message}");
    }
    let get = client.with_session(gateway.get("/mcp"));
    let get = get
        .header("Accept", "text/event-stream")
        .header("Last-Event-ID", "\u{f6}");
    refusal(get.send().await, 400, "invalid_request").await;
    let delete = client.with_session(Http::new(gateway.address, "DELETE", "/mcp"));
    let delete = delete.header("Mcp-Session-Id", "\u{f6}");
    refusal(delete.send().await, 400, "invalid_request").await;
    // The second of two is not what the first is.
    let twice = ping().bytes();
    let twice = String::from_utf8(twice).unwrap();
    let twice = twice.replacen("Host:", "Host: evil.example\r\nHost:", 1);
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    stream.write_all(twice.as_bytes()).await.unwrap();
    let answer = soon("the answer", Answer::read(stream)).await.unwrap();
    assert_eq!(answer.status, 400);
    client.get("ping", json!({})).await;
}

#[tokio::test]
async fn media_types_are_negotiated() {
    let gateway = Gateway::start("").await;
    let client = Client::open(&gateway).await;
    let ping = || client.post(&request(1, "ping", json!({})));
    for content in ["text/plain", "application/xml", "application/jsonx"] {
        let answer = ping().header("Content-Type", content).send().await;
        refusal(answer, 415, "unsupported_media_type").await;
    }
    refusal(
        ping().without("Content-Type").send().await,
        415,
        "unsupported_media_type",
    )
    .await;
    let json = ping().header("Content-Type", "Application/JSON; charset=utf-8");
    assert_eq!(json.send().await.status, 200);

    refusal(
        ping().header("Accept", "text/html").send().await,
        406,
        "not_acceptable",
    )
    .await;
    for accept in ["*/*", "application/json", "application/*"] {
        assert_eq!(
            ping().header("Accept", accept).send().await.status,
            200,
            "{accept}"
        );
    }
    assert_eq!(ping().without("Accept").send().await.status, 200);
    let get = client
        .with_session(gateway.get("/mcp"))
        .header("Accept", "application/json");
    refusal(get.send().await, 406, "not_acceptable").await;
}

#[tokio::test]
async fn a_body_that_is_no_message_is_refused() {
    let gateway = Gateway::start("").await;
    let client = Client::open(&gateway).await;
    let table = [
        ("", -32700),
        ("{", -32700),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"", -32700),
        ("\u{fffd}", -32700),
        ("3", -32600),
        ("\"ping\"", -32600),
        ("null", -32600),
        ("{}", -32600),
        ("{\"id\":1,\"method\":\"ping\"}", -32600),
        ("{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}", -32600),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}",
            -32600,
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"ping\"}",
            -32600,
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":[1],\"method\":\"ping\"}",
            -32600,
        ),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":5}", -32600),
        ("{\"jsonrpc\":\"2.0\",\"id\":1}", -32600),
    ];
    for (body, code) in table {
        let http = client.with_session(Http::post(gateway.address, body));
        let answer = http.send().await;
        assert_eq!(answer.status, 400, "{body}");
        assert_eq!(answer.json().await["error"]["code"], code, "{body}");
    }
    let bytes = client.with_session(Http::post(gateway.address, [b'"', 0xff, b'"']));
    assert_eq!(bytes.send().await.status, 400);
    client.get("ping", json!({})).await;
}

#[tokio::test]
async fn an_unknown_method_is_an_error_of_its_request() {
    let gateway = Gateway::start("").await;
    let client = Client::open(&gateway).await;
    let error = client.refused("no/such", json!({})).await;
    assert_eq!(error["code"], -32601);
    client.notify("notifications/no/such", json!({})).await;
    // An answer that nobody waits for is taken and forgotten.
    client
        .say(&json!({"jsonrpc": "2.0", "id": 99, "result": {}}))
        .await;
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_readably_and_the_connection_is_closed() {
    let gateway = Gateway::start("[limits]\nbody = \"64KiB\"\n").await;
    let big = "x".repeat(1 << 20);
    let announced = Http::post(gateway.address, big.as_str()).send().await;
    assert_eq!(announced.header("connection"), Some("close"));
    let body = refusal(announced, 413, "too_large").await;
    assert!(
        body["error"]["message"]
            .as_str()
            .unwrap()
            .contains("limits.body")
    );

    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let head = Http::post(gateway.address, "")
        .header("Transfer-Encoding", "chunked")
        .bytes();
    let head = String::from_utf8(head)
        .unwrap()
        .replace("Content-Length: 0\r\n", "");
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = format!("8000\r\n{}\r\n", "y".repeat(0x8000));
    for _ in 0..8 {
        stream.write_all(chunk.as_bytes()).await.unwrap();
    }
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    let unannounced = soon("the answer", Answer::read(stream)).await.unwrap();
    refusal(unannounced, 413, "too_large").await;
    Client::open(&gateway).await;
}

#[tokio::test]
async fn health_tells_what_is_wrong_and_never_fails() {
    let config = format!(
        "{}[servers.broken]\ncommand = \"/no/such/program\"\n",
        example("good")
    );
    let gateway = Setup::new(&config).serve().await;
    gateway.wait_state("good", "up").await;
    for path in ["/health", "/healthz"] {
        let answer = gateway.get(path).send().await;
        assert_eq!(answer.status, 200);
        let health = answer.json().await;
        assert_eq!(health["status"], "degraded");
        assert_eq!(health["version"], env!("CARGO_PKG_VERSION"));
        assert!(health["uptime"].is_u64());
        let servers = health["servers"].as_array().unwrap();
        assert_eq!(servers[0], json!({"state": "up"}));
        assert_ne!(servers[1]["state"], "up");
        // Names are for operators: on this machine there are other users, too.
        assert_eq!(servers[1].get("name"), None);
    }
    // One that is up is enough to serve.
    crate::support::until("ready", || async {
        (gateway.get("/readyz").send().await.status == 200).then_some(())
    })
    .await;
    let ready = gateway.get("/readyz").send().await.json().await;
    assert_eq!(ready["status"], "degraded");
    let servers = ready["servers"].as_array().unwrap();
    assert_eq!(servers.len(), 1, "{ready}");
    assert_eq!(servers[0].get("name"), None);
}

#[tokio::test]
async fn many_requests_go_over_one_connection() {
    let gateway = Gateway::start("").await;
    let client = Client::open(&gateway).await;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    for id in 0..20 {
        let http = client.post(&request(id, "ping", json!({})));
        stream.write_all(&http.bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"}") {
            let read = soon("an answer", stream.read_buf(&mut answer))
                .await
                .unwrap();
            assert_ne!(read, 0);
        }
        let text = String::from_utf8(answer).unwrap();
        assert!(text.contains(&format!("\"id\":{id}")), "{text}");
    }
}

#[tokio::test]
async fn ctrl_c_stops_it_in_order() {
    let mut gateway = Gateway::start(&example("example")).await;
    gateway.signal(Signal::INT);
    assert!(gateway.ended().await.success());
    gateway.nothing_left().await;
    assert!(!gateway.data_dir().join("run.json").exists());
}
