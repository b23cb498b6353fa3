//! Clients that authenticate with tokens of an authorization server.

use serde_json::{Value, json};

use crate::auth::{KEYS, refused, with_key};
use crate::sessionless::modern;
use crate::support::{
    Answer, Events, Gateway, Http, INITIALIZE, Issuer, RESOURCE, answer_in, example, quick,
    request, text_of, unix_seconds, until,
};

const METADATA: &str = "https://gateway.test/.well-known/oauth-protected-resource/mcp";

async fn gateway(issuer: &Issuer) -> Gateway {
    let config = format!("{}{}{}", issuer.config(), quick(), example("one"));
    Gateway::start(&config).await
}

fn initialize(gateway: &Gateway, token: &str) -> Http {
    with_key(Http::post(gateway.address, INITIALIZE), token)
}

/// A session of the client with this token.
pub(crate) async fn session_of(gateway: &Gateway, token: &str) -> String {
    let answer = initialize(gateway, token).send().await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.header("mcp-session-id").unwrap().to_owned()
}

pub(crate) fn post(gateway: &Gateway, session: &str, method: &str, params: Value) -> Http {
    Http::post(gateway.address, request(1, method, params).to_string())
        .header("Mcp-Session-Id", session)
        .header("MCP-Protocol-Version", "2025-11-25")
}

fn ping(gateway: &Gateway, session: &str, token: &str) -> Http {
    with_key(post(gateway, session, "ping", json!({})), token)
}

#[tokio::test]
async fn s_auths_02_clients_read_where_tokens_come_from() {
    let issuer = Issuer::start().await;
    let gateway = gateway(&issuer).await;
    let expected = json!({
        "resource": RESOURCE,
        "authorization_servers": [issuer.url()],
        "scopes_supported": ["mcp"],
        "bearer_methods_supported": ["header"],
        "dpop_signing_alg_values_supported": ["ES256", "ES384", "EdDSA", "RS256", "PS256"],
        "resource_name": "mcpvisor",
    });
    for path in ["", "/mcp", "/mcp/view"] {
        let path = format!("/.well-known/oauth-protected-resource{path}");
        let answer = gateway.get(&path).send().await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.json().await, expected);
    }
    let post = Http::post(gateway.address, "{}").path("/.well-known/oauth-protected-resource");
    let answer = post.send().await;
    assert_eq!((answer.status, answer.header("allow")), (405, Some("GET")));
    let page = "http://localhost:5173";
    let without = Http::post(gateway.address, INITIALIZE).header("Origin", page);
    let answer = without.send().await;
    assert_eq!(answer.header("access-control-allow-origin"), Some(page));
    let challenge = format!("resource_metadata=\"{METADATA}\", scope=\"mcp\"");
    assert_eq!(
        refused(answer).await,
        format!("Bearer realm=\"mcpvisor\", {challenge}")
    );
    assert_eq!(
        refused(initialize(&gateway, "a.b.c").send().await).await,
        format!("Bearer realm=\"mcpvisor\", error=\"invalid_token\", {challenge}")
    );
    // With keys alone there is none.
    let keys = Gateway::start(KEYS).await;
    let answer = keys
        .get("/.well-known/oauth-protected-resource")
        .send()
        .await;
    assert_eq!(answer.status, 404);
    assert_eq!(answer.json().await["error"]["data"]["code"], "not_found");
}

#[tokio::test]
async fn s_auths_06_only_tokens_for_this_gateway_are_taken() {
    let issuer = Issuer::start().await;
    let gateway = gateway(&issuer).await;
    let token = issuer.token("ada", 600);
    let session = session_of(&gateway, &token).await;
    let call = json!({ "name": "one__echo", "arguments": { "message": "hi" } });
    let call = with_key(post(&gateway, &session, "tools/call", call), &token);
    assert_eq!(text_of(&answer_in(call.send().await).await["result"]), "hi");
    let claims = json!({
        "iss": issuer.url(),
        "aud": RESOURCE,
        "sub": "ada",
        "scope": "mcp",
        "exp": unix_seconds() + 600,
    });
    assert_eq!(
        ping(&gateway, &session, &issuer.signed(&claims))
            .send()
            .await
            .status,
        200
    );
    for (claim, value) in [
        ("aud", json!("http://other.test/mcp")),
        ("iss", json!("http://other.test")),
        ("exp", json!(unix_seconds() - 1)),
        ("sub", json!(null)),
    ] {
        let mut claims = claims.clone();
        claims[claim] = value;
        let token = issuer.signed(&claims);
        refused(ping(&gateway, &session, &token).send().await).await;
    }
    let other = Issuer::start().await;
    refused(initialize(&gateway, &other.token("ada", 600)).send().await).await;
    let log = gateway.log();
    assert!(!log.contains(&token), "{log}");
}

