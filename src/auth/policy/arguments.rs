//! Prepares a call's arguments for policy conditions.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::fact::{Fact, Members, Unclear};

/// Maximum length of arguments that conditions can read, in bytes.
const ARGUMENTS_MAX: usize = 256 * 1024;

/// Maximum number of schemas and references followed for the arguments of one call.
const SCHEMA_STEPS_MAX: usize = 20_000;

/// Maximum nesting of branches (`anyOf`, `oneOf`, `allOf`).
const BRANCH_DEPTH_MAX: usize = 32;

const UNREADABLE: Unclear =
    "the arguments are not an object, are longer than 256 KiB, or have a duplicate member";

const NOT_BY_SCHEMA: Unclear = "it reads an argument whose type differs from `inputSchema`";

/// Parses a JSON object into a map in which values that do not match the type in the tool's
/// `inputSchema` are unclear. Everything is unclear if a member is duplicated, since the server may
/// read the other one.
pub(super) fn read(arguments: &[u8], schema: Option<&Value>) -> Fact {
    if arguments.len() > ARGUMENTS_MAX {
        return Fact::Unclear(UNREADABLE);
    }
    match serde_json::from_slice(arguments) {
        Ok(Argument(mut value @ Fact::Map(_))) => {
            if let Some(root) = schema {
                let mut check = SchemaCheck {
                    root,
                    steps_left: SCHEMA_STEPS_MAX,
                    depth: 0,
                };
                check.check_members(&mut value, root);
            }
            value
        }
        _ => Fact::Unclear(UNREADABLE),
    }
}

/// Compares arguments with their schema. The schema comes from a server, so following it must be
/// bounded.
struct SchemaCheck<'s> {
    root: &'s Value,
    steps_left: usize,
    /// Depth of the current branch.
    depth: usize,
}

impl<'s> SchemaCheck<'s> {
    /// Marks values whose type differs from their schema as unclear, here and in their members.
    fn check(&mut self, value: &mut Fact, schema: &'s Value) {
        if self.fits(value, schema) {
            self.check_members(value, schema);
        } else {
            *value = Fact::Unclear(NOT_BY_SCHEMA);
        }
    }

    fn check_members(&mut self, value: &mut Fact, schema: &'s Value) {
        let schema = self.resolved(schema);
        match value {
            Fact::Map(members) => {
                let properties = schema["properties"].as_object().into_iter().flatten();
                for (name, schema) in properties {
                    if let Some(member) = members.value_mut(name) {
                        self.check(member, schema);
                    }
                }
            }
            Fact::List(elements) if schema["items"].is_object() => {
                for element in elements {
                    self.check(element, &schema["items"]);
                }
            }
            _ => {}
        }
    }

    /// Whether a value has one of the types in its schema; a schema without types accepts all.
    fn fits(&mut self, value: &Fact, schema: &'s Value) -> bool {
        let schema = self.resolved(schema);
        if self.steps_left == 0 || self.depth > BRANCH_DEPTH_MAX {
            return false;
        }
        self.depth += 1;
        let fits = self.fits_here(value, schema);
        self.depth -= 1;
        fits
    }

    fn fits_here(&mut self, value: &Fact, schema: &'s Value) -> bool {
        let is_typed = match &schema["type"] {
            Value::Array(types) => types.iter().any(|name| is_of(value, name)),
            Value::Null => true,
            name => is_of(value, name),
        };
        let branches = |member: &str| schema[member].as_array().into_iter().flatten();
        is_typed
            && branches("allOf").all(|branch| self.fits(value, branch))
            && ["anyOf", "oneOf"].iter().all(|member| {
                let mut branches = branches(member).peekable();
                branches.peek().is_none() || branches.any(|branch| self.fits(value, branch))
            })
    }

    /// Follows references within the schema.
    fn resolved(&mut self, mut schema: &'s Value) -> &'s Value {
        loop {
            self.steps_left = self.steps_left.saturating_sub(1);
            let pointer = schema["$ref"].as_str();
            let pointer = pointer.and_then(|reference| reference.strip_prefix('#'));
            match pointer.and_then(|pointer| self.root.pointer(pointer)) {
                Some(there) if self.steps_left > 0 => schema = there,
                _ => return schema,
            }
        }
    }
}

/// Whether a value is of this JSON Schema type.
fn is_of(value: &Fact, name: &Value) -> bool {
    match name.as_str() {
        Some("null") => matches!(value, Fact::Null),
        Some("boolean") => matches!(value, Fact::Bool(_)),
        Some("integer") => match value {
            Fact::Float(number) => number.fract() == 0.0,
            other => matches!(other, Fact::Int(_)),
        },
        Some("number") => matches!(value, Fact::Int(_) | Fact::Float(_)),
        Some("string") => matches!(value, Fact::Text(_)),
        Some("array") => matches!(value, Fact::List(_)),
        Some("object") => matches!(value, Fact::Map(_)),
        _ => true,
    }
}

struct Argument(Fact);

impl<'de> Deserialize<'de> for Argument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ArgumentVisitor).map(Self)
    }
}

