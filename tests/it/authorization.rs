//! Every way to a server is judged: each method of each revision, over each transport, in every
//! spelling. The server behind the gateway writes down all that reaches it.

use serde_json::{Value, json};

use crate::auth::{KEYS, with_key};
use crate::legacy_sse::SseClient;
use crate::sessionless::modern;
use crate::support::{
    Client, Events, Gateway, Http, INITIALIZE, Setup, StdioClient, Visitor, answer_in, example,
    quick, request, text_of, until,
};

const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// Nothing with these names may reach the server.
const RULES: &str = r#"
[policies.no-secrets]
when = 'item.startsWith("file:///secrets/")'
[policies.nothing-hidden]
when = 'item in ["danger", "hidden"]'
[policies.no-extension]
when = 'method.startsWith("acme/") || method.startsWith("notifications/acme/")'
"#;

/// A gateway in front of the server that writes down what it is sent.
struct Traced {
    gateway: Gateway,
    trace: std::path::PathBuf,
}

fn server(trace: &std::path::Path) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/traced.py");
    let trace = trace.display();
    format!(
        "{}\n[servers.traced]\ncommand = \"python3\"\nargs = [\"{script}\"]\nsharing = \"shared\"\n\
         env = {{ IT_MARK = \"${{IT_MARK}}\", IT_TRACE = \"{trace}\" }}\n",
        quick()
    )
}

/// A configuration with that server, and where it writes.
fn setup(rules: &str) -> (Setup, std::path::PathBuf) {
    let setup = Setup::new("");
    let trace = setup.path("trace");
    std::fs::write(
        setup.path("config.toml"),
        format!("{}{rules}", server(&trace)),
    )
    .unwrap();
    (setup, trace)
}

impl Traced {
    async fn start(rules: &str) -> Self {
        let (setup, trace) = setup(rules);
        let gateway = setup.serve().await;
        gateway.all_up().await;
        Self { gateway, trace }
    }

    fn lines(&self) -> String {
        std::fs::read_to_string(&self.trace).unwrap_or_default()
    }

    /// Waits until these words have reached the server, behind all that was sent before.
    async fn wait_for(&self, words: &str) {
        until(words, || async {
            self.lines().contains(words).then_some(())
        })
        .await;
    }

    fn write_rules(&self, rules: &str) {
        self.gateway
            .write_config(&format!("{}{rules}", server(&self.trace)));
    }
}

/// Requests that name what is denied, of any revision.
fn denied_requests() -> Vec<(&'static str, Value)> {
    let secret = "file:///secrets/key";
    let argument = json!({"name": "a", "value": "b"});
    vec![
        ("tools/call", json!({"name": "traced__danger"})),
        (
            "tools/call",
            json!({"name": "traced__danger", "task": {"ttl": 1}}),
        ),
        ("prompts/get", json!({"name": "traced__hidden"})),
        ("resources/read", json!({"uri": secret})),
        (
            "resources/read",
            json!({"uri": secret, "name": "traced__good"}),
        ),
        ("resources/read", json!({"uri": "FILE:/%73ecrets//key"})),
        ("resources/subscribe", json!({"uri": secret})),
        ("resources/unsubscribe", json!({"uri": secret})),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/prompt", "name": "traced__hidden"}, "argument": argument}),
        ),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/resource", "uri": secret}, "argument": argument}),
        ),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/resource", "uri": secret, "name": "traced__shown"}, "argument": argument}),
        ),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/prompt", "name": "traced__shown", "uri": secret}, "argument": argument}),
        ),
        ("acme/do", json!({})),
        ("acme/do", json!({"name": "traced__good"})),
        ("acme/do", json!({"name": "traced__good", "uri": secret})),
        (
            "subscriptions/listen",
            json!({"notifications": {"resourceSubscriptions": [secret, "file:///secrets//other"]}}),
        ),
    ]
}

