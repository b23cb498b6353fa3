//! Servers that read in headers whose call it is (`user_headers`).

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::auth::{KEYS, with_key};
use crate::sessionless::modern_as;
use crate::support::{
    Behaviour, Gateway, Http, HttpServer, Issuer, RESOURCE, Setup, answer_in, call_params,
    failure_of, initialize, quick, request, text_of, unix_seconds,
};

const HEADERS: &str = "user_headers = { X-User = \"sub\", X-Team = \"claims.org.team\" }\n";

/// A server, and a gateway with the tokens of an issuer in front.
struct Front {
    issuer: Issuer,
    server: HttpServer,
    gateway: Gateway,
}

impl Front {
    /// `auth` is that of a gateway with tokens of the issuer.
    async fn start(modern: bool, auth: fn(&Issuer) -> String, headers: &str) -> Self {
        let server = HttpServer::start(Behaviour {
            remembers: true,
            modern,
            ..Behaviour::default()
        })
        .await;
        let issuer = Issuer::start().await;
        let history = "[history]\nfile = true\nbodies = \"64KiB\"\n";
        let own = format!("{}{headers}", server.config("docs"));
        let config = format!("{}{history}{}{own}", quick(), auth(&issuer));
        let setup = Setup::new(&config).variable("RUST_LOG", "debug");
        let gateway = setup.serve().await;
        gateway.wait_state("docs", "up").await;
        Self {
            issuer,
            server,
            gateway,
        }
    }

    /// A token of this subject with these claims besides.
    fn token(&self, subject: &str, mut claims: Value) -> String {
        claims["iss"] = json!(self.issuer.url());
        claims["aud"] = json!(RESOURCE);
        claims["sub"] = json!(subject);
        claims["scope"] = json!("mcp");
        claims["exp"] = json!(unix_seconds() + 600);
        self.issuer.signed(&claims)
    }

    fn sessionless(&self, token: &str, n: u64) -> Http {
        let params = call_params("docs__echo", json!({ "n": n }));
        let http = modern_as(&self.gateway, "1", "tools/call", params, json!({}));
        with_key(http, token)
    }

    /// A call of a client without a session.
    async fn call(&self, token: &str, n: u64) -> Value {
        answer_in(self.sessionless(token, n).send().await).await
    }

    async fn session(&self, token: &str) -> String {
        let body = initialize("2025-11-25", &json!({})).to_string();
        let opened = with_key(Http::post(self.gateway.address, body), token);
        let answer = opened.send().await;
        answer.header("mcp-session-id").unwrap().to_owned()
    }

    fn in_session(&self, token: &str, session: &str, n: u64) -> Http {
        let params = call_params("docs__echo", json!({ "n": n }));
        let body = request(n, "tools/call", params).to_string();
        let http = Http::post(self.gateway.address, body)
            .header("Mcp-Session-Id", session)
            .header("MCP-Protocol-Version", "2025-11-25");
        with_key(http, token)
    }

    /// The calls that the server read: the argument `n` of each, and the values of both headers.
    fn calls(&self) -> Vec<(u64, [Option<String>; 2])> {
        let behaviour = self.server.behaviour();
        let calls = behaviour.seen.iter();
        let calls = calls.filter(|(message, _)| message["method"] == "tools/call");
        let mut calls: Vec<_> = calls
            .map(|(message, headers)| {
                let number = message["params"]["arguments"]["n"].as_u64().unwrap();
                let read = ["x-user", "x-team"].map(|name| headers.get(name).cloned());
                (number, read)
            })
            .collect();
        calls.sort();
        calls
    }
}

fn read(n: u64, user: &str, team: &str) -> (u64, [Option<String>; 2]) {
    (n, [user, team].map(|value| Some(value.to_owned())))
}

/// A tool call that was refused, for a reason that names the claim and the header.
#[track_caller]
fn assert_refused(answer: &Value, claim: &str, header: &str) {
    let result = &answer["result"];
    assert_eq!(result["isError"], true, "{answer}");
    assert_eq!(failure_of(result)["code"], "policy_denied", "{answer}");
    let text = text_of(result);
    let names = format!("requires each client's `{claim}` in the header `{header}`");
    assert!(
        text.contains(&names) && text.contains("was not sent"),
        "{text}"
    );
}

