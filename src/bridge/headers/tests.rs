use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::protocol::{Envelope, RawJson};

const REVISION: &str = "2026-07-28";

fn request(method: &str, params: &Value) -> Request {
    let frame = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    match Envelope::parse(Bytes::from(frame.to_string())) {
        Ok(Envelope::Request(request)) => request,
        other => panic!("{other:?}"),
    }
}

struct Pairs<'a>(&'a [(&'a str, &'a str)]);

impl HttpHeaders for Pairs<'_> {
    fn first(&self, name: &str) -> Option<(&[u8], bool)> {
        let named = |pair: &&(&str, &str)| pair.0.eq_ignore_ascii_case(name);
        let mut found = self.0.iter().filter(named);
        let (_, value) = found.next()?;
        Some((value.as_bytes(), found.next().is_some()))
    }

    fn params(&self) -> Vec<(&str, &[u8])> {
        let is_param = |name: &str| name.to_ascii_lowercase().starts_with(PARAM_PREFIX);
        let found = self.0.iter().filter(|(name, _)| is_param(name));
        found
            .map(|(name, value)| (*name, value.as_bytes()))
            .collect()
    }
}

fn tool(properties: &Value) -> RawJson {
    let schema = json!({ "type": "object", "properties": properties });
    RawJson::from_value(&json!({ "name": "t", "inputSchema": schema }))
}

#[test]
fn s_hdr_05_and_17_the_name_applies_to_some_methods() {
    let table = [
        ("tools/call", json!({ "name": "a" }), Some("a")),
        ("prompts/get", json!({ "name": "b" }), Some("b")),
        (
            "resources/read",
            json!({ "uri": "file:///c" }),
            Some("file:///c"),
        ),
        ("tasks/get", json!({ "taskId": "t" }), Some("t")),
        ("tasks/update", json!({ "taskId": "t" }), Some("t")),
        ("tasks/cancel", json!({ "taskId": "t" }), Some("t")),
        ("resources/subscribe", json!({ "uri": "x" }), None),
        ("tools/list", json!({ "name": "a" }), None),
        ("tools/call", json!({}), None),
    ];
    for (method, params, name) in table {
        assert_eq!(
            name_of(&request(method, &params)).as_deref(),
            name,
            "{method}"
        );
    }
}

#[test]
fn s_hdr_04_to_07_headers_must_say_what_the_body_says() {
    let call = request("tools/call", &json!({ "name": "wärme" }));
    let version = ("MCP-Protocol-Version", REVISION);
    let method = ("mcp-METHOD", "tools/call");
    let name = encode("wärme").into_owned();
    let good = [
        version,
        method,
        ("Mcp-Name", name.as_str()),
        ("Accept", "*/*"),
    ];
    assert_eq!(McpHeaders::of(&Pairs(&good)).check(&call, REVISION), Ok(()));
    let padded = [
        version,
        ("Mcp-Method", " tools/call\t"),
        ("Mcp-Name", &name),
    ];
    assert_eq!(
        McpHeaders::of(&Pairs(&padded)).check(&call, REVISION),
        Ok(())
    );
    let wrong: &[&[(&str, &str)]] = &[
        &[method, ("Mcp-Name", &name)],
        &[
            ("MCP-Protocol-Version", "2025-11-25"),
            method,
            ("Mcp-Name", &name),
        ],
        &[version, ("Mcp-Name", &name)],
        &[version, ("Mcp-Method", "TOOLS/CALL"), ("Mcp-Name", &name)],
        &[version, method],
        &[version, method, ("Mcp-Name", "other")],
        &[version, method, ("Mcp-Name", "wärme")],
        &[version, method, ("Mcp-Name", "=?base64?d8Okcm1l?")],
        &[version, method, ("Mcp-Name", "=?base64?!!?=")],
        &[version, method, ("Mcp-Name", &name), ("mcp-name", &name)],
    ];
    for pairs in wrong {
        let error = McpHeaders::of(&Pairs(pairs))
            .check(&call, REVISION)
            .unwrap_err();
        assert!(error.to_string().contains("`mcp-"), "{pairs:?}: {error}");
    }
    let list = request("tools/list", &json!({}));
    assert!(
        McpHeaders::of(&Pairs(&[version, ("Mcp-Method", "tools/list")]))
            .check(&list, REVISION)
            .is_ok()
    );
}