#[tokio::test]
async fn no_method_of_any_revision_leaves_a_trace_of_what_is_denied() {
    let traced = Traced::start(RULES).await;
    let gateway = &traced.gateway;
    for revision in REVISIONS {
        let client = Client::open_as(gateway, revision, json!({})).await;
        for (method, params) in denied_requests() {
            client.ask(method, params.clone()).await;
            let note = json!({"jsonrpc": "2.0", "method": method, "params": params});
            client.post(&note).send().await;
        }
        client.notify("notifications/acme/did", json!({})).await;
    }
    for (method, params) in denied_requests() {
        let answer = modern(gateway, "1", method, params).send().await;
        if answer.is_stream() {
            answer.events().rest().await;
        }
    }
    // Sent behind all of it.
    let client = Client::open(gateway).await;
    client
        .get("resources/read", json!({"uri": "file:///last"}))
        .await;
    traced.wait_for("file:///last").await;
    let lines = traced.lines();
    for word in ["secret", "danger", "hidden", "acme"] {
        assert!(!lines.contains(word), "{word}: {lines}");
    }
}

/// Who asked, and what of it is acknowledged.
async fn listen(traced: &Traced, uris: &[&str]) -> (Events, Value) {
    let wanted =
        json!({"notifications": {"toolsListChanged": true, "resourceSubscriptions": uris}});
    let listen = modern(&traced.gateway, "l", "subscriptions/listen", wanted);
    let mut events = listen.send().await.events();
    let first = events.message().await.unwrap();
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    let mut promised = first["params"]["notifications"].clone();
    (events, promised["resourceSubscriptions"].take())
}

#[tokio::test]
async fn a_listener_is_promised_only_what_it_may_hear_of() {
    let traced = Traced::start(RULES).await;
    let spellings = [
        "file:///secrets/key",
        "file:///%73ecrets/key",
        "FILE:///secrets/key",
        "file:///public/..%2fsecrets/key",
        "file:///notes.md",
    ];
    let (_events, promised) = listen(&traced, &spellings).await;
    assert_eq!(promised, json!(["file:///notes.md"]));
    traced.wait_for("resources/subscribe").await;
    assert!(!traced.lines().contains("ecrets"), "{}", traced.lines());
}

#[tokio::test]
async fn what_is_watched_is_judged_again_when_policies_change() {
    let traced = Traced::start("").await;
    let client = Client::open(&traced.gateway).await;
    for uri in ["file:///secrets/one", "file:///notes.md"] {
        client.get("resources/subscribe", json!({"uri": uri})).await;
    }
    let uris = ["file:///notes.md", "file:///secrets/two"];
    let (_events, promised) = listen(&traced, &uris).await;
    assert_eq!(promised, json!(uris));
    traced.wait_for("secrets/two").await;
    traced.write_rules(RULES);
    for uri in ["file:///secrets/one", "file:///secrets/two"] {
        let ended = json!(["resources/unsubscribe", {"uri": uri}]).to_string();
        until("the end of a subscription", || async {
            let lines = traced.lines().replace(", ", ",").replace(": ", ":");
            lines.contains(&ended).then_some(())
        })
        .await;
    }
    let ended = traced.lines().matches("resources/unsubscribe").count();
    assert_eq!(ended, 2, "{}", traced.lines());
}

#[tokio::test]
async fn what_is_watched_is_judged_again_when_the_scopes_of_its_key_change() {
    let rules = "[policies.secrets]\nwhen = 'item.startsWith(\"file:///secrets/\") && \
                 !(\"secrets\" in principal.scopes)'\n";
    let keys = |scopes: &str| KEYS.replacen("hash", &format!("scopes = [{scopes}]\nhash"), 1);
    let traced = Traced::start(&format!("{rules}{}", keys("\"secrets\", \"read\""))).await;
    let open = with_key(Http::post(traced.gateway.address, INITIALIZE), "first-key");
    let session = open
        .send()
        .await
        .header("mcp-session-id")
        .unwrap()
        .to_owned();
    for uri in ["file:///secrets/one", "file:///notes.md"] {
        let body = request(1, "resources/subscribe", json!({"uri": uri})).to_string();
        let post = Http::post(traced.gateway.address, body).header("Mcp-Session-Id", &session);
        let done = answer_in(with_key(post, "first-key").send().await).await;
        assert!(done["result"].is_object(), "{done}");
    }
    // The client is silent from now on.
    traced.write_rules(&format!("{rules}{}", keys("\"read\"")));
    traced.wait_for("resources/unsubscribe").await;
    let lines = traced.lines();
    let last = lines.lines().last().unwrap_or_default();
    assert!(
        last.contains("unsubscribe") && last.contains("secrets/one"),
        "{lines}"
    );
}

