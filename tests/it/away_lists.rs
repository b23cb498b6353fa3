//! The lists of a single server that cannot start.

use serde_json::{Value, json};

use crate::api::{request as api_request, with_body};
use crate::support::{
    Behaviour, Http, HttpServer, INITIALIZE, Setup, Visitor, answer_in, call_params, example,
    quick, request, until,
};

/// Servers that cannot start, each with a part of the reason.
const AWAY: [(&str, &str, &str); 5] = [
    (
        "gone",
        "command = \"/nonexistent/program\"",
        "/nonexistent/program",
    ),
    (
        "late",
        "command = \"/nonexistent/program\"\nstart = \"lazy\"",
        "/nonexistent/program",
    ),
    (
        "ends",
        "command = \"sh\"\nargs = [\"-c\", \"exit 7\"]",
        "code 7",
    ),
    ("refuses", "url = \"http://127.0.0.1:9/mcp\"", "refused"),
    (
        "other",
        "url = \"http://127.0.0.1:9/mcp\"\nera = \"modern\"",
        "refused",
    ),
];

#[tokio::test]
async fn each_list_of_a_server_that_cannot_start_says_why() {
    let away = AWAY.map(|(name, keys, _)| format!("[servers.{name}]\n{keys}\n"));
    let config = format!("{}{}{}", quick(), example("one"), away.concat());
    let gateway = Setup::new(&config).serve().await;
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    for (name, _, reason) in AWAY {
        let view = format!("/mcp/server/{name}");
        let opened = Http::post(gateway.address, INITIALIZE)
            .path(&view)
            .send()
            .await;
        let session = opened.header("mcp-session-id").unwrap().to_owned();
        for method in [
            "tools/list",
            "prompts/list",
            "resources/list",
            "resources/templates/list",
        ] {
            let older = request(1, method, json!({}));
            let newer = request(1, method, json!({ "_meta": meta }));
            let post = |body: &Value| Http::post(gateway.address, body.to_string()).path(&view);
            let ways = [
                post(&older).header("Mcp-Session-Id", &session),
                post(&newer)
                    .header("MCP-Protocol-Version", "2026-07-28")
                    .header("Mcp-Method", method),
            ];
            for (way, http) in ways.into_iter().enumerate() {
                let refused = answer_in(http.send().await).await;
                let what = format!("{name}, {method}, way {way}: {refused}");
                let error = &refused["error"];
                assert_eq!(error["data"]["code"], "server_unavailable", "{what}");
                assert_eq!(error["data"]["server"], name, "{what}");
                assert_eq!(error["data"]["retryable"], true, "{what}");
                assert!(
                    error["message"].as_str().unwrap().contains(reason),
                    "{what}"
                );
            }
            for body in [&older, &newer] {
                let path = format!("/mcp?serverId={name}");
                let http = with_body(api_request(&gateway, "POST", &path), body);
                let answer = http.send().await;
                let status = answer.status;
                let refused = answer.json().await;
                let what = format!("{name}, {method}, serverId: {status} {refused}");
                assert_eq!(refused["error"]["details"]["serverName"], name, "{what}");
                let message = refused["error"]["message"].as_str().unwrap();
                assert!(message.contains(reason), "{what}");
            }
        }
        let visitor = Visitor {
            address: gateway.address,
            path: "/mcp",
            session,
        };
        let call = request(1, "tools/call", call_params("anything", json!({})));
        let http = Http::post(visitor.address, call.to_string()).path(&view);
        let http = http.header("Mcp-Session-Id", &visitor.session);
        let called = answer_in(http.send().await).await.to_string();
        assert!(called.contains("server_unavailable"), "{called}");
    }
    // The lists of all servers show the items of the others.
    let all = Visitor::open(&gateway, "/mcp").await;
    assert!(!all.tools().await.is_empty());
}

/// Otherwise a client would take the server for one without tools.
#[tokio::test]
async fn a_list_that_the_server_fails_to_answer_is_an_error_and_not_empty() {
    let server = HttpServer::start(Behaviour {
        fails: Some(("tools/list", 500, "broken".to_owned())),
        ..Behaviour::default()
    })
    .await;
    let config = format!("{}{}", quick(), server.config("a"));
    let gateway = Setup::new(&config).serve().await;
    let client = Visitor::open(&gateway, "/mcp/server/a").await;
    let failed = async || {
        let error = client.ask("tools/list", json!({})).await["error"].clone();
        let message = error["message"].as_str().unwrap_or_default();
        message.contains("`tools/list` failed").then_some(error)
    };
    let error = until("the list to fail", failed).await;
    assert_eq!(error["data"]["code"], "server_unavailable", "{error}");
    assert_eq!(error["data"]["retryable"], true, "{error}");
    let unknown = client.ask("tools/list", json!({"cursor": "unknown"})).await;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    server.behaviour().fails = None;
    let listed = async || {
        let answer = client.ask("tools/list", json!({})).await;
        answer.get("result").is_some().then_some(())
    };
    until("the list", listed).await;
}
