//! User interfaces of servers, and what extensions write into `_meta`.

use serde_json::json;

use crate::support::{Gateway, Visitor, python, text_of};

/// A server with the tool `clock`, which only user interfaces call.
fn config(more: &str) -> String {
    let server = python("s", "IT_FOR_APPS = \"clock\"");
    format!("{server}tools = {{ {more} }}\n[views.few]\nexpose = \"search\"\n")
}

#[tokio::test]
async fn what_only_user_interfaces_call_is_offered_to_no_model() {
    let gateway = Gateway::start(&config("")).await;
    let all = Visitor::open(&gateway, "/mcp").await;
    assert!(all.tools().await.contains(&"s__clock".to_owned()));
    let few = Visitor::open(&gateway, "/mcp/few").await;
    for (tool, arguments) in [
        ("find_tools", json!({"query": "clock"})),
        ("describe_tools", json!({"names": ["s__clock"]})),
        ("call_tool", json!({"name": "s__clock", "arguments": {}})),
    ] {
        let answer = few.call_with(tool, arguments).await;
        let text = text_of(&answer["result"]).replace("unknown tool \"s__clock\"", "");
        assert!(!text.contains("s__clock"), "{tool}: {text}");
    }
    // The host calls it for a user interface.
    let called = few.call("s__clock").await;
    assert_eq!(text_of(&called["result"]), "clock");
}

#[tokio::test]
async fn tools_of_user_interfaces_can_stay_in_the_view_of_their_server() {
    let gateway = Gateway::start(&config("own_apps = true")).await;
    let all = Visitor::open(&gateway, "/mcp").await;
    assert!(!all.tools().await.contains(&"s__clock".to_owned()));
    let called = all.call("s__clock").await;
    assert!(called["error"].is_object(), "{called}");
    let own = Visitor::open(&gateway, "/mcp/server/s").await;
    assert!(own.tools().await.contains(&"clock".to_owned()));
    assert_eq!(text_of(&own.call("clock").await["result"]), "clock");
}

#[tokio::test]
async fn groups_pass_unchanged() {
    let gateway = Gateway::start(&config("")).await;
    let visitor = Visitor::open(&gateway, "/mcp").await;
    let groups = json!({"io.modelcontextprotocol/groups": ["time", "s"]});
    let list = visitor.ask("tools/list", json!({})).await;
    let tools = list["result"]["tools"].as_array().unwrap();
    let tool = tools
        .iter()
        .find(|tool| tool["name"] == "s__clock")
        .unwrap();
    let key = "io.modelcontextprotocol/groups";
    assert_eq!(tool["_meta"][key], groups[key]);
    let called = visitor.call("s__clock").await;
    assert_eq!(called["result"]["_meta"], groups);
}
