//! The key that a token is bound to (`cnf.jkt` of RFC 9449).

use serde_json::Value;

/// The SHA-256 thumbprint of a key (RFC 7638).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyThumbprint(String);

/// The claim is not text: the token must not count as unbound.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidThumbprint;

impl KeyThumbprint {
    /// Reads the claims of a token; `None` if it is not bound to a key.
    ///
    /// # Errors
    ///
    /// Fails for a thumbprint that is not text.
    pub(super) fn of(claims: &Value) -> Result<Option<Self>, InvalidThumbprint> {
        match claims.get("cnf").and_then(|cnf| cnf.get("jkt")) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(Self(text.clone()))),
            Some(_) => Err(InvalidThumbprint),
        }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}
