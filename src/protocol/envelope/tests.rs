use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn parse(text: &str) -> Result<Envelope, EnvelopeError> {
    Envelope::parse(Bytes::copy_from_slice(text.as_bytes()))
}

fn request_of(text: &str) -> Request {
    match parse(text) {
        Ok(Envelope::Request(request)) => request,
        other => panic!("{other:?}"),
    }
}

#[test]
fn invalid_utf8_is_refused_even_in_skipped_strings() {
    let frames: [&[u8]; 5] = [
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"more\":\"\xff\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"\xff\":1}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\",\"params\":{\"more\":[\"\xff\"]}}",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"a\",\"params\":{\"more\":\"\xed\xa0\x80\"}}",
        b"[\"\xff\"]",
    ];
    for frame in frames {
        let bytes = Bytes::from_static(frame);
        let error = Envelope::parse(bytes.clone()).unwrap_err();
        assert!(matches!(error, EnvelopeError::Json(_)), "{error:?}");
        assert!(error.to_string().contains("utf-8"), "{error}");
        assert!(RawJson::try_new(bytes).is_err());
    }
}

#[test]
fn messages_that_break_the_rules_say_which() {
    let table = [
        (
            "",
            EnvelopeError::Json("EOF while parsing a value at line 1 column 0".into()),
        ),
        ("[]", EnvelopeError::NotAnObject),
        ("3", EnvelopeError::NotAnObject),
        (r#"{"id":1,"method":"ping"}"#, EnvelopeError::Version),
        (
            r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
            EnvelopeError::Version,
        ),
        (
            r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
            EnvelopeError::Id,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
            EnvelopeError::Id,
        ),
        (
            r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
            EnvelopeError::Id,
        ),
        (r#"{"jsonrpc":"2.0","id":1}"#, EnvelopeError::Shape),
        (
            r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#,
            EnvelopeError::Shape,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a","result":{}}"#,
            EnvelopeError::Shape,
        ),
    ];
    for (text, error) in table {
        assert_eq!(parse(text).unwrap_err(), error, "{text}");
    }
    let refused = [
        r#"{"jsonrpc":"2.0","id":1,"method":"a","params":[1]}"#,
        r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"a"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"name":"a","name":"b"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"a"} trailing"#,
    ];
    for text in refused {
        assert!(matches!(parse(text), Err(EnvelopeError::Json(_))), "{text}");
    }
}

/// Spellings of a name that some reader mistakes for it.
fn spellings(name: &str) -> Vec<String> {
    let capital = name.replacen(|c: char| c.is_ascii_lowercase(), "\u{0}", 1);
    let first = name.find(|c: char| c.is_ascii_lowercase());
    let first = first.and_then(|at| name.get(at..=at)).unwrap_or_default();
    vec![
        name.to_ascii_uppercase(),
        capital.replace('\u{0}', &first.to_ascii_uppercase()),
        name.to_ascii_lowercase(),
        name.replacen('s', "\u{17f}", 1),
        name.replacen('k', "\u{212a}", 1),
        name.replacen('i', "\u{131}", 1),
        name.replacen("ss", "\u{df}", 1),
        format!("{name}\u{0}"),
        format!("{}\u{0}\u{0}", name.to_ascii_uppercase()),
    ]
    .into_iter()
    .filter(|spelling| spelling != name)
    .collect()
}

#[test]
fn no_member_of_a_client_can_be_taken_for_another_one() {
    let objects: [(&str, &[&str]); 5] = [
        ("", peek::ENVELOPE_NAMES),
        ("params", peek::PARAMS_NAMES),
        ("_meta", peek::META_NAMES),
        ("ref", &["type", "name", "uri"]),
        (
            "notifications",
            &["resourceSubscriptions", "taskIds", "toolsListChanged"],
        ),
    ];
    for (object, names) in objects {
        for name in names.iter().flat_map(|name| spellings(name)) {
            let name = RawJson::from_value(&name);
            for whole in [
                "\"id\":1,\"method\":\"m\"",
                "\"method\":\"m\"",
                "\"id\":1,\"result\":{}",
            ] {
                let text = match object {
                    "" => format!(r#"{{"jsonrpc":"2.0",{whole},{}:1}}"#, name.as_str()),
                    "params" => {
                        format!(
                            r#"{{"jsonrpc":"2.0",{whole},"params":{{{}:1}}}}"#,
                            name.as_str()
                        )
                    }
                    _ => format!(
                        r#"{{"jsonrpc":"2.0",{whole},"params":{{"{object}":{{{}:1}}}}}}"#,
                        name.as_str()
                    ),
                };
                let frame = Bytes::from(text.clone());
                let refused = Envelope::parse_of_client(frame.clone()).unwrap_err();
                let is_it = matches!(refused, EnvelopeError::Misspelled(_));
                assert!(is_it, "{text}: {refused}");
                // The server can give the member any meaning.
                assert!(Envelope::parse(frame).is_ok(), "{text}");
            }
        }
    }
    let text = r#"{"jsonrpc":"2.0","id":1,"method":"m","names":1,"params":{"names":1,"Arg":1,"arguments":{"Name":1,"name":2},"_meta":{"x/Name":1},"capabilities":{"Roots":{}}}}"#;
    assert!(Envelope::parse_of_client(Bytes::from(text)).is_ok());
}

#[test]
fn a_member_that_decides_stands_once() {
    for name in peek::PARAMS_NAMES {
        let params = format!(r#"{{"{name}":1,"{name}":1}}"#);
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{params}}}"#);
        assert!(
            matches!(parse(&text), Err(EnvelopeError::Json(_))),
            "{text}"
        );
    }
}

#[test]
fn forwarding_replaces_id_name_and_token_and_nothing_else() {
    let text = r#" {"x":{"id":9}, "jsonrpc":"2.0","method":"tools/call","id":"a b",
        "params":{"arguments":{"name":"no","_meta":1},"name":"git__l\u006fg","_meta":{"v/x":1,"progressToken":"p"}}}"#;
    let request = request_of(text);
    assert_eq!(request.id.as_str(), "\"a b\"");
    assert_eq!(request.name().unwrap(), "git__log");
    let name = (
        request.params.name.clone().unwrap(),
        Bytes::from_static(b"\"log\""),
    );
    let mut edits = [
        request.edit_id(&7.into()),
        request.edit_progress_token(&RequestId::from(12)).unwrap(),
        name,
    ];
    let spliced = splice(request.frame.as_bytes(), &mut edits);
    let mut expected: Value = serde_json::from_str(text).unwrap();
    expected["id"] = json!(7);
    expected["params"]["name"] = json!("log");
    expected["params"]["_meta"]["progressToken"] = json!(12);
    assert_eq!(serde_json::from_slice::<Value>(&spliced).unwrap(), expected);
}

