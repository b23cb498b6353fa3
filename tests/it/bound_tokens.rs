//! Tokens that the gateway gets with a JWT of its workload or of its client's identity provider,
//! and tokens that are bound to a key, at servers and in front.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::auth::with_key;
use crate::sessionless::modern_as;
use crate::support::{
    Bound, Client, Gateway, Http, Issuer, ProofKey, RESOURCE, Setup, answer_in, call_params,
    example, quick, text_of, unix_seconds, until,
};

/// A JWT as a platform writes it into a file.
fn workload(directory: &Path, audience: &str, id: &str) -> String {
    let claims = json!({ "aud": [audience], "sub": "system:serviceaccount:a:b", "jti": id });
    let token = format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()));
    fs::write(directory.join("workload"), format!("{token}\n")).unwrap();
    token
}

const BY_WORKLOAD: &str = "grant = \"jwt_bearer\"\nclient_id = \"gw\"\ntoken_file = \"workload\"\n";

/// A call of the tool that each server has.
async fn call(gateway: &Gateway) -> Value {
    let client = Client::open(gateway).await;
    client.call("docs__echo", json!({})).await
}

#[tokio::test]
async fn the_workloads_token_is_read_again_for_each_grant() {
    let server = Bound::start(false).await;
    let setup = Setup::new(&format!("{}{}", quick(), server.config("", BY_WORKLOAD)));
    let first = workload(setup.directory.path(), &server.url(), "1");
    let gateway = setup.serve().await;
    gateway.wait_state("docs", "up").await;
    assert_eq!(text_of(&call(&gateway).await), "echoed");
    assert_eq!(server.site().assertions, std::slice::from_ref(&first));
    let second = workload(gateway.setup.directory.path(), &server.url(), "2");
    server.site().tokens.clear();
    assert_eq!(text_of(&call(&gateway).await), "echoed");
    assert_eq!(server.site().assertions, [first, second.clone()]);
    // It is not shown to an authorization server that it is not for.
    workload(gateway.setup.directory.path(), "https://other.example", "3");
    server.site().tokens.clear();
    let failed = call(&gateway).await;
    assert_eq!(failed["isError"], true, "{failed}");
    assert!(
        failed.to_string().contains("which its `aud` does not name"),
        "{failed}"
    );
    assert_eq!(server.site().assertions.len(), 2);
    let (good, said) = gateway.setup.run(&["auth", "login", "docs", "--no-wait"]);
    assert!(!good && said.contains("without a person"), "{said}");
    assert!(!gateway.log().contains(&second));
}

#[tokio::test]
async fn the_workloads_token_replaces_a_client_secret() {
    let server = Bound::start(false).await;
    let oauth = BY_WORKLOAD.replace("jwt_bearer", "client_credentials");
    let setup = Setup::new(&format!("{}{}", quick(), server.config("", &oauth)));
    let token = workload(setup.directory.path(), &server.url(), "1");
    let gateway = setup.serve().await;
    gateway.wait_state("docs", "up").await;
    assert_eq!(text_of(&call(&gateway).await), "echoed");
    assert_eq!(server.site().client_assertions, [token]);
}

fn enterprise(server: &Bound) -> String {
    format!(
        "grant = \"enterprise\"\nclient_id = \"gw\"\nclient_secret = \"secret\"\n\
         idp_token_url = \"{}/idp/token\"\nidp_client_id = \"gateway-at-idp\"\n",
        server.url()
    )
}

#[tokio::test]
async fn the_identity_provider_vouches_for_each_client() {
    let (server, issuer) = (Bound::start(false).await, Issuer::start().await);
    let docs = server.config("credentials = \"user\"\n", &enterprise(&server));
    let setup = Setup::new(&format!("{}{}{docs}", quick(), issuer.config()));
    let gateway = setup.serve().await;
    let tokens = ["ada", "eve"].map(|name| issuer.token(name, 600));
    for (id, token) in [(1, &tokens[0]), (2, &tokens[1]), (3, &tokens[0])] {
        let params = call_params("docs__echo", json!({}));
        let id = id.to_string();
        let http = modern_as(&gateway, &id, "tools/call", params, json!({}));
        let answer = answer_in(with_key(http, token).send().await).await;
        assert_eq!(text_of(&answer["result"]), "echoed", "{answer}");
    }
    let site = server.site();
    assert_eq!(
        site.exchanged, tokens,
        "only the identity provider sees them"
    );
    assert_eq!(site.assertions, ["id-jag-1", "id-jag-2"]);
    drop(site);
    let config = "[servers.s]\nurl = \"http://127.0.0.1:1/\"\ncredentials = \"user\"\n\
                  [servers.s.oauth]\ngrant = \"enterprise\"\nclient_id = \"a\"\n";
    let (good, said) = Setup::new(config).run(&["check"]);
    assert!(
        !good && said.contains("needs `servers.s.oauth.idp_token_url`"),
        "{said}"
    );
}

