//! Servers that are called with the sign-in of each user (`credentials = "user"`).

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::auth::{KEYS, with_key};
use crate::sessionless::modern_as;
use crate::support::login::{Continued, continue_from, follow, log_in, login_needed};
use crate::support::{
    Answer, Authority, Behaviour, Gateway, Http, HttpServer, Setup, answer_in, call_params,
    failure_of, initialize, quick, request, text_of, until,
};

pub(crate) const USER: &str = "credentials = \"user\"\n";

/// A server that wants a token of each user for calls, who gives it, and a gateway in front.
pub(crate) async fn for_users() -> (HttpServer, Authority, Gateway) {
    for_users_with(Behaviour {
        lists_openly: true,
        remembers: true,
        ..Behaviour::default()
    })
    .await
}

async fn for_users_with(behaviour: Behaviour) -> (HttpServer, Authority, Gateway) {
    let server = HttpServer::start(behaviour).await;
    let authority = Authority::of(&server).await;
    let config = format!("{}{KEYS}{}{USER}", quick(), server.config("docs"));
    let gateway = Setup::new(&config).serve().await;
    (server, authority, gateway)
}

/// A client with a session of one key or token.
pub(crate) struct User<'g> {
    gateway: &'g Gateway,
    key: &'g str,
    session: String,
}

impl<'g> User<'g> {
    pub(crate) async fn open(gateway: &'g Gateway, key: &'g str, capabilities: Value) -> Self {
        let body = initialize("2025-11-25", &capabilities).to_string();
        let answer = with_key(Http::post(gateway.address, body), key)
            .send()
            .await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let session = answer.header("mcp-session-id").unwrap().to_owned();
        Self {
            gateway,
            key,
            session,
        }
    }

    pub(crate) async fn ask(&self, id: u64, method: &str, params: Value) -> Value {
        let http = Http::post(
            self.gateway.address,
            request(id, method, params).to_string(),
        )
        .header("Mcp-Session-Id", &self.session)
        .header("MCP-Protocol-Version", "2025-11-25");
        answer_in(with_key(http, self.key).send().await).await
    }

    pub(crate) async fn call(&self, n: u64) -> Value {
        let params = call_params("docs__echo", json!({ "n": n }));
        self.ask(n, "tools/call", params).await
    }

    /// Signs in at the link that the model reads.
    pub(crate) async fn consent(&self, person: &str) {
        let answer = self.call(9000).await;
        let link = link_in(text_of(&answer["result"]));
        assert_eq!(sign_in(self.gateway, &link, person).await.status, 200);
    }
}

pub(crate) fn link_in(text: &str) -> String {
    let mut words = text.split_whitespace();
    let link = words.find(|word| word.starts_with("http://"));
    link.unwrap_or_else(|| panic!("{text}")).to_owned()
}

/// Opens a link as this person, who agrees; the answer of the callback, or of the link.
pub(crate) async fn sign_in(gateway: &Gateway, link: &str, person: &str) -> Answer {
    let Continued { page, cookie } = match continue_from(link).await {
        Ok(continued) => continued,
        Err(refused) => return refused,
    };
    let (_, callback) = follow(&format!("{page}&person={person}")).await;
    let callback = gateway.get(&callback);
    let cookie = cookie.unwrap_or_default();
    callback.header("Cookie", &cookie).send().await
}

/// With whose token the server was called, by the argument `n`.
pub(crate) fn callers(server: &HttpServer, authority: &Authority) -> Vec<(u64, String)> {
    let (behaviour, grants) = (server.behaviour(), authority.grants());
    let calls = behaviour.seen.iter();
    let calls = calls.filter(|(message, _)| message["method"] == "tools/call");
    let callers = calls.filter_map(|(message, headers)| {
        let token = headers["authorization"].strip_prefix("Bearer ").unwrap();
        let number = message["params"]["arguments"]["n"].as_u64()?;
        Some((number, grants.people[token].clone()))
    });
    callers.collect()
}

