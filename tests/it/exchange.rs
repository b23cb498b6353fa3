//! Servers that are called with a token in exchange for that of the client
//! (`grant = "token_exchange"`, RFC 8693).

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::auth::{KEYS, with_key};
use crate::sessionless::modern_as;
use crate::support::{
    Authority, Behaviour, Gateway, Http, HttpServer, Issuer, RESOURCE, Setup, answer_in,
    call_params, failure_of, initialize, quick, request, text_of, unix_seconds,
};

/// A server that takes tokens of one authorization server, a gateway that takes those of another, and
/// exchanges them.
struct Exchange {
    issuer: Issuer,
    server: HttpServer,
    authority: Authority,
    gateway: Gateway,
}

pub(crate) fn oauth(authority: &Authority) -> String {
    format!(
        "credentials = \"user\"\n[servers.docs.oauth]\ngrant = \"token_exchange\"\n\
         client_id = \"machine\"\nclient_secret = \"machine-secret\"\n\
         token_url = \"http://{}/token\"\n",
        authority.address
    )
}

impl Exchange {
    async fn start(behaviour: Behaviour) -> Self {
        let server = HttpServer::start(Behaviour {
            remembers: true,
            ..behaviour
        })
        .await;
        let (authority, issuer) = (Authority::of(&server).await, Issuer::start().await);
        let auth = format!("{}{KEYS}", issuer.config());
        let own = format!("{}{}", server.config("docs"), oauth(&authority));
        let setup = Setup::new(&format!("{}{auth}{own}", quick())).variable("RUST_LOG", "debug");
        let gateway = setup.serve().await;
        Self {
            issuer,
            server,
            authority,
            gateway,
        }
    }

    /// A call of a client without a session.
    async fn call(&self, token: &str, n: u64) -> Value {
        let params = call_params("docs__echo", json!({ "n": n }));
        let http = modern_as(&self.gateway, "1", "tools/call", params, json!({}));
        answer_in(with_key(http, token).send().await).await
    }

    /// A session of the client with this token, which has seen the lists.
    async fn session(&self, token: &str) -> (String, Value) {
        let body = initialize("2025-11-25", &json!({})).to_string();
        let opened = with_key(Http::post(self.gateway.address, body), token);
        let session = opened
            .send()
            .await
            .header("mcp-session-id")
            .unwrap()
            .to_owned();
        let listed = self
            .in_session(token, &session, "tools/list", json!({}))
            .await;
        (session, listed)
    }

    async fn in_session(&self, token: &str, session: &str, method: &str, params: Value) -> Value {
        let id = params["arguments"]["n"].as_u64().unwrap_or(1000);
        let http = Http::post(
            self.gateway.address,
            request(id, method, params).to_string(),
        )
        .header("Mcp-Session-Id", session)
        .header("MCP-Protocol-Version", "2025-11-25");
        answer_in(with_key(http, token).send().await).await
    }

    /// The token that the server took the call with this argument `n` with.
    fn token_of(&self, n: u64) -> String {
        let behaviour = self.server.behaviour();
        let mut seen = behaviour.seen.iter().rev();
        let call = seen.find(|(message, _)| message["params"]["arguments"]["n"] == n);
        call.unwrap().1["authorization"].clone()
    }

    /// Whose token the server was called with, by the argument `n`.
    fn callers(&self) -> Vec<(u64, String)> {
        let (behaviour, grants) = (self.server.behaviour(), self.authority.grants());
        let calls = behaviour.seen.iter();
        let calls = calls.filter(|(message, _)| message["method"] == "tools/call");
        let callers = calls.map(|(message, headers)| {
            let token = headers["authorization"].strip_prefix("Bearer ").unwrap();
            let number = message["params"]["arguments"]["n"].as_u64().unwrap();
            (number, grants.people[token].clone())
        });
        callers.collect()
    }
}

