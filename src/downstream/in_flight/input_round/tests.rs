use bytes::Bytes;
use serde_json::Value;

use super::*;
use crate::downstream::client_info::ClientInfo;
use crate::id::{Principal, ViewId};
use crate::protocol::DeclaredCapabilities;
use crate::protocol::Envelope;

fn caller(revision: Revision, capabilities: &Value) -> Caller {
    Caller {
        principal: Principal::Anonymous,
        scopes: None,
        view: ViewId::Default,
        session: None,
        revision,
        profile: DeclaredCapabilities::from_declared(capabilities.as_object().unwrap()),
        level: None,
        client: None,
        info: ClientInfo::default(),
    }
}

fn required(requests: &Value, state: Option<&str>) -> InputRequired {
    let mut result = json!({"resultType": "input_required", "inputRequests": requests});
    if let Some(state) = state {
        result["requestState"] = json!(state);
    }
    InputRequired::parse(&RawJson::from_value(&result)).unwrap()
}

fn plan(required: InputRequired, caller: &Caller) -> Result<(InputRound, Vec<Value>), Stop> {
    let mut number = 40;
    let (round, requests) = InputRound::plan(required, caller, || {
        number += 1;
        number
    })?;
    let requests = requests.iter();
    let requests = requests.map(|request| request.frame.parse().unwrap());
    Ok((round, requests.collect()))
}

fn response(id: u64, member: &str, value: &Value) -> Result<Response, Failure> {
    let frame = json!({"jsonrpc": "2.0", "id": id, member: value});
    match Envelope::parse(Bytes::from(frame.to_string())) {
        Ok(Envelope::Response(response)) => Ok(response),
        other => panic!("{other:?}"),
    }
}

fn form() -> Value {
    json!({"method": "elicitation/create", "params": {
        "mode": "form", "message": "who?", "requestedSchema": {"type": "object", "properties": {}},
    }})
}

fn sampling() -> Value {
    json!({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}})
}

fn roots() -> Value {
    json!({"method": "roots/list"})
}

const ALL: fn() -> Value = || json!({"elicitation": {}, "sampling": {}, "roots": {}});

#[test]
fn c_mrtr_01_all_questions_are_asked_and_all_answers_given_back() {
    let caller = caller(Revision::V2025_06_18, &ALL());
    let asked = required(&json!({"a": form(), "b\"": sampling()}), Some("\u{e4}\"x"));
    let (mut round, requests) = plan(asked, &caller).unwrap();
    assert_eq!(
        (&requests[0]["id"], &requests[1]["id"]),
        (&json!(41), &json!(42))
    );
    assert_eq!(requests[0]["params"]["mode"], Value::Null);
    let model =
        json!({"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"});
    round
        .answered(&42.into(), response(42, "result", &model), &[])
        .unwrap();
    assert!(!round.is_complete());
    let declined = json!({"action": "decline"});
    round
        .answered(&41.into(), response(41, "result", &declined), &[])
        .unwrap();
    // A repeated answer changes nothing.
    round
        .answered(&41.into(), response(41, "result", &declined), &[])
        .unwrap();
    assert!(round.is_complete());
    let given = round.given();
    let responses: Value = serde_json::from_str(&given.responses.unwrap()).unwrap();
    assert_eq!(responses, json!({"a": declined, "b\"": model}));
    assert_eq!(given.state.unwrap(), "\u{e4}\"x");
}

#[test]
fn an_undeclared_kind_stops_the_round_before_anything_is_asked() {
    let table = [
        (
            json!({"elicitation": {}}),
            json!({"a": form(), "b": sampling()}),
            "`sampling`",
        ),
        (
            json!({"sampling": {}}),
            json!({"a": form()}),
            "`elicitation.form`",
        ),
        (json!({}), json!({"a": roots()}), "`roots`"),
        (
            json!({"elicitation": {}}),
            json!({"a": {"method": "elicitation/create", "params": {
                "mode": "url", "message": "x", "url": "https://x.example/"}}}),
            "`elicitation.url`",
        ),
    ];
    for (capabilities, requests, lacks) in table {
        let caller = caller(Revision::V2025_11_25, &capabilities);
        let stop = plan(required(&requests, None), &caller).err().unwrap();
        assert!(stop.0.contains(lacks), "{stop}");
    }
}

