//! Limits results of `completion/complete` to what the protocol allows.

use crate::protocol::{RawJson, json};

use crate::bridge::object::{MemberChange, Object};

/// Maximum number of values in one result (S-COMP-02).
const VALUES_MAX: usize = 100;

/// Truncates the result to the first values and sets `hasMore`; `None` if it is within the limit.
/// The server's `total` stays.
pub fn limited_completion(result: &RawJson) -> Option<RawJson> {
    let members = Object::parse(result.as_str())?;
    let completion = Object::parse(members.get("completion")?)?;
    let values = json::elements(completion.get("values")?)?;
    let shown = values.get(..VALUES_MAX)?;
    if shown.len() == values.len() {
        return None;
    }
    let shown = format!("[{}]", shown.join(","));
    let cut = completion.rebuild(r#""hasMore":true"#, |key, _| match key {
        "values" => MemberChange::Value(shown.clone()),
        "hasMore" => MemberChange::Drop,
        _ => MemberChange::Keep,
    })?;
    let changed = members.rebuild("", |key, _| match key {
        "completion" => MemberChange::Value(cut.clone()),
        _ => MemberChange::Keep,
    });
    changed.map(RawJson::from_valid_parts)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cut(completion: &Value) -> Option<Value> {
        let result = RawJson::from_value(&json!({ "completion": completion, "_meta": {"a": 1} }));
        let cut: Value = limited_completion(&result)?.parse().unwrap();
        assert_eq!(cut["_meta"], json!({"a": 1}));
        Some(cut["completion"].clone())
    }

    #[test]
    fn s_comp_02_more_than_100_values_are_truncated_with_has_more() {
        let values = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
        let all = json!({"values": values(250), "total": 1000, "hasMore": false, "x": [1]});
        let expected = json!({"values": values(100), "total": 1000, "hasMore": true, "x": [1]});
        assert_eq!(cut(&all), Some(expected));
        let expected = json!({"values": values(100), "hasMore": true});
        assert_eq!(cut(&json!({"values": values(101)})), Some(expected));
        for harmless in [
            json!({"values": values(100), "hasMore": false}),
            json!({"values": "many"}),
            json!([]),
        ] {
            assert_eq!(cut(&harmless), None);
        }
    }
}
