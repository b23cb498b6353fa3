//! Views that list a few static tools, by which the others are found and called.

use serde_json::{Value, json};

use crate::support::{
    Gateway, Http, Setup, Visitor, answer_in, example, names, quick, request, text_of,
};

const VIEWS: &str = "[views.search]\nexpose = \"search\"\n[views.groups]\nexpose = \"groups\"\n\
                     [views.pluggedin]\nexpose = \"pluggedin\"\n[views.dynamic]\nexpose = \"dynamic\"\n\
                     [views.part]\nservers = [\"one\"]\ndeny = [\"*__crash\"]\nexpose = \"search\"\n";

async fn gateway() -> Gateway {
    let config = format!("{}{}{}{VIEWS}", quick(), example("one"), example("two"));
    Gateway::start(&config).await
}

async fn call(visitor: &Visitor, tool: &str, arguments: Value) -> Value {
    let params = json!({ "name": tool, "arguments": arguments });
    visitor.ask("tools/call", params).await["result"].clone()
}

fn said(result: &Value) -> String {
    assert_ne!(result["isError"], true, "{result}");
    text_of(result).to_owned()
}

fn mistake(result: &Value) -> String {
    assert_eq!(result["isError"], true, "{result}");
    text_of(result).to_owned()
}

#[tokio::test]
async fn a_tool_is_found_described_and_called() {
    let gateway = gateway().await;
    let search = Visitor::open(&gateway, "/mcp/search").await;
    assert_eq!(
        search.tools().await,
        ["find_tools", "describe_tools", "call_tool"]
    );
    let found = said(
        &call(
            &search,
            "find_tools",
            json!({ "query": "repeat a message" }),
        )
        .await,
    );
    assert!(found.starts_with("one__echo(message"), "{found}");
    assert_eq!(found.lines().count(), 5, "{found}");
    let one = json!({ "query": "repeat a message", "limit": 1 });
    assert_eq!(
        said(&call(&search, "find_tools", one).await)
            .lines()
            .count(),
        1
    );
    let names = json!({ "names": ["one__echo", "two__echo"] });
    let described = said(&call(&search, "describe_tools", names).await);
    let definition: Value = serde_json::from_str(described.lines().next().unwrap()).unwrap();
    assert_eq!(definition["name"], "one__echo");
    assert_eq!(definition["inputSchema"]["required"][0], "message");
    let arguments = json!({ "name": "two__echo", "arguments": { "message": "hi \u{1f600}" } });
    assert_eq!(
        said(&call(&search, "call_tool", arguments).await),
        "hi \u{1f600}"
    );
    // What the view does not show is neither found nor called.
    let part = Visitor::open(&gateway, "/mcp/part").await;
    let all = json!({ "query": "echo crash message", "limit": 20 });
    let found = said(&call(&part, "find_tools", all).await);
    assert!(
        found.contains("one__echo") && !found.contains("two__"),
        "{found}"
    );
    assert!(!found.contains("one__crash"), "{found}");
    for hidden in ["two__echo", "one__crash", "call_tool"] {
        let arguments = json!({ "name": hidden, "arguments": {} });
        let why = mistake(&call(&part, "call_tool", arguments).await);
        assert!(why.contains("unknown tool"), "{why}");
    }
}

#[tokio::test]
async fn a_called_tool_asks_reports_and_is_recorded_as_if_it_were_listed() {
    let config = format!(
        "{}{}{VIEWS}[history]\nfile = true\n",
        quick(),
        example("one"),
    )
    .replace("servers = [\"one\"]\n", "");
    let gateway = Gateway::start(&config).await;
    let search = Visitor::open(&gateway, "/mcp/search").await;
    let arguments = json!({ "name": "one__slow", "arguments": { "delay_ms": 20, "steps": 3 } });
    let params = json!({
        "name": "call_tool", "arguments": arguments, "_meta": { "progressToken": "p" },
    });
    let answer = search.post("tools/call", params).send().await;
    assert_eq!(answer.status, 200);
    let mut events = answer.events();
    let progress = events.method("notifications/progress").await;
    assert_eq!(progress["params"]["progressToken"], "p", "{progress}");
    let token = std::fs::read_to_string(gateway.data_dir().join("api-token")).unwrap();
    drop(events.rest().await);
    let history = || {
        gateway
            .get("/api/history")
            .header("X-Session-Token", token.trim())
            .send()
    };
    let entry = crate::support::until("the record", || async {
        let page = history().await.json().await;
        page["entries"].get(0).cloned()
    })
    .await;
    assert_eq!(entry["target"], "one__slow", "{entry}");
}

