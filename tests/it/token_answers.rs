//! What others answer about tokens, and tokens that nobody else is asked about.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::auth::{refused, with_key};
use crate::support::{Gateway, Http, INITIALIZE, Issuer, RESOURCE, unix_seconds};

fn initialize(gateway: &Gateway, token: &str) -> Http {
    with_key(Http::post(gateway.address, INITIALIZE), token)
}

/// Bodies that say no, or cannot be read, and the status of the request with such a token.
fn answers_that_are_no_yes() -> Vec<(String, u16)> {
    let good = json!({ "active": true, "sub": "ada", "aud": RESOURCE, "scope": "mcp" });
    let with = |name: &str, value: Value| {
        let mut answer = good.clone();
        answer[name] = value;
        answer.to_string()
    };
    let no = with("active", json!(false));
    let twice = |first: bool| {
        let more = format!("{{\"active\":{first},");
        good.to_string().replacen('{', &more, 1)
    };
    let (cut, _) = no.split_at(no.len() - 1);
    vec![
        (no.clone(), 401),
        (
            r#"{"active":false,"sub":42,"exp":"soon","scope":{},"iss":[]}"#.to_owned(),
            401,
        ),
        (with("exp", json!(unix_seconds() - 1)), 401),
        (with("exp", json!(-1)), 401),
        (with("sub", json!("")), 401),
        (with("active", json!("false")), 503),
        (with("active", json!("true")), 503),
        (with("active", json!(0)), 503),
        (with("active", json!(1)), 503),
        (with("active", json!(null)), 503),
        (with("exp", json!("2001-01-01T00:00:00Z")), 503),
        (with("sub", json!(["ada"])), 503),
        (with("sub", json!(1e30)), 503),
        (with("scope", json!({ "mcp": true })), 503),
        (twice(true), 503),
        (twice(false), 503),
        (good.to_string().replace("active", "Active"), 503),
        (no.replace("active", "is_active"), 503),
        (cut.to_owned(), 503),
        // A byte order mark before a whole answer is ignored (RFC 8259, section 8.1).
        (format!("\u{feff}{no}"), 401),
        (format!("{good}{no}"), 503),
        (format!("[{good}]"), 503),
        ("false".to_owned(), 503),
        ("ok".to_owned(), 503),
        (" ".to_owned(), 503),
    ]
}

#[tokio::test]
async fn a_no_of_any_form_admits_nobody() {
    let issuer = Issuer::start().await;
    let webhook = Gateway::start(&issuer.webhook("10m")).await;
    let introspecting = Gateway::start(&issuer.introspecting("10m")).await;
    for (number, (body, status)) in answers_that_are_no_yes().into_iter().enumerate() {
        let token = format!("token-{number}");
        issuer.answer(&token, 200, Value::String(body.clone()));
        for gateway in [&webhook, &introspecting] {
            let answer = initialize(gateway, &token).send().await;
            assert_eq!(answer.status, status, "{body}");
        }
    }
    // What is only said by status is no answer of RFC 7662.
    issuer.answer("nothing", 200, json!(""));
    issuer.answer(
        "unsaid",
        200,
        json!({ "sub": "ada", "aud": RESOURCE, "scope": "mcp" }),
    );
    for token in ["nothing", "unsaid"] {
        assert_eq!(
            initialize(&webhook, token).send().await.status,
            200,
            "{token}"
        );
        assert_eq!(
            initialize(&introspecting, token).send().await.status,
            503,
            "{token}"
        );
    }
    let list = json!({ "active": true, "iss": [issuer.url()], "sub": "a", "aud": RESOURCE });
    issuer.answer("list", 200, list);
    assert_eq!(initialize(&introspecting, "list").send().await.status, 503);
}

#[tokio::test]
async fn a_truncated_answer_is_an_outage() {
    let json = "Content-Type: application/json\r\n";
    let table = [
        ("Content-Length: 0\r\n\r\n".to_owned(), 200),
        ("Transfer-Encoding: chunked\r\n\r\n".to_owned(), 503),
        (
            "Transfer-Encoding: chunked\r\n\r\n10\r\n{\"active\"".to_owned(),
            503,
        ),
        ("\r\n".to_owned(), 503),
        ("Content-Length: 16\r\n\r\n".to_owned(), 503),
        (
            format!("{json}Content-Length: 99\r\n\r\n{{\"active\": true}}"),
            503,
        ),
        (
            format!("{json}Content-Length: 9\r\n\r\n{{\"active\": true}}"),
            503,
        ),
        (
            format!("{json}Connection: close\r\n\r\n{{\"active\": fal"),
            503,
        ),
    ];
    for (rest, status) in table {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answer = format!("HTTP/1.1 200 OK\r\n{rest}");
        let serving = tokio::spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let mut read = Vec::new();
                while !read.ends_with(b"\"}") {
                    socket.read_buf(&mut read).await.unwrap();
                }
                socket.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        let config =
            format!("[auth]\nresource = \"{RESOURCE}\"\nwebhook = {{ url = \"{url}\" }}\n");
        let gateway = Gateway::start(&config).await;
        let answer = initialize(&gateway, "token").send().await;
        assert_eq!(answer.status, status, "{rest:?}");
        serving.abort();
    }
}