#[tokio::test]
async fn each_call_says_whose_it_is_on_connections_that_all_share() {
    for modern in [false, true] {
        let front = Front::start(modern, Issuer::config, HEADERS).await;
        let people = [("canary-ada", "canary-red"), ("canary-eve", "canary-blue")];
        let tokens =
            people.map(|(name, team)| front.token(name, json!({ "org": { "team": team } })));
        let sessions = [
            front.session(&tokens[0]).await,
            front.session(&tokens[1]).await,
        ];
        let calls = (0..100_u64).map(|n| {
            let who = usize::from(n % 2 == 1);
            let (front, token, session) = (&front, &tokens[who], &sessions[who]);
            async move {
                let http = match n % 4 {
                    0 | 1 => front.in_session(token, session, n),
                    _ => front.sessionless(token, n),
                };
                // What a client says of itself does not count.
                let http = http.header("X-User", "mallory").header("X-Team", "root");
                let answer = answer_in(http.send().await).await;
                assert_eq!(text_of(&answer["result"]), format!("http {{\"n\":{n}}}"));
            }
        });
        join_all(calls).await;
        let expected: Vec<_> = (0..100_u64)
            .map(|n| (n, people[usize::from(n % 2 == 1)]))
            .map(|(n, (name, team))| read(n, name, team))
            .collect();
        assert_eq!(front.calls(), expected);
        for (message, headers) in &front.server.behaviour().seen {
            let said = format!("{headers:?}");
            let is_call = message["method"] == "tools/call";
            assert_eq!(said.contains("canary"), is_call, "{message}: {said}");
            assert!(!said.contains("mallory") && !said.contains("authorization"));
        }
        // Teams are said to the server alone.
        let mut said = front.gateway.log();
        for command in [
            &["history", "--json"][..],
            &["status", "--json"],
            &["servers", "headers", "docs"],
        ] {
            said.push_str(&front.gateway.setup.run(command).1);
        }
        assert!(
            said.contains("docs__echo")
                && said.contains("X-Team: ***  (`claims.org.team` of the caller"),
            "{said}"
        );
        assert!(
            !said.contains("canary-red") && !said.contains("canary-blue"),
            "{said}"
        );
    }
}

#[tokio::test]
async fn whose_credentials_do_not_say_it_is_refused_and_nothing_is_sent() {
    let auth = |issuer: &Issuer| format!("{}{KEYS}", issuer.config());
    let front = Front::start(false, auth, HEADERS).await;
    let good = front.token("ada", json!({ "org": { "team": "red" } }));
    let session = front.session(&good).await;
    for claims in [
        json!({}),
        json!({ "team": "red" }),
        json!({ "org": { "team": null } }),
        json!({ "org": { "team": "" } }),
        json!({ "org": { "team": { "name": "red" } } }),
        json!({ "org": { "team": "canary\r\nX-User: root" } }),
        json!({ "org": { "team": "canary\u{0}" } }),
        json!({ "org": { "team": "canary-\u{e9}" } }),
        json!({ "org": { "team": "canary".repeat(200) } }),
        json!({ "org": { "team": ["canary,red"] } }),
    ] {
        let token = front.token("ada", claims);
        // The session, and the connection that others use, change nothing.
        for http in [
            front.sessionless(&token, 1),
            front.in_session(&token, &session, 1),
        ] {
            let answer = answer_in(http.send().await).await;
            assert_refused(&answer, "claims.org.team", "X-Team");
            assert!(!answer.to_string().contains("canary"), "{answer}");
        }
    }
    let nobody = front.token("\u{e4}da", json!({ "org": { "team": "red" } }));
    assert_refused(&front.call(&nobody, 1).await, "sub", "X-User");
    assert_refused(
        &front.call("first-key", 1).await,
        "claims.org.team",
        "X-Team",
    );
    assert_eq!(front.calls(), []);
    let answer = front.call(&good, 2).await;
    assert_eq!(text_of(&answer["result"]), "http {\"n\":2}");
    assert_eq!(front.calls(), [read(2, "ada", "red")]);
    // The operator's own call is nobody's.
    let own = ["tools", "call", "docs__echo", "n=3"];
    let (good, said) = front.gateway.setup.run(&own);
    assert!(
        !good && said.contains("requires each client's `sub`"),
        "{said}"
    );
    assert_eq!(front.calls().len(), 1);
}

#[tokio::test]
async fn what_a_webhook_or_introspection_answers_becomes_headers() {
    let table: [fn(&Issuer) -> String; 2] = [
        |issuer| issuer.webhook("1m"),
        |issuer| issuer.introspecting("1m"),
    ];
    for auth in table {
        let front = Front::start(false, auth, HEADERS).await;
        for (token, sub, team) in [
            ("one", "ada", json!("red")),
            ("two", "eve", json!(["a", "b"])),
            ("three", "bob", Value::Null),
        ] {
            let answer = json!({
                "active": true, "sub": sub, "aud": RESOURCE, "scope": "mcp", "org": { "team": team }
            });
            front.issuer.answer(token, 200, answer);
        }
        let calls = [(1, "one"), (2, "two"), (3, "three"), (4, "one")];
        let answers = join_all(calls.map(|(n, token)| front.call(token, n))).await;
        assert_refused(&answers[2], "claims.org.team", "X-Team");
        let expected = [
            read(1, "ada", "red"),
            read(2, "eve", "a,b"),
            read(4, "ada", "red"),
        ];
        assert_eq!(front.calls(), expected);
    }
}