#[tokio::test]
async fn each_client_is_called_for_with_a_token_of_its_own_and_its_own_goes_nowhere() {
    let all = Exchange::start(Behaviour::default()).await;
    let tokens = ["ada", "eve"].map(|name| all.issuer.token(name, 600));
    // The server lists to nobody without a token, so the lists are those of each client, too.
    let (session, listed) = all.session(&tokens[0]).await;
    assert_eq!(
        listed["result"]["tools"][0]["name"], "docs__echo",
        "{listed}"
    );
    let calls = (0..100_u64).map(|n| {
        let (all, session, token) = (&all, &session, &tokens[usize::from(n % 2 == 1)]);
        async move {
            let params = call_params("docs__echo", json!({ "n": n }));
            let answer = match n % 4 {
                0 => all.in_session(token, session, "tools/call", params).await,
                _ => all.call(token, n).await,
            };
            assert!(answer["result"].is_object(), "{n}: {answer}");
            assert_eq!(text_of(&answer["result"]), format!("http {{\"n\":{n}}}"));
        }
    });
    join_all(calls).await;
    let callers = all.callers();
    assert_eq!(callers.len(), 100);
    for (n, person) in callers {
        assert_eq!(person, ["ada", "eve"][usize::from(n % 2 == 1)], "{n}");
    }
    let mut exchanged = all.authority.grants().exchanged.clone();
    exchanged.sort();
    let mut expected = tokens.to_vec();
    expected.sort();
    assert_eq!(exchanged, expected, "one exchange for all calls of each");
    // The client's own token is shown to the authorization server alone, and nothing is kept.
    let (good, status) = all.gateway.setup.run(&["auth", "status"]);
    assert!(
        good && status.contains("docs for ada  signed in"),
        "{status}"
    );
    let said = crate::logins::all_said(&all.gateway).await;
    assert!(said.contains("docs") && !said.contains("canary"), "{said}");
    let seen = format!("{:?}", all.server.behaviour().seen);
    for token in &tokens {
        assert!(!said.contains(token.as_str()) && !seen.contains(token.as_str()));
    }
}

#[tokio::test]
async fn the_newest_token_of_a_client_is_exchanged_when_the_server_takes_the_other_no_more() {
    let all = Exchange::start(Behaviour::default()).await;
    let [first, second] = [600, 900].map(|seconds| all.issuer.token("ada", seconds));
    for (n, token) in [(1, &first), (2, &second)] {
        let answer = all.call(token, n).await;
        assert_eq!(
            text_of(&answer["result"]),
            format!("http {{\"n\":{n}}}"),
            "{answer}"
        );
    }
    assert_eq!(all.authority.grants().exchanged, vec![first.clone()]);
    all.authority.expire_tokens();
    let calls = (3..23).map(|n| all.call(&first, n));
    for answer in join_all(calls).await {
        assert_ne!(answer["result"]["isError"], true, "{answer}");
    }
    assert_eq!(
        all.authority.grants().exchanged,
        [first.clone(), second.clone()]
    );
    // An operator may have it done now.
    let again = ["auth", "refresh", "docs", "--principal", "ada"];
    let (good, said) = all.gateway.setup.run(&again);
    assert!(good, "{said}");
    assert_eq!(all.authority.grants().exchanged.len(), 3);
    assert_eq!(
        text_of(&all.call(&second, 30).await["result"]),
        "http {\"n\":30}"
    );
}

