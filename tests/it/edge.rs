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
    for path in ["/health", "/healthz", "/readyz"] {
        let answer = Http::new(gateway.address, "PUT", path).send().await;
        refusal(answer, 405, "http_method_not_allowed").await;
    }
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
async fn a_web_page_may_call_if_its_origin_may() {
    let gateway = Gateway::start("").await;
    let origin = "http://localhost:3000";
    for path in ["/mcp", "/", "/health"] {
        let preflight = Http::new(gateway.address, "OPTIONS", path)
            .header("Origin", origin)
            .header("Access-Control-Request-Method", "POST")
            .header(
                "Access-Control-Request-Headers",
                "content-type,mcp-session-id,mcp-protocol-version,last-event-id,authorization",
            )
            .send()
            .await;
        assert!(
            matches!(preflight.status, 200 | 204),
            "{path}: {preflight:?}"
        );
        assert_eq!(
            preflight.header("access-control-allow-origin"),
            Some(origin)
        );
        let methods = preflight.header("access-control-allow-methods").unwrap();
        for method in ["GET", "POST", "DELETE", "OPTIONS"] {
            assert!(methods.contains(method), "{path}: {methods}");
        }
        let headers = preflight.header("access-control-allow-headers").unwrap();
        for header in [
            "content-type",
            "mcp-session-id",
            "last-event-id",
            "authorization",
        ] {
            assert!(headers.to_lowercase().contains(header), "{path}: {headers}");
        }
    }
}

#[tokio::test]
async fn answers_and_errors_show_a_web_page_its_headers() {
    let gateway = Gateway::start("").await;
    let origin = "http://127.0.0.1:5173";
    let of = |http: Http| http.header("Origin", origin);
    let answers = [
        (of(Http::post(gateway.address, INITIALIZE)), 200),
        (of(Http::post(gateway.address, INITIALIZE).path("/")), 200),
        (of(Http::post(gateway.address, "nonsense")), 400),
        (
            of(Http::post(gateway.address, "{}").header("Content-Type", "text/plain")),
            415,
        ),
        (of(gateway.get("/health")), 200),
        (of(gateway.get("/nothing")), 404),
        (of(Http::new(gateway.address, "PUT", "/mcp")), 405),
    ];
    for (http, status) in answers {
        let answer = http.send().await;
        assert_eq!(answer.status, status, "{answer:?}");
        assert_eq!(
            answer.header("access-control-allow-origin"),
            Some(origin),
            "{answer:?}"
        );
        let exposed = answer.header("access-control-expose-headers").unwrap();
        assert!(
            exposed.to_lowercase().contains("mcp-session-id"),
            "{exposed}"
        );
    }
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
async fn a_body_that_does_not_come_is_cut_off() {
    let gateway = Gateway::start("[gateway]\nbody_timeout = \"200ms\"\n").await;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let whole = Http::post(gateway.address, INITIALIZE).bytes();
    stream.write_all(&whole[..whole.len() - 20]).await.unwrap();
    let answer = soon("the answer", Answer::read(stream)).await.unwrap();
    refusal(answer, 408, "body_timeout").await;
    assert_eq!(gateway.status().await["sessions"], 0);
}

#[tokio::test]
async fn a_head_that_does_not_come_is_cut_off() {
    let gateway = Gateway::start("[gateway]\nhead_timeout = \"200ms\"\n").await;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    stream
        .write_all(b"POST /mcp HTTP/1.1\r\nHost: loc")
        .await
        .unwrap();
    let mut rest = Vec::new();
    let read = soon("the end of the connection", stream.read_to_end(&mut rest)).await;
    assert!(
        read.is_err() || rest.starts_with(b"HTTP/1.1 408"),
        "{rest:?}"
    );
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
        assert_eq!(servers[0], json!({"name": "good", "state": "up"}));
        assert_ne!(servers[1]["state"], "up");
    }
    // One that is up is enough to serve.
    crate::support::until("ready", || async {
        (gateway.get("/readyz").send().await.status == 200).then_some(())
    })
    .await;
    let ready = gateway.get("/readyz").send().await.json().await;
    assert_eq!(ready, json!({"status": "degraded", "servers": ["broken"]}));
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
