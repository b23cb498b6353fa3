//! Tests of URI rewriting in responses and tools.

use super::*;
use crate::catalog::Wrap;
use crate::protocol::Method;

fn snapshot() -> Snapshot {
    merged(&[
        resources("first", &["file:///x"], &[]),
        resources("w", &["file:///x"], &[]),
    ])
}

#[test]
fn uris_are_rewritten_everywhere() {
    let snapshot = snapshot();
    for (method, native, public) in [
        (
            Method::ResourcesRead,
            r#"{"contents":[{"uri":"file:///x","text":"file:///x"},{"uri":"https://e.example/"}], "a" : 1.0}"#,
            r#"{"contents":[{"uri":"mcpgw+w+file:///x","text":"file:///x"},{"uri":"https://e.example/"}], "a" : 1.0}"#,
        ),
        (
            Method::ToolsCall,
            r#"{"content":[{"type":"text","text":"\"uri\""},{"type":"resource_link","uri":"db:\u002f/r","name":"r"},{"type":"resource","resource":{"uri":"ui://app","text":""}}],"structuredContent":{"uri":"file:///x"}}"#,
            r#"{"content":[{"type":"text","text":"\"uri\""},{"type":"resource_link","uri":"mcpgw+w+db://r","name":"r"},{"type":"resource","resource":{"uri":"ui://w/app","text":""}}],"structuredContent":{"uri":"file:///x"}}"#,
        ),
        (
            Method::PromptsGet,
            r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"file:///x","text":""}}},{"role":"user","content":[{"type":"resource_link","uri":"urn:x"}]}]}"#,
            r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"mcpgw+w+file:///x","text":""}}},{"role":"user","content":[{"type":"resource_link","uri":"mcpgw+w+urn:x"}]}]}"#,
        ),
    ] {
        let rewritten = snapshot.rewrite_result(&server("w"), &method, &raw(native));
        assert_eq!(rewritten.unwrap().as_str(), public);
        let kept = snapshot.rewrite_result(&server("first"), &method, &raw(native));
        assert_eq!(kept, None);
        let unknown = snapshot.rewrite_result(&server("unknown"), &method, &raw(native));
        assert_eq!(unknown, None);
    }
    let error = raw(r#"{"code":-32002,"message":"no","data":{"uri":"file:///y"}}"#);
    let rewritten = snapshot.rewrite_error(&server("w"), &error).unwrap();
    let expected = r#"{"code":-32002,"message":"no","data":{"uri":"mcpgw+w+file:///y"}}"#;
    assert_eq!(rewritten.as_str(), expected);
}

#[test]
fn malformed_responses_stay_unchanged() {
    let snapshot = snapshot();
    for odd in [
        "null",
        r#"{"content":"uri"}"#,
        r#"{"content":[1,null,{"type":7,"uri":"file:///x"}]}"#,
        r#"{"content":[{"type":"resource","resource":"uri"}]}"#,
        r#"{"content":[{"type":"resource_link","uri":{"uri":1}}]}"#,
        r#"{"content":{"type":"text","uri":"file:///x"}}"#,
    ] {
        let result = snapshot.rewrite_result(&server("w"), &Method::ToolsCall, &raw(odd));
        assert_eq!(result, None, "{odd}");
        assert_eq!(
            snapshot.rewrite_error(&server("w"), &raw(odd)),
            None,
            "{odd}"
        );
    }
}

