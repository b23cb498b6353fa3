//! Policies: what which principal may use.

use serde_json::{Value, json};

use crate::api::get;
use crate::auth::{KEYS, with_key};
use crate::legacy_sse::SseClient;
use crate::sessionless::modern_as;
use crate::support::{
    Behaviour, Gateway, Http, HttpServer, INITIALIZE, Issuer, Setup, answer_in, call_params,
    example, failure_of, names, quick, request, text_of, until,
};

/// A server, two keys, a history, and these rules.
fn config(rules: &str) -> String {
    let history = "[history]\nfile = true\n";
    format!("{}{}{KEYS}{history}{rules}", quick(), example("one"))
}

const RULES: &str = r#"
[policies.first-may-all]
when = 'principal.issuer == "key" && principal.name == "first"'
effect = "allow"
[policies.nothing-destructive]
when = 'tool.annotations.destructiveHint'
[policies.no-sums]
when = 'server == "one" && tool.name in ["add", "slow"]'
[policies.no-about]
when = 'method == "resources/read" && item.endsWith("about")'
"#;

/// A session of a key.
struct Holder<'g> {
    gateway: &'g Gateway,
    key: &'g str,
    session: String,
}

impl<'g> Holder<'g> {
    async fn open(gateway: &'g Gateway, key: &'g str) -> Self {
        let answer = with_key(Http::post(gateway.address, INITIALIZE), key);
        let answer = answer.send().await;
        let session = answer.header("mcp-session-id").unwrap().to_owned();
        Self {
            gateway,
            key,
            session,
        }
    }

    async fn ask(&self, method: &str, params: Value) -> Value {
        let body = request(1, method, params).to_string();
        let http = with_key(Http::post(self.gateway.address, body), self.key);
        answer_in(http.header("Mcp-Session-Id", &self.session).send().await).await
    }

    async fn tools(&self) -> Vec<String> {
        let list = self.ask("tools/list", json!({})).await;
        let names = names(&list["result"]["tools"]);
        names.into_iter().map(str::to_owned).collect()
    }

    async fn call(&self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", call_params(tool, arguments)).await
    }
}

fn has(names: &[String], name: &str) -> bool {
    names.iter().any(|known| known == name)
}

#[tokio::test]
async fn each_principal_sees_and_calls_what_the_first_rule_that_holds_allows() {
    let gateway = Gateway::start(&config(RULES)).await;
    let first = Holder::open(&gateway, "first-key").await;
    let second = Holder::open(&gateway, "second-key").await;
    let (all, some) = (first.tools().await, second.tools().await);
    for hidden in ["one__add", "one__slow", "one__crash"] {
        assert!(has(&all, hidden) && !has(&some, hidden), "{some:?}");
    }
    assert!(has(&some, "one__echo"));
    let sum = json!({"a": 1, "b": 2});
    assert!(first.call("one__add", sum.clone()).await["result"]["isError"].is_null());
    let denied = second.call("one__add", sum.clone()).await;
    let error = &denied["result"]["_meta"]["io.mcpvisor/error"];
    assert_eq!(error["code"], "policy_denied", "{denied}");
    assert!(text_of(&denied["result"]).contains("`no-sums`"), "{denied}");
    let denied = second.call("one__crash", json!({})).await;
    assert!(text_of(&denied["result"]).contains("`nothing-destructive`"));
    assert!(!second.call("one__echo", json!({"message": "x"})).await["result"].is_null());

    let about = json!({"uri": "example://about"});
    let listed = |list: Value| list["result"]["resources"].to_string().contains("about");
    assert!(listed(first.ask("resources/list", json!({})).await));
    assert!(!listed(second.ask("resources/list", json!({})).await));
    assert!(first.ask("resources/read", about.clone()).await["result"].is_object());
    let denied = second.ask("resources/read", about).await;
    assert_eq!(denied["error"]["data"]["code"], "policy_denied", "{denied}");

    // Each denied call left one record, and counts.
    let denied = get(&gateway, "/api/history?outcome=denied").await;
    assert_eq!(denied["total"], 3, "{denied}");
    let entry = &denied["entries"][2];
    assert_eq!(entry["target"], "one__add", "{entry}");
    assert_eq!(entry["error"]["code"], "policy_denied");
    let of_adds = get(&gateway, "/api/history?text=one__add").await;
    assert_eq!(of_adds["entries"].as_array().unwrap().len(), 2, "{of_adds}");
    assert_eq!(gateway.status().await["counters"]["calls_denied"], 3);
}

