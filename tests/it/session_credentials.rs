//! Sessions that remember the credentials of their clients (`auth.remember`).

use std::fs;

use serde_json::json;

use crate::auth::{KEYS, refused, with_key};
use crate::sessionless::modern;
use crate::support::{
    Answer, Gateway, Http, INITIALIZE, Issuer, answer_in, example, quick, text_of, until,
};
use crate::tokens::{post, session_of};

/// With a line in `[auth]`.
fn remembering(config: &str, more: &str) -> String {
    let line = format!("[auth]\nremember = \"session\"\n{more}");
    match config.contains("[auth]\n") {
        true => config.replacen("[auth]\n", &line, 1),
        false => line + config,
    }
}

async fn ping(gateway: &Gateway, session: &str) -> Answer {
    post(gateway, session, "ping", json!({})).send().await
}

#[tokio::test]
async fn a_client_says_who_it_is_with_initialize_only() {
    let config = remembering(KEYS, "") + &quick() + &example("one");
    let mut gateway = Gateway::start(&config).await;
    let session = session_of(&gateway, "first-key").await;
    assert_eq!(ping(&gateway, &session).await.status, 200);
    let params = json!({ "name": "one__echo", "arguments": { "message": "hi" } });
    let call = post(&gateway, &session, "tools/call", params).send().await;
    assert_eq!(text_of(&answer_in(call).await["result"]), "hi");
    let stream = Http::new(gateway.address, "GET", "/mcp")
        .header("Accept", "text/event-stream")
        .header("Mcp-Session-Id", &session);
    assert_eq!(stream.send().await.status, 200);
    // Wrong credentials are wrong all the same, and those of others are not kept.
    let with = |key| with_key(post(&gateway, &session, "ping", json!({})), key).send();
    refused(with("wrong").await).await;
    assert_eq!(with("second-key").await.status, 404);
    assert_eq!(ping(&gateway, &session).await.status, 200);
    // A key by its side serves no other session, and nothing that is for none.
    let unknown = "00000000-0000-4000-8000-000000000000";
    refused(ping(&gateway, unknown).await).await;
    let named = |http: Http| http.header("Mcp-Session-Id", &session).send();
    refused(named(Http::post(gateway.address, INITIALIZE)).await).await;
    refused(named(modern(&gateway, "1", "tools/list", json!({}))).await).await;
    let api = Http::new(gateway.address, "GET", "/api/servers");
    assert_eq!(named(api).await.status, 401);
    // Nothing of it outlives the process, and the session does.
    gateway.kill();
    gateway.start_again().await;
    refused(ping(&gateway, &session).await).await;
    let again = with_key(post(&gateway, &session, "ping", json!({})), "first-key");
    assert_eq!(again.send().await.status, 200);
    assert_eq!(ping(&gateway, &session).await.status, 200);
    let end = Http::new(gateway.address, "DELETE", "/mcp");
    let end = end.header("Mcp-Session-Id", &session).send().await;
    assert_eq!(end.status, 200);
    refused(ping(&gateway, &session).await).await;
}

#[tokio::test]
async fn a_key_that_is_gone_is_refused_at_once_and_its_session_goes_on_with_another() {
    let config = remembering(KEYS, "");
    let gateway = Gateway::start(&config).await;
    let session = session_of(&gateway, "first-key").await;
    // The keys change places.
    let swapped = config.replace("keys.first", "keys.third");
    let swapped = swapped.replace("keys.second", "keys.first");
    gateway.write_config(&swapped);
    let refusal = || async { (ping(&gateway, &session).await.status == 401).then_some(()) };
    until("a refusal", refusal).await;
    let again = with_key(post(&gateway, &session, "ping", json!({})), "second-key");
    assert_eq!(again.send().await.status, 200);
    assert_eq!(ping(&gateway, &session).await.status, 200);
    // Without `remember` it is forgotten, and not only left alone.
    gateway.write_config(&swapped.replace("\"session\"", "\"none\""));
    until("a refusal", refusal).await;
    gateway.write_config(&swapped.replace("2020", "2999"));
    until("the last configuration", || async {
        let http = Http::post(gateway.address, INITIALIZE);
        let answer = with_key(http, "old-key").send().await;
        (answer.status == 200).then_some(())
    })
    .await;
    refused(ping(&gateway, &session).await).await;
}

