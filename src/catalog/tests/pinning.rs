//! Tests of pinned and withheld texts.

use super::*;
use crate::catalog::{
    MergeNotice, ModelText, PinKind, PinMode, PinState, PinnedDefinitions, ViewSettings, merge_view,
};

/// A tool with a description.
fn described(name: &str, description: &str) -> Value {
    json!({"name": name, "description": description, "inputSchema": {"type": "object"}})
}

fn listed(tools: &[Value]) -> ServerPart {
    with(part("a"), ItemKind::Tools, tools)
}

/// The only text of a part.
fn only(part: &ServerPart) -> ModelText<'_> {
    part.model_texts().next().unwrap()
}

fn pinned(part: &ServerPart) -> PinnedDefinitions {
    let mut pinned = PinnedDefinitions::default();
    assert!(pinned.pin_first_use(part, true, 7));
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
        assert_eq!(
            pins.state(&server("a"), only(&part)),
            Some(expected),
            "{tool}"
        );
    }
    // A duplicate member is read differently by different readers.
    let twice =
        raw(r#"{"name":"t","description":"d","description":"e","inputSchema":{"type":"object"}}"#);
    let twice = part("a").with_list(ItemKind::Tools, &[twice], &IngestLimits::default());
    let pins = pinned(&listed(&[described("t", "e")]));
    assert_eq!(pins.state(&server("a"), only(&twice)), Some(Changed));
}

#[test]
fn first_seen_tools_are_pinned_and_approvals_are_bounded() {
    let mut pins = PinnedDefinitions::default();
    assert!(
        !pins.pin_first_use(&listed(&[]), true, 1),
        "nothing was there to pin"
    );
    assert!(pins.pin_first_use(&listed(&[described("t", "0")]), true, 1));
    assert!(!pins.pin_first_use(&listed(&[described("t", "1")]), true, 1));
    let versions: Vec<ServerPart> = (0..6)
        .map(|version| listed(&[described("t", &version.to_string())]))
        .collect();
    let state = |pins: &PinnedDefinitions, version: usize| {
        pins.state(&server("a"), only(&versions[version]))
    };
    for (version, part) in versions.iter().enumerate().skip(1) {
        assert_eq!(state(&pins, version), Some(PinState::Changed));
        pins.approve(&server("a"), only(part), 2);
        assert_eq!(state(&pins, version), Some(PinState::Pinned));
    }
    let known: Vec<bool> = (0..6)
        .map(|version| state(&pins, version) == Some(PinState::Pinned))
        .collect();
    assert_eq!(known, [false, false, true, true, true, true]);
    let other = server("b");
    assert_eq!(pins.state(&other, only(&versions[0])), None);

    let mut read = PinnedDefinitions::default();
    assert_eq!(
        read.restore(server("a"), &pins.to_stored(&server("a"), |_| None)),
        Some(())
    );
    assert_eq!(read, pins);
    assert_eq!(read.restore(server("a"), &raw("[]")), None);
}

/// A server with one item of each kind and instructions, with this word in all descriptions.
fn everything(word: &str) -> ServerPart {
    let described = |key: &str, value: &str| json!({"name": "n", key: value, "description": word});
    let part = listed(&[self::described("t", word)]);
    let part = with(
        part,
        ItemKind::Prompts,
        &[json!({"name": "p", "description": word})],
    );
    let part = with(part, ItemKind::Resources, &[described("uri", "r:1")]);
    let template = described("uriTemplate", "t:{x}");
    let part = with(part, ItemKind::ResourceTemplates, &[template]);
    let mut skill = skill("s", &[]);
    skill["frontmatter"]["description"] = word.into();
    let mut part = with(part, ItemKind::Skills, &[skill]);
    part.instructions = Some(format!("Do {word}."));
    part
}

fn block() -> NameSettings {
    NameSettings {
        pins: PinMode::Block,
        ..NameSettings::default()
    }
}

fn merged_blocked(part: &ServerPart, pins: &PinnedDefinitions) -> Snapshot {
    let settings = CatalogSettings {
        pinned: Arc::new(pins.clone()),
        ..settings()
    };
    merge(&[(Arc::new(part.clone()), block())], &settings)
}

