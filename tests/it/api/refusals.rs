//! Bad input of every kind to every endpoint: an error that says what is wrong, nothing changed, and
//! no secret.

use serde_json::json;

use super::{code_of, get, request, token_of, with_body};
use crate::support::{Gateway, Http, example, quick};

const SECRET: &str = "canary-of-the-api";

fn config() -> String {
    let with_secret = format!("env = {{ API_KEY = \"{SECRET}\",");
    quick() + &example("one").replace("env = {", &with_secret)
}

/// Every endpoint, with a server or session that is there where there must be one.
const ENDPOINTS: [(&str, &str); 25] = [
    ("GET", "/api/tree"),
    ("GET", "/api/servers"),
    ("GET", "/api/servers/one"),
    ("POST", "/api/servers/one/start"),
    ("POST", "/api/servers/one/stop"),
    ("POST", "/api/servers/one/restart"),
    ("POST", "/api/servers/one/trip"),
    ("POST", "/api/servers/one/reset"),
    ("GET", "/api/servers/one/logs"),
    ("GET", "/api/servers/one/crashes"),
    ("GET", "/api/tools"),
    ("GET", "/api/sessions"),
    ("GET", "/api/sessions/0123"),
    ("DELETE", "/api/sessions/0123"),
    ("GET", "/api/history"),
    ("GET", "/api/history/1"),
    ("POST", "/api/history/1/replay"),
    ("GET", "/api/logs"),
    ("GET", "/api/loglevel"),
    ("PUT", "/api/loglevel"),
    ("GET", "/config"),
    ("GET", "/config/one"),
    ("POST", "/config"),
    ("PUT", "/config/one"),
    ("DELETE", "/config/none"),
];