#[test]
fn a_notification_has_its_progress_token_outside_meta() {
    let text = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1,"_meta":{"progressToken":8}}}"#;
    let Ok(Envelope::Notification(progress)) = Envelope::parse(Bytes::from(text)) else {
        panic!("{text}")
    };
    let token = progress.member(progress.params.progress_token.as_ref());
    assert_eq!(token.as_deref(), Some(&b"7"[..]));
}

#[test]
fn a_progress_token_is_added_where_the_client_sent_none() {
    let table = [
        (
            r#"{"name":"a"}"#,
            json!({"name":"a","_meta":{"progressToken":5}}),
        ),
        (
            r#"{"name":"a","_meta":{ }}"#,
            json!({"name":"a","_meta":{"progressToken":5}}),
        ),
        (
            r#"{"_meta":{"k":1},"uri":"x"}"#,
            json!({"_meta":{"progressToken":5,"k":1},"uri":"x"}),
        ),
    ];
    for (params, expected) in table {
        let request = request_of(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{params}}}"#
        ));
        let edit = request.edit_progress_token(&RequestId::from(5)).unwrap();
        let spliced = splice(request.frame.as_bytes(), &mut [edit]);
        let value: Value = serde_json::from_slice(&spliced).unwrap();
        assert_eq!(value["params"], expected);
    }
    let bare = request_of(r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#);
    assert!(bare.edit_progress_token(&RequestId::from(5)).is_none());
}

/// A progress token of another client must not reach the server as one of the gateway's own.
#[test]
fn a_progress_token_is_found_however_its_name_is_written() {
    for name in [
        "progressToken",
        r"progress\u0054oken",
        r"\u0070rogressToken",
    ] {
        let params = format!(r#"{{"name":"a","_meta":{{"{name}":7,"k":1}}}}"#);
        let request = request_of(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#
        ));
        let token = request.member(request.params.progress_token.as_ref());
        assert_eq!(token.as_deref(), Some(b"7".as_slice()), "{name}");
    }
}

