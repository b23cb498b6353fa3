//! Pinned definitions, and tools that are withheld.

use super::*;
use crate::catalog::{MergeNotice, PinMode, PinState, PinnedTools, ViewSettings, merge_view};

/// A tool with a description.
fn described(name: &str, description: &str) -> Value {
    json!({"name": name, "description": description, "inputSchema": {"type": "object"}})
}

fn listed(tools: &[Value]) -> ServerPart {
    with(part("a"), ItemKind::Tools, tools)
}

fn pinned(part: &ServerPart) -> PinnedTools {
    let mut pinned = PinnedTools::default();
    assert!(pinned.pin_first_use(part, 7));
    pinned
}

#[test]
fn a_definition_is_what_models_read_and_clients_act_on() {
    let base = json!({
        "name": "t", "title": "T", "description": "d", "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": true, "title": "x"}, "_meta": {"a": 1},
    });
    let pins = pinned(&listed(std::slice::from_ref(&base)));
    let with_member = |name: &str, value: Value| {
        let mut tool = base.clone();
        tool[name] = value;
        tool
    };
    let reordered = json!({
        "_meta": {"a": 1}, "annotations": {"title": "x", "readOnlyHint": true},
        "inputSchema": {"type": "object"}, "description": "d", "title": "T", "name": "t",
    });
    use PinState::{Changed, New, Pinned};
    let table = [
        (base.clone(), Pinned),
        (reordered, Pinned),
        (with_member("_meta", json!({"a": 2})), Changed),
        (
            with_member("icons", json!([{"src": "https://a.example/i.png"}])),
            Changed,
        ),
        (
            with_member("execution", json!({"taskSupport": "required"})),
            Changed,
        ),
        (with_member("invented", json!(1)), Changed),
        (with_member("name", json!("u")), New),
        (with_member("title", json!("U")), Changed),
        (with_member("description", json!("d ")), Changed),
        (
            with_member("annotations", json!({"readOnlyHint": false, "title": "x"})),
            Changed,
        ),
        (
            with_member("outputSchema", json!({"type": "object"})),
            Changed,
        ),
        (
            with_member(
                "inputSchema",
                json!({"type": "object", "properties": {"x": {}}}),
            ),
            Changed,
        ),
    ];
    for (tool, expected) in table {
        let part = listed(std::slice::from_ref(&tool));
        let item = &part.items(ItemKind::Tools)[0];
        assert_eq!(pins.state(&server("a"), item), Some(expected), "{tool}");
    }
    // A member that stands twice is read differently by different readers.
    let twice =
        raw(r#"{"name":"t","description":"d","description":"e","inputSchema":{"type":"object"}}"#);
    let twice = part("a").with_list(ItemKind::Tools, &[twice], &IngestLimits::default());
    let pins = pinned(&listed(&[described("t", "e")]));
    let item = &twice.items(ItemKind::Tools)[0];
    assert_eq!(pins.state(&server("a"), item), Some(Changed));
}

#[test]
fn the_first_tools_are_pinned_and_approved_ones_stay_within_bounds() {
    let mut pins = PinnedTools::default();
    assert!(
        !pins.pin_first_use(&listed(&[]), 1),
        "nothing was there to pin"
    );
    assert!(pins.pin_first_use(&listed(&[described("t", "0")]), 1));
    assert!(!pins.pin_first_use(&listed(&[described("t", "1")]), 1));
    let versions: Vec<ServerPart> = (0..6)
        .map(|version| listed(&[described("t", &version.to_string())]))
        .collect();
    let state = |pins: &PinnedTools, version: usize| {
        pins.state(&server("a"), &versions[version].items(ItemKind::Tools)[0])
    };
    for (version, part) in versions.iter().enumerate().skip(1) {
        assert_eq!(state(&pins, version), Some(PinState::Changed));
        pins.approve(&server("a"), &part.items(ItemKind::Tools)[0], 2);
        assert_eq!(state(&pins, version), Some(PinState::Pinned));
    }
    let known: Vec<bool> = (0..6)
        .map(|version| state(&pins, version) == Some(PinState::Pinned))
        .collect();
    assert_eq!(known, [false, false, true, true, true, true]);
    let other = server("b");
    assert_eq!(
        pins.state(&other, &versions[0].items(ItemKind::Tools)[0]),
        None
    );

    let mut read = PinnedTools::default();
    assert_eq!(
        read.restore(server("a"), &pins.to_stored(&server("a"))),
        Some(())
    );
    assert_eq!(read, pins);
    assert_eq!(read.restore(server("a"), &raw("[]")), None);
}