#[tokio::test]
async fn a_header_that_is_added_counts_at_once_for_tokens_that_are_known() {
    let front = Front::start(false, Issuer::config, "").await;
    let token = front.token("ada", json!({ "org": { "team": "red" } }));
    front.call(&token, 1).await;
    assert_eq!(front.calls(), [(1, [None, None])]);
    let file = front.gateway.setup.path("config.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    let new = front.gateway.setup.path("new.toml");
    std::fs::write(&new, format!("{config}{HEADERS}")).unwrap();
    let (good, said) = front.gateway.setup.run(&["apply", "new.toml"]);
    assert!(good, "{said}");
    front.gateway.wait_state("docs", "up").await;
    let answer = front.call(&token, 2).await;
    assert_eq!(text_of(&answer["result"]), "http {\"n\":2}", "{answer}");
    assert_eq!(front.calls()[1], read(2, "ada", "red"));
}

#[tokio::test]
async fn headers_that_cannot_be_kept_apart_are_refused() {
    let url = "url = \"http://h/\"\n";
    let table = [
        (
            "command = \"x\"\nuser_headers = { A = \"sub\" }",
            "cannot be combined with `command`",
        ),
        (
            "url = \"http://h/\"\ntransport = \"sse\"\nuser_headers = { A = \"sub\" }",
            "cannot be combined with HTTP+SSE",
        ),
        (
            "url = \"http://h/\"\nheaders = { a = \"1\" }\nuser_headers = { A = \"sub\" }",
            "both send `A`",
        ),
        (
            "url = \"http://h/\"\nforward_headers = { X = \"a\" }\nuser_headers = { A = \"sub\" }",
            "both send `A`",
        ),
        (
            "url = \"http://h/\"\nuser_headers = { authorization = \"sub\" }",
            "which is reserved for tokens",
        ),
        (
            "url = \"http://h/\"\nuser_headers = { Mcp-Name = \"sub\" }",
            "reserved by the protocol",
        ),
        (
            "url = \"http://h/\"\nuser_headers = { Host = \"sub\" }",
            "the gateway sets this header itself",
        ),
        (
            "url = \"http://h/\"\nuser_headers = { A = \"sub\", a = \"sub\" }",
            "header names are case-insensitive",
        ),
        (
            "url = \"http://h/\"\nuser_headers = { A = \"team\" }",
            "`servers.s.user_headers.A` must be \"sub\", or \"claims.NAME\"",
        ),
        (
            "url = \"http://h/\"\nuser_headers = { A = \"claims.\" }",
            "must be \"sub\", or \"claims.NAME\"",
        ),
    ];
    for (server, expected) in table {
        let (good, said) = Setup::new(&format!("[servers.s]\n{server}\n")).run(&["check"]);
        assert!(!good && said.contains(expected), "{server}: {said}");
    }
    let many: Vec<String> = (0..17).map(|n| format!("X-{n} = \"sub\"")).collect();
    let many = format!(
        "[servers.s]\n{url}user_headers = {{ {} }}\n",
        many.join(", ")
    );
    let (good, said) = Setup::new(&many).run(&["check"]);
    assert!(!good && said.contains("at most 16 headers"), "{said}");
}

#[tokio::test]
async fn headers_that_nobody_says_or_that_mean_two_people_are_named() {
    let tokens =
        "[auth]\nresource = \"https://g.test/mcp\"\njwt = { issuer = \"https://as.test\" }\n";
    let both = format!("{tokens}{KEYS}");
    let hook = format!("{tokens}webhook = {{ url = \"https://hook.test\" }}\n");
    for (auth, headers, expected) in [
        ("", "A = \"sub\"", Some("needs API keys or tokens")),
        (KEYS, "A = \"sub\"", None),
        (KEYS, "A = \"claims.a\"", Some("needs clients with tokens")),
        (tokens, "A = \"sub\", B = \"claims.a\"", None),
        (&both, "A = \"sub\"", Some("no two users share a name")),
        (
            &hook,
            "A = \"sub\"",
            Some("two issuers can use the same subject for different people"),
        ),
        (&hook, "A = \"claims.a\"", None),
    ] {
        let server = "[servers.s]\nurl = \"http://h/\"\n";
        let config = format!("{auth}{server}user_headers = {{ {headers} }}\n");
        let (good, said) = Setup::new(&config).run(&["check"]);
        assert!(good, "{said}");
        match expected {
            Some(expected) => assert!(said.contains(expected), "{headers}: {said}"),
            None => assert!(!said.contains("user_headers"), "{headers}: {said}"),
        }
    }
}
