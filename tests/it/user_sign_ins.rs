//! Users who sign in to a server once more, and how operators name them.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::json;

use crate::auth::KEYS;
use crate::support::login::{log_in, login_needed, protected};
use crate::support::{
    Authority, Behaviour, Client, Gateway, HttpServer, Issuer, Setup, call_params, failure_of,
    quick, text_of, until,
};
use crate::users::{USER, User, callers, for_users, sign_in};

#[tokio::test]
async fn whoever_signs_in_once_more_has_a_new_session_at_the_server() {
    let (server, authority, gateway) = for_users().await;
    gateway.wait_state("docs", "up").await;
    let user = User::open(&gateway, "first-key", json!({"elicitation": {}})).await;
    let other = User::open(&gateway, "second-key", json!({})).await;
    user.consent("ann").await;
    other.consent("eve").await;
    for (user, n) in [(&user, 1), (&other, 2)] {
        let answer = user.call(n).await;
        assert_eq!(text_of(&answer["result"]), format!("http {{\"n\":{n}}}"));
    }
    // Another token of the same sign-in changes nothing.
    authority.expire_tokens();
    assert_eq!(text_of(&user.call(3).await["result"]), "http {\"n\":3}");
    assert_eq!(session_of(&server, 3), session_of(&server, 1));
    // A call is under way while somebody else signs in with the same key.
    let asked = call_params("docs__ask", json!({ "question": "?", "n": 4 }));
    let under_way = user.ask(4, "tools/call", asked);
    let meanwhile = async {
        until("the call", || async {
            (!server.behaviour().questions.is_empty()).then_some(())
        })
        .await;
        let login = ["auth", "login", "docs", "--principal", "first", "--no-wait"];
        let (good, page) = gateway.setup.run(&login);
        assert!(good, "{page}");
        assert_eq!(sign_in(&gateway, page.trim(), "bob").await.status, 200);
        assert_eq!(text_of(&user.call(5).await["result"]), "http {\"n\":5}");
        let (_, asked) = server.behaviour().questions.drain().next().unwrap();
        asked.send(json!("an answer")).unwrap();
    };
    let (answer, ()) = tokio::join!(under_way, meanwhile);
    assert_eq!(text_of(&answer["result"]), "\"an answer\"", "{answer}");
    let (former, new) = (session_of(&server, 1), session_of(&server, 5));
    assert_eq!(session_of(&server, 4), former);
    assert_ne!(new, former);
    assert_eq!(text_of(&other.call(6).await["result"]), "http {\"n\":6}");
    assert_eq!(session_of(&server, 6), session_of(&server, 2));
    let people = callers(&server, &authority);
    let of_five = people.iter().find(|(n, _)| *n == 5).unwrap();
    assert_eq!(of_five.1, "bob");
    until("the former session to end", || async {
        (server.behaviour().deleted > 0).then_some(())
    })
    .await;
}

/// In which session the server got the call with this argument `n`.
fn session_of(server: &HttpServer, n: u64) -> String {
    let behaviour = server.behaviour();
    let mut seen = behaviour.seen.iter();
    let call = seen.find(|(message, headers)| {
        message["params"]["arguments"]["n"] == n && headers.contains_key("authorization")
    });
    call.unwrap().1["mcp-session-id"].clone()
}

/// A gateway whose clients have keys, or tokens of the issuer, and sign in at the server themselves.
async fn with_keys_and_tokens(server: &HttpServer, issuer: &Issuer) -> Gateway {
    let auth = format!("{}{KEYS}", issuer.config());
    let config = format!("{}{auth}{}{USER}", quick(), server.config("docs"));
    Setup::new(&config).serve().await
}