#[tokio::test]
async fn s_auths_08_a_token_without_a_needed_scope_says_which() {
    let issuer = Issuer::start().await;
    let gateway = gateway(&issuer).await;
    let token = issuer.token_with("ada", "openid", 600);
    let answer = initialize(&gateway, &token).send().await;
    assert_eq!(answer.status, 403, "{answer:?}");
    assert_eq!(
        answer.header("www-authenticate").unwrap(),
        format!(
            "Bearer realm=\"mcpvisor\", error=\"insufficient_scope\", \
             resource_metadata=\"{METADATA}\", scope=\"mcp\""
        )
    );
    let body = answer.json().await;
    assert_eq!(
        body["error"]["data"]["code"], "insufficient_scope",
        "{body}"
    );
    assert!(!body.to_string().contains("ada"), "{body}");
    // The log is written by a thread of its own.
    let records = until("the record", || async {
        let records = crate::audit::records(&gateway);
        (!records.is_empty()).then_some(records)
    })
    .await;
    let [record] = records.as_slice() else {
        panic!("{records:#?}");
    };
    let principal = format!("{} ada", issuer.url());
    let is_about_it = record.contains("insufficient_scope") && record.contains(&principal);
    assert!(is_about_it, "{record}");
}

#[tokio::test]
async fn a_session_belongs_to_the_subject_and_not_to_the_token() {
    let issuer = Issuer::start().await;
    let gateway = gateway(&issuer).await;
    let session = session_of(&gateway, &issuer.token("ada", 600)).await;
    let refreshed = issuer.token("ada", 900);
    assert_eq!(
        ping(&gateway, &session, &refreshed).send().await.status,
        200
    );
    let foreign = issuer.token("eve", 600);
    let unknown = "00000000-0000-4000-8000-000000000000";
    let answers = [&session, unknown].map(|id| ping(&gateway, id, &foreign).send());
    let [foreign, never] = answers;
    let (foreign, never) = (foreign.await, never.await);
    assert_eq!((foreign.status, never.status), (404, 404));
    assert_eq!(foreign.json().await, never.json().await);
}

#[tokio::test]
async fn a_known_token_is_not_asked_about_again() {
    let issuer = Issuer::start().await;
    let gateway = gateway(&issuer).await;
    let token = issuer.token("ada", 600);
    let sessions = (0..8).map(|_| session_of(&gateway, &token));
    let sessions = futures_util::future::join_all(sessions).await;
    assert_eq!(issuer.site().asked, 1, "one request for all who wait");
    issuer.site().is_away = true;
    for session in &sessions {
        assert_eq!(ping(&gateway, session, &token).send().await.status, 200);
    }
    // One that was not seen before is checked with the keys that are known.
    let another = issuer.token("bob", 600);
    session_of(&gateway, &another).await;
    assert_eq!(issuer.site().asked, 1);
}

/// Sends until the answer has this status.
async fn becomes(gateway: &Gateway, token: &str, status: u16) -> Answer {
    let what = format!("answer {status}");
    let ask = || async {
        let answer = initialize(gateway, token).send().await;
        (answer.status == status).then_some(answer)
    };
    until(&what, ask).await
}

#[tokio::test]
async fn the_issuer_may_change_its_keys() {
    let issuer = Issuer::start().await;
    let gateway = gateway(&issuer).await;
    let before = issuer.token("ada", 600);
    session_of(&gateway, &before).await;
    issuer.change_key("second");
    becomes(&gateway, &issuer.token("ada", 600), 200).await;
    // Its signature was checked when its key was good.
    session_of(&gateway, &before).await;
    // However many tokens name keys that nobody has, the issuer is rarely asked.
    let asked = issuer.site().asked;
    issuer.change_key("third");
    let unknown = issuer.token("ada", 600);
    issuer.change_key("fourth");
    for _ in 0..20 {
        refused(initialize(&gateway, &unknown).send().await).await;
    }
    assert!(issuer.site().asked <= asked + 2, "{}", issuer.site().asked);
}

#[tokio::test]
async fn while_the_issuer_is_away_nobody_is_called_wrong() {
    let issuer = Issuer::start().await;
    let gateway = gateway(&issuer).await;
    issuer.site().is_away = true;
    let token = issuer.token("ada", 600);
    let answer = initialize(&gateway, &token).send().await;
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.header("retry-after").is_some());
    assert_eq!(answer.json().await["error"]["data"]["retryable"], true);
    issuer.site().is_away = false;
    becomes(&gateway, &token, 200).await;
}