#[test]
fn a_response_gets_the_id_of_its_caller() {
    let text = r#"{"jsonrpc":"2.0","vendor":[1,2],"id":41,"result":{"id":41}}"#;
    let Ok(Envelope::Response(response)) = parse(text) else {
        panic!()
    };
    let id = RequestId::try_new(Bytes::from_static(b"\"c\"")).unwrap();
    assert_eq!(
        response.with_id(&id),
        r#"{"jsonrpc":"2.0","vendor":[1,2],"id":"c","result":{"id":41}}"#
    );
    assert_eq!(response.parts_with_id(&id).concat(), response.with_id(&id));
    let Ok(Envelope::Response(response)) =
        parse(r#"{"jsonrpc":"2.0","error":{"code":1,"message":"m"}}"#)
    else {
        panic!()
    };
    assert!(response.id.is_none());
    assert_eq!(
        response.with_id(&id),
        r#"{"jsonrpc":"2.0","id":"c","error":{"code":1,"message":"m"}}"#
    );
    assert_eq!(response.parts_with_id(&id).concat(), response.with_id(&id));
}

#[test]
fn null_results_and_big_integer_ids_are_valid() {
    let Ok(Envelope::Response(response)) =
        parse(r#"{"jsonrpc":"2.0","id":18446744073709551616,"result":null}"#)
    else {
        panic!()
    };
    assert_eq!(response.id.unwrap().as_str(), "18446744073709551616");
    assert!(matches!(response.outcome, Outcome::Result(_)));
}

proptest! {
    #[test]
    fn parsing_arbitrary_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Envelope::parse(Bytes::from(bytes));
    }

    #[test]
    fn parsing_malformed_json_never_panics(text in r#"[\{\}\[\]",:a-z0-9 ._\\-]{0,80}"#) {
        let _ = parse(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{{text}"#));
        let _ = parse(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{text}}}"#));
        let _ = parse(&text);
    }

    #[test]
    fn unknown_members_survive(key in "[a-z]{1,8}", value in any::<i64>(), id in any::<u64>()) {
        let text = format!(r#"{{"jsonrpc":"2.0","zz{key}":{value},"id":1,"result":{{"{key}":{value}}}}}"#);
        let Ok(Envelope::Response(response)) = parse(&text) else { panic!() };
        let expected = text.replacen(r#""id":1,"#, &format!(r#""id":{id},"#), 1);
        prop_assert_eq!(response.with_id(&id.into()), expected.as_bytes());
    }
}

#[test]
fn a_notification_with_a_null_id_is_one_without() {
    let frame =
        r#"{"jsonrpc":"2.0","id":null,"method":"notifications/progress","params":{"x": 1.0}}"#;
    let Ok(Envelope::Notification(read)) = Envelope::parse(Bytes::from(frame)) else {
        panic!("no notification")
    };
    assert_eq!(
        read.frame.as_str(),
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"x": 1.0}}"#
    );
    let request = Bytes::from(r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#);
    assert_eq!(Envelope::parse(request).unwrap_err(), EnvelopeError::Id);
}

#[test]
fn response_ids_can_be_strings_or_floats() {
    let number = |id: &str| {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
        let Envelope::Response(response) = Envelope::parse(Bytes::from(text)).ok()? else {
            return None;
        };
        response.id.as_ref().and_then(RequestId::as_number)
    };
    let table = [
        ("7", Some(7)),
        ("\"7\"", Some(7)),
        ("7.0", Some(7)),
        ("0.00", Some(0)),
        ("\"7.0\"", Some(7)),
        ("18446744073709551615", Some(u64::MAX)),
        ("18446744073709551616", None),
        ("7.5", None),
        ("7.", None),
        ("-7", None),
        ("-7.0", None),
        ("7e0", None),
        ("\"+7\"", None),
        ("\" 7\"", None),
        ("\"x\"", None),
        ("\"\"", None),
        ("\".0\"", None),
        ("true", None),
        ("null", None),
    ];
    for (id, expected) in table {
        assert_eq!(number(id), expected, "{id}");
    }
    // Request ids must follow the protocol.
    let request = Bytes::from(r#"{"jsonrpc":"2.0","id":7.0,"method":"ping"}"#);
    assert_eq!(Envelope::parse(request).unwrap_err(), EnvelopeError::Id);
}

#[test]
fn a_byte_order_mark_before_a_message_is_ignored() {
    let text = "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}";
    let Envelope::Request(request) = Envelope::parse(Bytes::from(text)).unwrap() else {
        panic!("no request");
    };
    assert!(request.frame.as_str().starts_with('{'));
    let edited = splice(
        request.frame.as_bytes(),
        &mut [request.edit_id(&RequestId::from(8))],
    );
    assert!(Envelope::parse(edited).is_ok());
}
