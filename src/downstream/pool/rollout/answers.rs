//! Compares the answers of two versions to the same call. Pure.

use serde_json::Value;

use crate::downstream::settings::AnswerComparison;
use crate::protocol::{ErrorKind, Failure, Outcome, Response};

/// Answers with more bytes are compared only by whether they are errors.
const COMPARED_MAX: usize = 256 << 10;

/// Members that say what an object is, and are compared as they are.
const TELLING: [&str; 2] = ["type", "mimeType"];

/// Whether an answer is an error; `None` if it proves nothing, because the call was taken back or
/// refused by the gateway.
pub(super) fn is_error(answer: &Result<Response, Failure>) -> Option<bool> {
    let response = match answer {
        Ok(response) => response,
        Err(failure) => {
            let proves = !matches!(
                failure.kind,
                ErrorKind::Cancelled | ErrorKind::Overloaded | ErrorKind::ShuttingDown
            );
            return proves.then_some(true);
        }
    };
    Some(match &response.outcome {
        Outcome::Error(_) => true,
        Outcome::Result(result) => {
            let flag = crate::protocol::json::member(result.as_str(), "isError");
            flag.is_some_and(|flag| flag == "true")
        }
    })
}

/// Whether two answers that are no errors differ in a way that matters.
pub(super) fn differ(
    old: &Result<Response, Failure>,
    candidate: &Result<Response, Failure>,
    how: AnswerComparison,
) -> bool {
    let (Some(old), Some(candidate)) = (result(old), result(candidate)) else {
        return false;
    };
    match how {
        AnswerComparison::Shape => !is_alike(&old, &candidate),
        AnswerComparison::Exact => old != candidate,
    }
}

fn result(answer: &Result<Response, Failure>) -> Option<Value> {
    match &answer.as_ref().ok()?.outcome {
        Outcome::Result(result) if result.as_bytes().len() <= COMPARED_MAX => result.parse().ok(),
        Outcome::Result(_) | Outcome::Error(_) => None,
    }
}

/// Whether two values have the same structure. Values, lengths and absent parts can vary.
fn is_alike(old: &Value, candidate: &Value) -> bool {
    match (old, candidate) {
        (Value::Object(old), Value::Object(candidate)) => old.iter().all(|(key, value)| {
            let other = candidate.get(key);
            match TELLING.contains(&key.as_str()) {
                true => other == Some(value),
                false => other.map_or(value.is_null(), |other| is_alike(value, other)),
            }
        }),
        (Value::Array(old), Value::Array(candidate)) => match (old.first(), candidate.first()) {
            (Some(old), Some(candidate)) => is_alike(old, candidate),
            (Some(_), None) => false,
            (None, _) => true,
        },
        (Value::String(old), Value::String(candidate)) => {
            let inner = |text: &str| {
                let value: Option<Value> = serde_json::from_str(text).ok();
                value.filter(|it| it.is_object() || it.is_array())
            };
            match (inner(old), inner(candidate)) {
                (Some(old), Some(candidate)) => is_alike(&old, &candidate),
                (Some(_), None) => false,
                (None, _) => true,
            }
        }
        (Value::Null, _) | (_, Value::Null) => true,
        (Value::Bool(_), Value::Bool(_)) | (Value::Number(_), Value::Number(_)) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_are_alike_if_their_structure_is() {
        let text = |text: &str| json!({"content": [{"type": "text", "text": text}]});
        let table = [
            (text("12:00"), text("12:01"), true),
            (text("{\"a\": 1}"), text("{\"a\": 2, \"b\": 3}"), true),
            (text("{\"a\": 1}"), text("{\"a\": \"x\"}"), false),
            (text("{\"a\": 1}"), text("garbage"), false),
            (text("x"), json!({"content": []}), false),
            (json!({"content": []}), text("x"), true),
            (
                text("x"),
                json!({"content": [{"type": "image", "data": ""}]}),
                false,
            ),
            (json!({"a": {"b": 1}}), json!({"a": {}}), false),
            (json!({"a": null}), json!({}), true),
            (json!({"a": [1, 2]}), json!({"a": [3]}), true),
            (json!({"a": [1]}), json!({"a": {"0": 1}}), false),
        ];
        for (old, candidate, expected) in table {
            assert_eq!(is_alike(&old, &candidate), expected, "{old} {candidate}");
        }
    }
}
