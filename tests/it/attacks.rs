//! Attacks on tokens: each is refused, counted, and leaves one record without the token.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serde_json::{Value, json};

use crate::auth::{refused, with_key};
use crate::support::{
    Gateway, Http, INITIALIZE, Issuer, RESOURCE, example, quick, unix_seconds, until,
};

fn unsigned(header: &Value, claims: &Value) -> String {
    let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
    format!("{header}.{claims}")
}

/// Tokens that must not be taken, each with the attack, and what its answer and its record say.
fn attacks(issuer: &Issuer, other: &Issuer) -> Vec<(&'static str, String, &'static str)> {
    let good = json!({
        "iss": issuer.url(),
        "aud": RESOURCE,
        "sub": "ada",
        "scope": "mcp",
        "exp": unix_seconds() + 600,
    });
    let but = |claim: &str, value: Value| {
        let mut claims = good.clone();
        claims[claim] = value;
        issuer.signed(&claims)
    };
    let none = unsigned(&json!({ "alg": "none", "kid": "first" }), &good) + ".";
    let hs = unsigned(&json!({ "alg": "HS256", "kid": "first" }), &good);
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"the public key");
    let mac = URL_SAFE_NO_PAD.encode(hmac::sign(&key, hs.as_bytes()));
    let cut = issuer.signed(&good);
    let (cut, _) = cut.rsplit_once('.').unwrap();
    let wrong = |audience: &str| but("aud", json!(audience));
    vec![
        (
            "audience",
            wrong("https://other.test/mcp"),
            "a different resource",
        ),
        (
            "issuer",
            but("iss", json!("https://other.test")),
            "a different issuer",
        ),
        (
            "expired",
            but("exp", json!(unix_seconds() - 1)),
            "has expired",
        ),
        (
            "not yet",
            but("nbf", json!(unix_seconds() + 600)),
            "not valid yet",
        ),
        ("alg none", none, "an algorithm"),
        ("RS/HS confusion", format!("{hs}.{mac}"), "an algorithm"),
        ("no signature", format!("{cut}."), "signature"),
        (
            "signature of another",
            format!("{cut}.{}", "A".repeat(86)),
            "signature",
        ),
        (
            "key of another issuer",
            other.token("ada", 600),
            "signature",
        ),
        (
            "oversize",
            but("x", json!("x".repeat(20_000))),
            "not a JSON Web Token",
        ),
        (
            "oversize subject",
            but("sub", json!("a".repeat(300))),
            "no usable `sub`",
        ),
    ]
}

#[tokio::test]
async fn each_attack_on_a_token_is_refused_counted_and_recorded() {
    let (issuer, other) = (Issuer::start().await, Issuer::start().await);
    let config = format!("{}{}{}", issuer.config(), quick(), example("one"));
    let gateway = Gateway::start(&config).await;
    let initialize = |token: &str| with_key(Http::post(gateway.address, INITIALIZE), token);
    let good = initialize(&issuer.token("ada", 600)).send().await;
    assert_eq!(good.status, 200, "{good:?}");
    for (number, (attack, token, why)) in attacks(&issuer, &other).into_iter().enumerate() {
        let answer = initialize(&token).send().await;
        assert_eq!(answer.status, 401, "{attack}: {answer:?}");
        let challenge = refused(answer).await;
        assert!(challenge.contains("invalid_token"), "{attack}: {challenge}");
        // The log is written by a thread of its own.
        let log = until("the record", || async {
            let log = gateway.log();
            (log.matches("mcpvisor::audit").count() > number).then_some(log)
        })
        .await;
        let records = log.lines().filter(|line| line.contains("mcpvisor::audit"));
        let records: Vec<&str> = records.collect();
        assert_eq!(records.len(), number + 1, "{attack}: {records:#?}");
        assert!(records[number].contains(why), "{attack}: {records:#?}");
        let shown = token.get(..100).unwrap_or(&token);
        assert!(!log.contains(shown), "{attack}: {log}");
        let counters = gateway.status().await["counters"].clone();
        assert_eq!(counters["denials"], number + 1, "{attack}");
        assert_eq!(counters["requests_refused"], number + 1, "{attack}");
    }
}