#[tokio::test]
async fn streams_end_with_their_token() {
    let issuer = Issuer::start().await;
    let gateway = gateway(&issuer).await;
    let (short, long) = (issuer.token("ada", 6), issuer.token("ada", 600));
    let session = session_of(&gateway, &short).await;
    let events =
        |path| Http::new(gateway.address, "GET", path).header("Accept", "text/event-stream");
    let general = |token: &str| with_key(events("/mcp").header("Mcp-Session-Id", &session), token);
    let listen = json!({ "notifications": { "toolsListChanged": true } });
    let listen = |token: &str| {
        let params = listen.clone();
        with_key(modern(&gateway, "l", "subscriptions/listen", params), token)
    };
    let mut channel = with_key(events("/sse"), &short).send().await.events();
    let endpoint = channel.next().await.unwrap();
    let lasting: Vec<Answer> = vec![listen(&long).send().await];
    let ending: Vec<Events> = vec![
        channel,
        listen(&short).send().await.events(),
        general(&short).send().await.events(),
    ];
    for mut events in ending {
        while events.next().await.is_some() {}
    }
    refused(general(&short).send().await).await;
    // The session goes on with the next token of its client, and the channel, too.
    assert_eq!(ping(&gateway, &session, &long).send().await.status, 200);
    assert_eq!(general(&long).send().await.status, 200);
    let again = events("/sse").header("Last-Event-ID", &endpoint.id.unwrap());
    let mut again = with_key(again, &long).send().await.events();
    assert!(again.next().await.unwrap().data.starts_with("/messages"));
    // Whose token holds reads on.
    for answer in lasting {
        let mut events = answer.events();
        assert!(events.message().await.is_some());
        gateway.write_config(&format!(
            "{}{}{}{}",
            issuer.config(),
            quick(),
            example("one"),
            example("two")
        ));
        let changed = events.message().await.unwrap();
        assert_eq!(changed["method"], "notifications/tools/list_changed");
    }
}

#[tokio::test]
async fn a_scope_opens_the_api() {
    let issuer = Issuer::start().await;
    let admin = "[auth.keys.second]\nscopes = [\"mcpvisor:admin\"]\n";
    let keys = KEYS.replace("[auth.keys.second]\n", admin);
    let gateway = Gateway::start(&format!("{}{keys}", issuer.config())).await;
    let token = |scope: &str| issuer.token_with("ada", scope, 600);
    let status = |token: String| with_key(gateway.get("/api/servers"), &token).send();
    for (token, expected) in [
        (token("mcp mcpvisor:admin"), 200),
        ("second-key".to_owned(), 200),
        (token("mcp"), 401),
        (token("mcp mcpvisor:admin:not"), 401),
        ("first-key".to_owned(), 401),
        ("old-key".to_owned(), 401),
        ("nonsense".to_owned(), 401),
    ] {
        assert_eq!(status(token.clone()).await.status, expected, "{token}");
    }
    assert_eq!(gateway.get("/api/servers").send().await.status, 401);
    // For who needs none, there are no scopes either.
    let open = Gateway::start("").await;
    let answer = with_key(open.get("/api/servers"), "any").send().await;
    assert_eq!(answer.status, 401);
}

#[tokio::test]
async fn keys_are_taken_beside_tokens() {
    let issuer = Issuer::start().await;
    let config = format!("{}{KEYS}", issuer.config());
    let gateway = Gateway::start(&config).await;
    session_of(&gateway, "first-key").await;
    session_of(&gateway, &issuer.token("ada", 600)).await;
    // Of a subject that is called as the key, the session is another.
    let session = session_of(&gateway, "first-key").await;
    let same = issuer.token("first", 600);
    assert_eq!(ping(&gateway, &session, &same).send().await.status, 404);
    refused(initialize(&gateway, "old-key").send().await).await;
}

