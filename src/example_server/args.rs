//! Validates the arguments of tools and prompts against their JSON Schema, with actionable errors.

use serde_json::{Map, Value, json};

/// A schema for named arguments.
pub(super) fn schema(properties: Value, required: &[&str]) -> Value {
    let mut schema =
        json!({"type": "object", "properties": properties, "additionalProperties": false});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// The validated arguments of one call, with defaults filled in.
#[derive(Debug)]
pub(super) struct Args(Map<String, Value>);

impl Args {
    /// Returns a sentence for arguments that do not match the schema.
    pub(super) fn read(schema: &Value, given: &Value) -> Result<Self, String> {
        let none = Map::new();
        let given = match given {
            Value::Null => &none,
            Value::Object(given) => given,
            _ => return Err("`arguments` is not an object".to_owned()),
        };
        let properties = schema["properties"].as_object().unwrap_or(&none);
        if let Some(name) = given.keys().find(|name| !properties.contains_key(*name)) {
            let known: Vec<&str> = properties.keys().map(String::as_str).collect();
            return Err(match known.as_slice() {
                [] => format!("unknown argument `{name}`: none are expected"),
                known => format!("unknown argument `{name}`: known are {}", known.join(", ")),
            });
        }
        let mut args = Map::new();
        for (name, property) in properties {
            let value = match given.get(name).filter(|value| !value.is_null()) {
                Some(value) => {
                    check(name, property, value)?;
                    value
                }
                None => &property["default"],
            };
            if !value.is_null() {
                args.insert(name.clone(), value.clone());
            } else if schema["required"]
                .as_array()
                .is_some_and(|all| all.contains(&json!(name)))
            {
                return Err(format!("argument `{name}` is missing"));
            }
        }
        Ok(Self(args))
    }

    fn value(&self, name: &str) -> &Value {
        self.0.get(name).unwrap_or(&Value::Null)
    }

    pub(super) fn text(&self, name: &str) -> &str {
        self.value(name).as_str().unwrap_or_default()
    }

    pub(super) fn integer(&self, name: &str) -> u64 {
        self.value(name).as_u64().unwrap_or_default()
    }

    pub(super) fn number(&self, name: &str) -> f64 {
        self.value(name).as_f64().unwrap_or_default()
    }
}

/// Describes what is wrong with a string, number or integer.
fn check(name: &str, property: &Value, value: &Value) -> Result<(), String> {
    let wanted = match property["type"].as_str() {
        Some("integer") => {
            let bound = |key: &str| property[key].as_u64().unwrap_or_default();
            let range = bound("minimum")..=bound("maximum");
            if value.as_u64().is_some_and(|number| range.contains(&number)) {
                return Ok(());
            }
            format!("an integer from {} to {}", range.start(), range.end())
        }
        Some("number") if value.is_number() => return Ok(()),
        Some("number") => "a number".to_owned(),
        _ => match property["enum"].as_array() {
            Some(choices) if choices.contains(value) => return Ok(()),
            Some(choices) => {
                let choices: Vec<&str> = choices.iter().filter_map(Value::as_str).collect();
                format!("one of {}", choices.join(", "))
            }
            None if value.is_string() => return Ok(()),
            None => "a string".to_owned(),
        },
    };
    let short: String = value.to_string().chars().take(40).collect();
    Err(format!("argument `{name}` must be {wanted}, not {short}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Value {
        let properties = json!({
            "text": {"type": "string"}, "number": {"type": "number"},
            "integer": {"type": "integer", "minimum": 1, "maximum": 4, "default": 1},
            "choice": {"type": "string", "enum": ["a", "b"], "default": "a"},
        });
        schema(properties, &["text", "number"])
    }

    #[test]
    fn arguments_are_checked() {
        let given = json!({"text": "x", "number": 1e300, "integer": 4});
        let args = Args::read(&all(), &given).unwrap();
        assert_eq!(args.text("text"), "x");
        assert_eq!(args.integer("integer"), 4);
        assert_eq!(args.number("number"), 1e300);
        assert_eq!(args.text("choice"), "a");
        let given = json!({"text": "x", "number": 1, "integer": null});
        assert_eq!(Args::read(&all(), &given).unwrap().integer("integer"), 1);
        for (name, value, words) in [
            ("text", json!(4), "must be a string, not 4"),
            ("text", json!(null), "missing"),
            ("number", json!("x"), "must be a number"),
            ("choice", json!("x"), "one of a, b"),
            ("integer", json!(1e300), "from 1 to 4"),
            ("integer", json!(-1), "from 1 to 4"),
            ("integer", json!(0), "from 1 to 4"),
            ("integer", json!("x"), "from 1 to 4"),
            ("other", json!(1), "known are text, number, integer, choice"),
        ] {
            let mut given = json!({"text": "x", "number": 1});
            given[name] = value;
            let error = Args::read(&all(), &given).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
        assert!(Args::read(&schema(json!({}), &[]), &given).is_err());
        assert!(Args::read(&all(), &json!([1])).is_err());
    }
}
