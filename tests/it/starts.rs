//! How often a server's program is started until its era is known, and what its start waits for.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use serde_json::json;
use tempfile::TempDir;

use crate::sessionless::modern;
use crate::support::login::{login_needed, protected_with};
use crate::support::{
    Behaviour, Client, Gateway, HttpServer, Setup, UnknownMethod, answer_in, call_params, python,
    quick, text_of, until,
};

fn count(starts: &Path) -> usize {
    fs::read_to_string(starts)
        .unwrap_or_default()
        .lines()
        .count()
}

/// Starts a gateway twice in front of a server, and counts the starts of its program.
async fn starts_of(behaviour: &str) -> [usize; 2] {
    let directory = TempDir::new().unwrap();
    let starts = directory.path().join("starts");
    let environment = format!("IT_STARTS = \"{}\", {behaviour}", starts.display());
    // Without a second process that shows what it lists to others.
    let times = "era_probe_timeout = \"200ms\"\nsharing = \"shared\"\n";
    let config = format!("{}{}{times}", quick(), python("one", &environment));
    let mut gateway = Gateway::start(&config).await;
    let client = Client::open(&gateway).await;
    let result = client.call("one__echo", json!({})).await;
    assert_eq!(text_of(&result), "one {}");
    let first = count(&starts);
    gateway.kill();
    gateway.start_again().await;
    gateway.all_up().await;
    [first, count(&starts) - first]
}

#[tokio::test]
async fn a_server_that_refuses_the_question_is_started_once() {
    assert_eq!(starts_of("").await, [1, 1]);
}

#[tokio::test]
async fn a_server_that_ignores_the_question_is_started_once() {
    assert_eq!(starts_of("IT_MUTE = \"server/discover\"").await, [1, 1]);
}

#[tokio::test]
async fn a_server_that_would_end_over_the_question_is_not_asked() {
    assert_eq!(starts_of("IT_FATAL = \"server/discover\"").await, [1, 1]);
}

#[tokio::test]
async fn a_server_over_http_that_breaks_over_the_question_is_connected() {
    for unknown in [UnknownMethod::ServerError, UnknownMethod::Hangs] {
        let server = HttpServer::start(Behaviour {
            unknown,
            ..Default::default()
        })
        .await;
        let times = "era_probe_timeout = \"200ms\"\n";
        let config = format!("{}{}{times}", quick(), server.config("http"));
        let gateway = Gateway::start(&config).await;
        let client = Client::open(&gateway).await;
        let result = client.call("http__echo", json!({"n": 1})).await;
        assert_eq!(text_of(&result), "http {\"n\":1}");
        let view = gateway.server("http").await;
        assert_eq!(view["connection"]["shared"]["generation"], 1);
    }
}

#[tokio::test]
async fn a_server_over_http_that_refuses_newer_revisions_is_offered_its_own() {
    let server = HttpServer::start(Behaviour {
        insists: Some("2025-03-26"),
        ..Default::default()
    })
    .await;
    let config = format!("{}{}", quick(), server.config("http"));
    let gateway = Gateway::start(&config).await;
    let client = Client::open(&gateway).await;
    let result = client.call("http__echo", json!({"n": 1})).await;
    assert_eq!(text_of(&result), "http {\"n\":1}");
    // The session of the client begins with the revision that the shared connection found.
    assert_eq!(server.behaviour().handshakes, 4);
    let view = gateway.server("http").await;
    assert_eq!(view["connection"]["shared"]["generation"], 1);
}

#[tokio::test]
async fn a_server_that_refuses_everybody_says_how_to_sign_in() {
    let server = HttpServer::start(Behaviour {
        refuses: true,
        ..Default::default()
    })
    .await;
    let config = format!("{}{}", quick(), server.config("http"));
    let gateway = Setup::new(&config).serve().await;
    until("the reason", || async {
        let view = gateway.server("http").await;
        let why = view["connection"]["shared"]["last_exit"]
            .as_str()?
            .to_owned();
        (why.contains("401") && why.contains("[servers.NAME.headers]")).then_some(())
    })
    .await;
}

/// The configuration of servers that never come up, each with a part of its reason.
fn dead_servers(refusing: &HttpServer) -> [(&'static str, String, &'static str); 6] {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = free.local_addr().unwrap();
    let address = refusing.address;
    let url = |url: String| format!("url = \"{url}\"\n");
    [
        (
            "missing",
            "command = \"/nonexistent/program\"\n".to_owned(),
            "cannot be started: not found",
        ),
        (
            "exits",
            "command = \"sh\"\nargs = [\"-c\", \"exit 3\"]\n".to_owned(),
            "exited with code 3",
        ),
        (
            "closed",
            url(format!("http://{closed}/mcp")),
            "Connection refused",
        ),
        (
            "sse",
            format!(
                "{}transport = \"sse\"\n",
                url(format!("http://{closed}/sse"))
            ),
            "Connection refused",
        ),
        (
            "tls",
            url(format!("https://{address}/mcp")),
            "does not speak TLS",
        ),
        (
            "unknown",
            url(format!("http://{address}/mcp")),
            "HTTP status 401",
        ),
    ]
}

