//! Clients that authenticate with API keys.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::sessionless::modern;
use crate::support::login::api_request;
use crate::support::{Answer, Events, Gateway, Http, INITIALIZE, Setup, request, until};

/// The hashes of `first-key`, `second-key` and `old-key`.
pub(crate) const KEYS: &str = "\
[auth.keys.first]
hash = \"sha256:9e24b55356ef2a121ab5fd1a3ee8a3c9191e837f3853e399a369e9044ff183f7\"
[auth.keys.second]
hash = \"sha256:f397f260a275cc4d42e7965c556167bf3f068aed491d35a8f5b38c8c2db96bb0\"
[auth.keys.old]
hash = \"sha256:762c08fc17a1cc5f00d248f8b50f2f2f4d17ff2934ac31e64deacb3f5bb3f2ec\"
expires = \"2020-01-01T00:00:00Z\"
";

pub(crate) fn with_key(http: Http, key: &str) -> Http {
    http.header("Authorization", &format!("Bearer {key}"))
}

/// A session of the client with this key.
async fn open(gateway: &Gateway, key: &str) -> String {
    let answer = initialize(gateway, key).send().await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.header("mcp-session-id").unwrap().to_owned()
}

fn ping(gateway: &Gateway, session: &str) -> Http {
    Http::post(gateway.address, request(1, "ping", json!({})).to_string())
        .header("Mcp-Session-Id", session)
        .header("MCP-Protocol-Version", "2025-11-25")
}

/// A 401 that says why and how. Returns its challenge.
pub(crate) async fn refused(answer: Answer) -> String {
    refused_with(answer, -32001).await
}