#[tokio::test]
async fn the_name_of_a_key_is_that_of_its_user_also_where_a_subject_has_it() {
    let server = HttpServer::start(Behaviour {
        remembers: true,
        ..Behaviour::default()
    })
    .await;
    let (authority, issuer) = (Authority::of(&server).await, Issuer::start().await);
    let gateway = with_keys_and_tokens(&server, &issuer).await;
    login_needed(&gateway).await;
    log_in(&gateway).await;
    gateway.wait_state("docs", "up").await;
    let token = issuer.token("first", 600);
    let subject = User::open(&gateway, &token, json!({})).await;
    subject.consent("a-subject").await;
    let whole = format!("{} first", issuer.url());
    let of_principal = |order: &'static str, name: &str| {
        let arguments = ["auth", order, "docs", "--principal", name];
        let no_wait: &[&str] = if order == "login" {
            &["--no-wait"]
        } else {
            &[]
        };
        let (good, said) = gateway.setup.run(&[&arguments, no_wait].concat());
        assert!(good, "{said}");
        said.trim().to_owned()
    };
    // The user of the key has not come yet.
    let page = of_principal("login", "first");
    assert_eq!(sign_in(&gateway, &page, "a-key").await.status, 200);
    let key = User::open(&gateway, "first-key", json!({})).await;
    for (user, n) in [(&key, 1), (&subject, 2)] {
        let answer = user.call(n).await;
        assert_eq!(text_of(&answer["result"]), format!("http {{\"n\":{n}}}"));
    }
    let people = [(1, "a-key".to_owned()), (2, "a-subject".to_owned())];
    assert_eq!(callers(&server, &authority), people);
    assert!(of_principal("logout", "first").contains("logged out"));
    let answer = key.call(3).await;
    assert_eq!(failure_of(&answer["result"])["code"], "consent_required");
    let answer = subject.call(4).await;
    assert_eq!(text_of(&answer["result"]), "http {\"n\":4}", "{answer}");
    assert!(of_principal("logout", &whole).contains("logged out"));
    let answer = subject.call(5).await;
    assert_eq!(failure_of(&answer["result"])["code"], "consent_required");
}

#[tokio::test]
async fn the_command_line_waits_for_the_one_whom_it_names() {
    let server = HttpServer::start(Behaviour {
        lists_openly: true,
        remembers: true,
        ..Behaviour::default()
    })
    .await;
    let (authority, issuer) = (Authority::of(&server).await, Issuer::start().await);
    let gateway = with_keys_and_tokens(&server, &issuer).await;
    gateway.wait_state("docs", "up").await;
    // A subject with the name of a key, which signs in first.
    let token = issuer.token("first", 600);
    let subject = User::open(&gateway, &token, json!({})).await;
    let key = User::open(&gateway, "first-key", json!({})).await;
    subject.consent("a-subject").await;
    key.consent("a-key").await;
    let whole = format!("{} first", issuer.url());
    for (name, user, person) in [("first", &key, "ann"), (&whole, &subject, "bob")] {
        let forget = ["auth", "logout", "docs", "--principal", name];
        assert!(gateway.setup.run(&forget).1.contains("logged out"));
        let login = ["auth", "login", "docs", "--no-browser", "--principal", name];
        let mut waiting = gateway.setup.command(&login);
        waiting.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut waiting = waiting.spawn().unwrap();
        let mut said = BufReader::new(waiting.stdout.take().unwrap());
        let mut page = String::new();
        said.read_line(&mut page).unwrap();
        assert_eq!(sign_in(&gateway, page.trim(), person).await.status, 200);
        let ended = until("the command to end", || {
            let status = waiting.try_wait().unwrap();
            async move { status }
        });
        assert!(ended.await.success(), "{name}");
        let answer = user.call(1).await;
        assert_eq!(text_of(&answer["result"]), "http {\"n\":1}", "{answer}");
    }
    let people = callers(&server, &authority);
    let people: Vec<&str> = people.iter().map(|(_, person)| &**person).collect();
    assert_eq!(people, ["ann", "bob"]);
}

