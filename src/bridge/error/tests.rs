use serde_json::{Value, json};

use super::*;

use Revision::{V2024_11_05, V2025_06_18, V2025_11_25, V2026_07_28};

fn show(error: &Value, method: &Method, from: Revision, to: Revision) -> Option<TranslatedError> {
    let asked = ErrorContext {
        method,
        uri: Some("file:///x"),
        server: "db",
    };
    from_server(&RawJson::from_value(error), asked, Revisions { from, to })
}

fn shown_error(shown: Option<TranslatedError>) -> Value {
    match shown {
        Some(TranslatedError::Error(error)) => error.parse().unwrap(),
        other => panic!("{other:?}"),
    }
}

fn error(code: i64) -> Value {
    json!({ "code": code, "message": "m", "data": { "k": 1 } })
}

#[test]
fn s_res_03_to_05_missing_resources_have_a_code_per_era() {
    let read = Method::ResourcesRead;
    let found = shown_error(show(&error(-32002), &read, V2025_11_25, V2026_07_28));
    assert_eq!(
        found,
        json!({ "code": -32602, "message": "m", "data": { "k": 1, "uri": "file:///x" } })
    );
    assert_eq!(show(&error(-32002), &read, V2025_11_25, V2024_11_05), None);
    let named = json!({ "code": -32602, "message": "m", "data": { "uri": "file:///x" } });
    let found = shown_error(show(&named, &read, V2026_07_28, V2025_06_18));
    assert_eq!(found["code"], -32002);
    let other = json!({ "code": -32602, "message": "m", "data": { "uri": "file:///y" } });
    for kept in [other, error(-32602)] {
        assert_eq!(show(&kept, &read, V2026_07_28, V2025_06_18), None);
    }
    assert_eq!(show(&named, &read, V2025_11_25, V2025_06_18), None);
}

#[test]
fn b_rpc_10_codes_without_a_meaning_do_not_reach_modern_clients() {
    let call = Method::ToolsCall;
    for code in [-32000, -32001, -32019] {
        let found = shown_error(show(&error(code), &call, V2025_11_25, V2026_07_28));
        assert_eq!(found["code"], -32603);
        assert_eq!(
            found["data"],
            json!({ "server": "db", "original": error(code) })
        );
        assert_eq!(show(&error(code), &call, V2025_11_25, V2025_06_18), None);
    }
    assert_eq!(
        shown_error(show(&error(-32050), &call, V2025_11_25, V2026_07_28))["code"],
        -32603
    );
    for code in [-32050, -32601, -32603, -32602, 7, -1] {
        assert_eq!(show(&error(code), &call, V2026_07_28, V2026_07_28), None);
    }
}

#[test]
fn errors_about_gateway_requests_are_internal_in_both_eras() {
    for code in [-32020, -32022] {
        for to in [V2025_06_18, V2026_07_28] {
            let found = shown_error(show(&error(code), &Method::ToolsCall, V2026_07_28, to));
            assert_eq!(
                (&found["code"], &found["data"]["original"]["code"]),
                (&json!(-32603), &json!(code))
            );
        }
    }
    for malformed in [
        json!({}),
        json!("x"),
        json!({ "code": "x", "message": "m" }),
        json!({ "code": 1 }),
    ] {
        let found = shown_error(show(
            &malformed,
            &Method::ToolsCall,
            V2025_11_25,
            V2025_11_25,
        ));
        assert_eq!(
            (&found["code"], &found["data"]["original"]),
            (&json!(-32603), &malformed)
        );
    }
}