#[tokio::test]
async fn each_request_for_a_server_that_was_never_up_says_why_and_when_it_is_tried_again() {
    let refusing = HttpServer::start(Behaviour {
        refuses: true,
        ..Default::default()
    })
    .await;
    let servers = dead_servers(&refusing);
    let mut config = "[supervision]\nbackoff_initial = \"60s\"\nbackoff_max = \"60s\"\n".to_owned();
    for (name, settings, _) in &servers {
        config.push_str(&format!("[servers.{name}]\n{settings}"));
    }
    let gateway = Setup::new(&config).serve().await;
    let client = Client::open(&gateway).await;
    for (server, _, why) in &servers {
        gateway.wait_state(server, "backoff").await;
        let item = format!("{server}__x");
        let reference = json!({"type": "ref/prompt", "name": item});
        let requests = [
            ("tools/call", call_params(&item, json!({}))),
            ("prompts/get", json!({"name": item})),
            (
                "completion/complete",
                json!({"ref": reference, "argument": {"name": "a", "value": "b"}}),
            ),
            ("resources/read", json!({"uri": "file:///x"})),
        ];
        for (method, params) in requests {
            let legacy = client.ask(method, params.clone()).await;
            let sent = modern(&gateway, "r", method, params).send().await;
            for answer in [legacy, answer_in(sent).await] {
                let message = answer["error"]["message"].as_str();
                let message = message.unwrap_or_else(|| text_of(&answer["result"]));
                assert!(message.contains("` is away (it "), "{method}: {message}");
                assert!(message.contains("next attempt in"), "{method}: {message}");
                assert!(!message.contains("set `era`"), "{method}: {message}");
                // No name leads from a URI to one of several servers.
                if method != "resources/read" {
                    let named = format!("server `{server}` is away");
                    assert!(message.starts_with(&named), "{method}: {message}");
                    assert_eq!(message.matches(why).count(), 1, "{method}: {message}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_server_that_asks_for_a_sign_in_is_waited_for() {
    let directory = TempDir::new().unwrap();
    let signed_in = directory.path().join("signed in");
    let page = "https://auth.example/authorize?state=s3cret";
    let environment = format!(
        "IT_SIGN_IN = \"{page}\", IT_SIGNED_IN = \"{}\"",
        signed_in.display()
    );
    let config = format!(
        "[gateway]\ntree_resource = true\nfirst_list_wait = \"0s\"\n{}{}",
        quick(),
        python("one", &environment)
    );
    let mut gateway = Setup::new(&config).serve().await;
    let shown = format!("waiting for sign-in: open {page}");
    until("the page", || async {
        let one = gateway.server("one").await;
        (one["state"] == "starting" && one["reason"] == shown.as_str()).then_some(())
    })
    .await;
    // Clients are not told the page: it is the operator's.
    let client = Client::open(&gateway).await;
    let tree = client
        .get("resources/read", json!({"uri": "mcpvisor://tree"}))
        .await;
    let tree = tree.to_string();
    assert!(tree.contains("waiting for sign-in"), "{tree}");
    assert!(!tree.contains("s3cret"), "{tree}");
    fs::write(&signed_in, "").unwrap();
    let one = gateway.wait_state("one", "up").await;
    assert_eq!(one["connection"]["shared"]["restarts"], 0);
    assert_eq!(one.get("reason"), Some(&json!(null)));
    gateway.kill();
    assert!(!gateway.log().contains("s3cret"), "{}", gateway.log());
}

/// Calls that wait for their deadline outlast the test.
const LONG: &str = "request_timeout = \"5m\"\n";

#[tokio::test]
async fn a_call_does_not_wait_for_a_login_that_nobody_has_begun() {
    for sharing in ["shared", "auto"] {
        let (_server, _, gateway) =
            protected_with(&format!("{LONG}sharing = \"{sharing}\"\n")).await;
        login_needed(&gateway).await;
        let client = Client::open(&gateway).await;
        let failed = client.call("docs__echo", json!({})).await;
        let said = text_of(&failed);
        assert!(
            said.contains("mcpvisor auth login docs"),
            "{sharing}: {failed}"
        );
    }
}