#[tokio::test]
async fn groups_are_listed_and_loaded_when_they_are_wanted() {
    let gateway = gateway().await;
    let groups = Visitor::open(&gateway, "/mcp/groups").await;
    assert_eq!(
        groups.tools().await,
        ["list_groups", "load_group", "call_tool"]
    );
    let listed = said(&call(&groups, "list_groups", json!({})).await);
    let starts: Vec<&str> = listed
        .lines()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    assert_eq!(starts, ["one", "two"], "{listed}");
    let loaded = said(&call(&groups, "load_group", json!({ "group": "two" })).await);
    assert!(
        loaded.contains("\"two__echo\"") && !loaded.contains("one__"),
        "{loaded}"
    );
    let why = mistake(&call(&groups, "load_group", json!({ "group": "three" })).await);
    assert!(why.contains("one (") && why.contains("two ("), "{why}");
}

#[tokio::test]
async fn the_presets_answer_as_their_systems_do() {
    let gateway = gateway().await;
    let pluggedin = Visitor::open(&gateway, "/mcp/pluggedin").await;
    assert_eq!(
        pluggedin.tools().await,
        ["get_pluggedin_tools", "call_pluggedin_tool"]
    );
    let all = said(&call(&pluggedin, "get_pluggedin_tools", json!({})).await);
    let all: Value = serde_json::from_str(&all).unwrap();
    let shown = names(&all);
    assert!(
        shown.contains(&"one__echo") && shown.contains(&"two__echo"),
        "{shown:?}"
    );
    assert!(
        all[0]["description"]
            .as_str()
            .unwrap()
            .starts_with("[one] "),
        "{all}"
    );
    assert_eq!(all[0]["inputSchema"]["type"], "object");
    let arguments = json!({ "tool_name": "two__echo", "arguments": { "message": "m" } });
    assert_eq!(
        said(&call(&pluggedin, "call_pluggedin_tool", arguments).await),
        "m"
    );

    let dynamic = Visitor::open(&gateway, "/mcp/dynamic").await;
    assert_eq!(
        dynamic.tools().await,
        ["get_dynamic_tools", "call_dynamic_tool"]
    );
    let listed = said(&call(&dynamic, "get_dynamic_tools", json!({})).await);
    assert!(listed.starts_with("one ("), "{listed}");
    let loaded = said(&call(&dynamic, "get_dynamic_tools", json!({ "group": "one" })).await);
    assert!(loaded.contains("one__echo"), "{loaded}");
    let arguments = json!({ "group": "one", "name": "echo", "args": { "message": "d" } });
    assert_eq!(
        said(&call(&dynamic, "call_dynamic_tool", arguments).await),
        "d"
    );
}

#[tokio::test]
async fn static_tools_are_there_before_any_server_and_name_those_that_are_not() {
    let dead = "[servers.dead]\ncommand = \"/does/not/exist\"\n";
    let config = format!(
        "[gateway]\nexpose = \"pluggedin\"\n{}{dead}{VIEWS}",
        quick()
    );
    let config = config.replace("servers = [\"one\"]\n", "");
    let gateway = Setup::new(&config).serve().await;
    for (path, count) in [("/mcp", 2), ("/mcp/search", 3), ("/mcp/groups", 3)] {
        let visitor = Visitor::open(&gateway, path).await;
        assert_eq!(visitor.tools().await.len(), count, "{path}");
    }
    gateway.wait_state("dead", "broken").await;
    let search = Visitor::open(&gateway, "/mcp/search").await;
    let found = said(&call(&search, "find_tools", json!({ "query": "read" })).await);
    assert!(found.contains("Unavailable now: server `dead`"), "{found}");
    assert!(found.contains("cannot be started"), "{found}");
}

