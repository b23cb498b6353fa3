//! The arguments of a call, as conditions see them.

use std::collections::HashMap;
use std::fmt;

use cel::objects::{Key, Value};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Longest arguments that are read for a condition, in bytes.
const ARGUMENTS_MAX: usize = 256 * 1024;

/// An object in JSON as a map. `None` for what conditions cannot be judged by: something else, a
/// longer one, and one that names a member twice, since its server may read the other one.
pub(super) fn read(arguments: &[u8]) -> Option<Value> {
    if arguments.len() > ARGUMENTS_MAX {
        return None;
    }
    let Argument(value) = serde_json::from_slice(arguments).ok()?;
    matches!(value, Value::Map(_)).then_some(value)
}

struct Argument(Value);

impl<'de> Deserialize<'de> for Argument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ArgumentVisitor).map(Self)
    }
}

struct ArgumentVisitor;

impl<'de> Visitor<'de> for ArgumentVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Int(number))
    }

    /// Signed where it fits, as is a `1` in a condition.
    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(i64::try_from(number).map_or(Value::UInt(number), Value::Int))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Value::Float(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Argument(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut values: HashMap<Key, Value> = HashMap::new();
        while let Some(key) = map.next_key::<String>()? {
            let Argument(value) = map.next_value()?;
            if values.insert(key.into(), value).is_some() {
                return Err(A::Error::custom("a member stands twice"));
            }
        }
        Ok(values.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        ];
        for (json, expected) in table {
            assert_eq!(read(json.as_bytes()).is_some(), expected, "{json}");
        }
        let deep = format!("{}1{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
        assert!(read(deep.as_bytes()).is_none());
        let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(ARGUMENTS_MAX));
        assert!(read(long.as_bytes()).is_none());
    }
}