#[test]
fn everything_that_a_model_reads_is_pinned_and_withheld_while_it_is_another() {
    let (before, after) = (everything("this"), everything("that"));
    let mut pins = pinned(&before);
    let found: Vec<PinKind> = after.model_texts().map(ModelText::kind).collect();
    assert_eq!(found, PinKind::ALL);
    for (old, new) in before.model_texts().zip(after.model_texts()) {
        assert_eq!(
            pins.state(&server("a"), old),
            Some(PinState::Pinned),
            "{old:?}"
        );
        assert_eq!(
            pins.state(&server("a"), new),
            Some(PinState::Changed),
            "{new:?}"
        );
    }
    let shown = |snapshot: &Snapshot| ItemKind::ALL.map(|kind| keys(snapshot, kind).len());
    let snapshot = merged_blocked(&before, &pins);
    assert_eq!(shown(&snapshot), [1; ItemKind::COUNT]);
    assert!(snapshot.instructions().unwrap().contains("Do this."));

    let snapshot = merged_blocked(&after, &pins);
    assert_eq!(shown(&snapshot), [0; ItemKind::COUNT]);
    assert_eq!(snapshot.suspended_count(&server("a")), 6);
    // Clients keep the approved text, and the URI still belongs to the server.
    assert!(snapshot.instructions().unwrap().contains("Do this."));
    assert_eq!(snapshot.instructions_of(&server("a")), Some("Do this."));
    assert!(snapshot.suspended(ItemKind::Prompts, "a__p").is_some());
    assert!(snapshot.suspended(ItemKind::Tools, "a__p").is_none());
    assert!(snapshot.resource("r:1", None).is_some());
    // The entry of a skill is content that needs approval, and so is one that no list has.
    for uri in ["skill://s/SKILL.md", "skill://t/SKILL.md"] {
        assert!(
            snapshot.withheld_skill(uri, &server("a")).is_some(),
            "{uri}"
        );
    }
    let notices: Vec<String> = snapshot.notices().iter().map(ToString::to_string).collect();
    for words in [
        "tool `t` of `a` is suspended",
        "prompt `p` of `a` is suspended: the definition differs from the approved one; \
         `mcpvisor pins show a p --kind=prompt`",
        "resource `r:1` of `a` is suspended",
        "template `t:{x}` of `a` is suspended",
        "skill `skill://s/SKILL.md` of `a` is suspended",
        "the instructions of `a` are suspended",
    ] {
        assert!(
            notices.iter().any(|notice| notice.contains(words)),
            "{notices:?}"
        );
    }

    for text in after.model_texts() {
        pins.approve(&server("a"), text, 8);
    }
    let snapshot = merged_blocked(&after, &pins);
    assert_eq!(shown(&snapshot), [1; ItemKind::COUNT]);
    assert!(snapshot.instructions().unwrap().contains("Do that."));
}

#[test]
fn what_a_pinned_server_adds_is_new_but_for_resources() {
    let mut pins = pinned(&listed(&[described("t", "d")]));
    let more = with(everything("d"), ItemKind::Tools, &[described("t", "d")]);
    pins.pin_first_use(&more, true, 8);
    let states: Vec<_> = more
        .model_texts()
        .map(|text| (text.kind(), pins.state(&server("a"), text).unwrap()))
        .collect();
    use PinState::{New, Pinned};
    let expected = [
        (PinKind::Tool, Pinned),
        (PinKind::Prompt, New),
        (PinKind::Resource, Pinned),
        (PinKind::Template, New),
        (PinKind::Skill, New),
        (PinKind::Instructions, New),
    ];
    assert_eq!(states, expected);
    let snapshot = merged_blocked(&more, &pins);
    assert_eq!(snapshot.instructions(), None, "none were approved");
    assert_eq!(snapshot.instructions_of(&server("a")), None);
}

fn resources(list: &[Value]) -> ServerPart {
    with(listed(&[described("t", "d")]), ItemKind::Resources, list)
}

#[test]
fn resources_come_and_go_without_a_notice_and_a_known_one_does_not_change() {
    let file = |number: usize, description: &str| json!({"uri": format!("file:///{number}"), "name": "n", "description": description});
    let files: Vec<Value> = (0..3000).map(|number| file(number, "a file")).collect();
    let mut pins = pinned(&resources(&files[..2000]));
    let later = resources(&files[1000..]);
    assert!(pins.pin_first_use(&later, true, 8));
    assert!(!pins.pin_first_use(&later, true, 9));
    let is_quiet = |snapshot: &Snapshot| {
        let mut notices = snapshot.notices().iter();
        !notices.any(|notice| matches!(notice, MergeNotice::Unapproved(_)))
    };
    let snapshot = merged_blocked(&later, &pins);
    assert!(is_quiet(&snapshot));
    assert_eq!(snapshot.count(&server("a"), ItemKind::Resources), 2000);
    // A file is written: its size and time change.
    let mut written = file(1500, "a file");
    written["size"] = json!(7);
    written["annotations"] = json!({"lastModified": "2026-01-01T00:00:00Z"});
    assert!(is_quiet(&merged_blocked(&resources(&[written]), &pins)));
    // A resource that was removed and returns with a different description.
    let back = resources(&[file(500, "read me first"), file(3001, "new")]);
    let snapshot = merged_blocked(&back, &pins);
    assert_eq!(keys(&snapshot, ItemKind::Resources), ["file:///3001"]);
    // Lists of single clients are compared, but pin nothing.
    assert!(!pins.pin_first_use(&resources(&[file(3002, "new")]), false, 9));
    // The number of pins of removed resources is bounded.
    assert!(pins.pin_first_use(&resources(&[file(3003, "new")]), true, 10));
    let kept = |number: usize| {
        let uri = format!("file:///{number}");
        !pins
            .approved(&server("a"), PinKind::Resource, &uri)
            .is_empty()
    };
    assert_eq!((0..3000).filter(|number| kept(*number)).count(), 1000);
    assert!(!kept(0) && kept(2999), "the oldest make room");
}

