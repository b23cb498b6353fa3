//! Whether a new version of a server can serve the clients of the old one, by its tool definitions.
//! Pure.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::catalog::{ItemKind, ServerPart};

/// Members of a schema that only describe, or that are compared in their own way.
const KNOWN: [&str; 13] = [
    "$comment",
    "$id",
    "$schema",
    "additionalProperties",
    "default",
    "description",
    "enum",
    "examples",
    "items",
    "properties",
    "required",
    "title",
    "type",
];

/// The values that a schema describes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Arguments,
    Results,
}

/// Returns why the new version cannot serve the clients of the old one; an added tool is fine.
pub(super) fn incompatibility(old: &ServerPart, new: &ServerPart) -> Option<String> {
    let tools = |part: &ServerPart| -> Vec<(String, Value)> {
        let items = part.items(ItemKind::Tools).iter();
        let parsed = items.map(|item| (item.native().to_owned(), item.raw().parse()));
        parsed
            .filter_map(|(name, tool)| Some((name, tool.ok()?)))
            .collect()
    };
    let new = tools(new);
    tools(old).into_iter().find_map(|(name, old)| {
        let Some((_, new)) = new.iter().find(|(other, _)| *other == name) else {
            return Some(format!("its tool `{name}` is missing"));
        };
        let why = conflict(&old["inputSchema"], &new["inputSchema"], Of::Arguments);
        let why = why.or_else(|| match (&old["outputSchema"], &new["outputSchema"]) {
            (Value::Null, _) => None,
            (_, Value::Null) => Some("its `outputSchema` is missing".to_owned()),
            (old, new) => conflict(new, old, Of::Results),
        });
        why.map(|why| format!("the schema of its tool `{name}` changed: {why}"))
    })
}

/// Native names of the tools that are read-only in both.
pub(super) fn read_only_in_both(old: &ServerPart, new: &ServerPart) -> HashSet<String> {
    let names = |part: &ServerPart| -> HashSet<String> {
        let items = part.items(ItemKind::Tools).iter();
        let read_only = items.filter(|item| item.hints().read_only);
        read_only.map(|item| item.native().to_owned()).collect()
    };
    names(old).intersection(&names(new)).cloned().collect()
}

/// Why a value that `sent` allows is not one that `accepted` allows. Schemas that it cannot compare
/// conflict if they differ.
fn conflict(sent: &Value, accepted: &Value, of: Of) -> Option<String> {
    let (Value::Object(sent), Value::Object(accepted)) = (sent, accepted) else {
        let is_open = *accepted == Value::Bool(true) || accepted.is_null();
        return (sent != accepted && !is_open).then(|| "it cannot be compared".to_owned());
    };
    let named = |key: &str| -> HashSet<&str> {
        let names = [sent, accepted].map(|it| it.get(key).and_then(Value::as_array));
        let [before, after] = names.map(|it| it.into_iter().flatten().filter_map(Value::as_str));
        let before: HashSet<&str> = before.collect();
        after.filter(|name| !before.contains(name)).collect()
    };
    if let Some(name) = named("required").into_iter().min() {
        return Some(format!("`{name}` is required"));
    }
    if let Some(kind) = unaccepted(sent.get("type"), accepted.get("type")) {
        return Some(format!("a value can no longer be {kind}"));
    }
    if let Some(value) = unaccepted(sent.get("enum"), accepted.get("enum")) {
        return Some(format!("a value can no longer be {value}"));
    }
    let other = accepted.iter().find(|(key, value)| {
        !KNOWN.contains(&key.as_str()) && sent.get(key.as_str()) != Some(value)
    });
    if let Some((key, _)) = other {
        return Some(format!("`{key}` is different"));
    }
    let items = accepted.get("items").map(|new| (sent.get("items"), new));
    let items = items.and_then(|(old, new)| conflict(old.unwrap_or(&Value::Bool(true)), new, of));
    items.or_else(|| in_properties(sent, accepted, of))
}

