use bytes::Bytes;
use serde_json::json;

use super::*;
use crate::protocol::{Envelope, Request, Revision};

fn map(value: Value) -> Map<String, Value> {
    serde_json::from_value(value).unwrap()
}

fn all() -> Map<String, Value> {
    map(
        json!({ "sampling": { "tools": {} }, "elicitation": { "form": {}, "url": {} }, "roots": {} }),
    )
}

fn from_server(method: &str, params: &Value) -> Request {
    let frame = json!({ "jsonrpc": "2.0", "id": "e-5", "method": method, "params": params });
    match Envelope::parse(Bytes::from(frame.to_string())) {
        Ok(Envelope::Request(request)) => request,
        other => panic!("{other:?}"),
    }
}

fn question(method: &str, params: &Value) -> Question {
    let kind = QuestionKind::parse(method).unwrap();
    Question::try_new(kind, Some(&params.to_string())).unwrap()
}

fn params(question: &Question) -> Value {
    question.params().unwrap().parse().unwrap()
}

fn raw(value: &Value) -> RawJson {
    RawJson::from_value(value)
}

const ELICIT: &str = "elicitation/create";
const SAMPLE: &str = "sampling/createMessage";

#[test]
fn a_legacy_question_loses_session_specific_members() {
    let request = from_server(
        ELICIT,
        &json!({ "mode": "url", "message": "m", "url": "https://d", "elicitationId": "el-1", "task": {},
            "_meta": { "io.modelcontextprotocol/related-task": { "taskId": "t" }, "progressToken": 1 } }),
    );
    let asked = Question::from_server(&request, &all()).unwrap();
    assert_eq!(
        params(&asked),
        json!({ "mode": "url", "message": "m", "url": "https://d" })
    );
    assert!(!asked.entry().contains("e-5"));
    let vendor = from_server(
        ELICIT,
        &json!({ "message": "m", "requestedSchema": {}, "_meta": { "a/b": 1 } }),
    );
    let asked = Question::from_server(&vendor, &all()).unwrap();
    assert_eq!(params(&asked)["_meta"], json!({ "a/b": 1 }));
    let roots = from_server("roots/list", &Value::Null);
    let asked = Question::from_server(&roots, &all()).unwrap();
    assert_eq!(asked.entry(), r#"{"method":"roots/list"}"#);
    assert!(Question::from_server(&from_server("ping", &json!({})), &all()).is_none());
    assert!(Question::from_server(&from_server(SAMPLE, &Value::Null), &all()).is_none());
}

#[test]
fn include_context_needs_sampling_context() {
    let context = map(json!({ "sampling": { "context": {} } }));
    let table = [
        ("allServers", all(), false),
        ("none", all(), true),
        ("thisServer", context, true),
    ];
    for (include, capabilities, kept) in table {
        let request = from_server(
            SAMPLE,
            &json!({ "messages": [], "maxTokens": 1, "includeContext": include }),
        );
        let asked = Question::from_server(&request, &capabilities).unwrap();
        assert_eq!(
            params(&asked).get("includeContext").is_some(),
            kept,
            "{include}"
        );
    }
}

#[test]
fn s_mrtr_05_what_a_question_needs_and_who_declares_it() {
    let form = question(ELICIT, &json!({ "message": "m" }));
    let url = question(ELICIT, &json!({ "mode": "url" }));
    let sampling = question(SAMPLE, &json!({ "messages": [] }));
    let tools = question(SAMPLE, &json!({ "tools": [] }));
    let roots = question("roots/list", &json!({}));
    let table = [
        (&form, json!({ "elicitation": {} }), true),
        (&form, json!({ "elicitation": { "form": {} } }), true),
        (&form, json!({ "elicitation": { "url": {} } }), false),
        (&form, json!({}), false),
        (&url, json!({ "elicitation": {} }), false),
        (&url, json!({ "elicitation": { "url": {} } }), true),
        (&sampling, json!({ "sampling": {} }), true),
        (&sampling, json!({ "sampling": true }), false),
        (&tools, json!({ "sampling": {} }), false),
        (&tools, json!({ "sampling": { "tools": {} } }), true),
        (&roots, json!({ "roots": {} }), true),
        (&roots, json!({ "sampling": {} }), false),
    ];
    for (question, capabilities, declared) in table {
        let required = question.required();
        assert_eq!(
            required.is_declared(&map(capabilities.clone())),
            declared,
            "{capabilities}"
        );
        assert!(required.is_declared(&map(required.capabilities())));
    }
    let undeclared = form.for_client(Revision::V2025_11_25, &Map::new(), "id");
    assert_eq!(
        undeclared,
        Err(UnsupportedQuestion::Undeclared(RequiredCapability::Form))
    );
}

#[test]
fn url_elicitation_gets_an_id_and_needs_2025_11_25() {
    let url = question(
        ELICIT,
        &json!({ "mode": "url", "url": "https://d", "message": "m" }),
    );
    let asked = url
        .for_client(Revision::V2025_11_25, &all(), "gw-1")
        .unwrap();
    assert_eq!(params(&asked)["elicitationId"], "gw-1");
    let sent = asked.request(&RequestId::from(31));
    let Ok(Envelope::Request(sent)) = Envelope::parse(sent.frame.as_bytes().clone()) else {
        panic!("no request");
    };
    assert_eq!(sent.method, Method::ElicitationCreate);
    for old in [
        Revision::V2025_06_18,
        Revision::V2025_03_26,
        Revision::V2024_11_05,
    ] {
        assert!(
            matches!(
                url.for_client(old, &all(), "x"),
                Err(UnsupportedQuestion::Revision { .. })
            ),
            "{old}"
        );
    }
    assert_eq!(url.for_client(Revision::V2026_07_28, &all(), "x"), Ok(url));
}

#[test]
fn forms_for_2025_06_18_have_one_kind_of_choice() {
    let form = |property: Value| {
        let schema = json!({ "$schema": "x", "type": "object", "properties": { "p": property } });
        question(
            ELICIT,
            &json!({ "mode": "form", "message": "m", "requestedSchema": schema }),
        )
    };
    let titled = form(json!({ "type": "string", "title": "T", "default": "a",
        "oneOf": [{ "const": "a", "title": "A" }, { "const": "b", "title": "B" }] }));
    let asked = titled
        .for_client(Revision::V2025_06_18, &all(), "x")
        .unwrap();
    assert_eq!(
        params(&asked),
        json!({ "message": "m", "requestedSchema": { "type": "object", "properties": {
            "p": { "type": "string", "title": "T", "enum": ["a", "b"], "enumNames": ["A", "B"] } } } })
    );
    let flag = form(json!({ "type": "boolean", "default": true }));
    let asked = flag.for_client(Revision::V2025_06_18, &all(), "x").unwrap();
    assert_eq!(
        params(&asked)["requestedSchema"]["properties"]["p"]["default"],
        true
    );
    let several = form(json!({ "type": "array", "items": { "type": "string", "enum": ["a"] } }));
    let cannot = several
        .for_client(Revision::V2025_06_18, &all(), "x")
        .unwrap_err();
    assert!(cannot.to_string().contains("2025-06-18"), "{cannot}");
    assert_eq!(
        several.for_client(Revision::V2025_11_25, &all(), "x"),
        Ok(several)
    );
    assert!(
        titled
            .for_client(Revision::V2025_03_26, &all(), "x")
            .is_err()
    );
}

#[test]
fn sampling_for_older_clients_has_one_block_and_no_tools() {
    let ask = |content: Value| {
        question(
            SAMPLE,
            &json!({ "messages": [{ "role": "user", "content": content }], "maxTokens": 1 }),
        )
    };
    let to = Revision::V2025_06_18;
    let text = json!({ "type": "text", "text": "hi" });
    let plain = ask(text.clone());
    assert_eq!(plain.for_client(to, &all(), "x"), Ok(plain.clone()));
    let one = ask(json!([text])).for_client(to, &all(), "x").unwrap();
    assert_eq!(params(&one)["messages"][0]["content"], text);
    let cannot = [
        ask(json!([text, text])),
        ask(json!({ "type": "tool_use", "id": "1", "name": "n", "input": {} })),
        question(SAMPLE, &json!({ "messages": [], "tools": [] })),
    ];
    for question in cannot {
        assert!(
            question.for_client(to, &all(), "x").is_err(),
            "{}",
            question.entry()
        );
        assert_eq!(
            question.for_client(Revision::V2025_11_25, &all(), "x"),
            Ok(question)
        );
    }
    let audio = ask(json!({ "type": "audio", "data": "AAAA", "mimeType": "audio/wav" }));
    let noted = audio
        .for_client(Revision::V2024_11_05, &all(), "x")
        .unwrap();
    assert_eq!(params(&noted)["messages"][0]["content"]["type"], "text");
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, or a table of cases")]
fn s_mrtr_11_answers_are_checked_by_kind() {
    use QuestionKind::{Elicitation, Roots, Sampling};
    let text = json!({ "type": "text", "text": "x" });
    let table = [
        (
            Elicitation,
            json!({ "action": "accept", "content": { "a": "x", "b": 1.5, "c": true, "d": ["e"] } }),
            true,
        ),
        (Elicitation, json!({ "action": "decline" }), true),
        (Elicitation, json!({ "action": "yes" }), false),
        (
            Elicitation,
            json!({ "action": "accept", "content": { "a": {} } }),
            false,
        ),
        (
            Elicitation,
            json!({ "action": "accept", "content": { "a": null } }),
            false,
        ),
        (
            Elicitation,
            json!({ "action": "accept", "content": { "a": [1] } }),
            false,
        ),
        (
            Elicitation,
            json!({ "action": "accept", "content": [] }),
            false,
        ),
        (Elicitation, json!({}), false),
        (Elicitation, json!("accept"), false),
        (
            Sampling,
            json!({ "role": "assistant", "model": "m", "content": text }),
            true,
        ),
        (
            Sampling,
            json!({ "role": "assistant", "model": "m", "content": [text] }),
            true,
        ),
        (
            Sampling,
            json!({ "role": "system", "model": "m", "content": text }),
            false,
        ),
        (
            Sampling,
            json!({ "role": "assistant", "content": text }),
            false,
        ),
        (
            Sampling,
            json!({ "role": "assistant", "model": "m", "content": "hi" }),
            false,
        ),
        (Sampling, json!(["assistant", "m", text]), false),
        (Roots, json!({ "roots": [] }), true),
        (Roots, json!({ "roots": [{ "uri": "file:///x" }] }), true),
        (Roots, json!({ "roots": [{ "name": "x" }] }), false),
        (Roots, json!({ "roots": {} }), false),
        (Roots, json!({ "action": "accept" }), false),
    ];
    for (kind, answer, right) in table {
        assert_eq!(
            check_answer(kind, &raw(&answer)).is_ok(),
            right,
            "{kind:?} {answer}"
        );
    }
}

#[test]
fn responses_for_older_servers_have_one_block() {
    let answer =
        |content: Value| raw(&json!({ "role": "assistant", "model": "m", "content": content }));
    let text = |words: &str| json!({ "type": "text", "text": words });
    let to = Revision::V2025_06_18;
    let project =
        |content: Value, to| answer_for_server(QuestionKind::Sampling, &answer(content), to);
    assert_eq!(project(text("a"), to), Ok(None));
    assert_eq!(project(json!([text("a")]), to), Ok(Some(answer(text("a")))));
    assert_eq!(
        project(json!([text("a"), text("b")]), to),
        Ok(Some(answer(text("a\nb"))))
    );
    assert_eq!(
        project(json!([text("a"), text("b")]), Revision::V2025_11_25),
        Ok(None)
    );
    let tool = json!({ "type": "tool_use", "id": "1", "name": "n", "input": {} });
    for content in [
        json!([]),
        json!([text("a"), tool]),
        json!([tool]),
        tool.clone(),
    ] {
        assert_eq!(project(content, to), Err(UnsupportedAnswer));
    }
}

#[test]
fn s_req_13_refusals_become_responses_where_the_protocol_allows() {
    use QuestionKind::{Elicitation, Roots, Sampling};
    let cancel = raw(&json!({ "action": "cancel" }));
    assert_eq!(
        fallback_for(Elicitation),
        QuestionFallback::Answer(cancel.clone())
    );
    assert_eq!(
        (fallback_for(Sampling), fallback_for(Roots)),
        (QuestionFallback::Stop, QuestionFallback::Stop)
    );
}

#[test]
fn s_req_05_url_elicitations_come_out_of_the_error() {
    let entry = |members: Value| {
        let mut entry = map(
            json!({ "mode": "url", "elicitationId": "el-1", "url": "https://d", "message": "m" }),
        );
        entry.extend(map(members));
        Value::Object(entry)
    };
    let error = |code: i64, listed: Value| {
        raw(&json!({ "code": code, "message": "x", "data": { "elicitations": listed } }))
    };
    let found = url_elicitations(&error(-32042, json!([entry(json!({}))]))).unwrap();
    assert_eq!(
        params(&found[0]),
        json!({ "mode": "url", "url": "https://d", "message": "m" })
    );
    assert_eq!(found[0].required(), RequiredCapability::Url);
    let bare = json!([{ "elicitationId": "el-1", "url": "https://d", "message": "m" }]);
    let found = url_elicitations(&error(-32042, bare)).unwrap();
    assert_eq!(found[0].required(), RequiredCapability::Url);
    let none = [
        error(-32041, json!([entry(json!({}))])),
        error(-32042, json!([])),
        error(-32042, json!([entry(json!({ "mode": "form" }))])),
        error(-32042, json!([entry(json!({ "url": 7 }))])),
        error(-32042, json!(vec![entry(json!({})); 65])),
        raw(&json!({ "code": -32042, "message": "x" })),
    ];
    for error in none {
        assert_eq!(url_elicitations(&error), None, "{}", error.as_str());
    }
}
