use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::protocol::{Envelope, splice};

use Revision::{V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28};

fn raw(value: &Value) -> RawJson {
    RawJson::from_value(value)
}

fn result(method: Method, value: &Value, from: Revision, to: Revision) -> Option<Value> {
    let projected = project_result(&method, &raw(value), Revisions { from, to }, false);
    projected.map(|raw| raw.parse().unwrap())
}

fn item(kind: ItemKind, value: &Value, from: Revision, to: Revision) -> Option<Value> {
    project_item(kind, &raw(value), Revisions { from, to }).map(|raw| raw.parse().unwrap())
}

#[test]
fn results_are_unchanged_within_a_revision_and_towards_newer_ones() {
    let call = json!({ "content": [{ "type": "audio" }, { "type": "resource_link", "uri": "u", "name": "n" }],
        "structuredContent": { "a": 1 }, "vendor": 1 });
    for revision in Revision::ALL {
        assert_eq!(result(Method::ToolsCall, &call, revision, revision), None);
    }
    for (from, to) in [(V2024_11_05, V2025_03_26), (V2025_06_18, V2025_11_25)] {
        assert_eq!(result(Method::ToolsCall, &call, from, to), None);
    }
    assert_eq!(
        result(
            Method::ToolsCall,
            &json!({ "content": [] }),
            V2025_11_25,
            V2026_07_28
        ),
        None
    );
}

#[test]
fn unknown_fields_pass_within_an_era_and_are_dropped_between_them() {
    let call = json!({ "content": [], "vendor": 1, "_meta": { "a/b": 1 } });
    let kept = json!({ "content": [], "_meta": { "a/b": 1 } });
    assert_eq!(
        result(Method::ToolsCall, &call, V2025_11_25, V2025_03_26),
        None
    );
    assert_eq!(
        result(Method::ToolsCall, &call, V2025_11_25, V2026_07_28),
        Some(kept.clone())
    );
    let modern = json!({ "resultType": "complete", "content": [], "vendor": 1,
        "_meta": { "io.modelcontextprotocol/serverInfo": {}, "a/b": 1 } });
    assert_eq!(
        result(Method::ToolsCall, &modern, V2026_07_28, V2025_11_25),
        Some(kept)
    );
    let read =
        json!({ "resultType": "complete", "ttlMs": 0, "cacheScope": "public", "contents": [] });
    assert_eq!(
        result(Method::ResourcesRead, &read, V2026_07_28, V2024_11_05),
        Some(json!({ "contents": [] }))
    );
    let other = Method::Other("vendor/x".into());
    let unknown = json!({ "resultType": "complete", "x": 1 });
    assert_eq!(
        result(other.clone(), &unknown, V2026_07_28, V2025_06_18),
        Some(json!({ "x": 1 }))
    );
    assert_eq!(
        result(other, &json!({ "x": 1 }), V2025_06_18, V2026_07_28),
        None
    );
}

#[test]
fn content_unknown_to_a_revision_becomes_text() {
    let audio = json!({ "type": "audio", "data": "AAAAAAAA", "mimeType": "audio/wav" });
    let link = json!({ "type": "resource_link", "uri": "file:///x", "name": "x",
        "annotations": { "priority": 1 }, "icons": [{ "src": "s" }] });
    let plain_link = json!({ "type": "resource_link", "uri": "file:///x", "name": "x",
        "annotations": { "priority": 1 } });
    let link_text =
        json!({ "type": "text", "text": "x: file:///x", "annotations": { "priority": 1 } });
    let table = [
        (V2025_11_25, None),
        (V2025_06_18, Some(json!([audio, plain_link]))),
        (V2025_03_26, Some(json!([audio, link_text]))),
    ];
    let call = json!({ "content": [audio, link] });
    for (to, content) in table {
        let projected = result(Method::ToolsCall, &call, V2025_11_25, to);
        assert_eq!(
            projected.map(|call| call["content"].clone()),
            content,
            "{to}"
        );
    }
    let oldest = result(Method::ToolsCall, &call, V2025_11_25, V2024_11_05).unwrap();
    let note = oldest["content"][0]["text"].as_str().unwrap();
    assert!(
        note.contains("audio/wav") && note.contains("6 bytes"),
        "{note}"
    );
    let prompt = json!({ "messages": [{ "role": "user", "content": link }] });
    let projected = result(Method::PromptsGet, &prompt, V2025_11_25, V2025_03_26).unwrap();
    assert_eq!(
        projected["messages"][0],
        json!({ "role": "user", "content": link_text })
    );
}