async fn refused_with(answer: Answer, code: i64) -> String {
    assert_eq!(answer.status, 401, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let challenge = answer.header("www-authenticate").unwrap().to_owned();
    let body = answer.json().await;
    assert_eq!(body["jsonrpc"], "2.0");
    assert_eq!(body["error"]["code"], code, "{body}");
    assert_eq!(body["error"]["data"]["code"], "unauthorized");
    challenge
}

#[tokio::test]
async fn without_a_key_that_holds_every_request_is_refused() {
    let gateway = Gateway::start(KEYS).await;
    let new = |method, path: &str| Http::new(gateway.address, method, path);
    let events = |path: &str| new("GET", path).header("Accept", "text/event-stream");
    let modern = json!({
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    });
    let modern = request(1, "server/discover", modern).to_string();
    // It says which methods there are, and nothing else.
    assert_eq!(new("OPTIONS", "/mcp").send().await.status, 204);
    let requests = || {
        [
            Http::post(gateway.address, INITIALIZE),
            Http::post(gateway.address, INITIALIZE).path("/"),
            Http::post(gateway.address, modern.clone())
                .header("MCP-Protocol-Version", "2026-07-28")
                .header("Mcp-Method", "server/discover"),
            Http::post(gateway.address, "{"),
            Http::post(gateway.address, "[]"),
            events("/mcp"),
            new("DELETE", "/mcp"),
            events("/sse"),
            Http::post(gateway.address, INITIALIZE).path("/messages?sessionId=x"),
        ]
    };
    for http in requests() {
        assert_eq!(
            refused(http.send().await).await,
            "Bearer realm=\"mcpvisor\""
        );
    }
    let expected = "Bearer realm=\"mcpvisor\", error=\"invalid_token\"";
    let wrong = [
        "Bearer wrong",
        "Bearer old-key",
        "Bearer ",
        "Basic Zmlyc3Qta2V5",
        "first-key",
    ];
    for wrong in wrong {
        for http in requests() {
            let challenge = refused(http.header("Authorization", wrong).send().await).await;
            assert_eq!(challenge, expected, "{wrong}");
        }
    }
    // Not in a URL, where logs and histories would keep it (S-AUTHS-11).
    let in_url = Http::post(gateway.address, INITIALIZE).path("/mcp?access_token=first-key");
    refused(in_url.send().await).await;
    // Whoever watches the gateway has no key.
    for path in ["/health", "/healthz", "/livez", "/readyz"] {
        assert_eq!(new("GET", path).send().await.status, 200, "{path}");
    }
    let answer = with_key(requests()[2].clone(), "first-key").send().await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[tokio::test]
async fn a_web_page_can_read_why_it_was_refused() {
    let gateway = Gateway::start(KEYS).await;
    let page = "http://localhost:5173";
    let asked = Http::new(gateway.address, "OPTIONS", "/mcp")
        .header("Origin", page)
        .header("Access-Control-Request-Method", "POST")
        .header("Access-Control-Request-Headers", "authorization");
    assert_eq!(asked.send().await.status, 204);
    let answer = Http::post(gateway.address, INITIALIZE).header("Origin", page);
    let answer = answer.send().await;
    assert_eq!(answer.header("access-control-allow-origin"), Some(page));
    let exposed = answer.header("access-control-expose-headers").unwrap();
    assert!(
        exposed.to_ascii_lowercase().contains("www-authenticate"),
        "{exposed}"
    );
    refused(answer).await;
}

#[tokio::test]
async fn a_session_is_unknown_to_other_keys() {
    let mut gateway = Gateway::start(KEYS).await;
    let session = open(&gateway, "first-key").await;
    for restarted in [false, true] {
        if restarted {
            gateway.kill();
            gateway.start_again().await;
        }
        let stream =
            || Http::new(gateway.address, "GET", "/mcp").header("Accept", "text/event-stream");
        let end = || Http::new(gateway.address, "DELETE", "/mcp");
        let unknown = "00000000-0000-4000-8000-000000000000";
        for http in [ping(&gateway, &session), stream(), end()] {
            let foreign = http.clone().header("Mcp-Session-Id", &session);
            let foreign = with_key(foreign, "second-key").send().await;
            let never = http.header("Mcp-Session-Id", unknown);
            let never = with_key(never, "second-key").send().await;
            assert_eq!((foreign.status, never.status), (404, 404), "{foreign:?}");
            assert_eq!(foreign.json().await, never.json().await);
        }
        let own = with_key(ping(&gateway, &session), "first-key").send().await;
        assert_eq!(own.status, 200, "{own:?}");
        refused(ping(&gateway, &session).send().await).await;
    }
    let end = Http::new(gateway.address, "DELETE", "/mcp").header("Mcp-Session-Id", &session);
    assert_eq!(with_key(end, "first-key").send().await.status, 200);
}

#[tokio::test]
async fn a_channel_of_http_and_sse_is_unknown_to_other_keys() {
    let gateway = Gateway::start(KEYS).await;
    let stream = Http::new(gateway.address, "GET", "/sse").header("Accept", "text/event-stream");
    let answer = with_key(stream, "first-key").send().await;
    let mut events: Events = answer.events();
    let address = events.next().await.unwrap().data;
    let message = || Http::post(gateway.address, INITIALIZE).path(&address);
    let foreign = with_key(message(), "second-key").send().await;
    assert_eq!(foreign.status, 404, "{foreign:?}");
    refused(message().send().await).await;
    assert_eq!(with_key(message(), "first-key").send().await.status, 202);
}

/// Runs `mcpvisor keys`: whether it succeeds, and both of its outputs.
pub(crate) fn keys(setup: &Setup, arguments: &[&str]) -> (bool, String, String) {
    let arguments = [&["keys"], arguments].concat();
    let output = setup.command(&arguments).output().unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    (
        output.status.success(),
        out.trim().to_owned(),
        err.into_owned(),
    )
}

#[tokio::test]
async fn keys_are_made_replaced_and_removed_while_the_gateway_runs() {
    let gateway = Gateway::start("# mine\n").await;
    let setup = &gateway.setup;
    let status = |key: String| async move {
        let http = Http::post(gateway.address, INITIALIZE);
        with_key(http, &key).send().await.status
    };
    assert_eq!(status("any".to_owned()).await, 200);
    let becomes = async |key: &str, expected: u16| {
        let what = format!("answer {expected}");
        let reached = || async { (status(key.to_owned()).await == expected).then_some(()) };
        until(&what, reached).await;
    };
    let (_, first, said) = keys(setup, &["add", "laptop"]);
    assert!(said.contains("not shown again"), "{said}");
    becomes("any", 401).await;
    assert_eq!(status(first.clone()).await, 200);
    let (_, second, _) = keys(setup, &["add", "ci", "--expires-in", "90d"]);
    becomes(&second, 200).await;
    let (_, renewed, _) = keys(setup, &["rotate", "laptop"]);
    becomes(&first, 401).await;
    assert_eq!(status(renewed.clone()).await, 200);
    let (_, listed, _) = keys(setup, &["ls", "--json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed[0]["name"], "laptop");
    assert_eq!(listed[0]["expiresAt"], Value::Null);
    assert_eq!(
        (&listed[1]["name"], &listed[1]["expired"]),
        (&json!("ci"), &json!(false))
    );
    keys(setup, &["rm", "ci"]);
    becomes(&second, 401).await;
    // Each is said by its reason, and leaves the file alone.
    for (wrong, why) in [
        (&["add", "laptop"][..], "already"),
        (&["rm", "ci"], "no key `ci`"),
        (&["add", "a b"], "letters"),
    ] {
        let (ended_well, _, said) = keys(setup, wrong);
        assert!(!ended_well && said.contains(why), "{said}");
    }
    let file = std::fs::read_to_string(setup.path("config.toml")).unwrap();
    assert!(file.starts_with("# mine\n"), "{file}");
    let log = std::fs::read_to_string(setup.path("log")).unwrap();
    for key in [&first, &second, &renewed] {
        assert!(!file.contains(key.as_str()) && !log.contains(key.as_str()));
    }
}

#[tokio::test]
async fn operators_see_when_a_key_was_used_last() {
    let mut gateway = Gateway::start(KEYS).await;
    let listed = |gateway: &Gateway| -> Vec<bool> {
        let (_, listed, _) = keys(&gateway.setup, &["ls", "--json"]);
        let listed: Vec<Value> = serde_json::from_str(&listed).unwrap();
        listed
            .iter()
            .map(|key| key["lastUsedAt"].is_string())
            .collect()
    };
    let shown = async |gateway: &Gateway| -> Vec<bool> {
        let answer = api_request(gateway, "GET", "/api/keys").send().await;
        let shown = answer.json().await;
        let keys = shown["keys"].as_array().unwrap().iter();
        keys.map(|key| key["lastUsedAt"].is_string()).collect()
    };
    let (never, first) = ([false; 3], [true, false, false]);
    assert_eq!(shown(&gateway).await, never);
    open(&gateway, "first-key").await;
    // One that has expired is refused, and not used.
    refused(initialize(&gateway, "old-key").send().await).await;
    assert_eq!(shown(&gateway).await, first);
    // Another configuration with the same keys forgets nothing.
    gateway.write_config(&format!("[auth]\nlazy = true\n{KEYS}"));
    until("the other configuration", || async {
        let answer = Http::post(gateway.address, INITIALIZE).send().await;
        (answer.status == 200).then_some(())
    })
    .await;
    assert_eq!(shown(&gateway).await, first);
    assert_eq!(listed(&gateway), never);
    gateway.signal(Signal::TERM);
    gateway.ended().await;
    assert_eq!(listed(&gateway), first);
    let (_, text, _) = keys(&gateway.setup, &["ls"]);
    assert!(
        text.contains("never used") && text.contains(", used 2"),
        "{text}"
    );
    gateway.start_again().await;
    assert_eq!(shown(&gateway).await, first);
    // Another key of the same name was never used.
    keys(&gateway.setup, &["rotate", "first"]);
    assert_eq!(listed(&gateway), never);
}

/// The general stream of a session, and a channel of HTTP+SSE.
async fn streams(gateway: &Gateway, session: &str, sign: impl Fn(Http) -> Http) -> [Events; 2] {
    let get = |path| {
        let http = Http::new(gateway.address, "GET", path).header("Accept", "text/event-stream");
        sign(http)
    };
    let general = get("/mcp").header("Mcp-Session-Id", session);
    let channel = get("/sse");
    [general.send().await.events(), channel.send().await.events()]
}

#[tokio::test]
async fn streams_end_when_the_keys_change() {
    let gateway = Gateway::start("").await;
    let answer = Http::post(gateway.address, INITIALIZE).send().await;
    let session = answer.header("mcp-session-id").unwrap().to_owned();
    let streams = streams(&gateway, &session, |http| http).await;
    keys(&gateway.setup, &["add", "laptop"]);
    for mut events in streams {
        while events.next().await.is_some() {}
    }
}

#[tokio::test]
async fn streams_end_when_a_key_expires() {
    let now = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
    let expires = humantime::format_rfc3339_seconds(now);
    let config = KEYS.replacen(
        "[auth.keys.second]",
        &format!("expires = \"{expires}\"\n[auth.keys.second]"),
        1,
    );
    let gateway = Gateway::start(&config).await;
    let session = open(&gateway, "first-key").await;
    let streams = streams(&gateway, &session, |http| with_key(http, "first-key")).await;
    for mut events in streams {
        while events.next().await.is_some() {}
    }
    let late = with_key(ping(&gateway, &session), "first-key").send().await;
    refused(late).await;
}

#[tokio::test]
async fn the_key_of_the_environment_is_required_where_that_asks_for_it() {
    let setup = Setup::new("")
        .variable("PLUGGEDIN_API_KEY", "pg_in_key")
        .variable("REQUIRE_API_AUTH", "true");
    let gateway = setup.serve().await;
    refused(Http::post(gateway.address, INITIALIZE).send().await).await;
    open(&gateway, "pg_in_key").await;
    let without = Setup::new("").variable("PLUGGEDIN_API_KEY", "pg_in_key");
    let gateway = without.serve().await;
    assert_eq!(
        Http::post(gateway.address, INITIALIZE).send().await.status,
        200
    );
    let lacking = Setup::new("").variable("REQUIRE_API_AUTH", "true");
    let output = lacking.command(&["check"]).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("PLUGGEDIN_API_KEY"));
}

#[tokio::test]
async fn a_first_key_opens_a_public_address() {
    let setup = Setup::new("").variable("MCPVISOR_LISTEN", "0.0.0.0:0");
    let check = || setup.command(&["check"]).output().unwrap().status.success();
    assert!(!check());
    let (ended_well, _, said) = keys(&setup, &["add", "laptop"]);
    assert!(ended_well, "{said}");
    assert!(check());
}

#[tokio::test]
async fn clients_of_another_gateway_read_the_code_that_they_know() {
    let gateway = Gateway::start(&format!("[auth]\ncompat = \"tagoio\"\n{KEYS}")).await;
    let without_key = Http::post(gateway.address, INITIALIZE);
    for wrong in [without_key, initialize(&gateway, "wrong")] {
        let challenge = refused_with(wrong.send().await, -32000).await;
        assert!(challenge.starts_with("Bearer"), "{challenge}");
    }
    // All other refusals stay as they are.
    let session = open(&gateway, "first-key").await;
    let foreign = with_key(ping(&gateway, &session), "second-key")
        .send()
        .await;
    assert_eq!(foreign.status, 404);
}

#[tokio::test]
async fn a_key_is_made_with_a_scope_and_may_use_the_api_then() {
    let gateway = Gateway::start(KEYS).await;
    let status = async |key: &str| {
        let http = with_key(Http::new(gateway.address, "GET", "/api/servers"), key);
        http.send().await.status
    };
    assert_eq!(status("first-key").await, 401);
    let (_, key, _) = keys(&gateway.setup, &["add", "ops", "--scope", "mcpvisor:admin"]);
    until("the API answers the key", || async {
        (status(&key).await == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn one_key_leaves_sessions_to_another() {
    let gateway = Gateway::start(&format!("{KEYS}[sessions]\nmax = 10\n")).await;
    for _ in 0..9 {
        open(&gateway, "first-key").await;
    }
    let why = no_place(initialize(&gateway, "first-key").send().await).await;
    assert!(why.contains("`sessions.peer_share`"), "{why}");
    open(&gateway, "second-key").await;
    assert_eq!(gateway.status().await["counters"]["sessions_refused"], 1);
}

#[tokio::test]
async fn one_key_has_no_more_sessions_and_streams_than_a_client_may_have() {
    let limits = "[sessions]\nmax_per_client = 2\nlisteners_per_client = 1\n";
    let gateway = Gateway::start(&format!("{KEYS}{limits}")).await;
    let listen = |key| {
        let wanted = json!({ "notifications": { "toolsListChanged": true } });
        with_key(modern(&gateway, "l", "subscriptions/listen", wanted), key)
    };
    let session = open(&gateway, "first-key").await;
    open(&gateway, "first-key").await;
    let stream = listen("first-key").send().await;
    assert_eq!(stream.status, 200);
    let why = no_place(initialize(&gateway, "first-key").send().await).await;
    assert!(why.contains("`sessions.max_per_client`"), "{why}");
    let why = no_place(listen("first-key").send().await).await;
    assert!(why.contains("`sessions.listeners_per_client`"), "{why}");
    open(&gateway, "second-key").await;
    assert_eq!(listen("second-key").send().await.status, 200);
    let counters = gateway.status().await["counters"].clone();
    assert_eq!(counters["sessions_refused"], 1);
    assert_eq!(counters["listeners_refused"], 1);
    // A session that ends gives its place back.
    let end = Http::new(gateway.address, "DELETE", "/mcp").header("Mcp-Session-Id", &session);
    assert_eq!(with_key(end, "first-key").send().await.status, 200);
    open(&gateway, "first-key").await;
}

fn initialize(gateway: &Gateway, key: &str) -> Http {
    with_key(Http::post(gateway.address, INITIALIZE), key)
}

/// Why there is no place for a client.
async fn no_place(refused: Answer) -> String {
    let body = refused.json().await;
    assert_eq!(body["error"]["data"]["code"], "overloaded", "{body}");
    body["error"]["message"].as_str().unwrap().to_owned()
}