#[tokio::test]
async fn a_token_is_checked_again_and_its_session_waits_for_a_good_one() {
    let issuer = Issuer::start().await;
    let config = remembering(&issuer.webhook("0s"), "recheck = \"1s\"\n");
    let gateway = Gateway::start(&config).await;
    issuer.answer("canary-token", 200, json!({ "sub": "ada" }));
    let session = session_of(&gateway, "canary-token").await;
    until("another check", || async {
        assert_eq!(ping(&gateway, &session).await.status, 200);
        (issuer.site().asked_about.len() >= 3).then_some(())
    })
    .await;
    // While nobody can say it, nobody is told that it is wrong.
    issuer.answer("canary-token", 500, json!(null));
    until("an outage", || async {
        (ping(&gateway, &session).await.status == 503).then_some(())
    })
    .await;
    issuer.answer("canary-token", 200, json!({ "sub": "bob" }));
    refused(ping(&gateway, &session).await).await;
    issuer.answer("canary-token", 200, json!({ "sub": "ada" }));
    // It was forgotten, so that nobody is asked for each request.
    let asked = issuer.site().asked_about.len();
    refused(ping(&gateway, &session).await).await;
    assert_eq!(issuer.site().asked_about.len(), asked);
    let again = with_key(post(&gateway, &session, "ping", json!({})), "canary-token");
    assert_eq!(again.send().await.status, 200);
    assert_eq!(ping(&gateway, &session).await.status, 200);
    issuer.answer("canary-token", 403, json!(null));
    until("a refusal", || async {
        (ping(&gateway, &session).await.status == 401).then_some(())
    })
    .await;
    assert!(!gateway.log().contains("canary-token"));
    for file in fs::read_dir(gateway.data_dir()).unwrap() {
        let path = file.unwrap().path();
        let bytes = fs::read(&path).unwrap_or_default();
        let is_in = bytes.windows(12).any(|part| part == b"canary-token");
        assert!(!is_in, "{}", path.display());
    }
}

#[tokio::test]
async fn a_remembered_token_is_not_asked_about_for_each_request() {
    let issuer = Issuer::start().await;
    let gateway = Gateway::start(&remembering(&issuer.webhook("0s"), "")).await;
    issuer.answer("token", 204, json!(null));
    let session = session_of(&gateway, "token").await;
    for _ in 0..5 {
        assert_eq!(ping(&gateway, &session).await.status, 200);
    }
    assert_eq!(issuer.site().asked_about, ["token"]);
    // A gateway that needs more of its tokens asks at once.
    let stricter = issuer
        .webhook("0s")
        .replace("resource =", "scopes = [\"mcp\"]\nresource =");
    gateway.write_config(&remembering(&stricter, ""));
    until("a refusal", || async {
        (ping(&gateway, &session).await.status == 403).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_session_that_was_opened_without_a_key_remembers_none() {
    let config = remembering(KEYS, "lazy = true\n") + &quick() + &example("one");
    let mut gateway = Gateway::start(&config).await;
    let answer = Http::post(gateway.address, INITIALIZE).send().await;
    let session = answer.header("mcp-session-id").unwrap().to_owned();
    let call = |gateway: &Gateway| {
        let params = json!({ "name": "one__echo", "arguments": { "message": "hi" } });
        post(gateway, &session, "tools/call", params)
    };
    // Whoever opened it knows its id, which must not stand for the key.
    for restarted in [false, true] {
        if restarted {
            gateway.kill();
            gateway.start_again().await;
        }
        refused(call(&gateway).send().await).await;
        let with_key = with_key(call(&gateway), "first-key").send().await;
        assert_eq!(with_key.status, 200);
        refused(call(&gateway).send().await).await;
    }
    // One that was opened with a key does.
    let session = session_of(&gateway, "first-key").await;
    assert_eq!(ping(&gateway, &session).await.status, 200);
}
