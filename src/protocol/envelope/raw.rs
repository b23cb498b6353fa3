//! Parts of a message as their sender wrote them.

use std::fmt;

use bytes::Bytes;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::{EnvelopeError, unicode};

/// A complete JSON value, as its sender wrote it. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RawJson(pub(super) Bytes);

impl RawJson {
    /// # Errors
    ///
    /// Returns [`EnvelopeError::Json`] when `bytes` is not exactly one JSON value.
    pub fn try_new(bytes: Bytes) -> Result<Self, EnvelopeError> {
        serde_json::from_str::<IgnoredAny>(unicode(&bytes)?).map_err(EnvelopeError::json)?;
        Ok(Self(bytes))
    }

    /// Text that was put together of valid parts. That it is JSON is only checked in debug
    /// builds: on the way of every answer, reading it once more costs as much as building it.
    pub fn of_parts(text: String) -> Self {
        debug_assert!(
            serde_json::from_str::<IgnoredAny>(&text).is_ok(),
            "built of valid parts"
        );
        Self(Bytes::from(text))
    }

    /// The JSON text of a value.
    pub fn from_value<T: Serialize>(value: &T) -> Self {
        Self(Bytes::from(
            serde_json::to_vec(value).unwrap_or_else(|_| b"null".to_vec()),
        ))
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("null")
    }

    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// # Errors
    ///
    /// Returns [`EnvelopeError::Json`] when the value has another shape than `T`.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, EnvelopeError> {
        serde_json::from_slice(&self.0).map_err(EnvelopeError::json)
    }
}

impl fmt::Debug for RawJson {
    /// Payloads may hold secrets: only their size is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawJson({} bytes)", self.0.len())
    }
}

/// The id of a request, as its sender wrote it: a string or an integer, never null (B-RPC-02).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RequestId(pub(super) Bytes);

impl RequestId {
    /// # Errors
    ///
    /// Returns [`EnvelopeError::Id`] unless `bytes` is a JSON string or integer.
    pub fn try_new(bytes: Bytes) -> Result<Self, EnvelopeError> {
        let digits = bytes.strip_prefix(b"-").unwrap_or(&bytes);
        let integer = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        if integer || bytes.first() == Some(&b'"') {
            Ok(Self(bytes))
        } else {
            Err(EnvelopeError::Id)
        }
    }

    /// The raw JSON text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("null")
    }

    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// The number, if it is one of ours: requests that the gateway sends are numbered.
    pub fn as_number(&self) -> Option<u64> {
        self.as_str().parse().ok()
    }
}

impl From<u64> for RequestId {
    fn from(number: u64) -> Self {
        Self(Bytes::from(number.to_string()))
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
