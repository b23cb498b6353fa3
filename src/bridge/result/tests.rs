use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::bridge::question::QuestionKind;

fn raw(text: &str) -> RawJson {
    RawJson::try_new(Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

fn decorator() -> ResultDecorator {
    ResultDecorator::new(Some(RawJson::from_value(
        &json!({ "name": "gw", "version": "1" }),
    )))
}

fn value(raw: &RawJson) -> Value {
    raw.parse().unwrap()
}

#[test]
fn c_life_13_result_types_are_recognised() {
    let table = [
        (r#"{}"#, ResultKind::Complete),
        (
            r#"{"content":[{"resultType":"task"}]}"#,
            ResultKind::Complete,
        ),
        (r#"{"resultType":"complete"}"#, ResultKind::Complete),
        (
            r#"{"a":{"b":1,"resultType":"complete"},"resultType":"task"}"#,
            ResultKind::Task,
        ),
        (
            r#"{"resultType":"task","a":{"b":1,"resultType":"complete"}}"#,
            ResultKind::Task,
        ),
        (
            r#"{"a":[],"resultType":"input_required"}"#,
            ResultKind::InputRequired,
        ),
        (r#"{"resultType":"task"}"#, ResultKind::Task),
        (r#"{"resultType" : "task"}"#, ResultKind::Task),
        (
            r#"{"a":{"resultType":"complete"},"resultType":"task"}"#,
            ResultKind::Task,
        ),
        (
            r#"{"a":"\"resultType\":\"task\"","resultType":"complete"}"#,
            ResultKind::Complete,
        ),
        (r#"{"resultType":"completed"}"#, ResultKind::Extension),
        (r#"{"resultType":"other"}"#, ResultKind::Extension),
        (r#"{"resultType":7}"#, ResultKind::Unknown),
    ];
    for (text, kind) in table {
        assert_eq!(ResultKind::of(&raw(text)), kind, "{text}");
    }
}

#[test]
fn b_rpc_06_a_modern_client_reads_complete_results() {
    let info = json!({ "name": "gw", "version": "1" });
    let caching = CacheHints {
        ttl_ms: 5,
        scope: CacheScope::Public,
    };
    let table = [
        "{}",
        " { } ",
        r#"{"content":[]}"#,
        r#"{"content":[],"_meta":{}}"#,
        r#"{"content":[],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"d"},"a/b":1}}"#,
        r#"{"content":[{"_meta":{"x":1}}]}"#,
        r#"{"resultType":"complete","ttlMs":900,"cacheScope":"private","content":[]}"#,
        r#" {"cacheScope":null ,"content":[1.0], "_meta" : { } } "#,
        r#"{"content":[],"_meta":null,"ttlMs":-1}"#,
        r#"{"content":[],"resultType":"complete"}"#,
        r#"{"resultType":"complete","content":[]}"#,
        r#"{"resultType":"complete"}"#,
        r#"{"content":{"a":1,"resultType":"complete"}}"#,
        r#"{"content":{"resultType":"complete","a":1},"resultType":"complete"}"#,
        r#"{"_meta":[1],"content":{"ttlMs":2}}"#,
    ];
    for text in table {
        let before: Value = serde_json::from_str(text).unwrap();
        let decorated = decorator().complete(&raw(text), Some(caching));
        let id = RequestId::from(7);
        let answer = decorator().answer(&id, &raw(text), Some(caching));
        assert_eq!(answer, result_frame(&id, &decorated), "{text}");
        let types = |text: &str| text.matches("resultType").count();
        let added = usize::from(before["resultType"].is_null());
        assert_eq!(types(decorated.as_str()), types(text) + added, "{text}");
        let decorated = value(&decorated);
        assert_eq!(decorated["resultType"], "complete", "{text}");
        assert_eq!(decorated["_meta"][SERVER_INFO], info, "{text}");
        assert_eq!(
            (&decorated["ttlMs"], &decorated["cacheScope"]),
            (&json!(5), &json!("public"))
        );
        assert_eq!(decorated.get("content"), before.get("content"), "{text}");
        if text.contains("a/b") {
            assert_eq!(decorated["_meta"]["a/b"], 1);
        }
        let plain = value(&decorator().complete(&raw(text), None));
        assert_eq!(plain.get("ttlMs"), before.get("ttlMs"), "{text}");
    }
    for same in ["[1]", r#"{"_meta":{},"_meta":{}}"#] {
        assert_eq!(decorator().complete(&raw(same), None), raw(same));
    }
    let task = decorator().complete(&raw(r#"{"resultType":"task"}"#), None);
    assert_eq!(value(&task)["resultType"], "task");
}

#[test]
fn a_legacy_client_sees_no_sessionless_members() {
    let modern = r#"{"resultType":"complete","content":[ 1.0 ],"ttlMs":1,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{}}}"#;
    assert_eq!(
        strip_for_legacy(&raw(modern)).unwrap().as_str(),
        r#"{"content":[ 1.0 ]}"#
    );
    let keeps =
        r#"{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{},"a":1}}"#;
    assert_eq!(
        strip_for_legacy(&raw(keeps)).unwrap().as_str(),
        r#"{"_meta":{"a":1}}"#
    );
    for same in [
        "{}",
        r#"{"content":[{"text":"\"ttlMs\""}]}"#,
        r#"{"content":[{"ttlMs":1}]}"#,
    ] {
        assert!(strip_for_legacy(&raw(same)).is_none(), "{same}");
    }
}

#[test]
fn c_cache_03_missing_and_malformed_hints_mean_none() {
    let table = [
        (
            r#"{"ttlMs":7,"cacheScope":"public"}"#,
            7,
            CacheScope::Public,
        ),
        (r#"{"ttlMs":-7,"cacheScope":"all"}"#, 0, CacheScope::Private),
        (r#"{"x":{"ttlMs":7}}"#, 0, CacheScope::Private),
    ];
    for (text, ttl_ms, scope) in table {
        assert_eq!(
            CacheHints::of(&raw(text)),
            CacheHints { ttl_ms, scope },
            "{text}"
        );
    }
}

#[test]
fn input_required_survives_a_round_trip() {
    let text = r#"{"resultType":"input_required","requestState":"D-\u00e9","inputRequests":{
        "owner":{"method":"elicitation/create","params":{"message" : "Who?","requestedSchema":{}}},
        "r":{"method":"roots/list"}}}"#;
    let input = InputRequired::parse(&raw(text)).unwrap();
    assert_eq!(input.state.as_deref(), Some("D-é"));
    let keys: Vec<_> = input.requests.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["owner", "r"]);
    assert_eq!(input.requests[1].1.kind, QuestionKind::Roots);
    let built = input.build(Some(&raw("{}")));
    assert!(built.as_str().contains(r#"{"message" : "Who?""#));
    assert_eq!(ResultKind::of(&built), ResultKind::InputRequired);
    assert_eq!(InputRequired::parse(&built), Ok(input));
}

#[test]
fn s_mrtr_03_and_04_broken_input_required_is_refused() {
    let entry = |method: &str| format!(r#"{{"inputRequests":{{"a":{{"method":"{method}"}}}}}}"#);
    let many: Vec<_> = (0..65)
        .map(|n| format!(r#""{n}":{{"method":"roots/list"}}"#))
        .collect();
    let table = [
        ("{}".to_owned(), InvalidInputRequired::Empty),
        (
            r#"{"inputRequests":{}}"#.to_owned(),
            InvalidInputRequired::Empty,
        ),
        (
            r#"{"requestState":1}"#.to_owned(),
            InvalidInputRequired::State,
        ),
        (
            r#"{"inputRequests":[]}"#.to_owned(),
            InvalidInputRequired::Requests,
        ),
        (
            entry("tools/call"),
            InvalidInputRequired::Request("a".to_owned()),
        ),
        (
            r#"{"inputRequests":{"a":7}}"#.to_owned(),
            InvalidInputRequired::Request("a".to_owned()),
        ),
        (
            r#"{"inputRequests":{"a":{"method":"roots/list"},"a":{"method":"roots/list"}}}"#
                .to_owned(),
            InvalidInputRequired::DuplicateKey("a".to_owned()),
        ),
        (
            r#"{"inputRequests":{"a":{"method":"roots/list","params":[]}}}"#.to_owned(),
            InvalidInputRequired::Request("a".to_owned()),
        ),
        (
            entry("sampling/createMessage"),
            InvalidInputRequired::Request("a".to_owned()),
        ),
        (
            format!(r#"{{"inputRequests":{{{}}}}}"#, many.join(",")),
            InvalidInputRequired::TooMany,
        ),
    ];
    for (text, error) in table {
        assert_eq!(InputRequired::parse(&raw(&text)), Err(error), "{text}");
    }
}

proptest! {
    #[test]
    fn decorating_and_stripping_restores_the_result(
        number in any::<i32>(), key in "[a-z\\u{e4}]{1,6}", space in "[ \\n]{0,2}", text in "\\PC{0,12}",
    ) {
        let unknown = format!("\"{key}\"{space}:{space}[{number}e1,{}]", json!(text));
        let result = raw(&format!("{{{unknown}}}"));
        for caching in [None, Some(CacheHints::NONE)] {
            let decorated = decorator().complete(&result, caching);
            prop_assert!(decorated.as_str().contains(&unknown));
            let stripped = strip_for_legacy(&decorated).unwrap();
            prop_assert_eq!(stripped.as_str(), result.as_str());
        }
    }
}

#[test]
fn results_of_a_server_without_identity_keep_their_meta() {
    let unnamed = ResultDecorator::new(None);
    let hints = Some(CacheHints::NONE);
    let hinted = r#""ttlMs":0,"cacheScope":"private""#;
    let table = [
        ("{}", None, r#"{"resultType":"complete"}"#.to_owned()),
        (
            "{ }",
            hints,
            format!(r#"{{"resultType":"complete",{hinted}}}"#),
        ),
        (
            r#"{"a":1}"#,
            None,
            r#"{"resultType":"complete","a":1}"#.to_owned(),
        ),
        (
            r#"{"_meta":{"a/b":1}}"#,
            hints,
            format!(r#"{{"resultType":"complete",{hinted},"_meta":{{"a/b":1}}}}"#),
        ),
        (
            r#"{"resultType":"task","_meta":{}}"#,
            None,
            r#"{"resultType":"task","_meta":{}}"#.to_owned(),
        ),
        (
            r#"{"ttlMs":5,"a":1}"#,
            hints,
            r#"{"resultType":"complete","cacheScope":"private","ttlMs":0,"a":1}"#.to_owned(),
        ),
    ];
    for (result, caching, expected) in table {
        assert_eq!(unnamed.complete(&raw(result), caching).as_str(), expected);
        let frame = unnamed.answer(&RequestId::from(1), &raw(result), caching);
        let whole = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{expected}}}"#);
        assert_eq!(frame, whole.as_bytes());
    }
}
