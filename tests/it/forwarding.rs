//! Headers of clients: which servers read them, and that nobody else does.

use std::collections::HashMap;

use futures_util::future::join_all;
use serde_json::json;

use crate::auth::{KEYS, with_key};
use crate::legacy_sse::SseClient;
use crate::sessionless::modern_as;
use crate::support::{
    Behaviour, Client, Gateway, Http, HttpServer, Setup, answer_in, call_params, request, text_of,
};

const FORWARD: &str =
    "forward_headers = { X-Tenant = \"X-Tenant\", X-Docs-Token = \"Authorization\" }\n";

async fn server(modern: bool) -> HttpServer {
    HttpServer::start(Behaviour {
        remembers: true,
        modern,
        ..Behaviour::default()
    })
    .await
}

/// Headers of the calls that a server saw, by their argument `n`.
fn calls(server: &HttpServer) -> HashMap<i64, HashMap<String, String>> {
    let behaviour = server.behaviour();
    let calls = behaviour.seen.iter();
    let calls = calls.filter(|(message, _)| message["method"] == "tools/call");
    let by_number = calls.map(|(message, headers)| {
        let number = message["params"]["arguments"]["n"].as_i64().unwrap();
        (number, headers.clone())
    });
    by_number.collect()
}

fn as_user(http: Http, user: usize) -> Http {
    http.header("X-Tenant", &format!("canary-tenant-{user}"))
        .header("X-Docs-Token", &format!("Bearer canary-token-{user}"))
        .header("X-Other", "canary-other")
        .header("Cookie", "canary-cookie=1")
}

/// What each of 100 calls said is what its server read; the others of the client's headers, and
/// requests that belong to no call, carry nothing.
fn check_seen(server: &HttpServer) {
    let seen = calls(server);
    assert_eq!(seen.len(), 100);
    for (number, headers) in &seen {
        let user = number % 3;
        assert_eq!(headers["x-tenant"], format!("canary-tenant-{user}"));
        assert_eq!(
            headers["authorization"],
            format!("Bearer canary-token-{user}")
        );
    }
    for (message, headers) in &server.behaviour().seen {
        let is_call = message["method"] == "tools/call";
        let said = format!("{headers:?}");
        assert_eq!(said.contains("canary"), is_call, "{message}: {said}");
        assert!(!said.contains("canary-other") && !said.contains("canary-cookie"));
    }
}

#[tokio::test]
async fn a_forwarded_header_stays_with_the_request_that_said_it() {
    for modern in [false, true] {
        let server = server(modern).await;
        let gateway = Gateway::start(&format!("{}{FORWARD}", server.config("docs"))).await;
        gateway.wait_state("docs", "up").await;
        let client = Client::open(&gateway).await;
        let session = |n: usize| {
            let params = call_params("docs__echo", json!({ "n": n }));
            client.post(&request(client.id(), "tools/call", params))
        };
        let sessionless = |n: usize| {
            let params = call_params("docs__echo", json!({ "n": n }));
            modern_as(&gateway, &n.to_string(), "tools/call", params, json!({}))
        };
        let sent = (0..100).map(|n| async move {
            let http = if n % 2 == 0 {
                sessionless(n)
            } else {
                session(n)
            };
            let answer = answer_in(as_user(http, n % 3).send().await).await;
            assert_eq!(text_of(&answer["result"]), format!("http {{\"n\":{n}}}"));
        });
        join_all(sent).await;
        check_seen(&server);
        // Who says nothing sends nothing, on the same connections.
        client.call("docs__echo", json!({"n": 100})).await;
        let silent = &calls(&server)[&100];
        assert!(!silent.contains_key("x-tenant") && !silent.contains_key("authorization"));
    }
}

#[tokio::test]
async fn a_client_of_http_sse_says_headers_with_its_messages() {
    let server = server(false).await;
    let gateway = Gateway::start(&format!("{}{FORWARD}", server.config("docs"))).await;
    gateway.wait_state("docs", "up").await;
    let mut client = SseClient::open(&gateway).await;
    let params = call_params("docs__echo", json!({"n": 1}));
    let body = request(7, "tools/call", params).to_string();
    let post = Http::post(gateway.address, body).path(&client.path);
    assert_eq!(as_user(post, 1).send().await.status, 202);
    while client.events.message().await.unwrap()["id"] != 7 {}
    assert_eq!(calls(&server)[&1]["x-tenant"], "canary-tenant-1");
}

#[tokio::test]
async fn nothing_of_a_client_goes_on_that_is_not_named() {
    let server = server(false).await;
    let gateway = Gateway::start(&format!("{KEYS}{}", server.config("docs"))).await;
    gateway.wait_state("docs", "up").await;
    let params = call_params("docs__echo", json!({"n": 1}));
    let call = modern_as(&gateway, "1", "tools/call", params, json!({}));
    let answer = with_key(as_user(call, 1), "first-key").send().await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let said = format!("{:?}", server.behaviour().seen);
    assert!(
        !said.contains("canary") && !said.contains("first-key"),
        "{said}"
    );
}