#[test]
fn s_life_16_a_missing_capability_is_reported_in_the_words_of_the_client() {
    let missing = json!({ "code": -32021, "message": "m", "data": { "requiredCapabilities": { "roots": {} } } });
    assert_eq!(
        show(&missing, &Method::ToolsCall, V2026_07_28, V2026_07_28),
        None
    );
    let Some(TranslatedError::Result(result)) =
        show(&missing, &Method::ToolsCall, V2026_07_28, V2025_11_25)
    else {
        panic!("no result");
    };
    let result: Value = result.parse().unwrap();
    assert_eq!(result["isError"], true);
    assert!(
        result["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("roots")
    );
    let found = shown_error(show(
        &missing,
        &Method::PromptsGet,
        V2026_07_28,
        V2025_11_25,
    ));
    assert_eq!(
        (&found["code"], &found["data"]["original"]),
        (&json!(-32603), &missing)
    );
}

#[test]
fn url_elicitation_required_reaches_only_clients_that_know_it() {
    let listed =
        json!([{ "mode": "url", "elicitationId": "1", "url": "https://d", "message": "Connect" }]);
    let needed = json!({ "code": -32042, "message": "m", "data": { "elicitations": listed } });
    assert_eq!(
        show(&needed, &Method::ToolsCall, V2025_11_25, V2025_11_25),
        None
    );
    let Some(TranslatedError::Result(result)) =
        show(&needed, &Method::ToolsCall, V2025_11_25, V2025_06_18)
    else {
        panic!("no result");
    };
    assert!(
        result.as_str().contains("Connect: https://d"),
        "{}",
        result.as_str()
    );
    let found = shown_error(show(
        &needed,
        &Method::ResourcesRead,
        V2025_11_25,
        V2024_11_05,
    ));
    assert_eq!(found["code"], -32603);
    let modern = shown_error(show(&needed, &Method::ToolsCall, V2025_11_25, V2026_07_28));
    assert_eq!(modern["code"], -32021);
    assert_eq!(
        modern["data"]["requiredCapabilities"],
        json!({ "elicitation": { "url": {} } })
    );
}

#[test]
fn b_rpc_09_no_failure_of_ours_has_a_code_that_modern_clients_must_not_read() {
    for kind in ErrorKind::ALL {
        let failure = Failure::new(*kind, "m");
        let legacy: Value = error_object(&failure, Era::Legacy).parse().unwrap();
        assert_eq!(legacy["code"], kind.rpc_code());
        let modern: Value = error_object(&failure, Era::Modern).parse().unwrap();
        let code = modern["code"].as_i64().unwrap();
        assert!(
            !(-32099..=-32000).contains(&code) || (-32022..=-32020).contains(&code),
            "{kind:?}"
        );
        assert_eq!(modern["data"]["code"], kind.as_str());
    }
}

#[test]
fn errors_have_an_http_status_for_modern_clients() {
    let kinds = [
        (ErrorKind::HeaderMismatch, 400),
        (ErrorKind::MissingCapability, 400),
        (ErrorKind::UnsupportedProtocolVersion, 400),
        (ErrorKind::InvalidMeta, 400),
        (ErrorKind::MethodNotFound, 404),
        (ErrorKind::InvalidParams, 200),
        (ErrorKind::ResourceNotFound, 200),
        (ErrorKind::ServerUnavailable, 200),
        (ErrorKind::Forbidden, 403),
        (ErrorKind::TooLarge, 413),
    ];
    for (kind, status) in kinds {
        assert_eq!(modern_status(kind), status, "{kind:?}");
    }
    let codes = [
        (-32601, 404),
        (-32020, 400),
        (-32021, 400),
        (-32022, 400),
        (-32602, 200),
        (5, 200),
    ];
    for (code, status) in codes {
        assert_eq!(
            status_of(&RawJson::from_value(&error(code))),
            status,
            "{code}"
        );
    }
}

#[test]
fn bridge_errors_convert_to_failures() {
    let mismatch = Failure::from(HeaderMismatch("`mcp-name` is missing".to_owned()));
    assert_eq!(mismatch.kind.rpc_code(), -32020);
    assert_eq!(mismatch.message, "header mismatch: `mcp-name` is missing");
    assert_eq!(
        Failure::from(InvalidMeta::Missing("x")).kind,
        ErrorKind::InvalidMeta
    );
    let state = Failure::from(InvalidState);
    assert_eq!(
        (state.kind.rpc_code(), state.message.as_str()),
        (-32602, "invalid requestState")
    );
}
