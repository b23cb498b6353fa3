//! `mcpvisor stdio --connect`: one client over stdin and stdout, served elsewhere.

use std::net::TcpListener;

use serde_json::{Value, json};

use crate::support::{
    Behaviour, Gateway, HttpServer, Setup, StdioClient, example, names, quick, request, text_of,
    until,
};

fn connect(gateway: &Gateway) -> [String; 2] {
    [
        "--connect".to_owned(),
        format!("http://{}/mcp", gateway.address),
    ]
}

async fn open(gateway: &Gateway) -> StdioClient {
    let [option, url] = connect(gateway);
    StdioClient::open(&gateway.setup, &[&option, &url]).await
}

async fn sessions(gateway: &Gateway, count: u64) {
    until("the number of sessions", || async {
        (gateway.status().await["sessions"] == count).then_some(())
    })
    .await;
}

/// A gateway that can be started again on its port.
async fn on_a_port(config: &str) -> Gateway {
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap().to_string();
    drop(port);
    let gateway = Setup::new(config).variable("MCPVISOR_LISTEN", &address);
    let gateway = gateway.serve().await;
    gateway.all_up().await;
    gateway
}

fn slow(id: u64, steps: u64, delay_ms: u64) -> Value {
    let arguments = json!({"steps": steps, "delay_ms": delay_ms});
    let params = json!({
        "name": "example__slow", "arguments": arguments, "_meta": {"progressToken": "p"},
    });
    request(id, "tools/call", params)
}

#[tokio::test]
async fn everything_is_relayed_to_a_running_gateway() {
    let gateway = Gateway::start(&format!("{}{}", quick(), example("example"))).await;
    let mut client = open(&gateway).await;
    let tools = client.ask(1, "tools/list", json!({})).await;
    assert!(names(&tools["result"]["tools"]).contains(&"example__echo"));
    client
        .say(&request(
            "two",
            "tools/call",
            json!({"name": "example__echo", "arguments": {"message": "a\nb"}}),
        ))
        .await;
    assert_eq!(text_of(&client.answer("two").await["result"]), "a\nb");
    client.say(&slow(3, 2, 10)).await;
    for progress in 1..=2 {
        let events = client.method("notifications/progress").await;
        assert_eq!(events["params"]["progress"], progress);
        assert_eq!(events["params"]["progressToken"], "p");
    }
    client.answer(3).await;
    client
        .call(4, "example__add_tool", json!({"name": "more"}))
        .await;
    client.method("notifications/tools/list_changed").await;
    sessions(&gateway, 1).await;
    assert_eq!(
        gateway.server_pids("example").len(),
        1,
        "nothing else is started"
    );
    client.close_stdin();
    let (rest, status) = client.ended().await;
    assert_eq!(rest, "");
    assert!(status.success());
    sessions(&gateway, 0).await;
}

#[tokio::test]
async fn calls_are_cancelled_and_the_last_answers_waited_for() {
    let gateway = Gateway::start(&format!("{}{}", quick(), example("example"))).await;
    let mut client = open(&gateway).await;
    client.say(&slow(1, 100, 100)).await;
    client.method("notifications/progress").await;
    client
        .say(&json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled",
            "params": {"requestId": 1, "reason": "enough"},
        }))
        .await;
    until("the call is cancelled", || async {
        (gateway.status().await["counters"]["calls_cancelled"] == 1).then_some(())
    })
    .await;
    client.say(&slow(2, 3, 50)).await;
    client.close_stdin();
    let (rest, status) = client.ended().await;
    let last: Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
    assert_eq!(last["id"], 2, "{rest}");
    assert!(status.success());
}

#[tokio::test]
async fn questions_go_to_the_client_and_answers_back() {
    let gateway = Gateway::start(&format!("{}{}", quick(), example("example"))).await;
    let [option, url] = connect(&gateway);
    let can = json!({"elicitation": {}});
    let arguments = [&*option, &*url];
    let mut client = StdioClient::open_as(&gateway.setup, &arguments, "2025-11-25", can).await;
    let params = json!({"name": "example__ask", "arguments": {"question": "who?"}});
    client.say(&request(1, "tools/call", params)).await;
    let question = client.method("elicitation/create").await;
    let answer = json!({"action": "accept", "content": {"answer": "me"}});
    client
        .say(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}))
        .await;
    assert_eq!(
        text_of(&client.answer(1).await["result"]),
        "the user answered: me"
    );
}