/// Earlier releases pinned only tools. An upgrade neither suspends anything nor accepts a changed
/// tool.
#[test]
fn pins_of_tools_alone_stay_and_all_else_is_pinned_at_first_sight() {
    let stored =
        json!({"t": [{"approvedAt": 1, "isWhole": true, "definition": described("t", "this")}]});
    let mut pins = PinnedDefinitions::default();
    let read = pins.restore(server("a"), &raw(&stored.to_string()));
    assert_eq!(read, Some(()));
    let first = everything("this");
    assert!(pins.pin_first_use(&first, true, 2));
    assert_eq!(
        merged_blocked(&first, &pins).suspended_count(&server("a")),
        0
    );
    let approved = pins.approved(&server("a"), PinKind::Tool, "t");
    assert_eq!(approved[0].approved_at, 1);
    // A tool that changed with the upgrade is not accepted with the rest.
    let mut pins = PinnedDefinitions::default();
    pins.restore(server("a"), &raw(&stored.to_string()))
        .unwrap();
    let other = with(
        everything("this"),
        ItemKind::Tools,
        &[described("t", "that")],
    );
    assert!(pins.pin_first_use(&other, true, 2));
    assert_eq!(
        merged_blocked(&other, &pins).suspended_count(&server("a")),
        1
    );
    // Stored pins can be read again, even if the secrets in their texts were masked.
    for masked in [None, Some("masked")] {
        let mut read = PinnedDefinitions::default();
        let hide = |text: &str| Some(text.replace("this", masked?));
        let stored = pins.to_stored(&server("a"), hide);
        assert_eq!(stored.as_str().contains("this"), masked.is_none());
        read.restore(server("a"), &stored).unwrap();
        for text in other.model_texts() {
            let state = pins.state(&server("a"), text);
            assert_eq!(read.state(&server("a"), text), state, "{text:?}");
        }
    }
}

/// Earlier pins had no `icons`, `_meta` or `execution`; an update must not require new approvals.
#[test]
fn pins_of_earlier_releases_are_completed_by_the_first_list() {
    let mut tool = described("t", "d");
    tool["icons"] = json!([{"src": "https://a.example/one.png"}]);
    let stored = json!({"t": [{"approvedAt": 1, "definition": described("t", "d")}]});
    let mut pins = PinnedDefinitions::default();
    pins.restore(server("a"), &raw(&stored.to_string()))
        .unwrap();
    let state = |pins: &PinnedDefinitions, tool: &Value| {
        let part = listed(std::slice::from_ref(tool));
        pins.state(&server("a"), only(&part))
    };
    assert_eq!(state(&pins, &tool), Some(PinState::Pinned));
    assert!(pins.pin_first_use(&listed(&[tool.clone()]), true, 2));
    assert!(!pins.pin_first_use(&listed(&[tool.clone()]), true, 2));
    assert_eq!(state(&pins, &tool), Some(PinState::Pinned));
    tool["icons"] = json!([{"src": "https://a.example/two.png"}]);
    assert_eq!(state(&pins, &tool), Some(PinState::Changed));
    assert!(!pins.pin_first_use(&listed(&[tool]), true, 3));
}

/// The catalog of `a` with these tools, of which `kept` and `changed` are pinned.
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
    // This server has no prefix, so its name looks like one of `a`.
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
        // The name of a withheld tool is not given to another tool.
        assert_eq!(of_a[expected.len()..], ["b__a__changed"], "{mode:?}");
        let found = snapshot.notices().iter();
        let found = found.filter(|it| matches!(it, MergeNotice::Unapproved(_)));
        assert_eq!(found.count(), notices, "{mode:?}");
        let is_suspended = mode == PinMode::Block;
        for (name, state) in [("a__changed", PinState::Changed), ("a__new", PinState::New)] {
            assert_eq!(snapshot.tool(name).is_none(), is_suspended, "{name}");
            let suspended = snapshot.suspended(ItemKind::Tools, name);
            let suspended = suspended.map(|tool| tool.state);
            assert_eq!(suspended, is_suspended.then_some(state), "{name}");
            assert!(snapshot.knows(ItemKind::Tools, name));
        }
        let expected = if is_suspended { 2 } else { 0 };
        assert_eq!(snapshot.suspended_count(&server("a")), expected);
        assert_eq!(snapshot.suspended_count(&server("b")), 0);
    }
}

#[test]
fn a_view_withholds_a_tool_under_its_name_in_the_view() {
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
    let suspended = snapshot.suspended(ItemKind::Tools, "mine").unwrap();
    assert_eq!(suspended.state, PinState::Changed);
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
