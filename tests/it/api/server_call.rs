//! `POST /mcp?serverId=…`.

use serde_json::{Value, json};

use super::{code_of, get, request, token_of, with_body};
use crate::support::{Gateway, Http, Visitor, example, names, quick, request as rpc, text_of};

fn config() -> String {
    quick() + &example("one") + &example("two") + "start = \"lazy\"\n"
}

fn ask(gateway: &Gateway, server: &str, method: &str, params: Value) -> Http {
    let path = format!("/mcp?serverId={server}");
    let http = request(gateway, "POST", "/mcp").with_path(|_| path);
    with_body(http, &rpc(7, method, params))
}

#[tokio::test]
async fn one_server_is_asked_without_a_session_under_its_own_names() {
    let gateway = Gateway::start(&config()).await;
    let list = ask(&gateway, "one", "tools/list", json!({})).send().await;
    assert_eq!(list.status, 200);
    assert_eq!(list.header("content-type"), Some("application/json"));
    assert_eq!(list.header("mcp-session-id"), None);
    let list = list.json().await;
    assert!(names(&list["result"]["tools"]).contains(&"echo"), "{list}");
    // A lazy server is started for it.
    let echo = json!({"name": "echo", "arguments": {"message": "hi"}});
    let answer = ask(&gateway, "two", "tools/call", echo)
        .send()
        .await
        .json()
        .await;
    assert_eq!(answer["id"], 7);
    assert_eq!(text_of(&answer["result"]), "hi");
    assert_eq!(gateway.status().await["sessions"], 0);
}

#[tokio::test]
async fn a_call_at_one_server_is_made_again_there() {
    let config = config() + "[history]\nfile = true\n";
    let gateway = Gateway::start(&config).await;
    for path in ["/mcp?serverId=two", "/mcp/server/two"] {
        let echo = json!({"name": "echo", "arguments": {"message": path}});
        if path.contains('?') {
            ask(&gateway, "two", "tools/call", echo).send().await;
        } else {
            let two = Visitor::open(&gateway, path).await;
            two.call_with("echo", json!({"message": path})).await;
        }
        let newest = get(&gateway, "/api/history?limit=1").await;
        let id = newest["entries"][0]["id"].as_str().unwrap().to_owned();
        let replay = format!("/api/history/{id}/replay");
        let answer = request(&gateway, "POST", &replay).send().await;
        assert_eq!(answer.status, 200);
        let answer = answer.json().await;
        assert_eq!(text_of(&answer["result"]), path, "{answer}");
    }
}

#[tokio::test]
async fn failures_of_the_gateway_are_error_objects() {
    let gateway = Gateway::start(&config()).await;
    let echo = || json!({"name": "echo", "arguments": {"message": "hi"}});
    let plain = || ask(&gateway, "one", "tools/call", echo());
    let initialize = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    let table = [
        (plain().without("X-Session-Token"), 401, "SESSION_INVALID"),
        (
            plain().header("X-Session-Token", "wrong"),
            401,
            "SESSION_INVALID",
        ),
        (
            ask(&gateway, "none", "ping", json!({})),
            404,
            "SERVER_NOT_FOUND",
        ),
        (
            ask(&gateway, "", "ping", json!({})),
            404,
            "SERVER_NOT_FOUND",
        ),
        (
            ask(&gateway, "one&colour=red", "ping", json!({})),
            400,
            "INVALID_REQUEST",
        ),
        (
            ask(&gateway, "one", "initialize", initialize),
            400,
            "INVALID_REQUEST",
        ),
        (plain().body("[]"), 400, "INVALID_REQUEST"),
        (plain().body("{"), 400, "INVALID_REQUEST"),
        (
            plain().header("Content-Type", "text/plain"),
            415,
            "UNSUPPORTED_MEDIA_TYPE",
        ),
        (plain().with_method("PUT"), 405, "HTTP_METHOD_NOT_ALLOWED"),
        (plain().header("Origin", "https://evil"), 403, "FORBIDDEN"),
    ];
    for (row, (http, status, code)) in table.into_iter().enumerate() {
        let answer = code_of(http.send().await).await;
        assert_eq!(answer, (status, code.to_owned()), "row {row}");
    }
    // A failure of the server itself is its own answer.
    let wrong = json!({"name": "echo", "arguments": {"message": 1}});
    let answer = ask(&gateway, "one", "tools/call", wrong).send().await;
    assert_eq!(answer.status, 200);
    let answer = answer.json().await;
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    // MCP on the same path is as ever.
    let token = token_of(&gateway);
    let body = rpc(1, "ping", json!({})).to_string();
    let mcp = Http::post(gateway.address, body).header("X-Session-Token", &token);
    assert_eq!(
        mcp.send().await.json().await["error"]["data"]["code"],
        "session_required"
    );
}