#[tokio::test]
async fn a_call_goes_with_a_token_for_the_scopes_of_its_own_and_no_others() {
    let all = Exchange::start(Behaviour::default()).await;
    // The same scopes in another order are the same.
    let whole = all.issuer.token_with("ada", "mcp write", 600);
    let same = all.issuer.token_with("ada", "write mcp", 900);
    let less = all.issuer.token_with("ada", "mcp", 900);
    for (n, token) in [(1, &whole), (2, &less), (3, &same), (4, &less)] {
        let answer = all.call(token, n).await;
        let expected = format!("http {{\"n\":{n}}}");
        assert_eq!(text_of(&answer["result"]), expected, "{answer}");
    }
    let exchanged = || all.authority.grants().exchanged.clone();
    assert_eq!(exchanged(), [whole.clone(), less.clone()]);
    assert_eq!(all.token_of(1), all.token_of(3));
    assert_eq!(all.token_of(2), all.token_of(4));
    assert_ne!(all.token_of(1), all.token_of(2));
    // So it is when a token is replaced, and in a session.
    all.authority.expire_tokens();
    let answer = all.call(&less, 5).await;
    assert_ne!(answer["result"]["isError"], true, "{answer}");
    assert_eq!(exchanged().last(), Some(&less));
    let (session, _) = all.session(&same).await;
    for (n, token) in [(6, &less), (7, &same)] {
        let params = call_params("docs__echo", json!({ "n": n }));
        let answer = all.in_session(token, &session, "tools/call", params).await;
        assert_ne!(answer["result"]["isError"], true, "{answer}");
    }
    assert_eq!(all.token_of(5), all.token_of(6));
    assert_ne!(all.token_of(6), all.token_of(7));
    assert_eq!(exchanged().last(), Some(&same));
}

#[tokio::test]
async fn tokens_of_one_subject_with_other_roles_or_for_another_client_are_exchanged_apart() {
    let all = Exchange::start(Behaviour::default()).await;
    let token = |n: u64, role, client| {
        all.issuer.signed(&json!({
            "iss": all.issuer.url(),
            "aud": RESOURCE,
            "sub": "ada",
            "scope": "mcp",
            "roles": [role],
            "azp": client,
            "jti": n,
            "exp": unix_seconds() + 600 + n,
        }))
    };
    let [reader, admin, agent] = [
        token(1, "reader", "editor"),
        token(2, "admin", "editor"),
        token(3, "reader", "agent"),
    ];
    let renewed = token(4, "reader", "editor");
    let tokens = [&reader, &admin, &agent, &renewed];
    for (token, n) in tokens.into_iter().zip(1..) {
        let answer = all.call(token, n).await;
        assert_ne!(answer["result"]["isError"], true, "{answer}");
    }
    let exchanged = || all.authority.grants().exchanged.clone();
    assert_eq!(exchanged(), [reader, admin.clone(), agent.clone()]);
    let sent = [1, 2, 3].map(|n| all.token_of(n));
    assert!(sent[0] != sent[1] && sent[0] != sent[2] && sent[1] != sent[2]);
    assert_eq!(all.token_of(4), sent[0], "the same, only newer");
    all.authority.expire_tokens();
    for (token, n) in [(&admin, 5), (&renewed, 6)] {
        let answer = all.call(token, n).await;
        assert_ne!(answer["result"]["isError"], true, "{answer}");
        assert_eq!(exchanged().last(), Some(token));
    }
}

#[tokio::test]
async fn an_operator_orders_for_all_tokens_of_a_subject() {
    let all = Exchange::start(Behaviour::default()).await;
    let tokens = ["mcp", "mcp write"].map(|scope| all.issuer.token_with("ada", scope, 600));
    let eve = all.issuer.token("eve", 600);
    for (token, n) in tokens.iter().chain([&eve]).zip(1..) {
        let answer = all.call(token, n).await;
        assert_ne!(answer["result"]["isError"], true, "{answer}");
    }
    let ordered = |order| {
        let (good, said) = (all.gateway.setup).run(&["auth", order, "docs", "--principal", "ada"]);
        assert!(good, "{said}");
        said
    };
    let exchanged = || {
        let mut exchanged = all.authority.grants().exchanged.split_off(0);
        exchanged.sort();
        exchanged
    };
    let mut both = tokens.to_vec();
    both.sort();
    exchanged();
    assert!(ordered("refresh").contains("renewed"));
    assert_eq!(exchanged(), both);
    assert!(ordered("logout").contains("logged out"));
    let (_, status) = all.gateway.setup.run(&["auth", "status"]);
    assert!(
        !status.contains("ada") && status.contains("eve"),
        "{status}"
    );
    assert!(ordered("logout").contains("there was no login"));
    // Then their next calls get new ones.
    for (token, n) in tokens.iter().chain([&eve]).zip(11..) {
        let answer = all.call(token, n).await;
        assert_ne!(answer["result"]["isError"], true, "{answer}");
    }
    assert_eq!(exchanged(), both);
}