#[tokio::test]
async fn what_is_watched_ends_when_a_view_loses_its_server() {
    let view = |servers: &str| format!("{}[views.some]\nservers = [{servers}]\n", example("other"));
    let traced = Traced::start(&view("\"traced\", \"other\"")).await;
    let visitor = Visitor::open(&traced.gateway, "/mcp/some").await;
    let notes = json!({"uri": "file:///notes.md"});
    let done = visitor.ask("resources/subscribe", notes).await;
    assert!(done["result"].is_object(), "{done}");
    traced.wait_for("resources/subscribe").await;
    traced.write_rules(&view("\"other\""));
    traced.wait_for("resources/unsubscribe").await;
}

/// Messages that a server which ignores case takes for others, with the name that is misspelled.
fn misspelled() -> Vec<Value> {
    let good = || json!({"name": "traced__good", "arguments": {}});
    let message = |more: Value, params: Value| {
        let mut message = request("x", "tools/call", params);
        for (name, value) in more.as_object().unwrap() {
            message[name] = value.clone();
        }
        message
    };
    let mut all = Vec::new();
    for (name, value) in [
        ("Method", json!("acme/do")),
        ("METHOD", json!("acme/do")),
        ("Params", json!({"name": "danger"})),
        ("param\u{17f}", json!({"name": "danger"})),
        ("params\0", json!({"name": "danger"})),
        ("Id", json!(1)),
        ("JSONRPC", json!("2.0")),
        ("Result", json!({})),
        ("ERROR", json!({})),
    ] {
        all.push(message(json!({ name: value }), good()));
    }
    for (name, value) in [
        ("Name", json!("danger")),
        ("NAME", json!("danger")),
        ("name\0", json!("danger")),
        ("name\0\0x", json!("danger")),
        ("Uri", json!("file:///secrets/key")),
        ("ur\u{131}", json!("file:///secrets/key")),
        ("Arguments", json!({"path": "danger"})),
        ("argument\u{17f}", json!({"path": "danger"})),
        ("Tas\u{212a}", json!({})),
        ("_META", json!({})),
        ("Ref", json!({})),
        ("TaskId", json!("danger")),
        ("REQUESTSTATE", json!("danger")),
    ] {
        let mut params = good();
        params[name] = value;
        all.push(message(json!({}), params));
    }
    for (object, name) in [
        ("_meta", "ProgressToken"),
        ("_meta", "progresstoken\0"),
        ("_meta", "IO.modelcontextprotocol/clientCapabilities"),
        ("task", "TTL"),
        ("ref", "Uri"),
        ("notifications", "ResourceSubscriptions"),
    ] {
        let mut params = good();
        params[object] = json!({ name: 1 });
        all.push(message(json!({}), params));
    }
    all
}

#[tokio::test]
async fn a_misspelled_member_reaches_no_server_over_any_transport() {
    let traced = Traced::start("").await;
    let gateway = &traced.gateway;
    let client = Client::open(gateway).await;
    let batching = Client::open_as(gateway, "2025-03-26", json!({})).await;
    let mut sse = SseClient::open(gateway).await;
    for message in misspelled() {
        let refused = |answer: &Value| {
            assert_eq!(answer["error"]["code"], -32600, "{message}: {answer}");
        };
        let answer = client.post(&message).send().await;
        assert_eq!(answer.status, 400, "{message}");
        refused(&answer.json().await);
        let batch = answer_in(batching.post(&json!([message])).send().await).await;
        refused(&batch[0]);
        refused(&answer_in(modern_frame(gateway, &message).send().await).await);
        sse.post(message.clone()).send().await;
        // Notifications and answers with such members count as little.
        let mut note = message.clone();
        note.as_object_mut().unwrap().remove("id");
        refused(&client.post(&note).send().await.json().await);
    }
    for name in ["Result", "ID", "Error\0"] {
        let answer = json!({"jsonrpc": "2.0", "id": 1, "result": {}, name: 1});
        let answer = client.post(&answer).send().await;
        assert_eq!(answer.status, 400, "{name}");
    }
    client
        .get("resources/read", json!({"uri": "file:///last"}))
        .await;
    sse.post(request(9, "ping", json!({}))).send().await;
    while sse.events.message().await.unwrap()["id"] != 9 {}
    traced.wait_for("file:///last").await;
    let lines = traced.lines();
    assert!(!lines.contains("tools/call"), "{lines}");
    assert!(!lines.contains("acme"), "{lines}");

    // Other names pass as they are, and so do all of them within arguments.
    let arguments = json!({"Name": "a", "NAME": "b", "path": "c"});
    let params = json!({"name": "traced__good", "arguments": arguments, "naming": 1, "x-Name": 2});
    let done = client.ask("tools/call", params).await;
    assert_eq!(text_of(&done["result"]), "done", "{done}");
    traced.wait_for("\"x-Name\": 2").await;
}