#[tokio::test]
async fn without_a_session_and_behind_static_tools_the_same_rules_hold() {
    let search = "[views.found]\nexpose = \"search\"\n";
    let gateway = Gateway::start(&config(&format!("{search}{RULES}"))).await;
    let ask = |key, method: &'static str, path: &'static str, params: Value| {
        let http = modern_as(&gateway, "1", method, params, json!({})).path(path);
        let http = with_key(http, key);
        async move { answer_in(http.send().await).await }
    };
    let list = ask("second-key", "tools/list", "/mcp", json!({})).await;
    assert!(
        !names(&list["result"]["tools"]).contains(&"one__add"),
        "{list}"
    );
    assert_ne!(list["result"]["cacheScope"], "public", "{list}");
    let list = ask("first-key", "tools/list", "/mcp", json!({})).await;
    assert!(
        names(&list["result"]["tools"]).contains(&"one__add"),
        "{list}"
    );
    let sum = || call_params("one__add", json!({"a": 1, "b": 2}));
    let denied = ask("second-key", "tools/call", "/mcp", sum()).await;
    assert!(text_of(&denied["result"]).contains("`no-sums`"), "{denied}");

    let find = |key| {
        let find = call_params("find_tools", json!({"query": "add two numbers"}));
        ask(key, "tools/call", "/mcp/found", find)
    };
    let finds = |found: Value| {
        let text = text_of(&found["result"]).replace("one__add_tool", "");
        text.contains("one__add")
    };
    assert!(finds(find("first-key").await));
    assert!(!finds(find("second-key").await));
    let inner = json!({"name": "one__add", "arguments": {"a": 1, "b": 2}});
    let call = call_params("call_tool", inner);
    let denied = ask("second-key", "tools/call", "/mcp/found", call).await;
    assert!(text_of(&denied["result"]).contains("`no-sums`"), "{denied}");
}

#[tokio::test]
async fn rules_change_with_the_configuration_and_the_default_may_deny() {
    let gateway = Gateway::start(&config("")).await;
    let second = Holder::open(&gateway, "second-key").await;
    assert!(has(&second.tools().await, "one__add"));
    let only_echo = "[policies.echo]\nwhen = 'tool.name == \"echo\"'\neffect = \"allow\"\n\
                     [gateway]\npolicy_default = \"deny\"\n";
    gateway.write_config(&config(only_echo));
    until("one tool", || async {
        (second.tools().await == ["one__echo"]).then_some(())
    })
    .await;
    let denied = second.call("one__add", json!({"a": 1, "b": 2})).await;
    assert!(
        text_of(&denied["result"]).contains("no policy allows it"),
        "{denied}"
    );
    assert_eq!(
        second.ask("prompts/list", json!({})).await["result"]["prompts"],
        json!([])
    );
    gateway.write_config(&config(""));
    until("all tools", || async {
        has(&second.tools().await, "one__add").then_some(())
    })
    .await;
    assert!(second.call("one__add", json!({"a": 1, "b": 2})).await["result"]["isError"].is_null());
}

#[test]
fn a_condition_that_is_none_is_told_with_its_place() {
    let setup = Setup::new("[policies.odd]\nwhen = 'user == \"x\"'\n");
    let (ok, printed) = setup.run(&["check"]);
    assert!(!ok, "{printed}");
    for word in [
        "config.toml:2",
        "`policies.odd.when` uses `user`",
        "^",
        "`principal.name`",
    ] {
        assert!(printed.contains(word), "{word}: {printed}");
    }
}

