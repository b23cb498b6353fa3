//! Servers that want a token: the gateway signs in, keeps it, and renews it.

use serde_json::{Value, json};

use crate::support::login::{
    api_request as api, follow, log_in, login_needed, parts, protected, protected_with,
};
use crate::support::{
    Authority, Behaviour, Client, Gateway, Http, HttpServer, Setup, failure_of, quick, text_of,
    until,
};
use crate::users::sign_in;

#[tokio::test]
async fn a_server_that_wants_a_token_waits_for_a_login_and_then_works() {
    let (server, authority, gateway) = protected().await;
    login_needed(&gateway).await;
    let answer = log_in(&gateway).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let done = answer.json().await;
    assert_eq!(done["success"], true);
    assert_eq!(done["serverId"], "docs");
    assert_eq!(done["tokenType"], "Bearer");
    assert!(done["expiresIn"].as_u64().unwrap() > 3000, "{done}");

    gateway.wait_state("docs", "up").await;
    let shared = gateway.server("docs").await["connection"]["shared"].take();
    assert_eq!(shared["generation"], 1, "no restart: {shared}");
    let client = Client::open(&gateway).await;
    let result = client.call("docs__echo", json!({"n": 1})).await;
    assert_eq!(text_of(&result), "http {\"n\":1}");
    assert_eq!(authority.grants().registered, 1);
    assert_eq!(server.behaviour().handshakes, 1);
}

#[tokio::test]
async fn a_refused_token_is_renewed_and_no_call_is_lost() {
    let (server, authority, gateway) = protected().await;
    login_needed(&gateway).await;
    log_in(&gateway).await;
    gateway.wait_state("docs", "up").await;
    let client = Client::open(&gateway).await;
    for round in 1..=3 {
        authority.expire_tokens();
        // All of them are refused at once, and one token is asked for.
        let calls = (0..8).map(|n| client.call("docs__echo", json!({ "n": n })));
        for result in futures_util::future::join_all(calls).await {
            assert_ne!(result["isError"], true, "{result}");
        }
        assert_eq!(authority.grants().refreshed, round);
    }
    assert_eq!(server.behaviour().calls.len(), 24, "each call ran once");
    // An outage of the authorization server that ends in time is not noticed.
    authority.expire_tokens();
    authority.grants().is_away = true;
    let call = client.call("docs__echo", json!({}));
    let outage = async {
        until("a renewal to be tried", || async {
            gateway
                .log()
                .contains("token renewal failed; retrying")
                .then_some(())
        })
        .await;
        authority.grants().is_away = false;
    };
    let (result, ()) = tokio::join!(call, outage);
    assert_ne!(result["isError"], true, "{result}");
    let counters = gateway.status().await["counters"].clone();
    assert_eq!(counters["oauth_refresh_renewed"], 4, "{counters}");
    assert_ne!(counters["oauth_refresh_failed"], 0, "{counters}");
    assert_eq!(counters["oauth_refresh_refused"], 0, "{counters}");
}

