//! The audit trail: one record for each request, call and login that is denied.

use serde_json::json;

use crate::auth::{KEYS, with_key};
use crate::sessionless::modern;
use crate::support::{Gateway, Http, INITIALIZE, call_params, example, quick, request, until};

const RULES: &str = "[policies.nothing-destructive]\nwhen = 'tool.annotations.destructiveHint'\n";

/// The records so far.
pub(crate) fn records(gateway: &Gateway) -> Vec<String> {
    let log = gateway.log();
    let records = log.lines().filter(|line| line.contains("mcpvisor::audit"));
    records.map(str::to_owned).collect()
}

/// Requests that are denied, with the status and the code of their answers, and what their records say.
fn denied<'a>(gateway: &Gateway, session: &str) -> [(Http, u16, &'a str, &'a str); 14] {
    let post = |body: String| Http::post(gateway.address, body);
    let ping = || post(request(1, "ping", json!({})).to_string());
    let crash = || call_params("one__crash", json!({}));
    let call = post(request(2, "tools/call", crash()).to_string());
    let in_session = |http: Http| http.header("Mcp-Session-Id", session);
    let end = in_session(Http::new(gateway.address, "DELETE", "/mcp"));
    let api = || Http::new(gateway.address, "GET", "/api/servers");
    let first = |http| with_key(http, "first-key");
    let second = |http| with_key(http, "second-key");
    let foreign = |http: Http| http.header("Origin", "https://evil.example");
    let rebound = second(ping()).header("Host", "evil.example");
    let smuggled = ping().header("Authorization", "Bearer first-key\u{f6}");
    let callback = || gateway.get("/oauth/callback?code=secret-code&state=secret-state");
    let sessionless = modern(gateway, "1", "tools/call", crash());
    let unknown = "session_not_found";
    [
        (ping(), 401, "unauthorized", "POST /mcp"),
        (with_key(ping(), "wrong"), 401, "unauthorized", "POST /mcp"),
        (with_key(ping(), "old-key"), 401, "unauthorized", "expired"),
        (foreign(second(ping())), 403, "forbidden", "POST /mcp"),
        (rebound, 403, "forbidden", "POST /mcp"),
        (smuggled, 400, "invalid_request", "authorization"),
        (second(in_session(ping())), 404, unknown, "key second"),
        (second(end), 404, unknown, "key second"),
        (first(in_session(call)), 200, "policy_denied", "one__crash"),
        (second(sessionless), 200, "policy_denied", "key second"),
        (api(), 401, "session_invalid", "GET /api/servers"),
        (first(api()), 401, "session_invalid", "GET /api/servers"),
        (foreign(api()), 403, "forbidden", "GET /api/servers"),
        (callback(), 400, "login_failed", "GET /oauth/callback"),
    ]
}

#[tokio::test]
async fn each_denial_leaves_one_record_that_says_who_what_and_why() {
    let config = format!("{}{}{KEYS}{RULES}", quick(), example("one"));
    let gateway = Gateway::start(&config).await;
    let opened = with_key(Http::post(gateway.address, INITIALIZE), "first-key");
    let opened = opened.send().await;
    let session = opened.header("mcp-session-id").unwrap();
    let all = denied(&gateway, session).into_iter().enumerate();
    for (number, (http, status, code, said)) in all {
        assert_eq!(records(&gateway).len(), number, "{:#?}", records(&gateway));
        let answer = http.send().await;
        assert_eq!(answer.status, status, "{said}: {answer:?}");
        drop(answer.bytes().await);
        let records = until("the record", || async {
            let records = records(&gateway);
            (records.len() > number).then_some(records)
        })
        .await;
        assert_eq!(records.len(), number + 1, "{code}: {records:#?}");
        let record = records.last().unwrap();
        let is_about_it = record.contains(code) && record.contains(said);
        assert!(is_about_it, "{code}, {said}: {record}");
        for secret in [
            "first-key",
            "second-key",
            "old-key",
            "wrong",
            "secret",
            session,
        ] {
            assert!(!record.contains(secret), "{record}");
        }
        assert_eq!(gateway.status().await["counters"]["denials"], number + 1);
    }
}

#[tokio::test]
async fn a_record_names_the_client_behind_a_trusted_proxy() {
    let proxies = "[gateway]\ntrusted_proxies = [\"127.0.0.1\"]\n";
    let gateway = Gateway::start(&format!("{proxies}{}{KEYS}", quick())).await;
    for path in ["/mcp", "/api/servers"] {
        let http = Http::new(gateway.address, "GET", path);
        let http = http.header("X-Forwarded-For", "198.51.100.7");
        assert_eq!(http.send().await.status, 401);
        until("the record", || async {
            let records = records(&gateway);
            let is_about = |record: &String| record.contains(path);
            let record = records.iter().find(|record| is_about(record))?;
            assert!(record.contains("198.51.100.7"), "{record}");
            Some(())
        })
        .await;
    }
}
