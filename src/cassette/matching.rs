//! Finds the recorded request that equals a request.

use serde_json::Value;
use uuid::Uuid;

use crate::masking::REDACTED;

/// A recorded value that equals every value.
pub const ANY: &str = "[ANY]";

/// Replaces what differs between two runs by [`ANY`]: UUIDs and times.
pub fn mark_volatile(value: &mut Value) {
    match value {
        Value::String(text) if is_volatile(text) => ANY.clone_into(text),
        Value::Array(items) => items.iter_mut().for_each(mark_volatile),
        Value::Object(members) => members.values_mut().for_each(mark_volatile),
        _ => {}
    }
}

fn is_volatile(text: &str) -> bool {
    humantime::parse_rfc3339(text).is_ok() || Uuid::try_parse(text).is_ok()
}

/// Whether the parameters of a request equal the recorded ones. Masked and volatile values equal
/// every value. `_meta` does not count, because it carries what each request has of its own.
pub(super) fn is_equal(recorded: &Value, asked: &Value) -> bool {
    match (recorded, asked) {
        (Value::String(text), _) if text == ANY || text.contains(REDACTED) => true,
        (Value::Array(recorded), Value::Array(asked)) => {
            let pairs = || recorded.iter().zip(asked);
            recorded.len() == asked.len() && pairs().all(|(one, other)| is_equal(one, other))
        }
        (Value::Object(recorded), Value::Object(asked)) => {
            let counted = |name: &&String| *name != "_meta";
            let has = |name: &String| {
                let pair = recorded.get(name).zip(asked.get(name));
                pair.is_some_and(|(one, other)| is_equal(one, other))
            };
            let count =
                |members: &serde_json::Map<String, Value>| members.keys().filter(counted).count();
            count(recorded) == count(asked) && recorded.keys().filter(counted).all(has)
        }
        _ => recorded == asked,
    }
}

/// The item that a request names: a tool, a prompt or a URI.
pub(super) fn item(params: &Value) -> &Value {
    match &params["name"] {
        Value::Null => &params["uri"],
        name => name,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn masked_and_volatile_values_equal_every_value() {
        let id = "7b5d4c9e-6f0a-4d8b-9a51-0c4a3a7a7c11";
        let mut recorded = json!({
            "name": "write",
            "arguments": {"token": "[REDACTED]", "id": id, "at": "2026-11-27T08:00:00Z", "n": [1, "two"]},
            "_meta": {"progressToken": 1},
        });
        mark_volatile(&mut recorded);
        assert_eq!(recorded["arguments"]["id"], ANY);
        assert_eq!(recorded["arguments"]["at"], ANY);
        assert_eq!(recorded["arguments"]["n"], json!([1, "two"]));
        let asked = |token: &str, n: Value| json!({"name": "write", "arguments": {"token": token, "id": 5, "at": "now", "n": n}});
        assert!(is_equal(&recorded, &asked("s3cret", json!([1, "two"]))));
        for other in [
            json!([1]),
            json!([1, "three"]),
            json!([1, "two", 3]),
            json!("x"),
        ] {
            assert!(!is_equal(&recorded, &asked("s3cret", other)));
        }
        let more = json!({"name": "write", "arguments": {}, "extra": 1});
        assert!(!is_equal(&recorded, &more));
    }
}