#[test]
fn s_tool_08_structured_content_becomes_text_for_revisions_without_it() {
    let call = |content: Value| json!({ "content": content, "structuredContent": { "a": [1] } });
    let text = json!([{ "type": "text", "text": "{\"a\":[1]}" }]);
    let added = result(
        Method::ToolsCall,
        &call(json!([])),
        V2025_06_18,
        V2025_03_26,
    );
    assert_eq!(added, Some(json!({ "content": text })));
    let said = json!([{ "type": "text", "text": "one" }]);
    let kept = result(
        Method::ToolsCall,
        &call(said.clone()),
        V2026_07_28,
        V2024_11_05,
    );
    assert_eq!(kept, Some(json!({ "content": said })));
    let link = json!([{ "type": "resource_link", "uri": "u:x", "name": "n" }]);
    let both = result(Method::ToolsCall, &call(link), V2025_06_18, V2025_03_26).unwrap();
    assert_eq!(both["content"][0]["text"], "n: u:x");
    assert_eq!(both["content"][1], text[0]);
}

#[test]
fn s_tool_09_structured_content_is_an_object_for_clients_with_a_handshake() {
    let call = |structured: Value| json!({ "content": [], "structuredContent": structured });
    for to in [V2025_06_18, V2025_11_25] {
        let list = result(Method::ToolsCall, &call(json!(["lead-1"])), V2026_07_28, to).unwrap();
        assert_eq!(list["structuredContent"], json!({ "result": ["lead-1"] }));
        let object = result(Method::ToolsCall, &call(json!({ "a": 1 })), V2026_07_28, to);
        assert_eq!(object, None);
        let revisions = Revisions {
            from: V2026_07_28,
            to,
        };
        let wrapped = project_result(
            &Method::ToolsCall,
            &raw(&call(json!({ "a": 1 }))),
            revisions,
            true,
        );
        let wrapped: Value = wrapped.unwrap().parse().unwrap();
        assert_eq!(
            wrapped["structuredContent"],
            json!({ "result": { "a": 1 } })
        );
    }
}

#[test]
fn what_a_server_wrapped_itself_is_not_wrapped_again() {
    let call = json!({ "content": [], "structuredContent": { "result": [1, 2] } });
    let projected = |from| {
        let revisions = Revisions {
            from,
            to: V2025_11_25,
        };
        let result = project_result(&Method::ToolsCall, &raw(&call), revisions, true);
        let result: Value = result.map_or_else(|| call.clone(), |it| it.parse().unwrap());
        result["structuredContent"].clone()
    };
    for older in [V2025_06_18, V2025_11_25] {
        assert_eq!(projected(older), json!({ "result": [1, 2] }));
    }
    // In the newer era, it is what the tool said.
    assert_eq!(
        projected(V2026_07_28),
        json!({ "result": { "result": [1, 2] } })
    );
}

#[test]
fn items_lose_fields_unknown_to_the_reader() {
    let tool = json!({ "name": "n", "title": "T", "description": "d", "inputSchema": { "type": "object" },
        "outputSchema": { "type": "object" }, "annotations": {}, "icons": [], "execution": {},
        "vendor": 1, "_meta": { "ui": 1 } });
    let without = |fields: &[&str]| {
        let mut tool = tool.as_object().unwrap().clone();
        fields
            .iter()
            .for_each(|field| assert!(tool.shift_remove(*field).is_some()));
        Some(Value::Object(tool))
    };
    let new = ["icons", "execution"];
    let table = [
        (V2025_06_18, without(&new)),
        (
            V2025_03_26,
            without(&[&new[..], &["title", "outputSchema"]].concat()),
        ),
        (
            V2024_11_05,
            without(&[&new[..], &["title", "outputSchema", "annotations"]].concat()),
        ),
        (V2026_07_28, without(&["execution", "vendor"])),
        (V2025_11_25, None),
    ];
    for (to, expected) in table {
        assert_eq!(
            item(ItemKind::Tool, &tool, V2025_11_25, to),
            expected,
            "{to}"
        );
    }
    let prompt = json!({ "name": "p", "title": "P", "arguments": [{ "name": "a", "title": "A" }], "later": 1 });
    assert_eq!(
        item(ItemKind::Prompt, &prompt, V2026_07_28, V2025_03_26),
        Some(json!({ "name": "p", "arguments": [{ "name": "a" }] }))
    );
    let resource = json!({ "uri": "u", "name": "r", "size": 1, "mimeType": "t", "icons": [] });
    let plain = json!({ "uri": "u", "name": "r", "size": 1, "mimeType": "t" });
    assert_eq!(
        item(ItemKind::Resource, &resource, V2026_07_28, V2025_06_18),
        Some(plain)
    );
    let template = json!({ "uriTemplate": "u", "name": "r", "annotations": {} });
    assert_eq!(
        item(ItemKind::Template, &template, V2026_07_28, V2024_11_05),
        None
    );
}