#[tokio::test]
async fn a_subject_may_be_a_number() {
    let issuer = Issuer::start().await;
    let gateway = Gateway::start(&issuer.webhook("10m")).await;
    issuer.answer("number", 200, json!({ "active": true, "sub": 42 }));
    issuer.answer("text", 200, json!({ "active": true, "sub": "42" }));
    issuer.answer("other", 200, json!({ "active": true, "sub": 43 }));
    let session = crate::tokens::session_of(&gateway, "number").await;
    for (token, status) in [("text", 200), ("other", 404)] {
        let ping = crate::tokens::post(&gateway, &session, "ping", json!({}));
        assert_eq!(with_key(ping, token).send().await.status, status, "{token}");
    }
}

#[expect(
    clippy::await_holding_lock,
    reason = "the webhook hangs while the test holds its lock"
)]
#[tokio::test]
async fn a_refused_token_is_not_asked_about_again_and_a_known_one_never_waits() {
    let issuer = Issuer::start().await;
    let gateway = Gateway::start(&issuer.webhook("10m")).await;
    issuer.answer("good", 204, json!(null));
    let session = crate::tokens::session_of(&gateway, "good").await;
    let tries = (0..50).map(|_| initialize(&gateway, "bad").send());
    for answer in futures_util::future::join_all(tries).await {
        refused(answer).await;
    }
    assert_eq!(issuer.site().asked_about, ["good", "bad"]);
    // An outage is nothing to remember.
    issuer.answer("later", 500, json!(null));
    assert_eq!(initialize(&gateway, "later").send().await.status, 503);
    issuer.answer("later", 204, json!(null));
    assert_eq!(initialize(&gateway, "later").send().await.status, 200);
    // While the webhook answers nobody, the flood waits and a known token does not.
    let hung = issuer.site();
    let flood = (0..20).map(|number| initialize(&gateway, &format!("wrong-{number}")).send());
    let flood = futures_util::future::join_all(flood);
    let ping = crate::tokens::post(&gateway, &session, "ping", json!({}));
    let known = with_key(ping, "good").send();
    let known = match futures_util::future::select(flood, std::pin::pin!(known)).await {
        futures_util::future::Either::Left(_) => panic!("the webhook answers nobody"),
        futures_util::future::Either::Right((known, _)) => known,
    };
    assert_eq!(known.status, 200);
    drop(hung);
}

#[tokio::test]
async fn a_json_web_token_of_any_algorithm_is_passed_to_nobody() {
    let issuer = Issuer::start().await;
    let jwt = format!("[auth.jwt]\nissuer = \"{}\"\n", issuer.url());
    let gateway = Gateway::start(&(issuer.webhook("10m") + &jwt)).await;
    let claims = json!({
        "iss": issuer.url(), "aud": RESOURCE, "sub": "ada", "exp": unix_seconds() + 600,
    });
    let good = issuer.signed(&claims);
    let (_, signed) = good.split_once('.').unwrap();
    let mut tokens = Vec::new();
    for header in [
        r#"{"alg":"none"}"#,
        r#"{"alg":"None"}"#,
        r#"{"alg":"ES512"}"#,
        r#"{"alg":"ES256K"}"#,
        r#"{"alg":"HS256"}"#,
        r#"{"alg":"none","alg":"ES256"}"#,
        r#"{"alg":7}"#,
        r#"{"alg":"ES256","kid":{}}"#,
        r#" {"typ":"JWT"}"#,
        "{}",
    ] {
        tokens.push(format!("{}.{signed}", URL_SAFE_NO_PAD.encode(header)));
    }
    tokens.push(good.rsplit_once('.').unwrap().0.to_owned());
    let mut listed = claims.clone();
    listed["iss"] = json!([issuer.url(), "https://evil.example"]);
    tokens.push(issuer.signed(&listed));
    for token in &tokens {
        // It would say yes.
        issuer.answer(token, 200, json!({ "active": true, "sub": "root" }));
        refused(initialize(&gateway, token).send().await).await;
    }
    assert!(issuer.site().asked_about.is_empty());
    assert_eq!(initialize(&gateway, &good).send().await.status, 200);
}
