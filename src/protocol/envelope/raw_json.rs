//! Parts of a message, kept as raw JSON.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use bytestring::ByteString;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::{Edit, EnvelopeError, splice, unicode};
use crate::protocol::json;

/// A complete JSON value, verbatim. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RawJson(pub(super) ByteString);

impl Default for RawJson {
    fn default() -> Self {
        Self(ByteString::from_static("null"))
    }
}

impl RawJson {
    /// # Errors
    ///
    /// Returns [`EnvelopeError::Json`] if `bytes` is not exactly one JSON value.
    pub fn try_new(bytes: Bytes) -> Result<Self, EnvelopeError> {
        let text = unicode(bytes)?;
        serde_json::from_str::<IgnoredAny>(&text).map_err(EnvelopeError::json)?;
        Ok(Self(text))
    }

    /// Wraps text assembled from valid parts. It is validated only in debug builds: this runs for
    /// every response, and parsing the text again costs as much as building it.
    pub fn from_valid_parts(text: String) -> Self {
        debug_assert!(
            serde_json::from_str::<IgnoredAny>(&text).is_ok(),
            "built of valid parts"
        );
        Self(ByteString::from(text))
    }

    /// Replaces parts of the value; each replacement must be valid JSON in its place. `None` if the
    /// result is not valid UTF-8.
    pub fn spliced(&self, edits: &mut [Edit]) -> Option<Self> {
        let text = unicode(splice(self.as_bytes(), edits)).ok()?;
        debug_assert!(
            serde_json::from_str::<IgnoredAny>(&text).is_ok(),
            "spliced of valid parts"
        );
        Some(Self(text))
    }

    /// Serializes a value.
    pub fn from_value<T: Serialize>(value: &T) -> Self {
        let text = serde_json::to_string(value);
        Self(text.map_or(ByteString::from_static("null"), ByteString::from))
    }

    /// Returns a text that shares this value's memory if it was borrowed from it.
    pub fn share(&self, text: Cow<'_, str>) -> ByteString {
        json::shared(&self.0, text)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn as_bytes(&self) -> &Bytes {
        self.0.as_bytes()
    }

    /// A member of an object, sharing its memory; the last one if the name occurs more than once.
    pub fn member(&self, name: &str) -> Option<Self> {
        let member = json::member(&self.0, name)?;
        Some(Self(self.0.slice_ref(member)))
    }

    /// # Errors
    ///
    /// Returns [`EnvelopeError::Json`] if the value does not have the shape of `T`.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, EnvelopeError> {
        serde_json::from_str(&self.0).map_err(EnvelopeError::json)
    }
}

impl fmt::Debug for RawJson {
    /// Shows only the size: payloads can hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawJson({} bytes)", self.0.len())
    }
}

/// The id of a request, verbatim: a string or an integer, never null (B-RPC-02).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RequestId(pub(super) ByteString);

impl RequestId {
    /// # Errors
    ///
    /// Returns [`EnvelopeError::Id`] unless `bytes` is a JSON string or integer.
    pub fn try_new(bytes: Bytes) -> Result<Self, EnvelopeError> {
        Self::from_json(RawJson::try_new(bytes)?.0)
    }

    /// Reads an id from valid JSON text.
    pub(super) fn from_json(text: ByteString) -> Result<Self, EnvelopeError> {
        let digits = text.strip_prefix('-').unwrap_or(&text);
        let integer = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if integer || text.starts_with('"') {
            Ok(Self(text))
        } else {
            Err(EnvelopeError::Id)
        }
    }

    /// Reads the id of a response. Libraries that store numbers as floats write 7 as `7.0`.
    pub(super) fn of_response(text: ByteString) -> Result<Self, EnvelopeError> {
        let is_float = text.ends_with('0') && text.contains('.');
        match is_float.then(|| our_number(text.as_bytes())).flatten() {
            Some(number) => Ok(Self::from(number)),
            None => Self::from_json(text),
        }
    }

    /// The raw JSON text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn as_bytes(&self) -> &Bytes {
        self.0.as_bytes()
    }

    /// Copies the id into its own memory, so that keeping it does not keep the whole message.
    pub fn detached(&self) -> Self {
        Self(ByteString::from(self.as_str()))
    }

    /// The number, if the gateway issued it: the gateway numbers its requests. Some peers respond
    /// to 7 with `"7"`, which the official SDKs accept.
    pub fn as_number(&self) -> Option<u64> {
        let text = self.as_str();
        let quoted = text.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
        our_number(quoted.unwrap_or(text).as_bytes())
    }
}

/// Parses the number of a gateway request, even if the peer wrote it as a float.
pub(crate) fn our_number(text: &[u8]) -> Option<u64> {
    let end = text.iter().position(|byte| !byte.is_ascii_digit());
    let (digits, rest) = text.split_at(end.unwrap_or(text.len()));
    let is_whole = match rest {
        [] => true,
        [b'.', zeros @ ..] => !zeros.is_empty() && zeros.iter().all(|byte| *byte == b'0'),
        _ => false,
    };
    if digits.is_empty() || !is_whole {
        return None;
    }
    let mut digits = digits.iter().map(|digit| u64::from(digit - b'0'));
    digits.try_fold(0_u64, |number, digit| {
        number.checked_mul(10)?.checked_add(digit)
    })
}

impl From<u64> for RequestId {
    fn from(number: u64) -> Self {
        Self(ByteString::from(number.to_string()))
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