fn in_properties(
    sent: &Map<String, Value>,
    accepted: &Map<String, Value>,
    of: Of,
) -> Option<String> {
    let empty = Map::new();
    let properties =
        |it: &'_ Map<String, Value>| it.get("properties").and_then(Value::as_object).cloned();
    let (before, after) = (properties(sent), properties(accepted));
    let (before, after) = (before.unwrap_or_default(), after.unwrap_or(empty));
    let rest = accepted.get("additionalProperties");
    let is_closed = rest == Some(&Value::Bool(false));
    if is_closed && sent.get("additionalProperties") != rest && of == Of::Arguments {
        return Some("`additionalProperties` is false".to_owned());
    }
    before.iter().find_map(|(name, old)| match after.get(name) {
        Some(new) => conflict(old, new, of).map(|why| format!("in `{name}`, {why}")),
        // A tool that no longer knows an argument does something else without it.
        None if of == Of::Arguments || is_closed => Some(format!("`{name}` is gone")),
        None => None,
    })
}

/// A type or value that was allowed and no longer is.
fn unaccepted(sent: Option<&Value>, accepted: Option<&Value>) -> Option<String> {
    let list = |value: &Value| match value {
        Value::Array(values) => values.clone(),
        one => vec![one.clone()],
    };
    let accepted = list(accepted?);
    let is_accepted = |value: &Value| {
        accepted.contains(value) || value == "integer" && accepted.contains(&"number".into())
    };
    let Some(sent) = sent else {
        return Some("anything".to_owned());
    };
    list(sent)
        .iter()
        .find(|it| !is_accepted(it))
        .map(Value::to_string)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_change_that_clients_can_notice_is_incompatible() {
        let old = json!({"type": "object", "required": ["a"], "properties": {
            "a": {"type": "integer"}, "b": {"enum": ["x", "y"]},
            "c": {"type": "array", "items": {"type": "string"}},
        }});
        let with = |change: &dyn Fn(&mut Value)| {
            let mut new = old.clone();
            change(&mut new);
            new
        };
        type Change<'a> = &'a dyn Fn(&mut Value);
        let table: [(Change<'_>, Option<&str>); 13] = [
            (&|_| {}, None),
            (
                &|it| it["properties"]["d"] = json!({"type": "string"}),
                None,
            ),
            (&|it| it["description"] = json!("new"), None),
            (&|it| it["required"] = json!([]), None),
            (&|it| it["properties"]["a"]["type"] = json!("number"), None),
            (
                &|it| it["properties"]["a"]["type"] = json!(["integer", "null"]),
                None,
            ),
            (&|it| it["properties"]["b"] = json!({}), None),
            (
                &|it| it["required"] = json!(["a", "b"]),
                Some("`b` is required"),
            ),
            (
                &|it| it["properties"]["a"]["type"] = json!("string"),
                Some("in `a`, a value can no longer be \"integer\""),
            ),
            (
                &|it| it["properties"]["b"]["enum"] = json!(["x"]),
                Some("in `b`, a value can no longer be \"y\""),
            ),
            (
                &|it| it["properties"]["c"]["items"]["pattern"] = json!("x"),
                Some("in `c`, `pattern` is different"),
            ),
            (
                &|it| drop(it["properties"].as_object_mut().unwrap().remove("b")),
                Some("`b` is gone"),
            ),
            (
                &|it| it["additionalProperties"] = json!(false),
                Some("`additionalProperties` is false"),
            ),
        ];
        for (change, expected) in table {
            let new = with(change);
            let why = conflict(&old, &new, Of::Arguments);
            assert_eq!(why.as_deref(), expected, "{new}");
        }
        // A result can have more members, and must not lack one.
        let more = with(&|it| it["properties"]["d"] = json!({}));
        assert_eq!(conflict(&more, &old, Of::Results), None);
        let fewer = with(&|it| it["required"] = json!([]));
        let why = conflict(&fewer, &old, Of::Results);
        assert_eq!(why.as_deref(), Some("`a` is required"));
    }
}