#[test]
fn s_hdr_17_the_name_of_a_task_may_be_missing_but_must_not_differ() {
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let asked = request(method, &json!({ "taskId": "t1" }));
        let standard = [("MCP-Protocol-Version", REVISION), ("Mcp-Method", method)];
        let check = |name: Option<(&str, &str)>| {
            let pairs: Vec<_> = standard.into_iter().chain(name).collect();
            let checked = McpHeaders::of(&Pairs(&pairs)).check(&asked, REVISION);
            checked.is_ok()
        };
        assert!(check(None) && check(Some(("Mcp-Name", "t1"))), "{method}");
        for differs in ["t2", "", "=?base64?!!?="] {
            assert!(!check(Some(("Mcp-Name", differs))), "{method} {differs}");
        }
    }
}

#[test]
fn s_hdr_07_a_name_that_looks_encoded_is_said_only_by_its_encoding() {
    let name = "=?base64?YQ==?=";
    let call = request("tools/call", &json!({ "name": name }));
    let standard = [
        ("MCP-Protocol-Version", REVISION),
        ("Mcp-Method", "tools/call"),
    ];
    for (value, expected) in [(name, false), (&*encode(name), true)] {
        let pairs = [standard[0], standard[1], ("Mcp-Name", value)];
        let checked = McpHeaders::of(&Pairs(&pairs)).check(&call, REVISION);
        assert_eq!(checked.is_ok(), expected, "{value}");
    }
}

#[test]
fn c_http_06_values_are_encoded_as_the_specification_shows() {
    let table = [
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("a b\tc", "a b\tc"),
        ("", "=?base64??="),
    ];
    for (text, value) in table {
        assert_eq!(encode(text), value);
        assert_eq!(decode(value).as_deref(), Some(text));
    }
    let literal = ["SGVsbG8=", "=?base64?SGVsbG8=", "=?BASE64?SGVsbG8=?="];
    for value in literal {
        assert_eq!(decode(value).as_deref(), Some(value));
    }
    for broken in [
        "=?base64?SGVsbG8?=",
        "=?base64?SGVs!!!bG8=?=",
        "=?base64?/w==?=",
    ] {
        assert_eq!(decode(broken), None, "{broken}");
    }
    assert_eq!(decode("=?base64?="), Some("=?base64?=".into()));
}

#[test]
fn s_hdr_15_c_http_08_annotations_break_rules_in_ways_that_are_named() {
    let annotated =
        |kind: Value, name: Value| json!({ "p": { "type": kind, "x-mcp-header": name } });
    let invalid = [
        annotated(json!("string"), json!("")),
        annotated(json!("string"), json!(7)),
        annotated(json!("string"), json!("a b")),
        annotated(json!("string"), json!("a:b")),
        annotated(json!("string"), json!("ä")),
        annotated(json!("string"), json!("a\r\nb")),
        annotated(json!("number"), json!("A")),
        annotated(json!("object"), json!("A")),
        annotated(json!(["string", "null"]), json!("A")),
        json!({ "p": { "x-mcp-header": "A" } }),
        json!({ "p": { "type": "string", "x-mcp-header": "A" },
                "q": { "type": "string", "x-mcp-header": "a" } }),
        json!({ "p": { "type": "array", "items": annotated(json!("string"), json!("A"))["p"] } }),
        json!({ "p": { "oneOf": [annotated(json!("string"), json!("A"))["p"]] } }),
        json!({ "p": { "items": { "type": "object", "properties": annotated(json!("string"), json!("A")) } } }),
    ];
    for properties in invalid {
        let found = ParamHeaders::of_tool(&tool(&properties));
        let error = found.expect_err(&properties.to_string());
        assert!(error.at.starts_with("properties."), "{error}");
        let stripped = strip_annotations(&tool(&properties)).unwrap();
        assert_eq!(
            ParamHeaders::of_tool(&stripped),
            Ok(ParamHeaders::default())
        );
    }
    let root = json!({ "name": "t", "inputSchema": { "type": "string", "x-mcp-header": "A" } });
    assert!(ParamHeaders::of_tool(&RawJson::from_value(&root)).is_err());
    let in_defs = json!({ "name": "t", "inputSchema": { "type": "object",
        "$defs": { "d": { "type": "string", "x-mcp-header": "A" } } } });
    assert!(ParamHeaders::of_tool(&RawJson::from_value(&in_defs)).is_err());
}

#[test]
fn text_that_looks_like_an_annotation_is_ignored() {
    let innocent = json!({
        "x-mcp-header": { "type": "string" },
        "p": { "type": "object", "default": { "x-mcp-header": "A" }, "enum": [{ "x-mcp-header": 1 }] },
    });
    let innocent = tool(&innocent);
    assert!(ParamHeaders::of_tool(&innocent).unwrap().is_empty());
    assert!(strip_annotations(&innocent).is_none());
    assert!(strip_annotations(&tool(&json!({ "p": {} }))).is_none());
}

