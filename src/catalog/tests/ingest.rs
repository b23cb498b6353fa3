//! Tests of which items of a server are shown.

use super::*;
use crate::protocol::json;

/// Lists one valid item beside `bad`, which must be hidden with a reason that contains `why`.
pub(super) fn check_quarantined(kind: ItemKind, bad: &str, why: &str) {
    let good = match kind {
        ItemKind::Tools => tool("good"),
        ItemKind::Prompts => json!({"name": "good"}),
        ItemKind::Resources => resource("file:///good"),
        ItemKind::ResourceTemplates => template("file:///{good}"),
        ItemKind::Skills => skill("good", &[]),
    };
    let list = [raw(bad), RawJson::from_value(&good)];
    let part = part("s").with_list(kind, &list, &IngestLimits::default());
    assert_eq!(part.items(kind).len(), 1, "{bad}");
    let reasons: Vec<_> = part.quarantined().map(|item| item.reason.clone()).collect();
    assert_eq!(reasons.len(), 1, "{bad}");
    assert!(reasons[0].contains(why), "{bad}: {}", reasons[0]);
}

#[test]
fn a_bad_tool_is_hidden_with_its_reason_and_hides_nobody_else() {
    let deep = format!(
        r#"{{"name":"t","inputSchema":{{"type":"object","x":{}{}}}}}"#,
        "[".repeat(5000),
        "]".repeat(5000)
    );
    for (bad, why) in [
        ("1", "expected a map"),
        ("[]", "expected a map"),
        ("{}", "has no `name`"),
        (r#"{"name":1}"#, "`name` must be a string"),
        (r#"{"name":""}"#, "`name` is empty"),
        (r#"{"name":"a\u0007"}"#, "control character"),
        (r#"{"name":"a\nb"}"#, "control character"),
        (r#"{"name":"\ud800"}"#, ""),
        (r#"{"name":"t"}"#, "has no `inputSchema`"),
        (r#"{"name":"t","inputSchema":null}"#, "must be an object"),
        (r#"{"name":"t","inputSchema":"x"}"#, "must be an object"),
        (r#"{"name":"t","inputSchema":[1]}"#, "must be an object"),
        (
            r#"{"name":"t","inputSchema":{"type":null}}"#,
            "must be an object",
        ),
        (
            r#"{"name":"t","inputSchema":{"type":"array"}}"#,
            "must be an object",
        ),
        (
            r#"{"name":"t","inputSchema":{"type":"object","required":"a"}}"#,
            "in `inputSchema`, `required` must be a list of strings",
        ),
        (
            r#"{"name":"t","inputSchema":{"type":"object","required":["a",1]}}"#,
            "in `inputSchema`, `required` must be a list of strings",
        ),
        (
            r#"{"name":"t","inputSchema":{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":[1]}}"#,
            "in `inputSchema`, `properties` must be an object",
        ),
        (
            r#"{"name":"t","inputSchema":{"type":"object"},"outputSchema":{"type":"objekt"}}"#,
            "`outputSchema` is not a valid JSON Schema",
        ),
        (
            r#"{"name":"t","inputSchema":{"type":"object"},"outputSchema":true}"#,
            "`outputSchema` must be an object",
        ),
        (
            r#"{"name":"t","inputSchema":{"type":"object"},"description":1}"#,
            "`description` must be a string",
        ),
        (
            r#"{"name":"t","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":"yes"}}"#,
            "`annotations` must be",
        ),
        (
            r#"{"name":"t","inputSchema":{"type":"object"},"icons":[{}]}"#,
            "`icons` must be",
        ),
        (
            r#"{"name":"t","name":"u","inputSchema":{"type":"object"}}"#,
            "duplicate `name`",
        ),
        (&deep, "recursion limit"),
    ] {
        check_quarantined(ItemKind::Tools, bad, why);
    }
}

/// Defects for which no client drops a list.
#[test]
fn b_rpc_12_a_tool_with_an_invalid_nested_schema_is_listed_with_a_note() {
    let property = |schema: Value| json!({"type": "object", "properties": {"a": schema}});
    let of_dialect = |dialect: &str| json!({"$schema": dialect, "type": "object"});
    let place = |place: &str| format!("`inputSchema` is not a valid JSON Schema at {place}: ");
    let unknown = |member: &str| format!("`{member}` is of a dialect that is not supported, ");
    let input = |schema: Value| json!({"name": "t", "inputSchema": schema});
    let output = |schema: Value| json!({"name": "t", "inputSchema": {"type": "object"}, "outputSchema": schema});
    let draft_3 = "http://json-schema.org/draft-03/schema#";
    for (odd, note) in [
        (
            input(property(json!({"type": "any"}))),
            place("/properties/a/type"),
        ),
        (
            input(property(json!({"required": true}))),
            place("/properties/a/required"),
        ),
        (
            input(property(json!({"exclusiveMinimum": true}))),
            place("/properties/a/exclusiveMinimum"),
        ),
        (
            input(property(json!({"enum": "x"}))),
            place("/properties/a/enum"),
        ),
        (
            input(property(json!({"items": [{}]}))),
            place("/properties/a/items"),
        ),
        (
            input(property(json!({"type": ["string", null]}))),
            place("/properties/a/type"),
        ),
        (
            input(json!({"type": "object", "$defs": [1]})),
            place("/$defs"),
        ),
        (input(of_dialect(draft_3)), unknown("inputSchema")),
        (
            input(of_dialect("https://schemas.example/mine")),
            unknown("inputSchema"),
        ),
        (output(of_dialect(draft_3)), unknown("outputSchema")),
    ] {
        let part = with(part("s"), ItemKind::Tools, &[odd.clone(), tool("good")]);
        assert_eq!(part.items(ItemKind::Tools).len(), 2, "{odd}");
        let snapshot = merged(&[part]);
        let notices: Vec<_> = snapshot.notices().iter().map(ToString::to_string).collect();
        let expected = format!("tool `t` of `s` is listed although {note}");
        assert_eq!(notices.len(), 1, "{notices:?}");
        assert!(notices[0].starts_with(&expected), "{}", notices[0]);
        // As its server wrote it.
        let mut listed = read_all(&snapshot, ItemKind::Tools).remove(0);
        listed["name"] = json!("t");
        assert_eq!(listed, odd);
    }
}

#[test]
fn bad_prompts_resources_and_templates_are_hidden() {
    use ItemKind::{Prompts, ResourceTemplates, Resources};
    for (kind, bad, why) in [
        (
            Prompts,
            r#"{"name":"p","arguments":{}}"#,
            "`arguments` must be",
        ),
        (
            Prompts,
            r#"{"name":"p","arguments":[{"name":1}]}"#,
            "`arguments` must be",
        ),
        (Resources, r#"{"name":"r"}"#, "has no `uri`"),
        (Resources, r#"{"uri":"file:///a"}"#, "has no `name`"),
        (
            Resources,
            r#"{"uri":"http://","name":"r"}"#,
            "`uri` is not a URI",
        ),
        (
            Resources,
            r#"{"uri":"a://b c","name":"r"}"#,
            "space or control",
        ),
        (
            Resources,
            r#"{"uri":"a://b","name":"r","size":"1"}"#,
            "`size` must be",
        ),
        (
            Resources,
            r#"{"uri":"a://b","name":"r","annotations":{"priority":2}}"#,
            "`annotations` must be",
        ),
        (
            ResourceTemplates,
            r#"{"uriTemplate":"a://{b","name":"t"}"#,
            "malformed expression",
        ),
        (
            ResourceTemplates,
            r#"{"uriTemplate":"","name":"t"}"#,
            "is empty",
        ),
    ] {
        check_quarantined(kind, bad, why);
    }
}

#[test]
fn of_two_items_with_one_name_the_first_is_kept() {
    let first = json!({"name": "t", "title": "first", "inputSchema": {"type": "object"}});
    let part = with(
        part("s"),
        ItemKind::Tools,
        &[first.clone(), tool("t"), tool("u")],
    );
    let kept = part.items(ItemKind::Tools);
    assert_eq!(kept.len(), 2);
    assert_eq!(kept[0].raw(), &RawJson::from_value(&first));
    let hidden: Vec<_> = part.quarantined().collect();
    assert_eq!(hidden.len(), 1);
    assert!(hidden[0].reason.contains("is duplicated in the list"));
}

#[test]
fn items_above_the_limits_are_quarantined() {
    let limits = IngestLimits {
        items: 2,
        item_bytes: 100,
        name_bytes: 10,
        uri_bytes: 20,
    };
    let long = json!({"name": "t", "description": "x".repeat(100)});
    let items = [long, tool("a_name_over_ten"), tool("t")];
    let part = part("s").with_list(ItemKind::Tools, &list(&items), &limits);
    let reasons: Vec<_> = part
        .quarantined()
        .map(|item| item.reason.as_str())
        .collect();
    assert_eq!(part.items(ItemKind::Tools), []);
    assert_eq!(reasons.len(), 3);
    assert!(
        reasons[0].ends_with("bytes, the limit is 100"),
        "{}",
        reasons[0]
    );
    assert_eq!(reasons[1], "`name` is longer than 10 bytes");
    assert_eq!(reasons[2], "1 items over the limit of 2");
}

/// The official filesystem server 2025.8.21 lists its tools this way.
#[test]
fn a_schema_without_a_type_gets_type_object() {
    for (written, expected) in [
        ("{}", r#"{"type":"object"}"#),
        (
            r#"{ "$schema":"http://json-schema.org/draft-07/schema#" }"#,
            r#"{"type":"object","$schema":"http://json-schema.org/draft-07/schema#" }"#,
        ),
    ] {
        let list = [raw(&format!(r#"{{"name":"t","inputSchema":{written}}}"#))];
        let part = part("a").with_list(ItemKind::Tools, &list, &IngestLimits::default());
        let expected = format!(r#"{{"name":"t","inputSchema":{expected}}}"#);
        assert_eq!(part.items(ItemKind::Tools)[0].raw().as_str(), expected);
    }
}

#[test]
fn empty_objects_that_php_writes_as_arrays_are_read_as_objects() {
    let table = [
        ("[]", r#"{"type":"object"}"#),
        (
            r#"{"type":"object","properties":[],"required":[]}"#,
            r#"{"type":"object","properties":{},"required":[]}"#,
        ),
        (
            r#"{"type":"object","properties":{"a":{"type":"object","properties":[ ]},"b":[]}}"#,
            r#"{"type":"object","properties":{"a":{"type":"object","properties":{}},"b":{}}}"#,
        ),
        (
            r#"{"type":"object","$defs":[],"additionalProperties":[],"patternProperties":[]}"#,
            r#"{"type":"object","$defs":{},"additionalProperties":{},"patternProperties":{}}"#,
        ),
        (
            r#"{"type":"object","properties":{"a":{"type":"array","items":{"properties":[]},"default":[]}}}"#,
            r#"{"type":"object","properties":{"a":{"type":"array","items":{"properties":{}},"default":[]}}}"#,
        ),
        (
            r#"{"type":"object","default":[],"examples":[],"enum":[[]],"maximum":1.50}"#,
            r#"{"type":"object","default":[],"examples":[],"enum":[[]],"maximum":1.50}"#,
        ),
    ];
    for (written, expected) in table {
        let list = [raw(&format!(
            r#"{{"name":"t","inputSchema":{written},"_meta":[]}}"#
        ))];
        let part = part("a").with_list(ItemKind::Tools, &list, &IngestLimits::default());
        let expected = format!(r#"{{"name":"t","inputSchema":{expected},"_meta":{{}}}}"#);
        assert_eq!(part.items(ItemKind::Tools)[0].raw().as_str(), expected);
    }
}

#[test]
fn an_output_schema_follows_the_rule_of_the_input_schema_before_2026_07_28() {
    let of = |revision: Revision, written: &str| {
        let text =
            format!(r#"{{"name":"t","inputSchema":{{"type":"object"}},"outputSchema":{written}}}"#);
        let mut part = part("a");
        part.revision = revision;
        let part = part.with_list(ItemKind::Tools, &[raw(&text)], &IngestLimits::default());
        let item = part.items(ItemKind::Tools)[0].clone();
        (
            json::member(item.raw().as_str(), "outputSchema")
                .unwrap()
                .to_owned(),
            item.wraps_output(),
        )
    };
    let table = [
        ("{}", r#"{"type":"object"}"#, "{}"),
        ("[]", r#"{"type":"object"}"#, "{}"),
        (
            r#"{"anyOf":[{}]}"#,
            r#"{"type":"object","anyOf":[{}]}"#,
            r#"{"anyOf":[{}]}"#,
        ),
        (
            r#"{"properties":[]}"#,
            r#"{"type":"object","properties":{}}"#,
            r#"{"properties":{}}"#,
        ),
        (
            r#"{"type":"array"}"#,
            r#"{"type":"array"}"#,
            r#"{"type":"array"}"#,
        ),
        (
            r#"{"type":"object"}"#,
            r#"{"type":"object"}"#,
            r#"{"type":"object"}"#,
        ),
    ];
    for (written, legacy, modern) in table {
        for revision in Revision::LEGACY {
            let wraps = legacy.contains("array");
            assert_eq!(
                of(revision, written),
                (legacy.to_owned(), wraps),
                "{written}"
            );
        }
        let wraps = !modern.contains(r#""type":"object""#);
        assert_eq!(
            of(Revision::NEWEST, written),
            (modern.to_owned(), wraps),
            "{written}"
        );
    }
}

#[test]
fn null_is_removed_only_where_a_member_is_optional() {
    let written = r#"{ "name":"t" , "title":null,"x":null,"inputSchema":{"type":"object" },"annotations":{"title":null,"readOnlyHint":true},"y": 1.0}"#;
    let part = part("s").with_list(ItemKind::Tools, &[raw(written)], &IngestLimits::default());
    let item = &part.items(ItemKind::Tools)[0];
    let expected = r#"{"name":"t","x":null,"inputSchema":{"type":"object" },"annotations":{"readOnlyHint":true},"y":1.0}"#;
    assert_eq!(item.raw().as_str(), expected);
    assert!(item.hints().read_only);
}

#[test]
fn a_refresh_that_changes_nothing_is_equal() {
    let old = tools("s", &["a", "b"]);
    let again = with(old.clone(), ItemKind::Tools, &[tool("a"), tool("b")]);
    assert_eq!(old, again);
    assert_ne!(
        old,
        with(again.clone(), ItemKind::Tools, &[tool("b"), tool("a")])
    );
    assert_ne!(old, with(again, ItemKind::Tools, &[tool("a")]));
}

#[test]
fn missing_hints_have_the_protocols_defaults() {
    let annotated = json!({
        "name": "t", "inputSchema": {"type": "object"},
        "annotations": {"destructiveHint": false, "idempotentHint": true, "z": 1},
    });
    let part = with(part("s"), ItemKind::Tools, &[annotated, tool("u")]);
    let snapshot = merged(&[part]);
    let hints = |name| {
        let hints = snapshot.tool(name).unwrap().hints;
        (hints.read_only, hints.destructive, hints.idempotent)
    };
    assert_eq!(hints("s__t"), (false, false, true));
    assert_eq!(hints("s__u"), (false, true, false));
}

/// Validating a schema recurses with its depth, and a stack overflow would end the process; the
/// time must not explode either, although every level of a meta-schema tries several alternatives.
#[test]
fn the_deepest_schemas_fit_a_small_stack() {
    let drafts = [
        "http://json-schema.org/draft-04/schema#",
        "http://json-schema.org/draft-06/schema#",
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    ];
    let levels = [
        (r#"{"not":"#, "}"),
        (r#"{"properties":{"a":"#, "}}"),
        (r#"{"allOf":["#, "]}"),
        (r#"{"items":"#, "}"),
        (r#"{"items":["#, "]}"),
        (r#"{"additionalProperties":"#, "}"),
        (r#"{"dependencies":{"a":"#, "}}"),
        (r#"{"$defs":{"a":"#, "}}"),
    ];
    for (draft, (open, close)) in drafts.iter().flat_map(|draft| levels.map(|l| (*draft, l))) {
        for (depth, leaf) in [(60, "{}"), (121, "{}"), (121, r#"{"type":1}"#), (500, "{}")] {
            let nested = format!("{}{leaf}{}", open.repeat(depth), close.repeat(depth));
            let schema = format!(r#"{{"$schema":"{draft}","type":"object","not":{nested}}}"#);
            let list = [raw(&format!(r#"{{"name":"t","inputSchema":{schema}}}"#))];
            let check = move || {
                let part = part("s").with_list(ItemKind::Tools, &list, &IngestLimits::default());
                part.items(ItemKind::Tools).len() + part.quarantined().count()
            };
            let small = std::thread::Builder::new().stack_size(1024 * 1024);
            assert_eq!(small.spawn(check).unwrap().join().unwrap(), 1);
        }
    }
}