#[test]
fn a_refusal_ends_the_loop_unless_it_can_be_said() {
    let caller = caller(Revision::V2025_11_25, &ALL());
    let error = json!({"code": -1, "message": "no"});
    let refused = |requests: Value, answer: Result<Response, Failure>| {
        let (mut round, _) = plan(required(&requests, None), &caller).unwrap();
        let outcome = round.answered(&41.into(), answer, &["file:///r".to_owned()]);
        outcome.map(|()| round.given().responses.unwrap())
    };
    let gone = || Err(Failure::new(ErrorKind::SessionNotFound, "gone"));
    let cancel = r#"{"k":{"action":"cancel"}}"#.to_owned();
    assert_eq!(
        refused(json!({"k": form()}), response(41, "error", &error)),
        Ok(cancel.clone())
    );
    let late = Err(Failure::new(ErrorKind::Timeout, "late"));
    assert_eq!(refused(json!({"k": form()}), late), Ok(cancel.clone()));
    assert_eq!(
        refused(json!({"k": form()}), gone()),
        Err(Stop("gone".to_owned()))
    );
    let odd = response(41, "result", &json!({"action": "maybe"}));
    assert_eq!(refused(json!({"k": form()}), odd), Ok(cancel));
    let stop = refused(json!({"k": sampling()}), response(41, "error", &error)).unwrap_err();
    assert_eq!(
        stop.0,
        "client did not answer `sampling/createMessage`: no (-1)"
    );
    assert_eq!(
        refused(json!({"k": roots()}), gone()),
        Ok(r#"{"k":{"roots":[{"uri":"file:///r"}]}}"#.to_owned())
    );
}

#[test]
fn a_question_without_words_in_the_revision_is_cancelled() {
    let caller = caller(Revision::V2025_06_18, &ALL());
    let several = json!({"method": "elicitation/create", "params": {
        "message": "which?",
        "requestedSchema": {"type": "object", "properties": {"x": {"type": "array", "items": {"type": "string", "enum": ["a"]}}}},
    }});
    let (round, requests) = plan(required(&json!({"k": several}), None), &caller).unwrap();
    assert!(requests.is_empty() && round.is_complete());
    assert_eq!(
        round.given().responses.unwrap(),
        r#"{"k":{"action":"cancel"}}"#
    );
}

#[test]
fn a_url_gets_an_id_in_the_revision_that_has_them() {
    let url = json!({"k": {"method": "elicitation/create", "params": {
        "mode": "url", "message": "x", "url": "https://x.example/"}}});
    let declared = json!({"elicitation": {"url": {}}});
    let of_client = caller(Revision::V2025_11_25, &declared);
    let (round, requests) = plan(required(&url, None), &of_client).unwrap();
    assert_eq!(requests[0]["params"]["elicitationId"], "mcpvisor-41");
    assert_eq!(round.urls, ["mcpvisor-41"]);
}

#[test]
fn a_state_alone_is_given_back_alone_after_a_pause() {
    let caller = caller(Revision::V2025_11_25, &json!({}));
    let result = json!({"resultType": "input_required", "requestState": "s"});
    let asked = InputRequired::parse(&RawJson::from_value(&result)).unwrap();
    let (round, requests) = plan(asked, &caller).unwrap();
    assert!(requests.is_empty() && round.is_complete());
    let expected = InputAnswers {
        responses: None,
        state: Some("s".to_owned()),
    };
    assert_eq!(round.given(), expected);
    let pauses: Vec<_> = (1..=ROUNDS_MAX)
        .map(|round| pause(round).as_millis())
        .collect();
    assert_eq!(pauses, [250, 500, 1000, 2000, 4000, 8000, 16_000, 32_000]);
}