fn annotated() -> ParamHeaders {
    let properties = json!({
        "region": { "type": "string", "x-mcp-header": "Region" },
        "deep": { "type": "object", "properties": {
            "count": { "type": "integer", "x-mcp-header": "Count" },
        } },
        "dry": { "type": "boolean", "x-mcp-header": "Dry" },
    });
    ParamHeaders::of_tool(&tool(&properties)).unwrap()
}

#[test]
fn c_http_07_arguments_are_repeated_as_headers() {
    let arguments = json!({ "region": "Zürich", "deep": { "count": 42.0 }, "dry": false });
    let headers = annotated();
    let mut found = headers.for_call(Some(&RawJson::from_value(&arguments)));
    found.sort();
    let expected = [
        ("Mcp-Param-Count", "42"),
        ("Mcp-Param-Dry", "false"),
        ("Mcp-Param-Region", &encode("Zürich")),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(found, expected);
    for nothing in [
        json!({}),
        json!({ "region": null, "deep": 1, "dry": [] }),
        json!([]),
    ] {
        assert!(
            annotated()
                .for_call(Some(&RawJson::from_value(&nothing)))
                .is_empty()
        );
    }
    assert!(annotated().for_call(None).is_empty());
}

#[test]
fn s_hdr_08_to_10_parameter_headers_are_checked_against_arguments() {
    let arguments = RawJson::from_value(&json!({ "region": "Hello", "deep": { "count": 42 } }));
    let (region, count) = (("mcp-param-region", "Hello"), ("Mcp-Param-Count", "42"));
    let check = |pairs: &[(&str, &str)]| {
        annotated().check(&McpHeaders::of(&Pairs(pairs)), Some(&arguments))
    };
    let good: &[&[(&str, &str)]] = &[
        &[region, count],
        &[("Mcp-Param-Region", "=?base64?SGVsbG8=?="), count],
        &[region, ("Mcp-Param-Count", "42.0")],
        &[
            region,
            count,
            ("Mcp-Param-Dry", "true"),
            ("Mcp-Param-Other", "x"),
        ],
    ];
    for pairs in good {
        assert_eq!(check(pairs), Ok(()), "{pairs:?}");
    }
    let bad: &[&[(&str, &str)]] = &[
        &[region],
        &[count],
        &[("Mcp-Param-Region", "hello"), count],
        &[("Mcp-Param-Region", "=?base64?SGVsbG8?="), count],
        &[region, ("Mcp-Param-Count", "43")],
        &[region, ("Mcp-Param-Count", "0x2a")],
        &[region, ("Mcp-Param-Count", "4.2e1")],
    ];
    for pairs in bad {
        assert!(check(pairs).is_err(), "{pairs:?}");
    }
    assert_eq!(
        annotated().check(&McpHeaders::of(&Pairs(&[])), None),
        Ok(())
    );
}

proptest! {
    #[test]
    fn every_text_survives_header_encoding(text in "\\PC{0,40}|[ \\t=?base64]{0,20}") {
        let value = encode(&text);
        prop_assert!(value.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte)));
        prop_assert_eq!(value.trim_ascii(), &*value);
        let decoded = decode(&value);
        prop_assert_eq!(decoded.as_deref(), Some(text.as_str()));
    }
}

#[test]
fn s_hdr_12_parameters_that_the_tool_does_not_know_go_on_untouched() {
    let known = json!({ "region": { "type": "string", "x-mcp-header": "Region" } });
    let known = ParamHeaders::of_tool(&tool(&known)).unwrap();
    let unknown = |pairs: &[(&str, &str)]| McpHeaders::of(&Pairs(pairs)).unknown_params(&known);
    let given = [
        ("Mcp-Name", "t"),
        ("mcp-param-region", "w"),
        ("Mcp-Param-Other", "=?base64?w6Q=?="),
        ("mcp-param-other", "again"),
        ("X-Mcp-Param-None", "x"),
    ];
    let expected = [
        ("Mcp-Param-Other".to_owned(), "=?base64?w6Q=?=".to_owned()),
        ("mcp-param-other".to_owned(), "again".to_owned()),
    ];
    assert_eq!(unknown(&given).unwrap(), expected);
    let refused = unknown(&[("mcp-param-other", "ä")]).unwrap_err();
    assert!(refused.to_string().contains("not ASCII"), "{refused}");
    let long = "x".repeat(PASSED_BYTES_MAX);
    let refused = unknown(&[("mcp-param-other", &long)]).unwrap_err();
    assert!(refused.to_string().contains("8192 bytes"), "{refused}");
}