#[tokio::test]
async fn each_key_is_somebody_else_at_the_server_and_nobody_is_anybody() {
    let (server, authority, gateway) = for_users().await;
    gateway.wait_state("docs", "up").await;
    let first = User::open(&gateway, "first-key", json!({})).await;
    let second = User::open(&gateway, "second-key", json!({})).await;
    first.consent("ann").await;
    second.consent("bob").await;
    assert_eq!(authority.grants().registered, 1, "one client for all users");
    for chunk in (0..100).collect::<Vec<u64>>().chunks(50) {
        let calls = chunk.iter().map(|n| match n % 2 {
            0 => first.call(*n),
            _ => second.call(*n),
        });
        for answer in join_all(calls).await {
            assert_ne!(answer["result"]["isError"], true, "{answer}");
        }
    }
    let callers = callers(&server, &authority);
    assert_eq!(callers.len(), 100);
    for (n, person) in callers {
        assert_eq!(person, if n % 2 == 0 { "ann" } else { "bob" }, "{n}");
    }
    // The connection that reads lists for all has nobody's token.
    let tokens = |message: &Value| message["method"] != "tools/call";
    let behaviour = server.behaviour();
    let own = behaviour.seen.iter().filter(|(message, _)| tokens(message));
    assert!(
        own.clone()
            .any(|(_, headers)| !headers.contains_key("authorization"))
    );
}

#[tokio::test]
async fn a_link_is_shown_as_each_client_takes_it_and_is_good_once() {
    let (_server, _authority, gateway) = for_users().await;
    gateway.wait_state("docs", "up").await;
    // A client that knows nothing of pages: the model reads the link.
    let plain = User::open(&gateway, "first-key", json!({})).await;
    let answer = plain.call(1).await;
    let result = &answer["result"];
    assert_eq!(failure_of(result)["code"], "consent_required", "{answer}");
    let link = link_in(text_of(result));
    // Asked again, it is the same link, and another key's is another.
    assert_eq!(link_in(text_of(&plain.call(2).await["result"])), link);
    // 2025-11-25 with pages: the error that demands a visit.
    let asked = json!({"elicitation": {"url": {}}});
    let with_pages = User::open(&gateway, "second-key", asked.clone()).await;
    let error = with_pages.call(1).await["error"].clone();
    assert_eq!(error["code"], -32042, "{error}");
    let elicitation = &error["data"]["elicitations"][0];
    assert_eq!(elicitation["mode"], "url");
    assert!(elicitation["elicitationId"].is_string());
    let others = elicitation["url"].as_str().unwrap().to_owned();
    assert_ne!(others, link);
    // 2026-07-28: a question, after which the same request is sent again.
    let modern = |state: Option<&Value>| {
        let mut params = call_params("docs__echo", json!({"n": 3}));
        if let Some(state) = state {
            params["requestState"] = state["requestState"].clone();
            let keys = state["inputRequests"].as_object().unwrap().keys();
            let accepted = keys.map(|key| (key.clone(), json!({"action": "accept"})));
            params["inputResponses"] = Value::Object(accepted.collect());
        }
        let http = modern_as(&gateway, "m", "tools/call", params, asked.clone());
        with_key(http, "second-key").send()
    };
    let question = answer_in(modern(None).await).await["result"].clone();
    assert_eq!(question["resultType"], "input_required", "{question}");
    let requests = question["inputRequests"].as_object().unwrap();
    let shown = requests.values().next().unwrap()["params"]["url"]
        .as_str()
        .unwrap();
    assert_eq!(shown, others, "one user has one link");
    assert_eq!(sign_in(&gateway, shown, "bob").await.status, 200);
    let answer = answer_in(modern(Some(&question)).await).await;
    assert_eq!(text_of(&answer["result"]), "http {\"n\":3}", "{answer}");
    // It was used.
    assert_eq!(sign_in(&gateway, shown, "eve").await.status, 400);
    // The first user has not consented by that.
    assert_eq!(plain.call(4).await["result"]["isError"], true);
    let again = with_pages.call(5).await;
    assert_eq!(text_of(&again["result"]), "http {\"n\":5}", "{again}");
}

#[tokio::test]
async fn who_is_not_known_is_told_so() {
    let server = HttpServer::start(Behaviour {
        lists_openly: true,
        ..Behaviour::default()
    })
    .await;
    let _authority = Authority::of(&server).await;
    let config = format!("{}{}{USER}", quick(), server.config("docs"));
    let setup = Setup::new(&config);
    assert!(setup.run(&["check"]).1.contains("needs API keys"));
    let gateway = setup.serve().await;
    gateway.wait_state("docs", "up").await;
    let client = crate::support::Client::open(&gateway).await;
    let result = client.call("docs__echo", json!({})).await;
    assert_eq!(failure_of(&result)["code"], "consent_required", "{result}");
    assert!(text_of(&result).contains("needs an API key"), "{result}");
    assert!(server.behaviour().calls.is_empty());
}

