use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn secrets() -> LiveSecrets {
    LiveSecrets::of(["hunter22"])
}

#[test]
fn a_body_is_kept_without_its_secrets() {
    let table = [
        (r#"{"a":1, "b":[true,null]}"#, None),
        (r#"{"api_key":"abcd"}"#, Some(r#"{"api_key":"[REDACTED]"}"#)),
        (
            r#"{"token" : {"a":["}"]},"b":2}"#,
            Some(r#"{"token" : "[REDACTED]","b":2}"#),
        ),
        (
            r#"{"password":1234,"x":1}"#,
            Some(r#"{"password":"[REDACTED]","x":1}"#),
        ),
        (r#"{"keys":["a","b"]}"#, Some(r#"{"keys":"[REDACTED]"}"#)),
        (
            r#"{"input_tokens":12,"has_key":true,"token":null,"key":""}"#,
            None,
        ),
        (r#"{"_meta":{"progressToken":"p"}}"#, None),
        (
            r#"{"t\u006fken":"abcd"}"#,
            Some(r#"{"t\u006fken":"[REDACTED]"}"#),
        ),
        (
            r#"{"a":"\u006dy h\u0075nter22\n"}"#,
            Some(r#"{"a":"my [REDACTED]\n"}"#),
        ),
        (r#"{"a":"my hunter22"}"#, Some(r#"{"a":"my [REDACTED]"}"#)),
        (
            r#"[{"type":"text","text":"{\"secret\":\"abcd\"}"}]"#,
            Some(r#"[{"type":"text","text":"{\"secret\":\"[REDACTED]\"}"}]"#),
        ),
        (r#""Bearer abcdef""#, Some(r#""Bearer [REDACTED]""#)),
        ("12", None),
        ("{}", None),
    ];
    for (json, expected) in table {
        let kept = redact(json, 1000, &secrets());
        let expected = KeptBody {
            text: expected.unwrap_or(json).to_owned(),
            is_whole: true,
            is_redacted: expected.is_some(),
        };
        assert_eq!(kept, expected, "{json}");
    }
}

#[test]
fn a_long_body_is_truncated_without_a_partial_secret() {
    let json = r#"{"a":"0123456789 hunter22"}"#;
    for limit in 0..40 {
        let kept = redact(json, limit, &secrets());
        assert_eq!(kept.is_whole, limit >= json.len(), "{limit}");
        assert!(!kept.text.contains("hunter"), "{limit}: {}", kept.text);
    }
    let kept = redact(r#"{"a":"ääää"}"#, 8, &secrets());
    assert_eq!((kept.text.as_str(), kept.is_whole), ("{\"a\":\"ä", false));
}

#[test]
fn a_member_is_found_after_others() {
    let kept =
        |object: &str| redact_member(object, "params", 100, &secrets()).map(|kept| kept.text);
    let frame = r#" {"jsonrpc":"2.0", "x":{"params":[1,"}"]} ,"params" : {"a":1} ,"id":1}"#;
    assert_eq!(kept(frame).unwrap(), r#"{"a":1}"#);
    assert_eq!(kept(r#"{"id":1}"#), None);
    assert_eq!(kept("{}"), None);
    let long = format!(r#"{{"a":"{}","params":1}}"#, "x".repeat(SKIP_MAX));
    assert_eq!(kept(&long), None);
    let long = format!(r#"{{"params":"{}"}}"#, "x".repeat(2 * SKIP_MAX));
    assert_eq!(kept(&long).unwrap().len(), 100);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-zé\"\\\\:= ]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let names = prop_oneof!["[a-c\"é]{0,3}", Just("token".to_owned())];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(names, inner, 0..4).prop_map(|members| json!(members)),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_kept_whole_is_json_and_the_rest_a_beginning(value in any_json(), limit in 0..200_usize) {
        let text = value.to_string();
        let kept = redact(&text, limit, &secrets());
        if kept.is_whole {
            prop_assert!(serde_json::from_str::<Value>(&kept.text).is_ok(), "{}", kept.text);
            prop_assert_eq!(kept.is_redacted, kept.text != text);
        } else {
            prop_assert!(kept.text.len() <= limit + REDACTED.len());
        }
        let object = json!({ "before": value.clone(), "params": value, "after": 1 }).to_string();
        let member = redact_member(&object, "params", limit, &secrets());
        prop_assert_eq!(member, Some(kept));
    }
}