#[test]
fn a_non_object_output_schema_is_wrapped() {
    let schema = json!({ "$schema": "s", "type": "array", "items": { "$ref": "#/$defs/lead" },
        "$defs": { "lead": { "type": "object", "properties": { "$ref": { "type": "string" }, "next": { "$ref": "#" } } },
            "own": { "$id": "x:y", "$ref": "#/z" } }, "default": { "$ref": "#/no" } });
    let tool = json!({ "name": "n", "inputSchema": { "type": "object" }, "outputSchema": schema });
    assert!(wraps_structured_output(&raw(&tool)));
    let projected = item(ItemKind::Tool, &tool, V2026_07_28, V2025_11_25).unwrap();
    let output = &projected["outputSchema"];
    assert_eq!(
        (&output["type"], &output["required"]),
        (&json!("object"), &json!(["result"]))
    );
    assert_eq!(output["$schema"], "s");
    let inner = &output["properties"]["result"];
    assert!(inner.get("$schema").is_none());
    assert_eq!(inner["items"]["$ref"], "#/properties/result/$defs/lead");
    let lead = &inner["$defs"]["lead"]["properties"];
    assert_eq!(lead["next"]["$ref"], "#/properties/result");
    assert_eq!(lead["$ref"], json!({ "type": "string" }));
    assert_eq!(inner["$defs"]["own"]["$ref"], "#/z");
    assert_eq!(inner["default"]["$ref"], "#/no");
    let validator = jsonschema::validator_for(&json!({ "type": "object",
        "properties": { "result": { "type": "array", "items": { "$ref": "#/properties/result/$defs/n" },
            "$defs": { "n": { "type": "integer" } } } } })).unwrap();
    assert!(
        validator.is_valid(&json!({ "result": [1] }))
            && !validator.is_valid(&json!({ "result": ["a"] }))
    );
    let object = json!({ "name": "n", "inputSchema": {}, "outputSchema": { "type": "object" } });
    assert!(
        !wraps_structured_output(&raw(&object))
            && !wraps_structured_output(&raw(&json!({ "name": "n" })))
    );
}

#[test]
fn schema_and_result_are_wrapped_together_or_not_at_all_for_every_pair() {
    let content = json!({ "content": [], "structuredContent": { "a": 1 } });
    for schema in [json!({ "type": "object" }), json!({ "type": "array" })] {
        let tool =
            json!({ "name": "n", "inputSchema": { "type": "object" }, "outputSchema": schema });
        let wraps = wraps_structured_output(&raw(&tool));
        for (from, to) in pairs() {
            let shown = item(ItemKind::Tool, &tool, from, to).unwrap_or_else(|| tool.clone());
            let result = project_result(
                &Method::ToolsCall,
                &raw(&content),
                Revisions { from, to },
                wraps,
            );
            let result: Value = result.map_or_else(|| content.clone(), |it| it.parse().unwrap());
            let Some(output) = shown.get("outputSchema") else {
                assert!(to < V2025_06_18, "{from} {to}");
                continue;
            };
            let is_strict = (V2025_06_18..V2026_07_28).contains(&to);
            assert!(
                !is_strict || output["type"] == "object",
                "{from} {to} {shown}"
            );
            let schema_wraps = output["required"] == json!(["result"]);
            let result_wraps = result["structuredContent"].get("result").is_some();
            assert_eq!(schema_wraps, result_wraps, "{from} {to} {shown} {result}");
            assert_eq!(schema_wraps, wraps && is_strict, "{from} {to}");
        }
    }
}

fn pairs() -> impl Iterator<Item = (Revision, Revision)> {
    let to = |from| Revision::ALL.into_iter().map(move |to| (from, to));
    Revision::ALL.into_iter().flat_map(to)
}