#[tokio::test]
async fn a_token_that_is_not_exchanged_is_answered_with_the_reason_and_another_is_tried_at_once() {
    // Whether the server would serve anybody, or nobody without a token.
    for lists_openly in [false, true] {
        let all = Exchange::start(Behaviour {
            lists_openly,
            ..Behaviour::default()
        })
        .await;
        if lists_openly {
            all.server.behaviour().challenge = None;
        }
        all.authority.grants().no_exchange = Some("invalid_target");
        let token = all.issuer.token("ada", 600);
        for n in 0..3 {
            let answer = all.call(&token, n).await;
            let result = &answer["result"];
            assert_eq!(result["isError"], true, "{answer}");
            assert_eq!(failure_of(result)["code"], "consent_required");
            let text = text_of(result);
            assert!(
                text.contains("refused: invalid_target") && !text.contains("http"),
                "{text}"
            );
        }
        assert_eq!(all.authority.grants().exchanged.len(), 1, "asked once");
        assert!(all.server.behaviour().calls.is_empty());
        let (_, status) = all.gateway.setup.run(&["status"]);
        assert!(status.contains("ada · needs token"), "{status}");
        let (_, logins) = all.gateway.setup.run(&["auth", "status"]);
        assert!(logins.contains("docs for ada  needs token"), "{logins}");
        all.authority.grants().no_exchange = None;
        let another = all.issuer.token("ada", 900);
        let answer = all.call(&another, 5).await;
        assert_eq!(text_of(&answer["result"]), "http {\"n\":5}", "{answer}");
        assert_eq!(all.callers(), [(5, "ada".to_owned())]);
    }
}

#[tokio::test]
async fn who_has_nothing_to_exchange_is_answered_so() {
    let all = Exchange::start(Behaviour::default()).await;
    let (session, _) = all.session("first-key").await;
    let params = call_params("docs__echo", json!({ "n": 1 }));
    let answer = all.in_session("first-key", &session, "tools/call", params);
    let answer = answer.await;
    let said = answer.to_string();
    assert!(said.contains("an API key cannot be exchanged"), "{said}");
    assert!(all.server.behaviour().calls.is_empty());
    let login = ["auth", "login", "docs", "--no-wait"];
    let (good, said) = all.gateway.setup.run(&login);
    assert!(!good && said.contains("no login needed"), "{said}");
}

#[tokio::test]
async fn only_a_configured_authorization_server_is_shown_the_tokens_of_clients() {
    let grant = "[servers.s.oauth]\ngrant = \"token_exchange\"\n";
    let client = "client_id = \"a\"\n";
    let to = "token_url = \"https://as.example/token\"\n";
    let user = "credentials = \"user\"\n";
    let table = [
        (
            format!("{user}{grant}{client}"),
            "could choose where client tokens are sent",
        ),
        (
            format!("{user}{grant}{to}"),
            "needs `servers.s.oauth.client_id`",
        ),
        (
            format!("{grant}{client}{to}"),
            "needs `servers.s.credentials = \"user\"`",
        ),
        (
            format!("{user}transport = \"sse\"\n{grant}{client}{to}"),
            "HTTP+SSE",
        ),
    ];
    for (with, expected) in table {
        let config = format!("[servers.s]\nurl = \"http://127.0.0.1:1/\"\n{with}");
        let (good, said) = Setup::new(&config).run(&["check"]);
        assert!(!good && said.contains(expected), "{with}: {said}");
    }
    let config = format!("[servers.s]\nurl = \"http://127.0.0.1:1/\"\n{user}{grant}{client}{to}");
    let (good, said) = Setup::new(&config).run(&["check"]);
    assert!(good && said.contains("needs clients with tokens"), "{said}");
}