#[tokio::test]
async fn tokens_are_bound_to_a_key_where_the_server_asks_for_it() {
    let server = Bound::start(true).await;
    let setup = Setup::new(&format!("{}{}", quick(), server.config("", BY_WORKLOAD)));
    workload(setup.directory.path(), &server.url(), "1");
    let mut gateway = setup.serve().await;
    gateway.wait_state("docs", "up").await;
    for _ in 0..3 {
        assert_eq!(text_of(&call(&gateway).await), "echoed");
    }
    server.site().tokens.clear();
    assert_eq!(text_of(&call(&gateway).await), "echoed");
    let keys = |server: &Bound| server.site().tokens.values().cloned().collect::<Vec<_>>();
    let before = keys(&server);
    assert_eq!(server.site().without_nonce, [1, 1], "nonces are kept");
    assert_eq!(server.site().calls, 4, "each call ran once");
    gateway.kill();
    gateway.start_again().await;
    gateway.wait_state("docs", "up").await;
    server.site().tokens.clear();
    assert_eq!(text_of(&call(&gateway).await), "echoed");
    assert_eq!(keys(&server), before, "the key is kept with the token");
}

#[tokio::test]
async fn a_token_that_has_to_be_bound_is_not_used_without_a_key() {
    let server = Bound::start(false).await;
    let oauth = format!("{BY_WORKLOAD}dpop = true\n");
    let setup = Setup::new(&format!("{}{}", quick(), server.config("", &oauth)));
    workload(setup.directory.path(), &server.url(), "1");
    let gateway = setup.serve().await;
    let why = "not bound to a key (`dpop = true`)";
    until("the reason", || async {
        gateway.log().contains(why).then_some(())
    })
    .await;
    assert_eq!(server.site().calls, 0);
}

/// A request of a client with a token, and the proof that it has the token's key.
fn presented(gateway: &Gateway, scheme: &str, token: &str, proof: Option<&str>) -> Http {
    let http = modern_as(gateway, "1", "tools/list", json!({}), json!({}));
    let http = http.header("Authorization", &format!("{scheme} {token}"));
    match proof {
        Some(proof) => http.header("DPoP", proof),
        None => http,
    }
}

#[tokio::test]
async fn a_bound_token_of_a_client_needs_a_new_proof_for_each_request() {
    let issuer = Issuer::start().await;
    let gateway =
        Gateway::start(&format!("{}{}{}", issuer.config(), quick(), example("one"))).await;
    let (key, other) = (ProofKey::new(), ProofKey::new());
    let token = issuer.signed(&json!({
        "iss": issuer.url(), "aud": RESOURCE, "sub": "ada", "scope": "mcp",
        "exp": unix_seconds() + 600, "cnf": { "jkt": key.thumbprint() },
    }));
    let status = async |scheme: &str, token: &str, proof: Option<&str>| {
        let answer = presented(&gateway, scheme, token, proof).send().await;
        let challenge = answer
            .header("www-authenticate")
            .unwrap_or_default()
            .to_owned();
        (answer.status, challenge)
    };
    // The first is verified while it waits, the second is a known token.
    for id in ["1", "2"] {
        let proof = key.proof(RESOURCE, &token, id);
        assert_eq!(status("DPoP", &token, Some(&proof)).await.0, 200, "{id}");
        let (again, challenge) = status("DPoP", &token, Some(&proof)).await;
        assert_eq!(again, 401, "a proof is good for one request");
        assert!(challenge.contains("DPoP algs=\"ES256"), "{challenge}");
    }
    let stolen = other.proof(RESOURCE, &token, "3");
    let elsewhere = key.proof("https://evil.example/mcp", &token, "4");
    for (scheme, proof) in [
        ("DPoP", Some(&stolen)),
        ("DPoP", Some(&elsewhere)),
        ("DPoP", None),
        ("Bearer", Some(&key.proof(RESOURCE, &token, "5"))),
    ] {
        let proof = proof.map(String::as_str);
        assert_eq!(
            status(scheme, &token, proof).await.0,
            401,
            "{scheme} {proof:?}"
        );
    }
    let unbound = issuer.token("ada", 600);
    assert_eq!(status("Bearer", &unbound, None).await.0, 200);
    let proof = key.proof(RESOURCE, &unbound, "6");
    assert_eq!(status("DPoP", &unbound, Some(&proof)).await.0, 401);
}