#[tokio::test]
async fn after_a_restart_whoever_is_signed_in_may_sign_in_once_more() {
    let server = HttpServer::start(Behaviour {
        remembers: true,
        ..Behaviour::default()
    })
    .await;
    // Where its authorization server is, this server says only when it refuses a request.
    let authority = Authority::of(&server).await;
    let config = format!("{}{KEYS}{}{USER}", quick(), server.config("docs"));
    let mut gateway = Setup::new(&config).serve().await;
    login_needed(&gateway).await;
    log_in(&gateway).await;
    gateway.wait_state("docs", "up").await;
    let user = User::open(&gateway, "first-key", json!({})).await;
    user.consent("ann").await;
    gateway.kill();
    gateway.start_again().await;
    gateway.wait_state("docs", "up").await;
    assert_eq!(log_in(&gateway).await.status, 200);
    // So may who was signed in as a user, and one who comes for the first time.
    for (name, person) in [("first", "eve"), ("second", "bob")] {
        let login = ["auth", "login", "docs", "--no-wait", "--principal", name];
        let (good, page) = gateway.setup.run(&login);
        assert!(good, "{page}");
        assert_eq!(sign_in(&gateway, page.trim(), person).await.status, 200);
    }
    for (key, n) in [("first-key", 1), ("second-key", 2)] {
        let user = User::open(&gateway, key, json!({})).await;
        let answer = user.call(n).await;
        assert_eq!(text_of(&answer["result"]), format!("http {{\"n\":{n}}}"));
    }
    let people = callers(&server, &authority);
    assert_eq!(people, [(1, "eve".to_owned()), (2, "bob".to_owned())]);
}

#[tokio::test]
async fn a_refusal_that_does_not_name_the_metadata_ends_no_sign_in() {
    let (server, authority, gateway) = protected().await;
    login_needed(&gateway).await;
    log_in(&gateway).await;
    gateway.wait_state("docs", "up").await;
    let client = Client::open(&gateway).await;
    server.behaviour().challenge = Some("Bearer error=\"invalid_token\"".to_owned());
    authority.expire_tokens();
    let result = client.call("docs__echo", json!({})).await;
    assert_ne!(result["isError"], true, "{result}");
    assert_eq!(authority.grants().refreshed, 1);
}

#[tokio::test]
async fn a_server_may_name_several_schemes_each_in_a_header_of_its_own() {
    let server = HttpServer::start(Behaviour::default()).await;
    let _authority = Authority::of(&server).await;
    let bearer = server.behaviour().challenge.take().unwrap();
    server.behaviour().challenge = Some(format!("Basic realm=\"docs\"\n{bearer}"));
    let config = format!("{}{}", quick(), server.config("docs"));
    let gateway = Setup::new(&config).serve().await;
    login_needed(&gateway).await;
    log_in(&gateway).await;
    gateway.wait_state("docs", "up").await;
}

#[tokio::test]
async fn a_secret_that_is_replaced_in_the_configuration_renews_the_tokens_that_are_there() {
    let server = HttpServer::start(Behaviour::default()).await;
    let authority = Authority::of(&server).await;
    authority.grants().clients.insert("machine".to_owned());
    authority.grants().machine_secret = Some("first");
    let with = |secret: &str| {
        let client = format!("client_id = \"machine\"\nclient_secret = \"{secret}\"\n");
        let own = server.config("docs");
        format!("{}{own}[servers.docs.oauth]\n{client}", quick())
    };
    let gateway = Setup::new(&with("first")).serve().await;
    login_needed(&gateway).await;
    log_in(&gateway).await;
    gateway.wait_state("docs", "up").await;
    authority.grants().machine_secret = Some("second");
    gateway.write_config(&with("second"));
    authority.expire_tokens();
    let client = Client::open(&gateway).await;
    let call = json!({ "name": "docs__echo", "arguments": {} });
    until("the token to be renewed", || async {
        // The server that was changed may not be back: then there is no such tool.
        let answer = client.ask("tools/call", call.clone()).await;
        (answer["result"].is_object() && answer["result"]["isError"] != true).then_some(())
    })
    .await;
    assert_eq!(authority.grants().refreshed, 1);
}