#[tokio::test]
async fn an_authorization_server_is_asked_about_tokens() {
    let issuer = Issuer::start().await;
    let gateway = Gateway::start(&issuer.introspecting("10m")).await;
    let good = json!({ "active": true, "sub": "ada", "aud": RESOURCE, "scope": "mcp" });
    issuer.answer("good", 200, good.clone());
    issuer.answer("renewed", 200, good.clone());
    let session = session_of(&gateway, "good").await;
    assert_eq!(ping(&gateway, &session, "renewed").send().await.status, 200);
    let wrong = [
        ("active", json!(false)),
        ("aud", json!("https://other.test/mcp")),
        ("aud", json!(null)),
        ("iss", json!("https://other.test")),
        ("exp", json!(unix_seconds())),
        ("sub", json!("")),
    ];
    for (index, (claim, value)) in wrong.into_iter().enumerate() {
        let (token, mut answer) = (format!("wrong-{index}"), good.clone());
        answer[claim] = value;
        issuer.answer(&token, 200, answer);
        refused(ping(&gateway, &session, &token).send().await).await;
    }
    refused(ping(&gateway, &session, "never").send().await).await;
    issuer.answer(
        "lacking",
        200,
        json!({ "active": true, "sub": "ada", "aud": RESOURCE }),
    );
    let lacking = ping(&gateway, &session, "lacking").send().await;
    assert_eq!(lacking.status, 403, "{lacking:?}");
    // A client that acts for itself is named by its id.
    let machine = json!({ "active": true, "client_id": "m", "aud": [RESOURCE], "scope": ["mcp"] });
    issuer.answer("machine", 200, machine);
    assert_eq!(ping(&gateway, &session, "machine").send().await.status, 404);
    session_of(&gateway, "machine").await;
    // What is known is not asked about again, and holds during an outage; nobody else is called wrong.
    issuer.site().asked_about.clear();
    issuer.site().is_away = true;
    assert_eq!(ping(&gateway, &session, "good").send().await.status, 200);
    let unknown = ping(&gateway, &session, "unknown").send().await;
    assert_eq!(unknown.status, 503, "{unknown:?}");
    assert!(issuer.site().asked_about.is_empty());
    let answer = gateway
        .get("/.well-known/oauth-protected-resource")
        .send()
        .await;
    let metadata = answer.json().await;
    assert_eq!(metadata["authorization_servers"], json!([issuer.url()]));
}

#[tokio::test]
async fn a_token_that_was_taken_back_is_refused_once_its_answer_is_old() {
    let issuer = Issuer::start().await;
    let gateway = Gateway::start(&issuer.introspecting("0s")).await;
    let good = json!({ "active": true, "sub": "ada", "aud": RESOURCE, "scope": "mcp" });
    issuer.answer("token", 200, good);
    session_of(&gateway, "token").await;
    issuer.answer("token", 200, json!({ "active": false }));
    refused(initialize(&gateway, "token").send().await).await;
}

#[tokio::test]
async fn a_token_is_asked_about_by_one_request_at_a_time() {
    let issuer = Issuer::start().await;
    let gateway = Gateway::start(&issuer.webhook("10m")).await;
    issuer.answer("token", 204, json!(null));
    let sessions = (0..8).map(|_| session_of(&gateway, "token"));
    futures_util::future::join_all(sessions).await;
    assert_eq!(issuer.site().asked_about, ["token"]);
}

#[tokio::test]
async fn a_webhook_says_yes_or_no() {
    let issuer = Issuer::start().await;
    let gateway = Gateway::start(&issuer.webhook("10m")).await;
    issuer.answer("plain", 200, json!(null));
    issuer.answer("named", 200, json!({ "sub": "ada", "scope": "a b" }));
    issuer.answer("same", 201, json!({ "sub": "ada" }));
    let (plain, named) = (
        session_of(&gateway, "plain").await,
        session_of(&gateway, "named").await,
    );
    assert_eq!(ping(&gateway, &plain, "plain").send().await.status, 200);
    assert_eq!(ping(&gateway, &named, "same").send().await.status, 200);
    assert_eq!(ping(&gateway, &plain, "named").send().await.status, 404);
    issuer.answer("said", 200, json!({ "active": false }));
    issuer.answer("over", 200, json!({ "exp": unix_seconds() }));
    issuer.answer("forbidden", 403, json!(null));
    for token in ["said", "over", "forbidden", "never"] {
        refused(initialize(&gateway, token).send().await).await;
    }
    for (token, status) in [("busy", 429), ("broken", 500), ("moved", 302)] {
        issuer.answer(token, status, json!(null));
        let answer = initialize(&gateway, token).send().await;
        assert_eq!(answer.status, 503, "{token}");
    }
    // It gives out no tokens that clients could ask for.
    let answer = gateway
        .get("/.well-known/oauth-protected-resource")
        .send()
        .await;
    assert_eq!(answer.status, 404);
    let challenge = refused(initialize(&gateway, "never").send().await).await;
    assert!(!challenge.contains("resource_metadata"), "{challenge}");
}

#[tokio::test]
async fn jwts_are_checked_here_and_other_tokens_asked_about() {
    let issuer = Issuer::start().await;
    let jwt = format!("[auth.jwt]\nissuer = \"{}\"\n", issuer.url());
    let gateway = Gateway::start(&(issuer.introspecting("10m") + &jwt)).await;
    let good = json!({ "active": true, "sub": "ada", "aud": RESOURCE, "scope": "mcp" });
    issuer.answer("opaque", 200, good);
    let session = session_of(&gateway, "opaque").await;
    // The same subject of the same issuer, however its token is checked.
    let token = issuer.token("ada", 600);
    assert_eq!(ping(&gateway, &session, &token).send().await.status, 200);
    let forged = Issuer::start().await.token("ada", 600);
    refused(ping(&gateway, &session, &forged).send().await).await;
    assert_eq!(issuer.site().asked_about, ["opaque"]);
}