#[tokio::test]
async fn a_tool_is_listed_and_its_arguments_decide_each_call() {
    let rules = "[policies.small]\nwhen = 'tool.name == \"add\" && arguments.a > 9'\n";
    let search = "[views.found]\nexpose = \"search\"\n";
    let gateway = Gateway::start(&config(&format!("{search}{rules}"))).await;
    let first = Holder::open(&gateway, "first-key").await;
    assert!(has(&first.tools().await, "one__add"));
    let sum = |a: Value| json!({"a": a, "b": 2});
    assert!(first.call("one__add", sum(json!(9))).await["result"]["isError"].is_null());
    assert!(!first.call("one__echo", json!({"message": "x"})).await["result"].is_null());
    // The last one has no `a` at all.
    for wrong in [sum(json!(10)), sum(json!("1")), json!({"b": 2})] {
        let denied = first.call("one__add", wrong.clone()).await;
        assert!(text_of(&denied["result"]).contains("`small`"), "{denied}");
        let inner = json!({"name": "one__add", "arguments": wrong});
        let call = call_params("call_tool", inner);
        let http = modern_as(&gateway, "1", "tools/call", call, json!({})).path("/mcp/found");
        let denied = answer_in(with_key(http, "first-key").send().await).await;
        assert!(text_of(&denied["result"]).contains("`small`"), "{denied}");
    }
    let twice = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"one__add","arguments":{"a":1,"a":10,"b":2}}}"#;
    let http = with_key(Http::post(gateway.address, twice), "first-key");
    let denied = answer_in(http.header("Mcp-Session-Id", &first.session).send().await).await;
    assert!(text_of(&denied["result"]).contains("`small`"), "{denied}");
}

