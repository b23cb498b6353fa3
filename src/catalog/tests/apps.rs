//! Tests of tools that only user interfaces call.

use super::*;
use crate::protocol::Method;

/// A tool with these audiences.
fn seen_by(name: &str, visibility: &Value) -> Value {
    let mut tool = tool(name);
    tool["description"] = "clock".into();
    tool["_meta"] = json!({"ui": {"visibility": visibility}});
    tool
}

#[test]
fn tools_of_user_interfaces_are_offered_to_no_model() {
    let tools = [
        seen_by("apps", &json!(["app"])),
        seen_by("models", &json!(["model"])),
        seen_by("both", &json!(["app", "model"])),
        seen_by("unsaid", &json!([])),
        seen_by("odd", &json!("app")),
    ];
    let snapshot = merged(&[with(part("s"), ItemKind::Tools, &tools)]);
    assert_eq!(keys(&snapshot, ItemKind::Tools).len(), 5);
    let offered = ["s__models", "s__both", "s__unsaid", "s__odd"];
    let listed: Vec<&str> = snapshot.tools_for_models().map(|(name, _)| name).collect();
    assert_eq!(listed, offered);
    let found = snapshot.find_tools("clock", 9).into_iter();
    let mut found: Vec<&str> = found.map(|(name, _)| name).collect();
    found.sort_by_key(|name| offered.iter().position(|it| it == name));
    assert_eq!(found, offered);
}

#[test]
fn tools_of_user_interfaces_can_stay_in_the_view_of_their_server() {
    let tools = [seen_by("apps", &json!(["app"])), tool("other")];
    let part = Arc::new(with(part("s"), ItemKind::Tools, &tools));
    for (own_apps, is_one_server, shown) in [
        (false, false, &["s__apps", "s__other"][..]),
        (true, false, &["s__other"]),
        (true, true, &["s__apps", "s__other"]),
    ] {
        let names = NameSettings {
            own_apps,
            ..NameSettings::default()
        };
        let settings = CatalogSettings {
            is_one_server,
            ..settings()
        };
        let snapshot = merge(&[(part.clone(), names)], &settings);
        assert_eq!(keys(&snapshot, ItemKind::Tools), shown);
        let hidden = snapshot.unlisted(ItemKind::Tools, "s__apps");
        assert!(hidden.is_none(), "a hidden tool is called");
    }
}

#[test]
fn an_interface_in_a_result_is_read_from_the_server_of_the_result() {
    let declaring = |name: &str, uris: &[&str]| {
        let mut part = resources(name, uris, &[]);
        part.capabilities = json!({"resources": {}}).as_object().unwrap().clone();
        part
    };
    let snapshot = merged(&[declaring("a", &["ui://app"]), declaring("b", &["ui://own"])]);
    let shown = |of: &str, uri: &str| {
        let result = json!({"content": [], "_meta": {"ui": {"resourceUri": uri}}});
        let result = RawJson::from_value(&result);
        let rewritten = snapshot.rewrite_result(&server(of), &Method::ToolsCall, &result);
        let result = rewritten.unwrap_or(result);
        let result: Value = serde_json::from_str(result.as_str()).unwrap();
        result["_meta"]["ui"]["resourceUri"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    for (of, uri, expected) in [
        ("a", "ui://app", "ui://app"),
        ("b", "ui://own", "ui://own"),
        // The server `a` lists it, and `b` has another page by this name.
        ("b", "ui://app", "ui://b/app"),
        // No other server has it.
        ("b", "ui://b/page", "ui://b/page"),
        ("b", "https://a.example/", "https://a.example/"),
    ] {
        assert_eq!(shown(of, uri), expected, "{of} {uri}");
    }
    let owner = snapshot.resource("ui://b/app", None).unwrap();
    assert_eq!((owner.server, &*owner.native), (server("b"), "ui://app"));
    let owner = snapshot.resource("ui://app", None).unwrap();
    assert_eq!(owner.server, server("a"));
}