#[test]
fn deeply_nested_responses_are_handled() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let deep = raw(&format!(
        r#"{{"content":[{deep},{{"type":"resource_link","uri":"a://b"}}]}}"#
    ));
    let rewritten = snapshot()
        .rewrite_result(&server("w"), &Method::ToolsCall, &deep)
        .unwrap();
    assert!(rewritten.as_str().ends_with(r#""uri":"mcpgw+w+a://b"}]}"#));
}

#[test]
fn a_tools_interface_is_routed_to_its_server() {
    let app = |old: &str, new: &str| {
        json!({
            "name": "t", "inputSchema": {"type": "object"},
            "_meta": {"ui": {"resourceUri": new, "x": 1}, "ui/resourceUri": old},
        })
    };
    let part = |name: &str| {
        let part = resources(name, &["ui://app"], &[]);
        with(part, ItemKind::Tools, &[app("ui://app", "ui://app")])
    };
    let listed = read_all(&merged(&[part("a"), part("b")]), ItemKind::Tools);
    assert_eq!(listed[0]["_meta"], app("ui://app", "ui://app")["_meta"]);
    assert_eq!(listed[1]["_meta"], app("ui://b/app", "ui://b/app")["_meta"]);
}

#[test]
fn a_link_to_what_nobody_lists_names_its_server_only_if_its_uris_are_wrapped() {
    let parts = [
        resources("first", &["file:///a"], &[]),
        resources("second", &["file:///b"], &[]),
    ];
    let linked = raw(r#"{"content":[{"type":"resource_link","uri":"file:///c","name":"c"}]}"#);
    let of_second = |snapshot: &Snapshot| {
        snapshot.rewrite_result(&server("second"), &Method::ToolsCall, &linked)
    };
    let snapshot = merged(&parts);
    assert_eq!(of_second(&snapshot), None);
    let owner = snapshot.resource("file:///c", None).unwrap();
    assert_eq!(owner.server, server("first"));
    let always = parts.map(|part| {
        let names = NameSettings {
            wrap: Wrap::Always,
            ..NameSettings::default()
        };
        (Arc::new(part), names)
    });
    let snapshot = merge(&always, &settings());
    let wrapped = of_second(&snapshot).unwrap();
    assert!(wrapped.as_str().contains(r#""mcpgw+second+file:///c""#));
    let owner = snapshot.resource("mcpgw+second+file:///c", None).unwrap();
    assert_eq!(owner.server, server("second"));
}

/// A result that names a URI in each place that can have one.
fn naming(uri: &str) -> [(crate::protocol::Method, Value); 6] {
    let link = json!({"type": "resource_link", "uri": uri, "name": "r"});
    let embedded = json!({"type": "resource", "resource": {"uri": uri, "text": ""}});
    let meta = |meta: Value| json!({"content": [], "_meta": meta});
    [
        (Method::ToolsCall, json!({"content": [link]})),
        (Method::ToolsCall, meta(json!({"ui": {"resourceUri": uri}}))),
        (Method::ToolsCall, meta(json!({"ui/resourceUri": uri}))),
        (
            Method::ToolsCall,
            meta(json!({"openai/outputTemplate": uri})),
        ),
        (
            Method::PromptsGet,
            json!({"messages": [{"role": "user", "content": embedded}]}),
        ),
        (
            Method::ResourcesRead,
            json!({"contents": [{"uri": uri, "text": ""}]}),
        ),
    ]
}

#[test]
fn every_uri_in_a_result_is_rewritten_or_collected() {
    let declaring = |mut part: ServerPart| {
        part.capabilities = json!({"resources": {}}).as_object().unwrap().clone();
        part
    };
    let wrapped = ["first", "w"].map(|name| declaring(resources(name, &["file:///x"], &[])));
    let wrapped = merged(&wrapped);
    let open = [("a", "file:///x"), ("b", "file:///y")];
    let open = merged(&open.map(|(name, uri)| declaring(resources(name, &[uri], &[]))));
    let alone = merged(&[declaring(resources("a", &["file:///x"], &[]))]);
    let public = naming("ui://w/app").map(|(_, result)| RawJson::from_value(&result));
    for ((method, result), public) in naming("ui://app").into_iter().zip(public) {
        let result = RawJson::from_value(&result);
        let rewritten = wrapped.rewrite_result(&server("w"), &method, &result);
        assert_eq!(rewritten, Some(public));
        // The wrapped URI names its server.
        let named =
            |snapshot: &Snapshot, name| snapshot.named_uris(&server(name), &method, &result);
        assert!(named(&wrapped, "w").is_empty());
        assert_eq!(open.rewrite_result(&server("a"), &method, &result), None);
        assert_eq!(named(&open, "a"), ["ui://app"]);
        assert!(named(&alone, "a").is_empty());
    }
    let many: Vec<_> = (0..300).map(|n| json!({"uri": format!("x:{n}")})).collect();
    let many = RawJson::from_value(&json!({ "contents": many }));
    let named = open.named_uris(&server("a"), &Method::ResourcesRead, &many);
    assert_eq!(named.len(), crate::catalog::NAMED_URIS_MAX);
}