/// Those pins had no `icons`, `_meta` or `execution`; an update must not need new approvals.
#[test]
fn pins_of_earlier_releases_are_completed_by_the_first_list() {
    let mut tool = described("t", "d");
    tool["icons"] = json!([{"src": "https://a.example/one.png"}]);
    let stored = json!({"t": [{"approvedAt": 1, "definition": described("t", "d")}]});
    let mut pins = PinnedTools::default();
    pins.restore(server("a"), &raw(&stored.to_string()))
        .unwrap();
    let state = |pins: &PinnedTools, tool: &Value| {
        let part = listed(std::slice::from_ref(tool));
        pins.state(&server("a"), &part.items(ItemKind::Tools)[0])
    };
    assert_eq!(state(&pins, &tool), Some(PinState::Pinned));
    assert!(pins.pin_first_use(&listed(&[tool.clone()]), 2));
    assert!(!pins.pin_first_use(&listed(&[tool.clone()]), 2));
    assert_eq!(state(&pins, &tool), Some(PinState::Pinned));
    tool["icons"] = json!([{"src": "https://a.example/two.png"}]);
    assert_eq!(state(&pins, &tool), Some(PinState::Changed));
    assert!(!pins.pin_first_use(&listed(&[tool]), 3));
}

/// The catalog of `a` with these tools, where `kept`, `changed` are pinned.
fn merged_with(mode: PinMode, tools: &[Value]) -> Snapshot {
    let before = listed(&[described("kept", "k"), described("changed", "before")]);
    let names = NameSettings {
        pins: mode,
        ..NameSettings::default()
    };
    let settings = CatalogSettings {
        pinned: Arc::new(pinned(&before)),
        ..settings()
    };
    // Without a prefix, as another server would have to be named.
    let other = named(super::tools("b", &["a__changed"]), Some(""));
    merge(&[(Arc::new(listed(tools)), names), other], &settings)
}

#[test]
fn what_is_not_approved_is_withheld_or_told() {
    let tools = [
        described("kept", "k"),
        described("changed", "after"),
        described("new", "n"),
    ];
    let all = ["a__kept", "a__changed", "a__new"];
    let table: [(PinMode, &[&str], usize); 3] = [
        (PinMode::Off, &all, 0),
        (PinMode::Warn, &all, 2),
        (PinMode::Block, &["a__kept"], 2),
    ];
    for (mode, expected, notices) in table {
        let snapshot = merged_with(mode, &tools);
        let shown = keys(&snapshot, ItemKind::Tools);
        let of_a: Vec<&str> = shown.iter().map(String::as_str).collect();
        assert_eq!(of_a[..expected.len()], *expected, "{mode:?}");
        // The name of a tool that is withheld is nobody else's.
        assert_eq!(of_a[expected.len()..], ["b__a__changed"], "{mode:?}");
        let found = snapshot.notices().iter();
        let found = found.filter(|it| matches!(it, MergeNotice::Unapproved(_)));
        assert_eq!(found.count(), notices, "{mode:?}");
        let is_suspended = mode == PinMode::Block;
        for (name, state) in [("a__changed", PinState::Changed), ("a__new", PinState::New)] {
            assert_eq!(snapshot.tool(name).is_none(), is_suspended, "{name}");
            let suspended = snapshot.suspended_tool(name).map(|tool| tool.state);
            assert_eq!(suspended, is_suspended.then_some(state), "{name}");
            assert!(snapshot.knows_tool(name));
        }
        let expected = if is_suspended { 2 } else { 0 };
        assert_eq!(snapshot.suspended_count(&server("a")), expected);
        assert_eq!(snapshot.suspended_count(&server("b")), 0);
    }
}

#[test]
fn a_view_withholds_a_tool_under_its_own_name_for_it() {
    let base = merged_with(PinMode::Block, &[described("changed", "after")]);
    let names = NameSettings {
        pins: PinMode::Block,
        ..NameSettings::default()
    };
    let over = crate::catalog::ToolOverride {
        name: Some("mine".to_owned()),
        ..Default::default()
    };
    let before = listed(&[described("changed", "before")]);
    let view = ViewSettings {
        overrides: [("a__changed".to_owned(), over)].into(),
        ..ViewSettings::default()
    };
    let settings = CatalogSettings {
        overrides: view.overrides,
        pinned: Arc::new(pinned(&before)),
        ..settings()
    };
    let snapshot = merge_view(&base, &[(server("a"), names)], &settings);
    assert_eq!(keys(&snapshot, ItemKind::Tools), Vec::<String>::new());
    let suspended = snapshot.suspended_tool("mine").unwrap();
    assert_eq!(suspended.native, "changed");
}

#[test]
fn hidden_characters_are_told_of_items_and_instructions() {
    let mut part = listed(&[described("t", "read\u{200b}"), described("u", "plain")]);
    part = with(
        part,
        ItemKind::Prompts,
        &[json!({"name": "p", "title": "\u{202e}"})],
    );
    part.instructions = Some("use\u{2066} it".to_owned());
    let snapshot = merged(&[part]);
    let notices: Vec<String> = snapshot.notices().iter().map(ToString::to_string).collect();
    assert_eq!(
        notices,
        [
            "tool `t` of `a` has 1 hidden character (U+200B)",
            "prompt `p` of `a` has 1 hidden character (U+202E)",
            "the instructions of `a` have 1 hidden character (U+2066)",
        ]
    );
}