/// The same message without a session.
fn modern_frame(gateway: &Gateway, message: &Value) -> Http {
    let mut message = message.clone();
    let meta = &mut message["params"]["_meta"];
    meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
    Http::post(gateway.address, message.to_string())
        .header("MCP-Protocol-Version", "2026-07-28")
        .header("Mcp-Method", "tools/call")
        .header("Mcp-Name", "traced__good")
}

#[tokio::test]
async fn a_misspelled_member_reaches_no_server_over_stdio() {
    let (setup, trace) = setup("");
    let mut client = StdioClient::open(&setup, &[]).await;
    for (mut message, id) in misspelled().into_iter().zip(10_u64..) {
        message["id"] = json!(id);
        client.say(&message).await;
        let answer = client.answer(id).await;
        assert_eq!(answer["error"]["code"], -32600, "{message}: {answer}");
    }
    let read = client
        .ask(1, "resources/read", json!({"uri": "file:///last"}))
        .await;
    assert!(read["result"].is_object(), "{read}");
    let lines = std::fs::read_to_string(trace).unwrap();
    assert!(
        lines.contains("file:///last") && !lines.contains("tools/call"),
        "{lines}"
    );
}

#[tokio::test]
async fn an_argument_decides_only_in_the_type_and_the_spelling_that_a_rule_means() {
    let rules = "[policies.no-etc]\nwhen = 'tool.name == \"good\" && has(arguments.path) && \
                 (arguments.path == \"/etc/passwd\" || arguments.path.contains(\"shadow\"))'\n\
                 [policies.no-force]\nwhen = 'tool.name == \"good\" && has(arguments.force) && \
                 arguments.force == true'\n\
                 [policies.no-mode]\nwhen = 'tool.name == \"good\" && has(arguments.mode) && \
                 arguments.mode in [\"delete\", \"drop\"]'\n\
                 [policies.not-many]\nwhen = 'tool.name == \"good\" && has(arguments.n) && \
                 arguments.n > 10'\n";
    let traced = Traced::start(rules).await;
    let client = Client::open(&traced.gateway).await;
    let call = async |tool: &str, arguments: Value| {
        let params = json!({"name": tool, "arguments": arguments});
        client.ask("tools/call", params).await
    };
    for arguments in [
        json!({"path": "/etc/passwd"}),
        json!({"path": ["/etc/passwd"]}),
        json!({"path": ["/etc/shadow"]}),
        json!({"path": {"0": "/etc/passwd"}}),
        json!({"path": 1}),
        json!({"path": null}),
        json!({"Path": "/etc/passwd"}),
        json!({"path": "/tmp", "Path": "/etc/passwd"}),
        json!({"path": "/tmp", "path\0": "/etc/passwd"}),
        json!({"force": true}),
        json!({"force": "true"}),
        json!({"force": 1}),
        json!({"FORCE": true}),
        json!({"mode": "drop"}),
        json!({"mode": ["delete"]}),
        json!({"mode": {"$": "drop"}}),
        json!({"n": 11}),
        json!({"n": 10.5}),
        json!({"n": "11"}),
        json!({"n": [11]}),
    ] {
        let denied = call("traced__good", arguments.clone()).await;
        let error = &denied["result"]["_meta"]["io.mcpvisor/error"];
        assert_eq!(error["code"], "policy_denied", "{arguments}: {denied}");
    }
    assert!(!traced.lines().contains("tools/call"), "{}", traced.lines());
    for (tool, arguments) in [
        ("traced__good", json!({"path": "/tmp"})),
        ("traced__good", json!({"force": false})),
        ("traced__good", json!({"mode": "keep"})),
        ("traced__good", json!({"n": 10})),
        ("traced__good", json!({"n": 9.5, "A": 1, "a": 2})),
        (
            "traced__danger",
            json!({"path": ["/etc/passwd"], "Path": 1}),
        ),
    ] {
        let done = call(tool, arguments.clone()).await;
        assert_eq!(text_of(&done["result"]), "done", "{arguments}: {done}");
    }
}