#[tokio::test]
async fn a_token_is_renewed_ahead_of_its_time() {
    let (_server, authority, gateway) = protected().await;
    authority.grants().expires_in = 1;
    login_needed(&gateway).await;
    log_in(&gateway).await;
    gateway.wait_state("docs", "up").await;
    let client = Client::open(&gateway).await;
    until("a renewal", || async {
        let result = client.call("docs__echo", json!({})).await;
        assert_ne!(result["isError"], true, "{result}");
        (authority.grants().refreshed > 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_sign_in_that_ended_is_asked_for_again() {
    let (_server, authority, gateway) = protected_with("").await;
    login_needed(&gateway).await;
    log_in(&gateway).await;
    gateway.wait_state("docs", "up").await;
    let client = Client::open(&gateway).await;
    authority.end_sign_ins();
    for _ in 0..2 {
        let failed = client.call("docs__echo", json!({})).await;
        assert_eq!(
            failure_of(&failed)["code"],
            "server_unavailable",
            "{failed}"
        );
        assert!(
            text_of(&failed).contains("mcpvisor auth login docs"),
            "{failed}"
        );
        login_needed(&gateway).await;
    }
    let refused = gateway.status().await["counters"]["oauth_refresh_refused"].clone();
    assert_eq!(refused, 1, "after that there is nothing to renew");
    // The registration is used again.
    log_in(&gateway).await;
    gateway.wait_state("docs", "up").await;
    let result = client.call("docs__echo", json!({})).await;
    assert_ne!(result["isError"], true, "{result}");
    assert_eq!(authority.grants().registered, 1);
}

#[tokio::test]
async fn another_sign_in_opens_another_session_and_another_token_does_not() {
    let (server, authority, gateway) = protected().await;
    login_needed(&gateway).await;
    log_in(&gateway).await;
    gateway.wait_state("docs", "up").await;
    let client = Client::open(&gateway).await;
    let handshakes = || server.behaviour().handshakes;
    authority.expire_tokens();
    client.call("docs__echo", json!({})).await;
    assert_eq!((authority.grants().refreshed, handshakes()), (1, 1));
    assert_eq!(log_in(&gateway).await.status, 200);
    gateway.wait_state("docs", "up").await;
    let result = client.call("docs__echo", json!({"n": 1})).await;
    assert_eq!(text_of(&result), "http {\"n\":1}");
    assert_eq!(handshakes(), 2);
    until("the former session to end", || async {
        (server.behaviour().deleted == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_authorization_server_that_forgot_the_gateway_gets_to_know_it_again() {
    let (_server, authority, gateway) = protected().await;
    login_needed(&gateway).await;
    log_in(&gateway).await;
    gateway.wait_state("docs", "up").await;
    let client = Client::open(&gateway).await;
    // Noticed when the token is renewed.
    authority.grants().clients.clear();
    authority.expire_tokens();
    let failed = client.call("docs__echo", json!({})).await;
    assert!(
        text_of(&failed).contains("mcpvisor auth login docs"),
        "{failed}"
    );
    login_needed(&gateway).await;
    log_in(&gateway).await;
    gateway.wait_state("docs", "up").await;
    assert_eq!(authority.grants().registered, 2);
    // Noticed by the person, who is not sent back and begins again.
    authority.end_sign_ins();
    client.call("docs__echo", json!({})).await;
    login_needed(&gateway).await;
    authority.grants().clients.clear();
    let begun = api(&gateway, "POST", "/api/servers/docs/login")
        .send()
        .await;
    let (address, path) = parts(begun.json().await["url"].as_str().unwrap());
    let page = Http::new(address.parse().unwrap(), "GET", &path)
        .send()
        .await;
    assert_eq!(page.status, 400);
    log_in(&gateway).await;
    gateway.wait_state("docs", "up").await;
    assert_eq!(authority.grants().registered, 3);
}

#[tokio::test]
async fn tokens_survive_a_kill_and_are_readable_nowhere() {
    let server = HttpServer::start(Behaviour::default()).await;
    let authority = Authority::of(&server).await;
    let config = format!("{}{}", quick(), server.config("docs"));
    let setup = Setup::new(&config);
    let elsewhere = setup.path("elsewhere");
    let setup = setup.variable("XDG_CONFIG_HOME", elsewhere.to_str().unwrap());
    let mut gateway = setup.serve().await;
    login_needed(&gateway).await;
    log_in(&gateway).await;
    gateway.wait_state("docs", "up").await;
    gateway.kill();
    gateway.start_again().await;
    gateway.wait_state("docs", "up").await;
    let client = Client::open(&gateway).await;
    let result = client.call("docs__echo", json!({})).await;
    assert_ne!(result["isError"], true, "{result}");
    assert_eq!(authority.grants().registered, 1);
    assert!(elsewhere.join("mcpvisor/credentials.key").exists());
    // Neither what the gateway keeps nor what it says shows a token.
    let said = all_said(&gateway).await;
    assert!(said.contains("docs"), "{said}");
    assert!(!said.contains("canary"), "{said}");
}

/// The log of a gateway, all that its API shows, and all that it keeps.
pub(crate) async fn all_said(gateway: &Gateway) -> String {
    let mut said = gateway.log();
    for path in [
        "/api/tree",
        "/api/logins",
        "/api/history",
        "/api/logs",
        "/config",
    ] {
        let answer = api(gateway, "GET", path).send().await;
        said.push_str(&String::from_utf8_lossy(&answer.bytes().await));
    }
    said.push_str(&files_below(&gateway.data_dir()));
    said
}

pub(crate) fn files_below(directory: &std::path::Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            text.push_str(&files_below(&path));
        } else if path.is_file() {
            text.push_str(&String::from_utf8_lossy(&std::fs::read(&path).unwrap()));
        }
    }
    text
}

#[tokio::test]
async fn a_program_signs_in_by_itself() {
    let server = HttpServer::start(Behaviour::default()).await;
    let authority = Authority::of(&server).await;
    let oauth = "[servers.docs.oauth]\ngrant = \"client_credentials\"\nclient_id = \"machine\"\n\
                 client_secret = \"${SECRET}\"\n";
    let config = format!("{}{}{oauth}", quick(), server.config("docs"));
    let gateway = Setup::new(&config)
        .variable("SECRET", "machine-secret")
        .serve()
        .await;
    gateway.wait_state("docs", "up").await;
    let client = Client::open(&gateway).await;
    authority.expire_tokens();
    let result = client.call("docs__echo", json!({})).await;
    assert_ne!(result["isError"], true, "{result}");
    let refused = api(&gateway, "POST", "/api/servers/docs/login")
        .send()
        .await;
    assert_eq!(refused.json().await["error"]["code"], "LOGIN_FAILED");
}

#[tokio::test]
async fn the_endpoints_of_the_inspector_answer_as_it_reads_them() {
    let (_server, authority, gateway) = protected().await;
    login_needed(&gateway).await;
    let begun = |path: &str| api(&gateway, "GET", path).send();
    let elsewhere = "/oauth/authorize/docs?redirect_uri=http%3A%2F%2Fevil.example%2F";
    assert_eq!(begun(elsewhere).await.status, 400);
    assert_eq!(begun("/oauth/authorize/nobody").await.status, 404);
    let untokened = gateway.get("/oauth/authorize/docs").send().await;
    assert_eq!(untokened.status, 401);
    let renewed = api(&gateway, "POST", "/oauth/refresh/docs").send().await;
    assert_eq!(renewed.json().await["error"]["code"], "LOGIN_FAILED");

    // The page of a program on this machine, which hands the answer on.
    let own = "/oauth/authorize/docs?redirect_uri=http%3A%2F%2Flocalhost%3A6274%2Fdone";
    let location = begun(own).await.header("location").unwrap().to_owned();
    let (address, path) = follow(&location).await;
    assert_eq!(address, "localhost:6274");
    let query = path.strip_prefix("/done?").unwrap();
    let done = gateway
        .get(&format!("/oauth/callback?{query}"))
        .send()
        .await;
    assert_eq!(done.json().await["success"], true);

    let renewed = api(&gateway, "POST", "/oauth/refresh/docs").send().await;
    let renewed = renewed.json().await;
    assert_eq!(renewed["success"], true, "{renewed}");
    assert_eq!(renewed["tokenType"], "Bearer");
    assert!(
        renewed["expiresAt"].as_str().unwrap().ends_with('Z'),
        "{renewed}"
    );
    assert_eq!(authority.grants().refreshed, 1);
    let counters = gateway.status().await["counters"].clone();
    assert_eq!(counters["oauth_refresh_renewed"], 1, "{counters}");

    let logins = api(&gateway, "GET", "/api/logins")
        .send()
        .await
        .json()
        .await;
    assert_eq!(logins["logins"][0]["state"], "signed in", "{logins}");
    let forgotten = api(&gateway, "DELETE", "/oauth/token/docs").send().await;
    assert_eq!(forgotten.status, 204);
    assert_eq!(authority.grants().revoked, ["canary-refresh-2"]);
    let logins = api(&gateway, "GET", "/api/logins")
        .send()
        .await
        .json()
        .await;
    assert_ne!(logins["logins"][0]["state"], "signed in", "{logins}");
}

#[tokio::test]
async fn an_answer_that_nobody_waits_for_is_refused() {
    let (_server, authority, gateway) = protected().await;
    login_needed(&gateway).await;
    let refused = |query: String| {
        let path = format!("/oauth/callback?{query}");
        let http = gateway.get(&path);
        async move {
            let answer = http.send().await;
            assert_eq!(answer.status, 400, "{path}");
            let answer = answer.json().await;
            assert_eq!(answer["success"], false);
            answer
        }
    };
    refused("code=x&state=never".to_owned()).await;
    refused("code=x".to_owned()).await;
    refused(String::new()).await;
    let page = || async {
        let begun = api(&gateway, "GET", "/oauth/authorize/docs").send().await;
        begun.header("location").unwrap().to_owned()
    };
    let state_of = |page: &str| {
        let query = page.split_once('?').unwrap().1;
        let mut pairs = url::form_urlencoded::parse(query.as_bytes());
        pairs
            .find(|(name, _)| name == "state")
            .unwrap()
            .1
            .into_owned()
    };
    let denied = refused(format!(
        "error=access_denied&state={}&iss=http://{}",
        state_of(&page().await),
        authority.address
    ))
    .await;
    assert_eq!(denied["error"], "access_denied", "{denied}");
    // Another authorization server than the one that was asked (mix-up).
    let other = format!(
        "code=code-0&state={}&iss=https://evil",
        state_of(&page().await)
    );
    let mixed = refused(other).await;
    assert_eq!(mixed["error"], "login_failed", "{mixed}");
    // A code is good once, with its own state.
    let location = page().await;
    let (_, callback) = follow(&location).await;
    assert_eq!(gateway.get(&callback).send().await.status, 200);
    assert_eq!(gateway.get(&callback).send().await.status, 400);
    // A page for people, in which nothing of the answer runs.
    let shown = gateway
        .get("/oauth/callback?state=%3Cscript%3E")
        .header("Accept", "text/html");
    let shown = shown.send().await;
    assert!(
        shown
            .header("content-security-policy")
            .unwrap()
            .contains("default-src 'none'")
    );
    let text = String::from_utf8(shown.bytes().await).unwrap();
    assert!(
        text.contains("Not signed in") && !text.contains("<script>"),
        "{text}"
    );
}

#[tokio::test]
async fn without_pkce_nobody_signs_in() {
    let (_server, authority, gateway) = protected().await;
    authority.grants().no_pkce = true;
    login_needed(&gateway).await;
    let refused = api(&gateway, "POST", "/api/servers/docs/login")
        .send()
        .await;
    assert_eq!(refused.status, 502);
    let refused: Value = refused.json().await;
    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .contains("PKCE"),
        "{refused}"
    );
}

#[tokio::test]
async fn the_command_line_signs_in_and_out() {
    let (_server, authority, gateway) = protected().await;
    login_needed(&gateway).await;
    let run = |arguments: &[&str]| {
        let mut command = gateway.setup.command(arguments);
        let running = tokio::task::spawn_blocking(move || command.output().unwrap());
        async move {
            let output = running.await.unwrap();
            String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
        }
    };
    let status = run(&["auth", "status"]).await;
    assert!(
        status.contains("docs") && status.contains("needs login"),
        "{status}"
    );
    let page = run(&["auth", "login", "docs", "--no-wait"]).await;
    assert_eq!(sign_in(&gateway, &page, "ann").await.status, 200);
    let status = run(&["auth", "status"]).await;
    assert!(
        status.contains("signed in") && status.contains("is renewed before"),
        "{status}"
    );
    assert!(run(&["auth", "refresh", "docs"]).await.contains("renewed"));
    assert!(
        run(&["auth", "logout", "docs"])
            .await
            .contains("logged out")
    );
    assert_eq!(authority.grants().revoked.len(), 1);
    assert_ne!(gateway.server("docs").await["state"], "up", "revoked");
    let unknown = run(&["auth", "login", "nobody"]).await;
    assert!(unknown.contains("is not configured"), "{unknown}");
}

#[tokio::test]
async fn an_endpoint_that_is_not_encrypted_is_refused() {
    let server = HttpServer::start(Behaviour::default()).await;
    server.behaviour().challenge = Some("Bearer".to_owned());
    let oauth =
        "[servers.docs.oauth]\nclient_id = \"me\"\ntoken_url = \"http://a.example/token\"\n";
    let setup = Setup::new(&format!("{}{oauth}", server.config("docs")));
    let checked = setup.command(&["check"]).output().unwrap();
    let said = String::from_utf8(checked.stderr).unwrap();
    assert!(
        said.contains("servers.docs.oauth.token_url") && said.contains("https://"),
        "{said}"
    );
}

#[tokio::test]
async fn what_the_api_says_of_a_login_is_written_and_its_secret_is_not_shown() {
    let gateway = Setup::new(&quick()).serve().await;
    let oauth = json!({
        "clientId": "me",
        "clientSecret": "canary",
        "authorizationUrl": "https://auth.example.com/authorize",
        "tokenUrl": "https://auth.example.com/token",
        "scopes": ["read", "write"],
    });
    let body = json!({ "name": "far", "url": "http://127.0.0.1:1/mcp", "oauth": oauth });
    let json_body = |http: Http, body: &Value| {
        http.header("Content-Type", "application/json")
            .body(body.to_string())
    };
    let made = json_body(api(&gateway, "POST", "/config"), &body)
        .send()
        .await;
    assert_eq!(made.status, 201, "{made:?}");
    let mut shown = oauth;
    shown["clientSecret"] = json!("[REDACTED]");
    let made = made.json().await;
    assert_eq!(made["oauth"], shown, "{made}");
    // What is sent back as it was read changes nothing.
    let path = format!("/config/{}", made["id"].as_str().unwrap());
    shown["scopes"] = json!(["read"]);
    let change = json!({ "oauth": shown });
    let changed = json_body(api(&gateway, "PUT", &path), &change).send().await;
    assert_eq!(changed.json().await["oauth"], shown);
    let file = std::fs::read_to_string(gateway.setup.path("config.toml")).unwrap();
    assert!(file.contains("client_secret = \"canary\""), "{file}");
}

#[tokio::test]
async fn a_server_of_http_and_sse_waits_for_a_login_too() {
    let server = HttpServer::start(Behaviour::default()).await;
    let _authority = Authority::of(&server).await;
    let times = "[servers.docs.supervision]\nconnect_timeout = \"200ms\"\n";
    let sse = format!("{}transport = \"sse\"\n{times}", server.config("docs"));
    let gateway = Setup::new(&format!("{}{sse}", quick())).serve().await;
    login_needed(&gateway).await;
    log_in(&gateway).await;
    // With the token it gets a stream, on which this server says nothing.
    until("the stream to be opened", || async {
        let view = gateway.server("docs").await;
        let why = view["connection"]["shared"]["last_exit"].as_str()?;
        why.contains("named no address").then_some(())
    })
    .await;
}
