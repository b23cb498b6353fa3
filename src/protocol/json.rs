//! Looking into JSON text without rebuilding it. Texts must be valid JSON, parts borrowed from it.

use std::borrow::Cow;
use std::fmt;

use bytestring::ByteString;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{RawJson, Span};

/// The members of an object in the order of the text, values as they were written. `None` when
/// `text` is no object, or a key is no valid Unicode.
pub fn members(text: &str) -> Option<Vec<(Cow<'_, str>, &str)>> {
    serde_json::from_str::<ObjectMembers<'_>>(text)
        .ok()
        .map(|members| members.0)
}

/// The value of a member; of several with the same name the last, as most readers do.
pub fn member<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let found = members(text)?
        .into_iter()
        .rev()
        .find(|(key, _)| key == name);
    found.map(|(_, value)| value)
}

/// Whether `text` is an object with no members but those that are `known`.
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

/// The elements of an array as they were written. `None` when `text` is no array.
pub fn elements(text: &str) -> Option<Vec<&str>> {
    serde_json::from_str::<ArrayElements<'_>>(text)
        .ok()
        .map(|elements| elements.0)
}

/// The text of a JSON string. `None` when `text` is none.
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

/// A text to keep: what was borrowed from `whole` shares its memory.
pub fn shared(whole: &ByteString, text: Cow<'_, str>) -> ByteString {
    match text {
        Cow::Borrowed(part) => whole.slice_ref(part),
        Cow::Owned(text) => text.into(),
    }
}

/// Where `part`, which was borrowed from `whole`, lies in it.
pub fn span(whole: &str, part: &str) -> Span {
    let start = part.as_ptr() as usize - whole.as_ptr() as usize;
    start..start + part.len()
}

/// A text as a JSON string.
pub fn quoted(text: &str) -> RawJson {
    RawJson::from_value(&text)
}

/// An object with some of its members replaced (`Some(text)`) or removed (`None`); the others
/// keep their values as they were written. `None` when `text` is no object.
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

/// Reads a member that is there, also when it is null.
///
/// # Errors
///
/// Those of the deserializer.
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