#[tokio::test]
async fn without_a_session_it_is_the_same() {
    let gateway = gateway().await;
    let ask = |tool: &str, arguments: Value| {
        let params = json!({
            "name": tool,
            "arguments": arguments,
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        });
        let http = Http::post(
            gateway.address,
            request(1, "tools/call", params).to_string(),
        );
        let http = http.path("/mcp/search").header("Mcp-Method", "tools/call");
        let http = http
            .header("Mcp-Name", tool)
            .header("MCP-Protocol-Version", "2026-07-28");
        async move { answer_in(http.send().await).await["result"].clone() }
    };
    let found = said(&ask("find_tools", json!({ "query": "repeat a message" })).await);
    assert!(found.starts_with("one__echo("), "{found}");
    let arguments = json!({ "name": "one__echo", "arguments": { "message": "modern" } });
    assert_eq!(said(&ask("call_tool", arguments).await), "modern");
}

#[tokio::test]
async fn mistakes_are_told_to_the_model() {
    let gateway = gateway().await;
    let search = Visitor::open(&gateway, "/mcp/search").await;
    let table = [
        ("find_tools", json!({}), "`query`"),
        ("find_tools", json!({ "query": " " }), "`query`"),
        ("describe_tools", json!({ "names": [] }), "`names`"),
        (
            "describe_tools",
            json!({ "names": ["one__ecko"] }),
            "unknown tool \"one__ecko\"; did you mean",
        ),
        (
            "describe_tools",
            json!({ "names": vec!["a"; 21] }),
            "more than 20 names",
        ),
        ("call_tool", json!({}), "`name`"),
        (
            "call_tool",
            json!({ "name": "one__echo", "arguments": 3 }),
            "`arguments` must be an object",
        ),
        (
            "call_tool",
            json!({ "name": "repeat message" }),
            "did you mean one__echo",
        ),
    ];
    for (tool, arguments, expected) in table {
        let why = mistake(&call(&search, tool, arguments.clone()).await);
        assert!(why.contains(expected), "{tool} {arguments}: {why}");
    }
    let huge = "word ".repeat(50_000);
    said(
        &call(
            &search,
            "find_tools",
            json!({ "query": huge, "limit": 1e9 }),
        )
        .await,
    );
}

/// Forty-four tools of four servers are more than every client takes.
#[tokio::test]
async fn many_tools_are_listed_as_few_and_few_as_they_are() {
    let views = "[views.some]\nservers = [\"one\", \"two\", \"three\"]\nexpose = \"auto\"\n\
                 [views.every]\nexpose = \"auto\"\n";
    let three = ["one", "two", "three"].map(example).concat();
    let config = format!("{}{three}{views}", quick());
    let gateway = Gateway::start(&config).await;
    let [some, every] = ["/mcp/some", "/mcp/every"];
    let some = Visitor::open(&gateway, some).await;
    let every = Visitor::open(&gateway, every).await;
    let mut events = every.events().await;
    assert_eq!(some.tools().await.len(), 33);
    assert_eq!(every.tools().await.len(), 33);
    gateway.write_config(&format!("{config}{}", example("four")));
    events.method("notifications/tools/list_changed").await;
    assert_eq!(some.tools().await.len(), 33);
    assert_eq!(
        every.tools().await,
        ["find_tools", "describe_tools", "call_tool"]
    );
    let echo = json!({ "name": "four__echo", "arguments": { "message": "found" } });
    let echoed = said(&call(&every, "call_tool", echo).await);
    assert!(echoed.contains("found"), "{echoed}");
    // A client that knew the names before still calls by them.
    let sum = call(&every, "one__add", json!({ "a": 1, "b": 2 })).await;
    assert!(said(&sum).contains('3'));
}
