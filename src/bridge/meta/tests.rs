use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::protocol::{Envelope, splice};

fn request(text: &str) -> Request {
    match Envelope::parse(Bytes::copy_from_slice(text.as_bytes())) {
        Ok(Envelope::Request(request)) => request,
        other => panic!("{other:?}"),
    }
}

fn with_meta(meta: &str) -> Request {
    request(&format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"x","_meta":{meta}}}}}"#
    ))
}

const CLIENT: &str = r#"{"name":"gateway","version":"1"}"#;

fn declaration() -> MetaDeclaration {
    let capabilities = json!({ "roots": {} });
    MetaDeclaration::new(Revision::V2026_07_28, capabilities.as_object().unwrap())
}

fn applied(request: &Request, edit: Edit) -> (String, Value) {
    let frame = splice(request.frame.as_bytes(), &mut [edit]);
    Envelope::parse(frame.clone()).unwrap();
    let text = String::from_utf8(frame.to_vec()).unwrap();
    let value = serde_json::from_str(&text).unwrap();
    (text, value)
}

#[test]
fn a_client_declaration_is_replaced_cached_or_not() {
    let ours = declaration();
    let bare = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
    let another = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","a/b":1}"#;
    for meta in [bare, bare, another, bare, another, "{}"] {
        let request = with_meta(meta);
        let (_, sent) = applied(
            &request,
            ours.edit(&request, CLIENT, None, Some(&RequestId::from(5)), None),
        );
        let (_, alone) = applied(
            &request,
            declaration().edit(&request, CLIENT, None, Some(&RequestId::from(5)), None),
        );
        assert_eq!(sent, alone, "{meta}");
        let kept = sent["params"]["_meta"].get("a/b");
        assert_eq!(kept.is_some(), meta == another, "{meta}");
    }
}

#[test]
fn a_claim_is_read_completely() {
    let claim = RequestMeta::read(&with_meta(
        r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28",
            "io.modelcontextprotocol/clientInfo":{"name":"H","version":"3","icons":[]},
            "io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}},"mine":1},
            "io.modelcontextprotocol/logLevel":"warning","progressToken":"p7","a/b":1}"#,
    ))
    .unwrap();
    assert_eq!(claim.revision, "2026-07-28");
    assert_eq!(claim.level, Some(LogLevel::Warning));
    assert_eq!(claim.progress_token.unwrap().as_str(), r#""p7""#);
    assert!(claim.client.unwrap().as_str().contains("icons"));
    assert_eq!(claim.capabilities["elicitation"], json!({ "form": {} }));
}