struct ArgumentVisitor;

impl<'de> Visitor<'de> for ArgumentVisitor {
    type Value = Fact;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Fact, E> {
        Ok(Fact::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Fact, E> {
        Ok(Fact::Bool(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Fact, E> {
        Ok(Fact::Int(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Fact, E> {
        Ok(Fact::Int(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Fact, E> {
        Ok(Fact::Float(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Fact, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Fact, A::Error> {
        let mut values = Vec::new();
        while let Some(Argument(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(Fact::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fact, A::Error> {
        let mut members = Members::default();
        while let Some(key) = map.next_key::<String>()? {
            let Argument(value) = map.next_value()?;
            if !members.add(&key, value) {
                return Err(A::Error::custom("duplicate member"));
            }
        }
        Ok(Fact::Map(members))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn is_read(arguments: &[u8]) -> bool {
        matches!(read(arguments, None), Fact::Map(_))
    }

    #[test]
    fn only_an_object_without_a_second_meaning_is_read() {
        let table = [
            (r#"{}"#, true),
            (
                r#"{"a":[1,-1,18446744073709551615,1.5,null,true,"x"]}"#,
                true,
            ),
            (r#"{"a":{"b":1},"b":{"b":1}}"#, true),
            ("null", false),
            ("[]", false),
            ("", false),
            (r#"{"a":1,"a":2}"#, false),
            (r#"{"a":1,"\u0061":2}"#, false),
            (r#"{"a":[{"b":1,"b":1}]}"#, false),
            (r#"{"A":1,"a":1,"A":2}"#, false),
        ];
        for (json, expected) in table {
            assert_eq!(is_read(json.as_bytes()), expected, "{json}");
        }
        let deep = format!("{}1{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
        assert!(!is_read(deep.as_bytes()));
        let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(ARGUMENTS_MAX));
        assert!(!is_read(long.as_bytes()));
    }

    #[test]
    fn what_is_not_of_the_type_in_the_schema_is_unclear() {
        let schema = json!({
            "type": "object",
            "$defs": {
                "path": {"type": "string"},
                "loop": {"$ref": "#/$defs/loop"},
                "many": {"anyOf": [{"$ref": "#/$defs/many"}, {"$ref": "#/$defs/many"}]},
            },
            "properties": {
                "text": {"type": "string"},
                "whole": {"type": "integer"},
                "number": {"type": "number"},
                "optional": {"type": ["string", "null"]},
                "either": {"anyOf": [{"type": "string"}, {"type": "array"}]},
                "named": {"$ref": "#/$defs/path"},
                "all": {"allOf": [{"$ref": "#/$defs/path"}]},
                "loop": {"$ref": "#/$defs/loop"},
                "many": {"$ref": "#/$defs/many"},
                "list": {"type": "array", "items": {"type": "string"}},
                "inner": {"type": "object", "properties": {"flag": {"type": "boolean"}}},
                "any": {},
            },
        });
        let table = [
            (json!({"text": "a"}), true),
            (json!({"text": ["a"]}), false),
            (json!({"text": 1}), false),
            (json!({"text": null}), false),
            (json!({"whole": 1}), true),
            (json!({"whole": 1.0}), true),
            (json!({"whole": 1.5}), false),
            (json!({"whole": "1"}), false),
            (json!({"number": 1.5}), true),
            (json!({"number": true}), false),
            (json!({"optional": null}), true),
            (json!({"optional": 1}), false),
            (json!({"either": []}), true),
            (json!({"either": {}}), false),
            (json!({"named": "a"}), true),
            (json!({"named": ["a"]}), false),
            (json!({"all": "a"}), true),
            (json!({"all": 1}), false),
            (json!({"loop": 1}), false),
            (json!({"many": 1}), false),
            (json!({"any": [1, "a"]}), true),
            (json!({"unknown": {}}), true),
        ];
        for (arguments, expected) in table {
            let Fact::Map(members) = read(arguments.to_string().as_bytes(), Some(&schema)) else {
                panic!("{arguments}");
            };
            let name = arguments.as_object().unwrap().keys().next().unwrap();
            let value = members.get(name).unwrap().unwrap();
            assert_eq!(value.clear().is_ok(), expected, "{arguments}");
        }
        let nested = json!({"list": ["a", 1], "inner": {"flag": "true"}}).to_string();
        let read = read(nested.as_bytes(), Some(&schema));
        let at = |name: &str| read.at(&Fact::from(name)).unwrap();
        assert!(at("list").at(&Fact::Int(0)).is_ok());
        assert!(at("list").at(&Fact::Int(1)).is_err());
        assert!(at("inner").at(&Fact::from("flag")).is_err());
    }
}
