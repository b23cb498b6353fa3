//! Parses typed text as the type in a JSON Schema.

use mcpvisor::admin::SchemaView;
use serde_json::{Map, Number, Value};

pub(super) fn unknown_argument(schema: SchemaView<'_>, name: &str) -> String {
    let names: Vec<&str> = schema
        .properties()
        .into_iter()
        .flat_map(Map::keys)
        .map(String::as_str)
        .collect();
    let known = match names.as_slice() {
        [] => "it takes none".to_owned(),
        names => format!("it takes {}", names.join(", ")),
    };
    format!("the tool has no argument `{name}`; {known}")
}

/// The most similar name, if one is similar enough.
pub(super) fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let scored = names.map(|other| (strsim::jaro_winkler(name, other), other));
    let best = scored.max_by(|(one, _), (other, _)| one.total_cmp(other));
    best.filter(|(score, _)| *score > 0.8).map(|(_, name)| name)
}

/// Parses a value.
///
/// # Errors
///
/// Returns a description of the expected value.
pub(super) fn typed(schema: SchemaView<'_>, text: &str) -> Result<Value, String> {
    let as_json = || serde_json::from_str::<Value>(text).ok();
    if let Some(choices) = schema.choices() {
        return choice(choices, text);
    }
    let mut why = None;
    for kind in kinds(schema) {
        let read = match kind {
            "string" => Ok(text.into()),
            "integer" => text
                .parse::<Number>()
                .ok()
                .filter(|number| !number.is_f64())
                .map(Value::from)
                .ok_or("must be a whole number"),
            "number" => text
                .parse::<Number>()
                .map(Value::from)
                .map_err(|_| "must be a number"),
            "boolean" => match text {
                "true" | "yes" => Ok(true.into()),
                "false" | "no" => Ok(false.into()),
                _ => Err("must be `true` or `false`"),
            },
            "null" => match text {
                "null" | "" => Ok(Value::Null),
                _ => Err("must be `null`"),
            },
            "array" => match as_json().filter(Value::is_array) {
                Some(array) => Ok(array),
                None => return list(schema.items(), text),
            },
            "object" => as_json()
                .filter(Value::is_object)
                .ok_or("must be a JSON object, such as {\"a\": 1}"),
            // The schema has no type: JSON, or else text.
            _ => Ok(as_json().unwrap_or_else(|| text.into())),
        };
        match read {
            Ok(value) => return Ok(value),
            Err(reason) => why = why.or(Some(reason)),
        }
    }
    Err(why.unwrap_or("has no type").to_owned())
}

/// The types that a schema allows. Text comes last, because it accepts everything.
fn kinds(schema: SchemaView<'_>) -> Vec<&str> {
    let mut kinds = schema.types();
    if kinds.is_empty() {
        let several = schema.alternatives().unwrap_or_default().into_iter();
        kinds = several.filter_map(|schema| schema.text("type")).collect();
    }
    kinds.sort_by_key(|kind| *kind == "string");
    if kinds.is_empty() {
        kinds.push("any");
    }
    kinds
}

/// One of the values of an `enum`: text unchanged, any other value as JSON.
fn choice(choices: &[Value], text: &str) -> Result<Value, String> {
    let is_it = |choice: &&Value| match choice {
        Value::String(choice) => choice == text,
        choice => serde_json::from_str::<Value>(text).is_ok_and(|value| value == **choice),
    };
    let found = choices.iter().find(is_it).cloned();
    let known = || choices.iter().map(ToString::to_string).collect::<Vec<_>>();
    found.ok_or_else(|| format!("must be one of {}", known().join(", ")))
}

/// An array from comma-separated text.
fn list(items: SchemaView<'_>, text: &str) -> Result<Value, String> {
    if text.is_empty() {
        return Ok(Value::Array(Vec::new()));
    }
    let items = text.split(',').map(|item| typed(items, item.trim()));
    items.collect::<Result<Vec<_>, _>>().map(Value::Array)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_is_read_as_its_schema_says() {
        let root = json!({"$defs": {"count": {"type": "integer"}}});
        let of = |kind: &str| json!({ "type": kind });
        let table = [
            (of("string"), "5", Some(json!("5"))),
            (of("integer"), "5", Some(json!(5))),
            (of("integer"), "-5", Some(json!(-5))),
            (of("integer"), "5.5", None),
            (of("number"), "5.5", Some(json!(5.5))),
            (of("number"), "x", None),
            (of("boolean"), "yes", Some(json!(true))),
            (of("boolean"), "1", None),
            (of("object"), "{\"a\":1}", Some(json!({"a": 1}))),
            (of("object"), "[1]", None),
            (of("array"), "[1,2]", Some(json!([1, 2]))),
            (
                json!({"type": "array", "items": {"type": "string"}}),
                "a, 1",
                Some(json!(["a", "1"])),
            ),
            (
                json!({"type": "array", "items": {"$ref": "#/$defs/count"}}),
                "1,x",
                None,
            ),
            (json!({"$ref": "#/$defs/count"}), "7", Some(json!(7))),
            (json!({"type": ["string", "integer"]}), "7", Some(json!(7))),
            (
                json!({"anyOf": [{"type": "integer"}, {"type": "null"}]}),
                "null",
                Some(json!(null)),
            ),
            (json!({"enum": ["a", 2]}), "2", Some(json!(2))),
            (json!({"enum": ["a", 2]}), "b", None),
            (json!({}), "{\"a\":1}", Some(json!({"a": 1}))),
            (json!({}), "plain", Some(json!("plain"))),
            (json!({"$ref": "#/no"}), "1", Some(json!(1))),
        ];
        for (schema, text, expected) in table {
            let found = typed(SchemaView::within(&root, &schema), text);
            assert_eq!(found.clone().ok(), expected, "{schema} {text} {found:?}");
        }
    }

    #[test]
    fn the_nearest_name_is_one_that_is_near() {
        let names = ["one__echo", "one__add"];
        assert_eq!(nearest("one__ecko", names.into_iter()), Some("one__echo"));
        assert_eq!(nearest("quite-another", names.into_iter()), None);
    }
}