#[test]
fn s_life_14_and_15_a_claim_needs_version_and_capabilities_only() {
    let least = r#"{"io.modelcontextprotocol/protocolVersion":"x","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let claim = RequestMeta::read(&with_meta(least)).unwrap();
    assert!(claim.client.is_none() && claim.level.is_none() && claim.progress_token.is_none());
    let missing = [
        ("{}", VERSION),
        (
            r#"{"io.modelcontextprotocol/clientCapabilities":{}}"#,
            VERSION,
        ),
        (
            r#"{"io.modelcontextprotocol/protocolVersion":"x"}"#,
            CAPABILITIES,
        ),
    ];
    for (meta, member) in missing {
        let error = RequestMeta::read(&with_meta(meta)).unwrap_err();
        assert_eq!(error, InvalidMeta::Missing(member), "{meta}");
    }
    let without = request(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
    assert_eq!(
        RequestMeta::read(&without),
        Err(InvalidMeta::Missing(VERSION))
    );
}

#[test]
fn a_claim_with_a_wrong_member_names_it() {
    let wrong = [
        (VERSION, "1"),
        (CLIENT_INFO, r#"{"name":"x"}"#),
        (CLIENT_INFO, r#"["x","y"]"#),
        (CAPABILITIES, "[]"),
        (CAPABILITIES, r#"{"sampling":true}"#),
        (LOG_LEVEL, r#""loud""#),
        (PROGRESS_TOKEN, "1.5"),
        (PROGRESS_TOKEN, "{}"),
    ];
    for (name, value) in wrong {
        let mut meta = json!({ VERSION: "x", CAPABILITIES: {} });
        meta[name] = serde_json::from_str(value).unwrap();
        let error = RequestMeta::read(&with_meta(&meta.to_string())).unwrap_err();
        let named = matches!(error, InvalidMeta::Invalid { member, .. } if member == name);
        assert!(named, "{name}: {error}");
    }
    let twice = format!(r#"{{"{VERSION}":"x","{VERSION}":"y","{CAPABILITIES}":{{}}}}"#);
    assert!(RequestMeta::read(&with_meta(&twice)).is_err());
}

#[test]
fn a_legacy_server_receives_no_reserved_members_but_all_others() {
    let request = with_meta(
        r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28", "traceparent":"00-a",
            "progressToken":"mine","com.example/x": {"y" : 1}}"#,
    );
    let (text, value) = applied(
        &request,
        strip_for_legacy(&request, Some(&RequestId::from(11))).unwrap(),
    );
    let meta = &value["params"]["_meta"];
    assert_eq!(
        *meta,
        json!({ "progressToken": 11, "traceparent": "00-a", "com.example/x": { "y": 1 } })
    );
    assert!(text.contains(r#""com.example/x": {"y" : 1}"#), "{text}");
    let (_, value) = applied(&request, strip_for_legacy(&request, None).unwrap());
    assert!(value["params"]["_meta"].get("progressToken").is_none());
    assert!(
        strip_for_legacy(
            &with_meta(r#"{"traceparent":"x"}"#),
            Some(&RequestId::from(1))
        )
        .is_none()
    );
}

#[test]
fn c_life_06_a_modern_server_gets_the_declaration_wherever_it_has_to_be_made() {
    let frames = [
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
        r#" { "jsonrpc":"2.0","id":1,"method":"tools/list","params":null}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{ }}"#,
        r#"{"params":{"cursor":"a"},"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":null,"cursor":"a"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"_meta","arguments":{"_meta":{}}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{}}}"#,
    ];
    for frame in frames {
        let request = request(frame);
        let edit = declaration().edit(
            &request,
            CLIENT,
            Some(LogLevel::Info),
            Some(&RequestId::from(7)),
            None,
        );
        let (_, value) = applied(&request, edit);
        let meta = &value["params"]["_meta"];
        assert_eq!(meta[VERSION], "2026-07-28", "{frame}");
        assert_eq!(meta[CAPABILITIES], json!({ "roots": {} }), "{frame}");
        assert_eq!(meta[CLIENT_INFO]["name"], "gateway", "{frame}");
        assert_eq!(
            (&meta[LOG_LEVEL], &meta[PROGRESS_TOKEN]),
            (&json!("info"), &json!(7))
        );
        if frame.contains("cursor") {
            assert_eq!(value["params"]["cursor"], "a");
        }
    }
}

#[test]
fn a_clients_own_declaration_is_replaced_and_its_extensions_stay() {
    let request = with_meta(
        r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28",
            "io.modelcontextprotocol/clientCapabilities":{"sampling":{}},
            "io.modelcontextprotocol/logLevel":"debug","progressToken":"p",
            "io.modelcontextprotocol/later":[1],"traceparent":"00-b"}"#,
    );
    let (_, value) = applied(
        &request,
        declaration().edit(&request, CLIENT, None, None, None),
    );
    let meta = value["params"]["_meta"].as_object().unwrap();
    assert_eq!(meta[CAPABILITIES], json!({ "roots": {} }));
    assert!(!meta.contains_key(LOG_LEVEL) && !meta.contains_key(PROGRESS_TOKEN));
    assert_eq!(meta["io.modelcontextprotocol/later"], json!([1]));
    assert_eq!(meta["traceparent"], "00-b");
}

#[test]
fn a_server_receives_only_the_trace_context_of_its_attempt() {
    let ours = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let metas = [
        "{}",
        r#"{"traceparent":"00-theirs","tracestate":"a=1","progressToken":"p"}"#,
        r#"{"com.example/x":1,"io.modelcontextprotocol/logLevel":"debug"}"#,
    ];
    let frames = metas.map(with_meta).into_iter();
    let frames = frames.chain([request(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#)]);
    let token = RequestId::from(7);
    for request in frames {
        let legacy = trace_for_legacy(&request, Era::Modern, &token, ours);
        let modern = declaration().edit(&request, CLIENT, None, Some(&token), Some(ours));
        for edit in [legacy, modern] {
            let (text, value) = applied(&request, edit);
            let meta = &value["params"]["_meta"];
            assert_eq!(text.matches("traceparent").count(), 1, "{text}");
            assert_eq!(text.matches("progressToken").count(), 1, "{text}");
            assert_eq!(
                (&meta["traceparent"], &meta["progressToken"]),
                (&json!(ours), &json!(7))
            );
            assert!(meta.get(LOG_LEVEL).is_none(), "{text}");
            let before: Value = serde_json::from_str(request.frame.as_str()).unwrap();
            for kept in ["tracestate", "com.example/x"] {
                assert_eq!(meta[kept], before["params"]["_meta"][kept], "{text}");
            }
        }
    }
}

#[test]
fn a_traceparent_must_be_a_string() {
    let table = [
        (r#"{"traceparent":"00-a\u002db"}"#, Some("00-a-b")),
        (r#"{"tr\u0061ceparent":"00-c"}"#, Some("00-c")),
        (r#"{"traceparent":7}"#, None),
        (r#"{"a":{"traceparent":"00-a"}}"#, None),
        ("{}", None),
        ("7", None),
    ];
    for (meta, expected) in table {
        let request = with_meta(meta);
        assert_eq!(traceparent_of(&request).as_deref(), expected, "{meta}");
    }
}

proptest! {
    #[test]
    fn vendor_members_survive_byte_for_byte(number in any::<i64>(), text in "[a-z \\\\u00e9]{0,8}") {
        let vendor = format!("\"com.example/x\" :  [{number}.50e1, {}]", json!(text));
        let request = with_meta(&format!(r#"{{"{VERSION}":"x", {vendor} ,"{CAPABILITIES}":{{}}}}"#));
        let (modern, _) = applied(&request, declaration().edit(&request, CLIENT, None, Some(&RequestId::from(1)), None));
        prop_assert!(modern.contains(&vendor));
        let (legacy, _) = applied(&request, strip_for_legacy(&request, Some(&RequestId::from(1))).unwrap());
        prop_assert!(legacy.contains(&vendor));
    }
}

#[test]
fn s_life_21_the_body_decides_the_era_of_a_message() {
    let table = [
        (
            "tools/list",
            json!({ "_meta": { VERSION: "2026-07-28" } }),
            true,
        ),
        (
            "tools/list",
            json!({ "_meta": { VERSION: "2099-01-01" } }),
            true,
        ),
        ("tools/list", json!({ "_meta": { VERSION: 7 } }), true),
        ("tools/list", json!({ "_meta": { "x": VERSION } }), false),
        ("tools/list", json!({}), false),
        ("tools/list", json!({}), false),
        ("tools/list", json!({}), false),
        ("tools/list", json!({ "cursor": VERSION }), false),
        (
            "initialize",
            json!({ "protocolVersion": "2026-07-28" }),
            false,
        ),
        (
            "initialize",
            json!({ "_meta": { VERSION: "2026-07-28" } }),
            true,
        ),
    ];
    for (method, params, expected) in table {
        let frame = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let Ok(Envelope::Request(request)) = Envelope::parse(Bytes::from(frame.to_string())) else {
            panic!("no request");
        };
        assert_eq!(claims_modern(&request), expected, "{frame}");
    }
}