/// The same request with something wrong, and the code that it is answered with.
fn faults(plain: &Http, method: &'static str) -> Vec<(&'static str, Http, &'static str)> {
    let json = |body: &[u8]| {
        plain
            .clone()
            .header("Content-Type", "application/json")
            .body(body)
    };
    let path = |end: &str| plain.clone().with_path(|path| format!("{path}{end}"));
    let mut faults = vec![
        (
            "no token",
            plain.clone().without("X-Session-Token"),
            "SESSION_INVALID",
        ),
        (
            "strange host",
            plain.clone().header("Host", "evil.example"),
            "FORBIDDEN",
        ),
        (
            "strange page",
            plain.clone().header("Origin", "https://evil"),
            "FORBIDDEN",
        ),
        (
            "method",
            plain.clone().with_method("PATCH"),
            "HTTP_METHOD_NOT_ALLOWED",
        ),
        ("slash", path("/"), "NOT_FOUND"),
        ("traversal", path("/../../../etc/passwd"), "NOT_FOUND"),
        ("encoded", path("/%2e%2e%2f"), "NOT_FOUND"),
        ("query", path("?colour=red"), "INVALID_REQUEST"),
        (
            "long query",
            path(&format!("?limit={}", "9".repeat(20_000))),
            "INVALID_REQUEST",
        ),
    ];
    if method == "POST" || method == "PUT" {
        faults.extend([
            ("no JSON", json(b"{"), "PARSE_ERROR"),
            ("no UTF-8", json(b"{\"a\": \"\xff\"}"), "PARSE_ERROR"),
            ("no object", json(b"[]"), "INVALID_REQUEST"),
            ("deep", json("[".repeat(200_000).as_bytes()), "PARSE_ERROR"),
            ("large", json(&vec![b' '; 2 << 20]), "TOO_LARGE"),
            ("member", json(br#"{"colour": "red"}"#), "INVALID_REQUEST"),
            (
                "type",
                plain
                    .clone()
                    .header("Content-Type", "text/plain")
                    .body("{}"),
                "UNSUPPORTED_MEDIA_TYPE",
            ),
        ]);
    }
    faults
}

/// What may be answered instead: a route that takes no body says so of any, and a segment more or
/// less may be another path.
fn may_be(code: &str, expected: &str, fault: &str) -> bool {
    let of_body = matches!(fault, "no JSON" | "no UTF-8" | "deep" | "type");
    let of_path = matches!(fault, "encoded" | "slash" | "traversal");
    code == expected
        || of_body && code == "INVALID_REQUEST"
        || fault == "member" && code == "INVALID_CONFIG"
        || of_path
            && matches!(
                code,
                "SERVER_NOT_FOUND" | "SESSION_NOT_FOUND" | "HTTP_METHOD_NOT_ALLOWED"
            )
}

#[tokio::test]
async fn bad_requests_are_answered_and_change_nothing() {
    let gateway = Gateway::start(&config()).await;
    let before = gateway.server_pid("one");
    let stream = ("GET", "/api/events");
    for (method, path) in ENDPOINTS.into_iter().chain([stream]) {
        let plain = request(&gateway, method, path);
        for (fault, bad, expected) in faults(&plain, method) {
            let answer = bad.send().await;
            assert_eq!(answer.header("content-type"), Some("application/json"));
            let (status, code) = code_of(answer).await;
            let row = format!("{method} {path}, {fault}: {status} {code}");
            assert!((400..500).contains(&status), "{row}");
            assert!(may_be(&code, expected, fault), "{row}, not {expected}");
        }
    }
    assert_eq!(gateway.server_pid("one"), before);
    assert_eq!(gateway.server("one").await["state"], "up");
    assert_eq!(get(&gateway, "/api/loglevel").await["level"], "info");
    for path in [
        "/api/servers/two",
        "/api/servers/two/logs",
        "/api/servers/%00",
    ] {
        let answer = request(&gateway, "GET", path).send().await;
        let (status, code) = code_of(answer).await;
        assert_eq!((status, code.as_str()), (404, "SERVER_NOT_FOUND"), "{path}");
    }
}

#[tokio::test]
async fn a_bad_parameter_is_named() {
    let gateway = Gateway::start(&(config() + "[history]\nfile = true\n")).await;
    let rows = [
        ("/api/history?limit=0", "1 to 1000"),
        ("/api/history?offset=100001", "`before`"),
        ("/api/history?outcome=OK", "tool_error"),
        ("/api/history?session=x", "8 hex digits"),
        ("/api/history?since=yesterday", "milliseconds"),
        ("/api/history?before=%00", "the id of an entry"),
        ("/api/history?text=", "1 to 256 characters"),
        ("/api/events?types=all", "server, call, log"),
        ("/api/logs?level=loud", "debug"),
        ("/api/logs?limit=1001", "1 to 1000"),
        ("/api/logs?since=-1", "milliseconds"),
        ("/api/logs?after=last", "the id of an entry"),
    ];
    for (path, word) in rows {
        let answer = request(&gateway, "GET", path).send().await;
        assert_eq!(answer.status, 400, "{path}");
        let message = answer.json().await["error"]["message"].to_string();
        assert!(message.contains(word), "{path}: {message}");
    }
    for id in ["1", "x", "-1", "99999999999999999999", "%1b%5b1m"] {
        for (method, end) in [("GET", ""), ("POST", "/replay")] {
            let path = format!("/api/history/{id}{end}");
            let answer = request(&gateway, method, &path).send().await;
            assert_eq!(
                code_of(answer).await,
                (404, "NOT_FOUND".to_owned()),
                "{path}"
            );
        }
    }
}

#[tokio::test]
async fn no_answer_and_no_log_holds_a_secret() {
    let gateway = Gateway::start(&config()).await;
    let token = token_of(&gateway);
    for (method, path) in ENDPOINTS {
        let answer = request(&gateway, method, path).send().await;
        let head = format!("{:?}", answer.headers);
        let body = String::from_utf8(answer.bytes().await).unwrap();
        for secret in [SECRET, &token] {
            assert!(!body.contains(secret), "{method} {path}: {body}");
            assert!(!head.contains(secret), "{method} {path}: {head}");
        }
    }
    let log = gateway.log();
    assert!(!log.contains(SECRET) && !log.contains(&token), "{log}");
}

#[tokio::test]
async fn a_refusal_leads_to_its_explanation() {
    let gateway = Gateway::start(&config()).await;
    let refused = request(&gateway, "PUT", "/api/loglevel");
    let refused = with_body(refused, &json!({ "level": "loud" })).send().await;
    let body = refused.json().await;
    let help = body["error"]["helpUrl"].as_str().unwrap();
    let base = format!("http://{}", gateway.address);
    let path = help.strip_prefix(&base).unwrap();
    let page = gateway.get(path).send().await;
    assert_eq!(page.status, 200);
    assert_eq!(
        page.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    let page = String::from_utf8(page.bytes().await).unwrap();
    assert!(page.contains("INVALID_REQUEST"), "{page}");
    let unknown = gateway.get("/help/%3Cscript%3E").send().await;
    assert_eq!(unknown.status, 404);
    let page = String::from_utf8(unknown.bytes().await).unwrap();
    assert!(!page.contains("<script>"), "{page}");
}