#[tokio::test]
async fn lists_are_those_of_the_gateway_until_a_user_has_consented() {
    let (server, authority, gateway) = for_users_with(Behaviour {
        remembers: true,
        ..Behaviour::default()
    })
    .await;
    login_needed(&gateway).await;
    let user = User::open(&gateway, "first-key", json!({})).await;
    let listed = user.ask(1, "tools/list", json!({})).await;
    assert_eq!(listed["result"]["tools"], json!([]), "{listed}");
    // Whom an operator signs in sees the tools at once.
    let login = [
        "auth",
        "login",
        "docs",
        "--principal",
        "second",
        "--no-wait",
    ];
    let (good, page) = gateway.setup.run(&login);
    assert!(good, "{page}");
    assert_eq!(sign_in(&gateway, page.trim(), "bob").await.status, 200);
    let other = User::open(&gateway, "second-key", json!({})).await;
    let listed = other.ask(1, "tools/list", json!({})).await;
    assert_eq!(
        listed["result"]["tools"][0]["name"], "docs__echo",
        "{listed}"
    );
    assert_eq!(text_of(&other.call(1).await["result"]), "http {\"n\":1}");
    let listed = user.ask(2, "tools/list", json!({})).await;
    assert_eq!(listed["result"]["tools"], json!([]), "{listed}");
    // The sign-in of the gateway serves its lists, and no call.
    log_in(&gateway).await;
    gateway.wait_state("docs", "up").await;
    until("the tools", || async {
        let listed = user.ask(2, "tools/list", json!({})).await;
        let tools = listed["result"]["tools"].as_array()?.len();
        (tools > 0).then_some(())
    })
    .await;
    let answer = user.call(3).await;
    assert_eq!(failure_of(&answer["result"])["code"], "consent_required");
    assert_eq!(server.behaviour().calls.len(), 1);
    user.consent("ann").await;
    assert_eq!(text_of(&user.call(4).await["result"]), "http {\"n\":4}");
    assert_eq!(
        callers(&server, &authority),
        [(1, "bob".to_owned()), (4, "ann".to_owned())]
    );
}

#[tokio::test]
async fn a_consent_outlives_a_kill_and_ends_with_its_sign_in_or_its_key() {
    let (server, authority, mut gateway) = for_users().await;
    gateway.wait_state("docs", "up").await;
    User::open(&gateway, "first-key", json!({}))
        .await
        .consent("ann")
        .await;
    User::open(&gateway, "second-key", json!({}))
        .await
        .consent("bob")
        .await;
    gateway.kill();
    gateway.start_again().await;
    gateway.wait_state("docs", "up").await;
    let first = User::open(&gateway, "first-key", json!({})).await;
    let second = User::open(&gateway, "second-key", json!({})).await;
    assert_eq!(text_of(&first.call(1).await["result"]), "http {\"n\":1}");
    // A refused token is renewed; a sign-in that is over is asked for again, by the call itself.
    authority.expire_tokens();
    assert_eq!(text_of(&first.call(2).await["result"]), "http {\"n\":2}");
    authority.end_sign_ins();
    let answer = first.call(3).await;
    assert_eq!(
        failure_of(&answer["result"])["code"],
        "consent_required",
        "{answer}"
    );
    first.consent("ann").await;
    second.consent("bob").await;
    assert_eq!(text_of(&first.call(4).await["result"]), "http {\"n\":4}");
    // An operator forgets one of them.
    let forget = ["auth", "logout", "docs", "--principal", "first"];
    let (good, said) = gateway.setup.run(&forget);
    assert!(good && said.contains("logged out"), "{said}");
    let answer = first.call(5).await;
    assert_eq!(
        failure_of(&answer["result"])["code"],
        "consent_required",
        "{answer}"
    );
    assert_eq!(text_of(&second.call(6).await["result"]), "http {\"n\":6}");
    // With its key a user is gone, and what the gateway has of it.
    let revoked = authority.grants().revoked.len();
    let without = KEYS.split_once("[auth.keys.second]").unwrap().0;
    gateway.write_config(&format!(
        "{}{without}{}{USER}",
        quick(),
        server.config("docs")
    ));
    until("the token to be revoked", || async {
        (authority.grants().revoked.len() > revoked).then_some(())
    })
    .await;
    let kept = std::fs::read_dir(gateway.data_dir().join("credentials")).unwrap();
    let names = kept.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.starts_with("docs.")).count(), 0);
}