#[tokio::test]
async fn a_restart_of_the_gateway_is_not_noticed() {
    let patient = "[gateway]\nqueue_while_restarting = \"20s\"\n";
    let mut gateway = on_a_port(&format!("{patient}{}{}", quick(), example("example"))).await;
    let mut client = open(&gateway).await;
    client
        .call(1, "example__echo", json!({"message": "before"}))
        .await;
    gateway.kill();
    // Asked while nobody listens.
    let params = json!({"name": "example__echo", "arguments": {"message": "after"}});
    client.say(&request(2, "tools/call", params)).await;
    gateway.start_again().await;
    gateway.all_up().await;
    let result = client.answer(2).await;
    assert_eq!(text_of(&result["result"]), "after", "{result}");
    sessions(&gateway, 1).await;

    // One that has forgotten everything.
    gateway.kill();
    std::fs::remove_dir_all(gateway.data_dir()).unwrap();
    gateway.start_again().await;
    gateway.all_up().await;
    let params = json!({"name": "example__echo", "arguments": {"message": "again"}});
    client.say(&request(3, "tools/call", params)).await;
    // The lists may be others now.
    let (mut answered, mut received) = (false, false);
    while !answered || !received {
        let message = client.next().await;
        received |= message["method"] == "notifications/tools/list_changed";
        answered |= message["id"] == 3;
        assert!(message["id"] != 3 || text_of(&message["result"]) == "again");
    }
    sessions(&gateway, 1).await;
    // Events of no call come in the new session as well.
    client
        .call(4, "example__add_tool", json!({"name": "more"}))
        .await;
    client.method("notifications/tools/list_changed").await;
}

#[tokio::test]
async fn a_call_that_may_have_run_is_not_sent_again() {
    let mut gateway = on_a_port(&format!("{}{}", quick(), example("example"))).await;
    let mut client = open(&gateway).await;
    client.say(&slow(1, 100, 100)).await;
    client.method("notifications/progress").await;
    gateway.kill();
    gateway.start_again().await;
    let answer = client.answer(1).await;
    let text = answer.to_string();
    assert!(text.contains("server_lost"), "{text}");
    gateway.all_up().await;
    let result = client
        .call(2, "example__echo", json!({"message": "on"}))
        .await;
    assert_eq!(text_of(&result), "on");
}

