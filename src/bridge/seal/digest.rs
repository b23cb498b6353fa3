//! Digests of the request data that a sealed state is bound to, 32 bytes each.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::protocol::RawJson;

/// SHA-256 digest of data that a state is bound to.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

/// The arguments are not JSON, or an object in them has duplicate members, which two readers could
/// interpret differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("arguments are ambiguous: an object has a duplicate member")]
pub struct AmbiguousArguments;

impl Digest {
    /// Digest of a principal's unique identifier.
    pub fn of_principal(principal: &str) -> Self {
        Self::of("principal", &[principal])
    }

    /// Digest of a request's target, its public name or URI, and of its arguments regardless of
    /// member order.
    ///
    /// # Errors
    ///
    /// Returns [`AmbiguousArguments`] for arguments that can be read in two ways.
    pub fn of_params(
        target: &str,
        arguments: Option<&RawJson>,
    ) -> Result<Self, AmbiguousArguments> {
        let canonical = match arguments {
            Some(raw) => {
                raw.parse::<CanonicalJson>()
                    .map_err(|_| AmbiguousArguments)?
                    .0
            }
            None => String::new(),
        };
        Ok(Self::of("params", &[target, &canonical]))
    }

    /// Digest of what distinguishes a server from others with its name. It can include secrets, and
    /// is encrypted wherever it leaves the process.
    pub fn of_declaration(parts: &[&str]) -> Self {
        Self::of("declaration", parts)
    }

    /// Digest of the capabilities that a client declares.
    pub fn of_capabilities(declared: &Map<String, Value>) -> Self {
        let canonical = RawJson::from_value(declared).parse::<CanonicalJson>();
        let canonical = canonical.map_or_else(|_| String::new(), |canonical| canonical.0);
        Self::of("capabilities", &[&canonical])
    }

    /// Digest of a tool's definition, regardless of member order. An ambiguous definition equals
    /// only the same text.
    pub fn of_definition(definition: &str) -> Self {
        let canonical = serde_json::from_str::<CanonicalJson>(definition);
        match canonical {
            Ok(canonical) => Self::of("definition", &[&canonical.0]),
            Err(_) => Self::of("ambiguous definition", &[definition]),
        }
    }

    /// Digest of a text for operators.
    pub fn of_text(text: &str) -> Self {
        Self::of("text", &[text])
    }

    fn of(purpose: &str, parts: &[&str]) -> Self {
        let mut hash = Context::new(&SHA256);
        hash.update(purpose.as_bytes());
        for part in parts {
            hash.update(&(part.len() as u64).to_be_bytes());
            hash.update(part.as_bytes());
        }
        let mut digest = [0; SHA256_OUTPUT_LEN];
        digest.copy_from_slice(hash.finish().as_ref());
        Self(digest)
    }

    pub(super) const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Formats the serialized form.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest")
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(D::Error::custom)?;
        let bytes = bytes.try_into().map_err(|_| D::Error::custom("length"))?;
        Ok(Self(bytes))
    }
}

/// Canonical text of a JSON value, the same for all its spellings.
struct CanonicalJson(String);

impl<'de> Deserialize<'de> for CanonicalJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CanonicalVisitor;

        impl<'de> Visitor<'de> for CanonicalVisitor {
            type Value = CanonicalJson;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON without duplicate members")
            }

            fn visit_unit<E>(self) -> Result<CanonicalJson, E> {
                Ok(CanonicalJson("null".to_owned()))
            }

            fn visit_bool<E>(self, value: bool) -> Result<CanonicalJson, E> {
                Ok(CanonicalJson(value.to_string()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<CanonicalJson, E> {
                Ok(CanonicalJson(value.to_string()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<CanonicalJson, E> {
                Ok(CanonicalJson(value.to_string()))
            }

            /// `1.0` is the same number as `1`, and Rust prints both as `1`.
            fn visit_f64<E>(self, value: f64) -> Result<CanonicalJson, E> {
                Ok(CanonicalJson(value.to_string()))
            }

            fn visit_str<E>(self, value: &str) -> Result<CanonicalJson, E> {
                Ok(CanonicalJson(
                    RawJson::from_value(&value).as_str().to_owned(),
                ))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<CanonicalJson, A::Error> {
                let mut text = String::from("[");
                while let Some(element) = seq.next_element::<CanonicalJson>()? {
                    text.push_str(&element.0);
                    text.push(',');
                }
                text.push(']');
                Ok(CanonicalJson(text))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<CanonicalJson, A::Error> {
                let mut members = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, CanonicalJson>()? {
                    members.push((key, value.0));
                }
                members.sort();
                if members
                    .windows(2)
                    .any(|pair| matches!(pair, [a, b] if a.0 == b.0))
                {
                    return Err(A::Error::custom("duplicate member"));
                }
                let mut text = String::from("{");
                for (key, value) in members {
                    text.push_str(RawJson::from_value(&key).as_str());
                    text.push(':');
                    text.push_str(&value);
                    text.push(',');
                }
                text.push('}');
                Ok(CanonicalJson(text))
            }
        }

        deserializer.deserialize_any(CanonicalVisitor)
    }
}