#[tokio::test]
async fn users_are_shown_by_name_and_their_secrets_nowhere() {
    let server = HttpServer::start(Behaviour {
        lists_openly: true,
        ..Behaviour::default()
    })
    .await;
    let authority = Authority::of(&server).await;
    let history = "[gateway]\ntree_resource = true\n[history]\nfile = true\nbodies = \"64KiB\"\n";
    let config = format!("{}{history}{KEYS}{}{USER}", quick(), server.config("docs"));
    let gateway = Setup::new(&config)
        .variable("RUST_LOG", "debug")
        .serve()
        .await;
    gateway.wait_state("docs", "up").await;
    let first = User::open(&gateway, "first-key", json!({})).await;
    let second = User::open(&gateway, "second-key", json!({"elicitation": {"url": {}}})).await;
    first.consent("ann").await;
    first.call(1).await;
    let asked = second.call(1).await;
    let page = asked["error"]["data"]["elicitations"][0]["url"]
        .as_str()
        .unwrap();
    let state = page.rsplit('/').next().unwrap();
    let (_, tree) = gateway.setup.run(&["status"]);
    assert!(tree.contains("second · needs consent"), "{tree}");
    assert!(tree.contains("first · up"), "{tree}");
    let (_, logins) = gateway.setup.run(&["auth", "status"]);
    assert!(logins.contains("docs for first  signed in"), "{logins}");
    assert!(
        logins.contains("`mcpvisor auth login docs --principal second`"),
        "{logins}"
    );
    // What clients see of the gateway does not name the others.
    let uri = json!({"uri": "mcpvisor://tree"});
    let read = first.ask(7, "resources/read", uri).await;
    let seen = read["result"]["contents"][0]["text"].as_str().unwrap();
    assert!(seen.contains("\"a user\""), "{seen}");
    assert!(
        !seen.contains("\"second\"") && !seen.contains("principal"),
        "{seen}"
    );
    let mut said = format!("{tree}{logins}{}", crate::logins::all_said(&gateway).await);
    said.push_str(&gateway.setup.run(&["history", "--json"]).1);
    assert!(said.contains("docs__echo"), "{said}");
    for secret in ["canary", state] {
        assert!(!said.contains(secret), "{secret} in {said}");
    }
    drop(authority);
}

#[tokio::test]
async fn more_users_than_connections_take_turns() {
    let server = HttpServer::start(Behaviour {
        lists_openly: true,
        ..Behaviour::default()
    })
    .await;
    let _authority = Authority::of(&server).await;
    let limit = "entries_max = 1\n";
    let config = format!("{}{KEYS}{}{USER}{limit}", quick(), server.config("docs"));
    let gateway = Setup::new(&config).serve().await;
    gateway.wait_state("docs", "up").await;
    let first = User::open(&gateway, "first-key", json!({})).await;
    let second = User::open(&gateway, "second-key", json!({})).await;
    for (user, person) in [(&first, "ann"), (&second, "bob")] {
        // Whoever came before makes room a moment later.
        until("a place", || async {
            let answer = user.call(1).await;
            let code = failure_of(&answer["result"])["code"].clone();
            (code == "consent_required").then_some(())
        })
        .await;
        user.consent(person).await;
    }
    until("a place", || async {
        let answer = first.call(2).await;
        (text_of(&answer["result"]) == "http {\"n\":2}").then_some(())
    })
    .await;
    let own = gateway.server("docs").await["connection"]["own"].clone();
    assert_eq!(own.as_array().unwrap().len(), 1, "{own}");
}

#[tokio::test]
async fn a_user_goes_with_no_other_sign_in() {
    let table = [
        (
            "headers = { Authorization = \"x\" }",
            "cannot be combined with",
        ),
        (
            "forward_headers = { A = \"Authorization\" }",
            "cannot be combined with",
        ),
        ("sharing = \"shared\"", "each user has separate connections"),
        (
            "[servers.s.oauth]\ngrant = \"client_credentials\"\nclient_id = \"a\"",
            "users do not sign in with this grant",
        ),
    ];
    for (with, expected) in table {
        let config = format!("[servers.s]\nurl = \"http://127.0.0.1:1/\"\n{USER}{with}\n");
        let (good, said) = Setup::new(&config).run(&["check"]);
        assert!(!good && said.contains(expected), "{with}: {said}");
    }
}
