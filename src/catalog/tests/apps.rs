//! Tests of tools that only user interfaces call.

use super::*;

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
