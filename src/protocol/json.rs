//! Reads JSON text without rebuilding it. Inputs must be valid JSON; parts are borrowed from them.

use std::borrow::Cow;
use std::fmt;

use bytestring::ByteString;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{RawJson, Span};

/// The members of an object in text order, with raw values. `None` if `text` is not an object, or a
/// key is not valid Unicode.
pub fn members(text: &str) -> Option<Vec<(Cow<'_, str>, &str)>> {
    serde_json::from_str::<ObjectMembers<'_>>(text)
        .ok()
        .map(|members| members.0)
}

/// The value of a member; the last one if the name occurs more than once, as in most parsers.
pub fn member<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let found = members(text)?
        .into_iter()
        .rev()
        .find(|(key, _)| key == name);
    found.map(|(_, value)| value)
}

/// Whether `text` is an object whose members are all `known`.
pub fn has_only(text: &str, known: impl Fn(&str) -> bool) -> bool {
    struct Only<F>(F);

    impl<'de, F: Fn(&str) -> bool> Visitor<'de> for Only<F> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object with known members")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            while let Some(JsonString(key)) = map.next_key()? {
                if !(self.0)(&key) {
                    return Err(serde::de::Error::custom("another member"));
                }
                map.next_value::<IgnoredAny>()?;
            }
            Ok(())
        }
    }

    let mut reader = serde_json::Deserializer::from_str(text);
    reader.deserialize_map(Only(known)).is_ok()
}

/// The raw elements of an array. `None` if `text` is not an array.
pub fn elements(text: &str) -> Option<Vec<&str>> {
    serde_json::from_str::<ArrayElements<'_>>(text)
        .ok()
        .map(|elements| elements.0)
}

/// The text of a JSON string. `None` if `text` is not a string.
pub fn text(text: &str) -> Option<Cow<'_, str>> {
    let quoted = text
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    if let Some(plain) = quoted.filter(|text| !text.contains('\\')) {
        return Some(Cow::Borrowed(plain));
    }
    serde_json::from_str::<JsonString<'_>>(text)
        .ok()
        .map(|text| text.0)
}

/// Returns a text that shares the memory of `whole` if it was borrowed from it.
pub fn shared(whole: &ByteString, text: Cow<'_, str>) -> ByteString {
    match text {
        Cow::Borrowed(part) => whole.slice_ref(part),
        Cow::Owned(text) => text.into(),
    }
}

/// Position of `part`, which was borrowed from `whole`.
pub fn span(whole: &str, part: &str) -> Span {
    let start = part.as_ptr() as usize - whole.as_ptr() as usize;
    start..start + part.len()
}

/// Quotes a text as a JSON string.
pub fn quoted(text: &str) -> RawJson {
    RawJson::from_value(&text)
}

/// An object with some members replaced (`Some(text)`) or removed (`None`); other values stay
/// verbatim. `None` if `text` is not an object.
pub fn rebuild(text: &str, mut change: impl FnMut(&str, &str) -> Option<String>) -> Option<String> {
    let members = members(text)?.into_iter();
    let kept: Vec<_> = members
        .filter_map(|(key, value)| {
            Some(format!(
                "{}:{}",
                quoted(&key).as_str(),
                change(&key, value)?
            ))
        })
        .collect();
    Some(format!("{{{}}}", kept.join(",")))
}

/// Reads a member that is present, even if it is null.
///
/// # Errors
///
/// Returns the deserializer's errors.
pub fn present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

#[derive(Deserialize)]
struct JsonString<'a>(#[serde(borrow)] Cow<'a, str>);

struct ObjectMembers<'a>(Vec<(Cow<'a, str>, &'a str)>);

impl<'de: 'a, 'a> Deserialize<'de> for ObjectMembers<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct JsonVisitor;

        impl<'de> Visitor<'de> for JsonVisitor {
            type Value = ObjectMembers<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((key, value)) = map.next_entry::<JsonString<'de>, &'de RawValue>()? {
                    members.push((key.0, value.get()));
                }
                Ok(ObjectMembers(members))
            }
        }

        deserializer.deserialize_map(JsonVisitor)
    }
}

struct ArrayElements<'a>(Vec<&'a str>);

impl<'de: 'a, 'a> Deserialize<'de> for ArrayElements<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct JsonVisitor;

        impl<'de> Visitor<'de> for JsonVisitor {
            type Value = ArrayElements<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut elements = Vec::new();
                while let Some(value) = seq.next_element::<&'de RawValue>()? {
                    elements.push(value.get());
                }
                Ok(ArrayElements(elements))
            }
        }

        deserializer.deserialize_seq(JsonVisitor)
    }
}