#[tokio::test]
async fn a_server_that_redirects_is_followed() {
    let server = HttpServer::start(Behaviour {
        redirects: true,
        ..Behaviour::default()
    })
    .await;
    let url = format!("http://{}/mcp", server.address);
    let mut client = StdioClient::open(&Setup::new(""), &["--connect", &url]).await;
    let result = client.call(1, "echo", json!({"n": 1})).await;
    assert_eq!(text_of(&result), r#"http {"n":1}"#);
    client.close_stdin();
    assert!(client.ended().await.1.success());
    assert_eq!(server.behaviour().deleted, 1);
}

#[tokio::test]
async fn a_session_that_the_server_forgot_is_opened_anew() {
    let mut server = HttpServer::start(Behaviour::default()).await;
    let setup = Setup::new("").variable("KEY", "k-1");
    let url = format!("http://{}/mcp", server.address);
    let arguments = ["--connect", &url, "--header", "X-Key: ${KEY}"];
    let mut client = StdioClient::open(&setup, &arguments).await;
    client.call(1, "echo", json!({"n": 1})).await;
    server.stop().await;
    server.start_again().await;
    // A connection that was kept open may be found closed only when the call is on it.
    let mut id = 2;
    let result = loop {
        let result = client.call(id, "echo", json!({"n": 2})).await;
        if !text_of(&result).contains("connection lost") {
            break result;
        }
        id += 1;
    };
    assert_eq!(text_of(&result), r#"http {"n":2}"#);
    {
        let behaviour = server.behaviour();
        assert_eq!(behaviour.handshakes, 2);
        assert_eq!(behaviour.calls, ["echo", "echo"]);
        let key = behaviour.headers.iter().find(|(name, _)| name == "x-key");
        assert_eq!(key.unwrap().1, "k-1");
        let revision = behaviour
            .headers
            .iter()
            .find(|(name, _)| name == "mcp-protocol-version");
        assert_eq!(revision.unwrap().1, "2025-11-25");
    }
    client.close_stdin();
    assert!(client.ended().await.1.success());
    assert_eq!(server.behaviour().deleted, 1);
}

#[tokio::test]
async fn refusals_of_the_server_reach_the_client() {
    let server = HttpServer::start(Behaviour::default()).await;
    server.behaviour().refuses = true;
    let setup = Setup::new("");
    let url = format!("http://{}/mcp", server.address);
    let mut client = StdioClient::start(&setup, &["--connect", &url]);
    client
        .say(&crate::support::initialize("2025-11-25", &json!({})))
        .await;
    let answer = client.next().await;
    assert_eq!(answer["id"], "first");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("401"), "{message}");
    // It may try again.
    server.behaviour().refuses = false;
    client
        .say(&crate::support::initialize("2025-11-25", &json!({})))
        .await;
    assert!(client.next().await.get("result").is_some());
}

#[tokio::test]
async fn a_legacy_server_is_found_out() {
    let gateway = Gateway::start(&format!("{}{}", quick(), example("example"))).await;
    let url = format!("http://{}/sse", gateway.address);
    let mut client = StdioClient::open(&gateway.setup, &["--connect", &url]).await;
    let result = client
        .call(1, "example__echo", json!({"message": "hi"}))
        .await;
    assert_eq!(text_of(&result), "hi");
    client.close_stdin();
    assert!(client.ended().await.1.success());
    // Nothing in HTTP+SSE ends a session but its own time.
    sessions(&gateway, 1).await;
}

#[tokio::test]
async fn over_http_sse_a_restart_is_survived_too() {
    let mut gateway = on_a_port(&format!("{}{}", quick(), example("example"))).await;
    let url = format!("http://{}/sse", gateway.address);
    let mut client = StdioClient::open(&gateway.setup, &["--connect", &url]).await;
    client
        .call(1, "example__echo", json!({"message": "before"}))
        .await;
    client.say(&slow(2, 100, 100)).await;
    client.method("notifications/progress").await;
    gateway.kill();
    let lost = client.answer(2).await.to_string();
    assert!(lost.contains("server_lost"), "{lost}");
    let params = json!({"name": "example__echo", "arguments": {"message": "after"}});
    client.say(&request(3, "tools/call", params)).await;
    gateway.start_again().await;
    let answer = client.answer(3).await;
    // The server behind the gateway may still be starting.
    assert!(answer.get("result").is_some(), "{answer}");
}

#[tokio::test]
async fn an_address_that_cannot_be_used_is_refused_on_stderr() {
    let setup = Setup::new("");
    for (arguments, expected) in [
        (&["--connect", "ftp://127.0.0.1/mcp"][..], "`ftp`"),
        (
            &[
                "--connect",
                "http://127.0.0.1:1/",
                "--header",
                "A: ${UNSET_HERE}",
            ],
            "UNSET_HERE",
        ),
        (
            &["--connect", "http://u:secret@127.0.0.1:1/"],
            "user name or password",
        ),
    ] {
        let (said, status) = StdioClient::start(&setup, arguments).ended().await;
        assert_eq!((&*said, status.code()), ("", Some(1)), "{arguments:?}");
        let log = std::fs::read_to_string(setup.path("stdio.log")).unwrap();
        assert!(log.contains(expected) && !log.contains("secret"), "{log}");
    }
}

#[tokio::test]
async fn what_the_server_writes_about_a_failure_is_for_the_log_and_masked() {
    let server = HttpServer::start(Behaviour {
        fails: Some((
            "tools/call",
            500,
            "canary-words canary-key \u{1b}[31m".to_owned(),
        )),
        ..Behaviour::default()
    })
    .await;
    let setup = Setup::new("").variable("KEY", "canary-key");
    let url = format!("http://{}/mcp", server.address);
    let arguments = ["--connect", &url, "--header", "X-Key: ${KEY}"];
    let mut client = StdioClient::open(&setup, &arguments).await;
    let failed = client.call(1, "echo", json!({})).await;
    assert!(text_of(&failed).contains("HTTP status 500"), "{failed}");
    assert!(!failed.to_string().contains("canary"), "{failed}");
    client.close_stdin();
    client.ended().await;
    let log = std::fs::read_to_string(setup.path("stdio.log")).unwrap();
    assert!(log.contains("canary-words ***"), "{log}");
    assert!(
        !log.contains("canary-key") && !log.contains('\u{1b}'),
        "{log}"
    );
}
