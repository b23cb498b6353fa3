//! API keys: 256 random bits, of which only the hash is stored.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use secrecy::SecretString;

use super::client_limits::ClientLimits;
use super::identity::GrantedScopes;
use super::last_use::LastUse;
use crate::id::{Principal, ServerName, random_bytes};

/// Length of a token in bytes, before it is written in hexadecimal.
const TOKEN_BYTES: usize = 32;

/// Algorithm prefix of a hash.
const ALGORITHM: &str = "sha256:";

/// A key that clients can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    pub name: String,
    /// Built once, because every request clones it.
    pub principal: Principal,
    pub hash: TokenHash,
    /// `None` if the key has no scopes.
    pub scopes: GrantedScopes,
    /// Expiry time, in milliseconds since 1970.
    pub expires_at: Option<u64>,
    pub limits: Option<Arc<ClientLimits>>,
    pub last_use: LastUse,
}

/// A change to the keys of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyChange {
    Add(NewKey),
    /// Replaces a key with a new one. The new key expires at this time, or when the old one would
    /// have.
    Rotate(Option<String>),
    Remove,
}

impl KeyChange {
    /// The name of the policy that restricts a key to some servers.
    pub fn policy_name(key: &str) -> String {
        format!("key-{}", key.replace('.', "_"))
    }
}

/// Settings of a key that is created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewKey {
    /// Expiry time (RFC 3339).
    pub expires: Option<String>,
    pub scopes: Vec<String>,
    /// The only servers that a policy of the key's own permits; empty for all.
    pub servers: Vec<ServerName>,
    /// Rate limit of calls, such as `600/minute`.
    pub calls: Option<String>,
}

/// The SHA-256 hash of a key or token. A fast hash is enough: 2^256 keys cannot be enumerated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TokenHash([u8; SHA256_OUTPUT_LEN]);

impl TokenHash {
    pub fn of(key: &str) -> Self {
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        bytes.copy_from_slice(digest(&SHA256, key.as_bytes()).as_ref());
        Self(bytes)
    }

    /// Parses the `Display` format.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(ALGORITHM)?.as_bytes();
        let (pairs, []) = digits.as_chunks::<2>() else {
            return None;
        };
        let digit = |digit: u8| char::from(digit).to_digit(16);
        let byte = |[high, low]: &[u8; 2]| u8::try_from(digit(*high)? << 4 | digit(*low)?).ok();
        let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        Some(Self(bytes?.try_into().ok()?))
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ALGORITHM)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Parses an RFC 3339 time into milliseconds since 1970.
pub fn expiry_millis(text: &str) -> Option<u64> {
    let time: Timestamp = text.parse().ok()?;
    u64::try_from(time.as_millisecond()).ok()
}

/// 256 random bits in hexadecimal digits.
///
/// # Errors
///
/// Fails if the system cannot provide random numbers.
pub fn random_token() -> std::io::Result<SecretString> {
    let bytes = random_bytes::<TOKEN_BYTES>()?;
    let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(token.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_survive_a_round_trip() {
        let hash = TokenHash::of("abc");
        let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash.to_string(), text);
        assert_eq!(TokenHash::parse(text), Some(hash));
        let digits = text.strip_prefix("sha256:").unwrap();
        let wrong = [
            "",
            "sha256:",
            digits,
            &format!("{text}0"),
            &format!("{text}00"),
            &text.replace('b', "g"),
            &text.replace("ba", "é"),
            "sha512:00",
        ];
        for wrong in wrong {
            assert_eq!(TokenHash::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_expiry_needs_a_time_zone() {
        assert_eq!(expiry_millis("1970-01-01T00:00:01Z"), Some(1000));
        assert_eq!(expiry_millis("1970-01-01T01:00:01+01:00"), Some(1000));
        for wrong in ["", "2027-01-01", "1969-01-01T00:00:00Z", "tomorrow"] {
            assert_eq!(expiry_millis(wrong), None, "{wrong}");
        }
    }
}