#[test]
fn first_revision_results_get_content_for_later_ones() {
    let from = Revision::V2024_10_07;
    for (old, shown) in [(json!("done"), "done"), (json!({ "a": 1 }), r#"{"a":1}"#)] {
        let call = json!({ "toolResult": old, "_meta": { "k": 1 } });
        let expected =
            json!({ "content": [{ "type": "text", "text": shown }], "_meta": { "k": 1 } });
        for to in Revision::ALL.into_iter().filter(|to| *to != from) {
            let projected = result(Method::ToolsCall, &call, from, to);
            assert_eq!(projected, Some(expected.clone()), "{to}");
        }
        assert_eq!(result(Method::ToolsCall, &call, from, from), None);
    }
}

#[test]
fn requests_lose_members_unknown_to_an_older_server() {
    let table = [
        ("completion/complete", V2025_03_26, true, "context"),
        ("completion/complete", V2025_06_18, false, "context"),
        ("tools/call", V2025_11_25, false, "task"),
        ("tools/call", V2025_06_18, true, "task"),
        ("tools/call", V2026_07_28, true, "task"),
        ("tools/call", V2025_11_25, true, "requestState"),
        ("tools/call", V2026_07_28, false, "requestState"),
        ("prompts/get", V2025_06_18, true, "inputResponses"),
        ("vendor/x", V2024_11_05, false, "inputResponses"),
    ];
    for (method, to, removed, member) in table {
        let frame = json!({ "jsonrpc": "2.0", "id": 1, "method": method,
            "params": { member: { "a": 1 }, "name": "x", "arguments": { member: 1 } } });
        let Ok(Envelope::Request(request)) = Envelope::parse(Bytes::from(frame.to_string())) else {
            panic!("no request");
        };
        let mut edits = project_params(&request, to);
        assert_eq!(!edits.is_empty(), removed, "{method} {to} {member}");
        let sent: Value =
            serde_json::from_slice(&splice(request.frame.as_bytes(), &mut edits)).unwrap();
        assert_eq!(sent["params"].get(member).is_none(), removed);
        assert_eq!(sent["params"]["arguments"][member], 1);
    }
}

#[test]
fn progress_has_no_message_in_2024_11_05() {
    let frame = br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":2,"message":"x"}}"#;
    let Ok(Envelope::Notification(progress)) = Envelope::parse(Bytes::from_static(frame)) else {
        panic!("no notification");
    };
    assert!(project_progress(&progress, V2025_03_26).is_empty());
    let sent = splice(frame, &mut project_progress(&progress, V2024_11_05));
    assert!(sent.ends_with(br#""params":{"progressToken":1,"progress":2}}"#));
}

#[test]
fn declarations_say_what_the_reader_knows() {
    let map = |value: Value| -> Map<String, Value> { serde_json::from_value(value).unwrap() };
    let full = map(
        json!({ "elicitation": { "form": {}, "url": {} }, "sampling": { "tools": {} },
        "roots": { "listChanged": true }, "tasks": {}, "experimental": { "x": {} } }),
    );
    let table = [
        (
            V2024_11_05,
            json!({ "sampling": {}, "roots": { "listChanged": true }, "experimental": { "x": {} } }),
        ),
        (
            V2025_06_18,
            json!({ "elicitation": {}, "sampling": {}, "roots": { "listChanged": true }, "experimental": { "x": {} } }),
        ),
        (
            V2026_07_28,
            json!({ "elicitation": { "form": {}, "url": {} }, "sampling": { "tools": {} }, "roots": {}, "experimental": { "x": {} } }),
        ),
    ];
    for (to, expected) in table {
        assert_eq!(
            Value::Object(client_capabilities(&full, to)),
            expected,
            "{to}"
        );
    }
    let only = |value: Value, to| Value::Object(client_capabilities(&map(value), to));
    assert_eq!(
        only(json!({ "elicitation": {} }), V2026_07_28),
        json!({ "elicitation": { "form": {} } })
    );
    assert_eq!(
        only(json!({ "elicitation": { "url": {} } }), V2025_06_18),
        json!({})
    );
}

fn revision() -> impl Strategy<Value = Revision> {
    prop::sample::select(Revision::ALL.to_vec())
}

proptest! {
    #[test]
    fn projections_are_valid_json_idempotent_and_keep_text(
        from in revision(), to in revision(), wrapped in any::<bool>(),
        kind in prop::sample::select(vec!["text", "audio", "resource_link", "image", "later"]),
        words in "\\PC{0,10}", structured in prop::option::of(prop::sample::select(vec!["1", "{}", "[2]"])),
    ) {
        let text = json!({ "type": "text", "text": words });
        let mut call = json!({ "content": [text, { "type": kind, "uri": "u:x", "name": words }], "x": 1 });
        if let Some(structured) = structured {
            call["structuredContent"] = serde_json::from_str(structured).unwrap();
        }
        let (revisions, legs_same) = (Revisions { from, to }, Revisions { from, to: from });
        let projected = project_result(&Method::ToolsCall, &raw(&call), revisions, wrapped);
        if let Some(projected) = projected {
            let value: Value = projected.parse().unwrap();
            prop_assert_eq!(&value["content"][0], &text);
            let again = project_result(&Method::ToolsCall, &projected, revisions, false);
            prop_assert!(again.is_none_or(|again| again == projected));
        }
        let same = project_result(&Method::ToolsCall, &raw(&call), legs_same, false);
        prop_assert!(same.is_none());
    }
}