#[tokio::test]
async fn a_session_goes_by_the_token_of_each_request() {
    let issuer = Issuer::start().await;
    let rule =
        "[policies.no-sums]\nwhen = 'tool.name == \"add\" && !(\"sums\" in principal.scopes)'\n";
    let config = format!("{}{}{}{rule}", issuer.config(), quick(), example("one"));
    let gateway = Gateway::start(&config).await;
    let [plain, sums] = ["mcp", "mcp sums"].map(|scope| issuer.token_with("ada", scope, 600));
    let plain = Holder::open(&gateway, &plain).await;
    let stepped_up = Holder {
        gateway: &gateway,
        key: &sums,
        session: plain.session.clone(),
    };
    let events = gateway.get("/mcp").header("Accept", "text/event-stream");
    let events = events.header("Mcp-Session-Id", &plain.session);
    let mut events = with_key(events, plain.key).send().await.events();
    let sum = || json!({"a": 1, "b": 2});
    for _ in 0..2 {
        assert!(!has(&plain.tools().await, "one__add"));
        let denied = plain.call("one__add", sum()).await;
        assert!(text_of(&denied["result"]).contains("`no-sums`"), "{denied}");
        let done = stepped_up.call("one__add", sum()).await;
        assert!(done["result"]["isError"].is_null(), "{done}");
        // It sees another list from now on.
        events.method("notifications/tools/list_changed").await;
        assert!(has(&stepped_up.tools().await, "one__add"));
    }
    let mut sse = gateway.get("/sse").header("Accept", "text/event-stream");
    sse = with_key(sse, plain.key);
    let mut sse = SseClient::open_stream(&gateway, sse).await;
    let mut ask = async |id: u64, key: &str, method: &str, params: Value| {
        let post = sse.post(request(id, method, params));
        assert_eq!(with_key(post, key).send().await.status, 202);
        loop {
            let message = sse.events.message().await.unwrap();
            if message["id"] == id {
                return message;
            }
        }
    };
    let params = json!({"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
    ask(1, plain.key, "initialize", params).await;
    let denied = ask(2, plain.key, "tools/call", call_params("one__add", sum())).await;
    assert!(text_of(&denied["result"]).contains("`no-sums`"), "{denied}");
    let done = ask(3, &sums, "tools/call", call_params("one__add", sum())).await;
    assert!(done["result"]["isError"].is_null(), "{done}");
    let denied = ask(4, plain.key, "tools/call", call_params("one__add", sum())).await;
    assert!(text_of(&denied["result"]).contains("`no-sums`"), "{denied}");
}

/// Keys of which those named have the scope `admin`, and a rule that asks for it.
fn scoped(admins: &[&str]) -> String {
    let rules = "[policies.admins]\nwhen = '\"admin\" in principal.scopes'\neffect = \"allow\"\n\
                 [policies.no-sums]\nwhen = 'tool.name == \"add\"'\n";
    admins.iter().fold(config(rules), |config, name| {
        let table = format!("[auth.keys.{name}]\n");
        config.replace(&table, &format!("{table}scopes = [\"read\", \"admin\"]\n"))
    })
}

#[tokio::test]
async fn the_scopes_of_each_request_decide_with_a_session_and_without() {
    let gateway = Gateway::start(&scoped(&["first"])).await;
    let sum = || json!({"a": 1, "b": 2});
    let [first, second] = ["first-key", "second-key"].map(|key| Holder::open(&gateway, key));
    let (first, second) = (first.await, second.await);
    assert!(has(&first.tools().await, "one__add"));
    assert!(!has(&second.tools().await, "one__add"));
    assert!(first.call("one__add", sum()).await["result"]["isError"].is_null());
    let denied = second.call("one__add", sum()).await;
    assert!(text_of(&denied["result"]).contains("`no-sums`"), "{denied}");

    let modern = |key, method: &'static str, params: Value| {
        let http = with_key(modern_as(&gateway, "1", method, params, json!({})), key);
        async move { answer_in(http.send().await).await }
    };
    let sees = async |key| {
        let list = modern(key, "tools/list", json!({})).await;
        names(&list["result"]["tools"]).contains(&"one__add")
    };
    assert!(sees("first-key").await && !sees("second-key").await);
    let denied = modern("second-key", "tools/call", call_params("one__add", sum())).await;
    assert!(text_of(&denied["result"]).contains("`no-sums`"), "{denied}");

    // The sessions go on, with what their keys allow from now on.
    gateway.write_config(&scoped(&["second"]));
    until("the other key", || async {
        has(&second.tools().await, "one__add").then_some(())
    })
    .await;
    assert!(second.call("one__add", sum()).await["result"]["isError"].is_null());
    let denied = first.call("one__add", sum()).await;
    assert!(text_of(&denied["result"]).contains("`no-sums`"), "{denied}");
    assert!(!has(&first.tools().await, "one__add"));
    assert!(sees("second-key").await && !sees("first-key").await);
}

#[test]
fn policies_are_tried_with_the_cases_of_a_file() {
    let setup = Setup::new(&scoped(&[]));
    let tried = |cases: &str| {
        std::fs::write(setup.path("cases.toml"), cases).unwrap();
        setup.run(&["policy", "test", "cases.toml"])
    };
    let case = "[[case]]\nserver = \"one\"\ntool = \"add\"\n";
    let denied = format!("{case}effect = \"deny\"\npolicy = \"no-sums\"\n");
    let admin = format!("{case}name = \"admins add\"\nscopes = [\"admin\"]\n");
    let (ok, printed) = tried(&format!("{denied}{admin}effect = \"allow\"\n"));
    assert!(ok, "{printed}");
    assert_eq!(
        printed,
        "ok     `tools/call` of `add` of one: denied by `no-sums`\n\
         ok     admins add: allowed by `admins`\n"
    );
    let (ok, printed) = tried(&format!("{denied}{admin}effect = \"deny\"\n"));
    assert!(!ok, "{printed}");
    for words in [
        "WRONG  admins add: allowed by `admins`, expected: denied",
        "1 of 2 cases",
    ] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
    let (ok, printed) = tried(&format!("{denied}{admin}effect = \"deny\"\nitem = \"x\"\n"));
    assert!(!ok && printed.contains("cases.toml: case 2: "), "{printed}");
}

#[tokio::test]
async fn a_call_that_waits_for_answers_goes_on_with_any_token_of_its_subject_that_is_allowed_it() {
    let server = HttpServer::start(Behaviour::default()).await;
    let issuer = Issuer::start().await;
    let rule = "[policies.asking-needs-write]\n\
                when = 'tool.name == \"ask\" && !(\"write\" in principal.scopes)'\n";
    let own = server.config("http");
    let config = format!("{}{}{rule}{own}", quick(), issuer.config());
    let gateway = Gateway::start(&config).await;
    let ask = |token: &str, question: Option<&Value>| {
        let mut params = call_params("http__ask", json!({ "question": "?" }));
        if let Some(question) = question {
            let asked = question["inputRequests"].as_object().unwrap().keys();
            let given = json!({ "action": "accept", "content": { "n": 1 } });
            let given = asked.map(|key| (key.clone(), given.clone())).collect();
            params["inputResponses"] = Value::Object(given);
            params["requestState"] = question["requestState"].clone();
        }
        let can = json!({ "elicitation": {} });
        let http = with_key(modern_as(&gateway, "1", "tools/call", params, can), token);
        async move { answer_in(http.send().await).await }
    };
    let whole = issuer.token_with("ada", "mcp write", 600);
    let begun = ask(&whole, None).await;
    let question = &begun["result"];
    assert_eq!(question["resultType"], "input_required", "{begun}");
    // Whoever else has the state has nothing, nor has a token that may not begin this call.
    let other = issuer.token_with("eve", "mcp write", 600);
    let refused = ask(&other, Some(question)).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    let less = issuer.token_with("ada", "mcp", 600);
    let denied = ask(&less, Some(question)).await;
    assert_eq!(failure_of(&denied["result"])["code"], "policy_denied");
    // A token is renewed while somebody thinks about the answer.
    let renewed = issuer.token_with("ada", "mcp write", 900);
    let answer = ask(&renewed, Some(question)).await;
    let said = text_of(&answer["result"]);
    assert!(said.contains("accept"), "{answer}");
    assert_eq!(server.behaviour().calls, ["ask"]);
}

/// Requests for a tool, a prompt and a resource of the server `one` that it does not list.
fn unlisted(name: &str, uri: &str) -> [(&'static str, Value); 6] {
    let named = json!({ "name": format!("one__{name}") });
    let uri_of = json!({ "uri": uri });
    let complete = |reference: Value| {
        let argument = json!({ "name": "x", "value": "" });
        json!({ "ref": reference, "argument": argument })
    };
    let prompt = json!({ "type": "ref/prompt", "name": format!("one__{name}") });
    let template = json!({ "type": "ref/resource", "uri": uri });
    [
        ("tools/call", named.clone()),
        ("prompts/get", named),
        ("resources/read", uri_of.clone()),
        ("resources/subscribe", uri_of),
        ("completion/complete", complete(prompt)),
        ("completion/complete", complete(template)),
    ]
}

/// The code of the gateway's own refusal, if an answer is one.
fn refusal(answer: &Value) -> Value {
    let in_result = &answer["result"]["_meta"]["io.mcpvisor/error"]["code"];
    match in_result.is_null() {
        true => answer["error"]["data"]["code"].clone(),
        false => in_result.clone(),
    }
}

#[tokio::test]
async fn what_no_list_has_is_judged_as_its_server_calls_it() {
    let rules = "[policies.no-hidden]\n\
                 when = 'item == \"hidden\" || item.startsWith(\"secret:\")'\n\
                 [policies.nothing-destructive]\n\
                 when = 'tool.annotations.destructiveHint && item != \"open\"'\n";
    let gateway = Gateway::start(&config(rules)).await;
    let holder = Holder::open(&gateway, "first-key").await;
    for (method, params) in unlisted("hidden", "secret:1") {
        let denied = holder.ask(method, params).await;
        assert_eq!(refusal(&denied), "policy_denied", "{method}: {denied}");
    }
    // Nothing is known of a tool that no list has: it may destroy something.
    let [(method, params), ..] = unlisted("other", "open:1");
    let denied = holder.ask(method, params).await;
    assert_eq!(refusal(&denied), "policy_denied", "{denied}");
    for (method, params) in unlisted("open", "open:1") {
        let answer = holder.ask(method, params).await;
        assert_ne!(refusal(&answer), "policy_denied", "{method}: {answer}");
    }
}