#[tokio::test]
async fn the_key_of_a_client_goes_on_where_authorization_is_named() {
    let server = server(false).await;
    let forward = "forward_headers = { Authorization = \"Authorization\" }\n";
    let config = format!("{KEYS}{}{forward}", server.config("docs"));
    let setup = Setup::new(&config);
    let (good, said) = setup.run(&["check"]);
    assert!(
        good && said.contains("in which clients send their key for this gateway"),
        "{said}"
    );
    let gateway = setup.serve().await;
    gateway.wait_state("docs", "up").await;
    let call = |n: i64, key| {
        let params = call_params("docs__echo", json!({ "n": n }));
        with_key(
            modern_as(&gateway, "1", "tools/call", params, json!({})),
            key,
        )
        .send()
    };
    for (n, key) in [(1, "first-key"), (2, "second-key")] {
        assert_eq!(call(n, key).await.status, 200);
        assert_eq!(calls(&server)[&n]["authorization"], format!("Bearer {key}"));
    }
}

#[tokio::test]
async fn forwarded_headers_are_bounded_and_readable_nowhere() {
    let server = server(false).await;
    let history = "[history]\nfile = true\nbodies = \"64KiB\"\n";
    let config = format!("{history}{}{FORWARD}", server.config("docs"));
    let setup = Setup::new(&config).variable("RUST_LOG", "trace");
    let gateway = setup.serve().await;
    gateway.wait_state("docs", "up").await;
    let client = Client::open(&gateway).await;
    let call = |n: i64| {
        let params = call_params("docs__echo", json!({ "n": n }));
        client.post(&request(client.id(), "tools/call", params))
    };
    let long = "canary".repeat(4096);
    let refused: [Http; 3] = [
        call(1).header("X-Tenant", &long),
        call(1).header("X-Tenant", "canary-\u{e9}"),
        call(1)
            .header("X-Tenant", "canary")
            .header("x-tenant ", "canary"),
    ];
    for http in refused {
        let answer = http.send().await;
        assert_eq!(answer.status, 400, "{answer:?}");
        let body = String::from_utf8(answer.bytes().await).unwrap();
        assert!(!body.contains("canary"), "{body}");
    }
    assert!(calls(&server).is_empty());
    as_user(call(2), 2).send().await;
    // A call that fails with its server, whose report quotes what was said.
    server.behaviour().fails = Some(("tools/call", 401, "who is it?".to_owned()));
    let failed = answer_in(as_user(call(3), 3).send().await).await;
    assert_eq!(failed["result"]["isError"], true, "{failed}");
    let mut said = format!("{failed}{}", gateway.log());
    for command in [
        &["history", "--json"][..],
        &["status", "--json"],
        &["servers", "crashes"],
    ] {
        said.push_str(&gateway.setup.run(command).1);
    }
    let (_, headers) = gateway.setup.run(&["servers", "headers", "docs"]);
    assert!(
        headers.contains("Authorization: ***  (`x-docs-token` of the client"),
        "{headers}"
    );
    said.push_str(&headers);
    assert!(said.contains("docs__echo"), "{said}");
    assert!(!said.contains("canary"), "{said}");
}

#[tokio::test]
async fn servers_that_cannot_keep_a_header_apart_are_refused() {
    let table = [
        (
            "command = \"x\"\nforward_headers = { A = \"A\" }",
            "cannot be combined with `command`",
        ),
        (
            "url = \"http://h/\"\ntransport = \"sse\"\nforward_headers = { A = \"A\" }",
            "cannot be combined with HTTP+SSE",
        ),
        (
            "url = \"http://h/\"\nheaders = { a = \"1\" }\nforward_headers = { X = \"A\" }",
            "both send `A`",
        ),
        (
            "url = \"http://h/\"\nforward_headers = { X = \"A\", Y = \"a\" }",
            "sends `a` twice",
        ),
        (
            "url = \"http://h/\"\nforward_headers = { X = \"Authorization\" }\n[servers.s.oauth]\nscopes = [\"a\"]",
            "both send `Authorization`",
        ),
        (
            "url = \"http://h/\"\nforward_headers = { Mcp-Session-Id = \"A\" }",
            "the gateway sets this header itself",
        ),
        (
            "url = \"http://h/\"\nforward_headers = { A = \"Mcp-Name\" }",
            "reserved by the protocol",
        ),
        (
            "url = \"http://h/\"\nforward_headers = { A = \"a b\" }",
            "named as an HTTP header",
        ),
    ];
    for (server, expected) in table {
        let (good, said) = Setup::new(&format!("[servers.s]\n{server}\n")).run(&["check"]);
        assert!(!good && said.contains(expected), "{server}: {said}");
    }
    let many: Vec<String> = (0..17).map(|n| format!("X-{n} = \"X-{n}\"")).collect();
    let many = format!(
        "url = \"http://h/\"\nforward_headers = {{ {} }}",
        many.join(", ")
    );
    let (good, said) = Setup::new(&format!("[servers.s]\n{many}\n")).run(&["check"]);
    assert!(!good && said.contains("at most 16 headers"), "{said}");
}
